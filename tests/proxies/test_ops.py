"""Every chunked op against its own recurrence in float64: outputs, gradients, odd lengths and extreme gates."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from proxies.ops import gla as gla_module
from proxies.ops.delta import delta, delta_recurrence
from proxies.ops.gated_delta import gated_delta, gated_delta_recurrence
from proxies.ops.gla import gla, gla_recurrence
from proxies.ops.hgrn import hgrn, hgrn_recurrence
from proxies.ops.kda import kda, kda_recurrence
from proxies.ops.simple_decay import simple_decay, simple_decay_recurrence


@dataclass(frozen=True)
class Op:
    """One op, the loop that defines it, and what its arguments are called."""

    run: Callable[..., Tensor]
    recurrence: Callable[..., Tensor]
    arguments: str


OPS = {
    "simple_decay": Op(simple_decay, simple_decay_recurrence, "q k v g"),
    "gla": Op(gla, gla_recurrence, "q k v g_channel"),
    "delta": Op(delta, delta_recurrence, "q k_unit v beta"),
    "gated_delta": Op(gated_delta, gated_delta_recurrence, "q k_unit v beta g"),
    "kda": Op(kda, kda_recurrence, "q k_unit v g_channel beta"),
    "hgrn": Op(hgrn, hgrn_recurrence, "x g_scan"),
}
DECAYS = {"g", "g_channel", "g_scan"}
SHAPES = [(2, 1, 2, 16), (1, 2, 1, 8), (2, 31, 2, 16), (2, 64, 2, 32), (2, 65, 2, 32), (1, 200, 3, 16)]
LOG_DECAYS = {"none": 0.0, "tiny": -1e-4, "strong": -50.0, "total": -1e3}


def draw(op: Op, batch: int, length: int, heads: int, dim: int, value_dim: int | None = None) -> dict[str, Tensor]:
    torch.manual_seed(0)
    value_dim = value_dim or dim + 8
    drawn = {}
    for name in op.arguments.split():
        shape = {
            "v": (batch, length, heads, value_dim), "g": (batch, length, heads), "beta": (batch, length, heads),
            "x": (batch, length, dim), "g_scan": (batch, length, dim),
        }.get(name, (batch, length, heads, dim))  # fmt: skip
        values = torch.randn(shape, dtype=torch.float64)
        if name in DECAYS:
            values = F.logsigmoid(values)
        elif name == "beta":
            values = values.sigmoid()
        elif name == "k_unit":
            values = F.normalize(values, dim=-1)
        drawn[name] = values
    return drawn


def output_and_gradients(run: Callable[..., Tensor], inputs: dict[str, Tensor], dtype: torch.dtype) -> list[Tensor]:
    leaves = [x.to(dtype).requires_grad_() for x in inputs.values()]
    output = run(*leaves)
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return [output, *torch.autograd.grad(output, leaves, weights.to(dtype))]


def assert_equals_recurrence(op: Op, inputs: dict[str, Tensor], tolerance: float = 2e-5) -> None:
    got = output_and_gradients(op.run, inputs, torch.float32)
    want = output_and_gradients(op.recurrence, inputs, torch.float64)
    for name, x, y in zip(["output", *inputs], got, want, strict=True):
        assert x.isfinite().all(), f"{name} is not finite"
        scale = max(float(y.detach().abs().max()), 0.1)
        assert float((x - y).detach().abs().max()) <= tolerance * scale, f"{name} is off"


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "B{}-T{}-H{}-D{}".format(*s))
@pytest.mark.parametrize("op", OPS.values(), ids=OPS.keys())
class TestAgainstRecurrence:
    def test_output_and_every_gradient(self, op: Op, shape: tuple[int, int, int, int]) -> None:
        assert_equals_recurrence(op, draw(op, *shape))


@pytest.mark.parametrize("op", OPS.values(), ids=OPS.keys())
class TestExtremes:
    @pytest.mark.parametrize("log_decay", LOG_DECAYS.values(), ids=LOG_DECAYS.keys())
    def test_constant_decay(self, op: Op, log_decay: float) -> None:
        inputs = draw(op, 2, 130, 2, 16)
        for name in inputs:
            if name in DECAYS:
                inputs[name] = torch.full_like(inputs[name], log_decay)
        assert_equals_recurrence(op, inputs)

    @pytest.mark.parametrize("log_decay", (-50.0, -1e3))
    def test_a_reset_now_and_then(self, op: Op, log_decay: float) -> None:
        inputs = draw(op, 2, 130, 2, 16)
        for name in inputs:
            if name in DECAYS:
                resets = torch.rand(inputs[name].shape, generator=torch.Generator().manual_seed(2)) < 0.1
                inputs[name] = torch.where(resets, log_decay, inputs[name] / 16)
        assert_equals_recurrence(op, inputs, tolerance=2e-4)

    def test_strong_decays_that_differ_by_step_and_channel(self, op: Op) -> None:
        inputs = draw(op, 2, 130, 2, 16)
        assert_equals_recurrence(op, {n: x * 8 if n in DECAYS else x for n, x in inputs.items()})

    @pytest.mark.parametrize("beta", (0.0, 1.0))
    def test_beta_at_its_ends_with_identical_keys(self, op: Op, beta: float) -> None:
        inputs = draw(op, 2, 130, 2, 16)
        for name in inputs:
            if name.startswith("k"):
                inputs[name] = inputs[name][:, :1].expand_as(inputs[name]).clone()
            if name == "beta":
                inputs[name] = torch.full_like(inputs[name], beta)
        assert_equals_recurrence(op, inputs, tolerance=1e-4)

    def test_large_inputs_stay_finite(self, op: Op) -> None:
        inputs = {n: x * 100 if n in ("q", "k", "v", "x") else x for n, x in draw(op, 2, 65, 2, 16).items()}
        assert_equals_recurrence(op, inputs)


def test_simple_decay_shares_decays_given_with_a_batch_of_one() -> None:
    inputs = draw(OPS["simple_decay"], 3, 70, 2, 16)
    q, k, v, g = (x.float() for x in inputs.values())
    torch.testing.assert_close(simple_decay(q, k, v, g[:1]), simple_decay(q, k, v, g[:1].expand(3, -1, -1)))


@pytest.mark.parametrize("log_decay", LOG_DECAYS.values(), ids=LOG_DECAYS.keys())
def test_gla_is_right_where_every_block_is_halved_as_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, log_decay: float
) -> None:
    monkeypatch.setattr(gla_module, "LARGEST_SPAN", -1.0)
    inputs = draw(OPS["gla"], 2, 65, 2, 32)
    inputs["g"] = inputs.pop("g_channel") + log_decay
    assert_equals_recurrence(OPS["gla"], inputs)


def test_kda_never_asks_the_host_for_a_value_so_that_a_graph_can_hold_it() -> None:
    q, k, v, g, beta = (x.to("meta").requires_grad_() for x in draw(OPS["kda"], 2, 70, 2, 16).values())
    kda(q, k, v, g, beta).sum().backward()
    assert g.grad is not None and g.grad.shape == g.shape
