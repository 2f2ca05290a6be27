"""Every mixer against fla's own layer with the same weights, both in bfloat16: output and gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor

from proxies.layers import GPU_DTYPE, INIT_STD, Stacked
from proxies.mixers import MIXERS
from space.cost import layer_shapes
from space.design import Design
from tests.gpu.proxy import GPU, proxy
from tests.proxies import fla_on_cpu

MIXERS_OF_FLA = ["hgrn:conv=on", "retnet", "gla", "gla:conv=on", "hgrn2", "deltanet", "deltanet:conv=off",
                 "gated_deltanet", "kda"]  # fmt: skip
REPLICAS, BATCH, LENGTH = 3, 2, 256


@pytest.fixture
def untuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """fla's layers take the first variant of a kernel that runs: which is fastest takes minutes to find out."""
    from triton.runtime.autotuner import Autotuner

    pruned = Autotuner.prune_configs

    def run_once(tuner: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
        try:
            tuner.fn.run(*args, **{**meta, **config.all_kwargs()})
        except Exception:  # as the tuner does: a variant that does not fit is out
            return [float("inf")] * 3
        return [0.0] * 3

    monkeypatch.setattr(Autotuner, "prune_configs", lambda tuner, meta: pruned(tuner, meta)[:3])
    monkeypatch.setattr(Autotuner, "_bench", run_once)
    monkeypatch.setattr(Autotuner, "check_disk_cache", lambda tuner, key, configs, measure: measure())


@pytest.mark.usefixtures("untuned")
@pytest.mark.parametrize("text", MIXERS_OF_FLA)
def test_output_and_gradients_are_those_of_flas_layer(text: str) -> None:
    design, scale = Design.parse(f"2x{text}"), proxy((1e-3,), 1).scale
    shape = layer_shapes(design, scale)[1]
    name = design.layers[1].mixer
    ours = MIXERS[name](shape, REPLICAS)
    for replica in range(REPLICAS):
        for module in ours.modules():
            if isinstance(module, Stacked):
                module.start(replica, torch.Generator().manual_seed(replica), 10 * INIT_STD)
    ours = ours.to(GPU)
    theirs = fla_on_cpu.build(name, shape, 1).to(GPU)
    theirs.load_state_dict({name: weight.detach()[1] for name, weight in ours.named_parameters()}, strict=False)
    for parameter in [*ours.parameters(), *theirs.parameters()]:
        if parameter.dim() == (3 if parameter.shape[0] == REPLICAS else 2):
            parameter.data = parameter.data.to(GPU_DTYPE)
    x = torch.randn(REPLICAS, BATCH, LENGTH, scale.width, device=GPU, dtype=GPU_DTYPE)
    grad = torch.randn(BATCH, LENGTH, scale.width, device=GPU, dtype=GPU_DTYPE)
    lower_bound = torch.rand(REPLICAS, shape.values, device=GPU) * 0.8

    def ours_of(x: Tensor) -> Tensor:
        return (ours(x, lower_bound) if ours.lower_bounded else ours(x))[1]  # type: ignore[no-any-return]

    def theirs_of(x: Tensor) -> Tensor:
        with torch.autocast("cuda", GPU_DTYPE):
            bounds = {"lower_bound": lower_bound[1]} if ours.lower_bounded else {}
            return theirs(x[1], **bounds)[0]  # type: ignore[no-any-return]

    names = [name for name, _ in ours.named_parameters()]
    found = gradients(ours_of, x, dict(ours.named_parameters()), grad)
    expected = gradients(theirs_of, x, dict(theirs.named_parameters()), grad)
    errors = {}
    for key in ["output", "input", *names]:
        mine = found[key][1] if key in names or key == "input" else found[key]
        other = expected[key][1] if key == "input" else expected[key]
        errors[key] = float((mine.float() - other.float()).norm() / other.float().norm())
    print(text, {key: round(error, 4) for key, error in errors.items()})
    assert errors["output"] < 2e-2
    assert errors.pop("A_log", 0.0) < 0.15  # one number a head, in which the decays of all steps nearly cancel
    assert max(errors.values()) < 5e-2


def gradients(run, x: Tensor, parameters: dict[str, Tensor], grad: Tensor) -> dict[str, Tensor]:  # type: ignore[no-untyped-def]
    x = x.clone().requires_grad_()
    output = run(x)
    found = torch.autograd.grad(output, [x, *parameters.values()], grad.to(output.dtype), allow_unused=True)
    return {"output": output.detach(), **dict(zip(["input", *parameters], found, strict=True))}  # type: ignore[dict-item]
