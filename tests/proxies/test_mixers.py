"""The contract of a mixer, and that each one is fla's layer: same parameters, same function."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from proxies.layers import INIT_STD, Stacked
from proxies.mixers import MIXERS, Mixer
from space import mixers as space_mixers
from space.design import Layer
from space.scale import Scale

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tests.proxies import fla_on_cpu

SCALE = Scale(name="test", width=32, heads=2, state_heads=2, mlp_dim=64, vocab=64)
LAYERS = [
    "full", "full:kv_heads=1", "full:rope=off", "window:size=4", "window:size=100",
    "hgrn", "hgrn:conv=on", "hgrn:expand_ratio=2", "retnet", "retnet:conv=on",
    "gla:expand_k=1.0", "gla:conv=on:expand_k=1.0", "hgrn2", "hgrn2:conv=on", "deltanet", "deltanet:conv=off",
    "gated_deltanet", "gated_deltanet:conv=off", "gated_deltanet:expand_v=2.0",
    "mamba2", "mamba2:heads=4:state=16", "kda", "kda:conv=off", "kda:expand_v=2.0", "kda:expand_k=2.0",
]  # fmt: skip
LINEAR = [text for text in LAYERS if not text.startswith(("full", "window"))]
K, B, T = 2, 3, 21


def build(text: str, num_replicas: int = K) -> Mixer:
    layer = Layer.parse(text)
    mixer = MIXERS[layer.mixer](shape_of(text), num_replicas)
    for replica in range(num_replicas):
        generator = torch.Generator().manual_seed(replica)
        for module in mixer.modules():
            if isinstance(module, Stacked):
                module.start(replica, generator, INIT_STD)
    with torch.no_grad():  # away from the start, where gates are nearly shut, biases zero and skips one
        for name, parameter in mixer.named_parameters():
            if name.endswith("weight") and "norm" not in name:
                parameter.mul_(10)
            elif name == "D" or name.endswith(".bias"):
                parameter.normal_(std=0.5)
    return mixer


def shape_of(text: str) -> space_mixers.Shape:
    layer = Layer.parse(text)
    return space_mixers.MIXERS[layer.mixer].shape(SCALE, layer.spec_options)


def bounds(mixer: Mixer) -> Tensor | None:
    return torch.rand(K, mixer.shape.values) * 0.8 + 0.1 if mixer.lower_bounded else None


def run(mixer: Mixer, x_KBTD: Tensor, bound_KD: Tensor | None = None) -> Tensor:
    return mixer(x_KBTD, bound_KD) if mixer.lower_bounded else mixer(x_KBTD)


def test_every_mixer_of_the_space_can_be_built_and_is_tested() -> None:
    assert set(MIXERS) == set(space_mixers.MIXERS) == {Layer.parse(text).mixer for text in LAYERS}


@pytest.mark.parametrize("text", LAYERS)
class TestContract:
    def test_shape_is_kept_and_output_is_finite(self, text: str) -> None:
        for length in (1, T, 70):
            x = torch.randn(K, B, length, SCALE.width)
            y = run(build(text), x)
            assert y.shape == x.shape
            assert y.isfinite().all()

    def test_a_later_token_changes_nothing_before_it(self, text: str) -> None:
        mixer, x = build(text), torch.randn(K, B, T, SCALE.width)
        changed = x.clone()
        changed[:, :, 11:] = torch.randn(K, B, T - 11, SCALE.width)
        before, after = run(mixer, x), run(mixer, changed)
        torch.testing.assert_close(before[:, :, :11], after[:, :, :11], rtol=0, atol=2e-4)
        assert not torch.allclose(before[:, :, 11], after[:, :, 11], atol=1e-4)

    def test_gradient_reaches_every_parameter_of_every_replica(self, text: str) -> None:
        mixer = build(text)
        run(mixer, torch.randn(K, B, T, SCALE.width), bounds(mixer)).square().sum().backward()
        for name, parameter in mixer.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert (parameter.grad.flatten(1).abs().amax(1) > 0).all(), name

    def test_parameters_are_as_many_as_the_space_says(self, text: str) -> None:
        mixer, spec = build(text, num_replicas=1), space_mixers.MIXERS[Layer.parse(text).mixer]
        assert sum(p.numel() for p in mixer.parameters()) == spec.parameters(mixer.shape)

    def test_replicas_do_not_see_each_other(self, text: str) -> None:
        mixer, x = build(text), torch.randn(K, B, T, SCALE.width)
        changed = x.clone()
        changed[1] = 0
        torch.testing.assert_close(run(mixer, x)[0], run(mixer, changed)[0])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", LINEAR)
@pytest.mark.parametrize("layer_idx", (0, 1), ids=("first", "later"))
def test_equals_the_layer_of_fla(text: str, layer_idx: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fla_on_cpu.replace_kernels(monkeypatch)
    mixer, x = build(text), torch.randn(K, B, T, SCALE.width)
    bound = bounds(mixer) if layer_idx else None
    got = run(mixer, x, bound)
    for replica in range(K):
        layer = fla_on_cpu.build(Layer.parse(text).mixer, mixer.shape, layer_idx)
        layer.load_state_dict({name: p[replica] for name, p in mixer.state_dict().items()}, strict=True)
        extra = {} if bound is None else {"lower_bound": bound[replica]}
        want, *_ = layer(x[replica], **extra)
        scale = float(want.detach().abs().max())
        torch.testing.assert_close(got[replica] / scale, want / scale, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kv_heads", (1, 2))
def test_attention_has_the_parameters_of_flas_attention(kv_heads: int) -> None:
    """fla's own class wants flash-attn to be built; these are its four projections, without a bias."""
    width, kv_width = SCALE.width, kv_heads * SCALE.width // 2
    shapes = {name: tuple(p.shape[1:]) for name, p in build(f"full:kv_heads={kv_heads}").state_dict().items()}
    assert shapes == {
        "q_proj.weight": (width, width),
        "k_proj.weight": (kv_width, width),
        "v_proj.weight": (kv_width, width),
        "o_proj.weight": (width, width),
    }


