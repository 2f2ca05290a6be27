"""HybridLM: causal, stackable, and started like fla's whole models, whose weights it can hand over by name."""

import warnings

import pytest
import torch
from torch import Tensor, nn

from proxies.layers import _Affine, _FanOut
from proxies.model import HybridLM
from space.design import Design
from space.scale import Scale

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fla import models as fla_models

SCALE = Scale(name="test", width=64, heads=2, state_heads=2, mlp_dim=128, vocab=96)
DESIGNS = [
    "3xgated_deltanet+full@1", "3xhgrn2+window:size=4@1", "3xgla+hgrn@1+deltanet:conv=off@2", "2xretnet",
    "3xmamba2+kda@1",
]  # fmt: skip
SEEDS = (7, 3, 11)
B, T = 2, 20


def build(text: str, seeds: tuple[int, ...] = SEEDS) -> HybridLM:
    return HybridLM(Design.parse(text), SCALE, seeds)


def draw_tokens(num_replicas: int = len(SEEDS)) -> torch.Tensor:
    return torch.randint(SCALE.vocab, (num_replicas, B, T), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("text", DESIGNS)
class TestModel:
    def test_a_later_token_changes_no_earlier_logits(self, text: str) -> None:
        model, tokens = build(text), draw_tokens()
        changed = tokens.clone()
        changed[:, :, 12] = (changed[:, :, 12] + 1) % SCALE.vocab
        before, after = model(tokens), model(changed)
        torch.testing.assert_close(before[:, :, :12], after[:, :, :12], rtol=0, atol=1e-6)
        assert not torch.equal(before[:, :, 12], after[:, :, 12])

    def test_positions_give_those_logits_only(self, text: str) -> None:
        model, tokens = build(text), draw_tokens()
        positions = torch.randint(T, (len(SEEDS), B, 5))
        whole = model(tokens)
        want = whole.gather(2, positions[..., None].expand(-1, -1, -1, SCALE.vocab))
        torch.testing.assert_close(model(tokens, positions), want)

    def test_a_replica_of_a_stack_is_the_model_of_its_seed(self, text: str) -> None:
        stack, tokens = build(text), draw_tokens()
        logits = stack(tokens)
        for replica, seed in enumerate(SEEDS):
            alone = build(text, (seed,))
            want = alone.replica_state_dict(0)
            for name, weight in stack.replica_state_dict(replica).items():
                assert torch.equal(weight, want[name]), name
            torch.testing.assert_close(logits[replica], alone(tokens[replica : replica + 1])[0], rtol=0, atol=1e-5)

    def test_works_when_parameters_are_views_of_one_buffer(self, text: str) -> None:
        model, tokens = build(text), draw_tokens()
        want = model(tokens)
        parameters = list(model.parameters())
        flat = torch.cat([p.data.flatten(1) for p in parameters], dim=1)
        for p, view in zip(parameters, flat.split([p[0].numel() for p in parameters], dim=1), strict=True):
            p.data = view.unflatten(1, p.shape[1:])
        got = model(tokens)
        torch.testing.assert_close(got, want, rtol=0, atol=1e-6)
        got.square().sum().backward()


def test_dropout_differs_from_step_to_step_and_is_gone_when_scoring() -> None:
    design, tokens = Design.parse("2xfull"), draw_tokens()
    dropped, whole = HybridLM(design, SCALE, SEEDS, dropout=0.2), HybridLM(design, SCALE, SEEDS)
    torch.manual_seed(0)
    first, second = dropped(tokens), dropped(tokens)
    assert not torch.allclose(first, second)
    assert torch.equal(dropped.eval()(tokens), whole(tokens))


def test_the_gradients_a_gpu_uses_are_those_of_plain_matrix_products() -> None:
    """`_Affine` and `_FanOut`, with enough rows to be cut. The sums of the bias are in float32."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 4, 256, 16), (3, 24, 16), (3, 8, 16), (3, 24))
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]

    def gradients(plain: bool) -> list[Tensor]:
        x, one, other, bias = found = [tensor.clone().requires_grad_() for tensor in tensors]
        if plain:
            y = x.flatten(1, 2) @ one.mT + bias[:, None], x.flatten(1, 2) @ one.mT, x.flatten(1, 2) @ other.mT
        else:
            y = _Affine.apply(x, one, bias), *_FanOut.apply(x, one, other)
        sum((index + 1) * z.square().sum() for index, z in enumerate(y)).backward()
        return [tensor.grad for tensor in found]

    for mine, wanted in zip(gradients(False), gradients(True), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-4)


def test_a_window_smaller_than_the_text_forgets_what_left_it() -> None:
    tokens = draw_tokens()
    changed = tokens.clone()
    changed[:, :, 0] = (changed[:, :, 0] + 1) % SCALE.vocab
    for text, reach in (("1xwindow:size=4", 4), ("2xwindow:size=4", 7), ("1xfull", T)):
        model = build(text)
        moved = (model(tokens) - model(changed)).abs().amax((0, 1, 3)) > 0
        assert int(moved.nonzero().max()) + 1 == reach, text


def test_lower_bounds_count_every_layer_and_start_at_zero() -> None:
    model = build("4xfull+hgrn2@0,2+hgrn:expand_ratio=2@3")
    assert model.lower_bounds.shape == (len(SEEDS), 4, 2 * SCALE.width)
    bounds = model._layer_bounds()
    assert bounds[0] is None and bounds[1] is None
    torch.testing.assert_close(bounds[2], torch.full((len(SEEDS), SCALE.width), 2 / 4))
    torch.testing.assert_close(bounds[3], torch.full((len(SEEDS), 2 * SCALE.width), 3 / 4))


def build_fla(mixer: str) -> nn.Module:
    common: dict[str, int | bool] = {
        "hidden_size": SCALE.width, "num_hidden_layers": 3, "vocab_size": SCALE.vocab,
        "intermediate_size": SCALE.mlp_dim, "use_short_conv": True,
    }  # fmt: skip
    kinds: dict[str, tuple[type, type[nn.Module], dict[str, int | float | None]]] = {
        "hgrn": (fla_models.HGRNConfig, fla_models.HGRNForCausalLM, {}),
        "gla": (fla_models.GLAConfig, fla_models.GLAForCausalLM, {"num_heads": 2, "expand_k": 1.0}),
        "hgrn2": (fla_models.HGRN2Config, fla_models.HGRN2ForCausalLM, {"num_heads": 2, "expand_ratio": None}),
        "deltanet": (fla_models.DeltaNetConfig, fla_models.DeltaNetForCausalLM, {"num_heads": 2}),
        "gated_deltanet": (
            fla_models.GatedDeltaNetConfig,
            fla_models.GatedDeltaNetForCausalLM,
            {"num_heads": 2, "head_dim": 32, "expand_v": 1.0},
        ),
        "kda": (
            fla_models.KDAConfig,
            fla_models.KDAForCausalLM,
            {"num_heads": 2, "head_dim": 32, "expand_v": 1.0},
        ),
        "retnet": (fla_models.RetNetConfig, fla_models.RetNetForCausalLM, {"num_heads": 2}),
    }
    config, model, own = kinds[mixer]
    return model(config(**common, **own))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "text",
    [
        "3xhgrn:conv=on",
        "3xgla:conv=on:expand_k=1.0",
        "3xhgrn2:conv=on",
        "3xdeltanet",
        "3xgated_deltanet",
        "3xkda",
        "3xretnet",
    ],
)
def test_weights_load_into_flas_model_and_start_as_it_does(text: str) -> None:
    ours = build(text, tuple(range(8)))
    theirs = build_fla(ours.design.backbones[0])
    started = {name: p.detach().clone() for name, p in theirs.named_parameters()}
    theirs.load_state_dict(ours.replica_state_dict(0), strict=True)
    assert_started_alike(started, [ours.replica_state_dict(replica) for replica in range(8)])


@pytest.mark.filterwarnings("ignore")
def test_mamba2_layers_load_into_flas_model_which_has_no_mlps_and_start_as_they_do() -> None:
    ours = build("3xmamba2", tuple(range(8)))
    config = fla_models.Mamba2Config(
        hidden_size=SCALE.width, num_hidden_layers=3, vocab_size=SCALE.vocab, rescale_prenorm_residual=False
    )
    theirs = fla_models.Mamba2ForCausalLM(config)
    for index, layer in enumerate(theirs.backbone.layers):
        started = {name: p.detach().clone() for name, p in layer.mixer.named_parameters()}
        start = f"model.layers.{index}.attn."
        stacked = [
            {name.removeprefix(start): p for name, p in ours.replica_state_dict(replica).items() if start in name}
            for replica in range(8)
        ]
        layer.mixer.load_state_dict(stacked[0], strict=True)
        assert_started_alike(started, stacked)


def assert_started_alike(started: dict[str, Tensor], stacked: list[dict[str, Tensor]]) -> None:
    for name, want in started.items():
        got = torch.stack([weights[name] for weights in stacked])
        if name.endswith(("A_log", "dt_bias")):
            low, high = (-torch.inf, 2.78) if name.endswith("A_log") else (-6.92, -2.25)
            assert ((got > low) & (got < high)).all() and ((want > low) & (want < high)).all(), name
        else:
            assert float(got.mean() - want.mean()) == pytest.approx(0, abs=6e-3), name
            five_sigma = 5 / (2 * want.numel()) ** 0.5  # of the deviation of so many normal numbers
            assert float(got.std()) == pytest.approx(float(want.std()), rel=max(0.05, five_sigma), abs=1e-8), name