@pytest.mark.parametrize("text", ["full", "full:kv_heads=1", "full:rope=off", "window:size=4"])
def test_attention_equals_the_formula(text: str) -> None:
    mixer, x = build(text), torch.randn(K, B, T, SCALE.width)
    shape = mixer.shape
    q, k, v = ((x @ p[:, None].mT).unflatten(-1, (-1, shape.key_dim)) for p in list(mixer.parameters())[:3])
    if shape.rope:
        q, k = (fla_on_cpu.rotate(y.flatten(0, 1)).unflatten(0, (K, B)) for y in (q, k))
    k, v = (y.repeat_interleave(shape.heads // shape.kv_heads, dim=-2) for y in (k, v))
    distance = torch.arange(T)[:, None] - torch.arange(T)
    seen = (distance >= 0) & (distance < (shape.window or T))
    scores = torch.einsum("kbihd,kbjhd->kbhij", q, k) * shape.key_dim**-0.5
    mixed = torch.einsum("kbhij,kbjhd->kbihd", F.softmax(scores.masked_fill(~seen, -torch.inf), -1), v)
    want = mixed.flatten(-2) @ mixer.get_parameter("o_proj.weight")[:, None].mT
    torch.testing.assert_close(mixer(x), want, rtol=1e-4, atol=1e-4)


def test_a_window_of_four_sees_itself_and_three_before() -> None:
    mixer, x = build("window:size=4"), torch.randn(K, B, T, SCALE.width)
    changed = x.clone()
    changed[:, :, 5] += 1
    moved = (mixer(x) - mixer(changed)).abs().amax((0, 1, 3)) > 1e-6
    assert moved.nonzero().flatten().tolist() == [5, 6, 7, 8]
