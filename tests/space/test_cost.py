"""Costs against the numbers and formulas of flash-linear-attention's layers and caches."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from space import BACKBONES, MIXERS, SCALES, Design, Scale, cost
from space.cost import layer_shapes, matched
from tests.strategies import designs

MIB = 1 << 20
MATRIX = [backbone for backbone in BACKBONES if backbone != "hgrn"]
LARGE = Scale(name="large", width=2048, heads=32, state_heads=8, mlp_dim=5632, vocab=32000)


@pytest.mark.parametrize(
    ("design", "kv_mib", "state_mib"),
    [
        ("24xfull", 768, 0),
        ("24xgated_deltanet+full@2,5,8,11,14,17,20,23", 256, 33),
        ("24xgated_deltanet+full@5,11,17,23", 128, 41),
        ("24xgated_deltanet+full@11,23", 64, 45),
        ("24xgated_deltanet+full@23", 32, 47),
    ],
)
def test_memory_is_that_of_the_study(design: str, kv_mib: int, state_mib: int) -> None:
    result = cost(Design.parse(design), LARGE, context=4096)
    assert result.kv_bytes == kv_mib * MIB
    assert round(result.state_bytes / MIB) == state_mib
    assert result.memory_bytes == result.kv_bytes + result.state_bytes


@pytest.mark.parametrize(
    ("design", "parameters"),
    [("3xhgrn:expand_ratio=2", 3 * 2 * 2048), ("3xhgrn2", 3 * 2048), ("3xhgrn2+hgrn@1", 3 * 2048), ("3xgla", 0)],
)
def test_lower_bounds_are_counted_once_and_as_wide_as_the_state(design: str, parameters: int) -> None:
    layers = Design.parse(design).layers
    shapes = [MIXERS[layer.mixer].shape(LARGE, layer.spec_options) for layer in layers]
    alone = sum(MIXERS[layer.mixer].parameters(shape) for layer, shape in zip(layers, shapes, strict=True))
    assert cost(Design.parse(design), LARGE).mixer_parameters - alone == parameters


D, H, T, B = 2048, 8, 4096, 2


@pytest.mark.parametrize(
    ("layer", "kv", "state"),
    [
        ("full", 2 * D * T * B, 0),
        ("full:kv_heads=4", 2 * 4 * 64 * T * B, 0),
        ("window:size=128", 2 * D * 128 * B, 0),
        ("window:size=9000", 2 * D * T * B, 0),
        ("hgrn", 0, D * B),
        ("hgrn:expand_ratio=2:conv=on", 0, 2 * D * B + 4 * 2 * 2 * D * B),
        ("hgrn2", 0, 4 * D * D // H),
        ("retnet", 0, 4 * D * 2 * D // H),
        ("gla", 0, 4 * (D // 2) * D // H),
        ("gla:conv=on", 0, 4 * (D // 2) * D // H + 4 * (2 * D // 2 + D) * B),
        ("deltanet", 0, 4 * D * D // H + 4 * 3 * D * B),
        ("gated_deltanet", 0, 4 * D * D // H + 4 * 3 * D * B),
        ("gated_deltanet:conv=off:heads=16", 0, 4 * D * D // 16),
        ("gated_deltanet:expand_v=2.0", 0, 4 * D * 2 * D // H + 4 * 4 * D * B),
        ("kda", 0, 4 * D * D // H + 4 * 3 * D * B),
        ("kda:conv=off:heads=16", 0, 4 * D * D // 16),
        ("mamba2", 0, 4 * 2 * D * 128 + 4 * (2 * D + 2 * 128) * B),
        ("mamba2:heads=16:state=64", 0, 4 * 2 * D * 64 + 4 * (2 * D + 2 * 64) * B),
    ],
)
def test_bytes_of_one_layer_follow_the_formula(layer: str, kv: int, state: int) -> None:
    result = cost(Design.parse(f"1x{layer}"), LARGE, context=T)
    assert (result.kv_bytes, result.state_bytes) == (kv, state)


@pytest.mark.parametrize(
    ("layer", "squares"),
    [
        ("full", 4),
        ("hgrn", 4),
        ("hgrn2", 4),
        ("retnet", 8),
        ("gla", 4),
        ("deltanet", 4),
        ("gated_deltanet", 5),
        ("mamba2", 6 + 2 * 128 / D),
        ("kda", 4 + 4 * 256 / D),
    ],
)
def test_mixers_have_their_known_number_of_squares(layer: str, squares: int) -> None:
    mixer = cost(Design.parse(f"1x{layer}"), LARGE).mixer_parameters
    assert mixer / D**2 == pytest.approx(squares, abs=0.06)


@pytest.mark.parametrize(
    ("layer", "flops"),
    [
        ("full", 2 * T * D),
        ("hgrn", 5 * D),
        ("hgrn2", 7 * D * D // H),
        ("retnet", 5 * D * 2 * D // H),
        ("gla", 7 * (D // 2) * D // H),
        ("deltanet", 8 * D * D // H),
        ("gated_deltanet", 8 * D * D // H),
        ("mamba2", 5 * 2 * D * 128),
        ("kda", 8 * D * D // H),
    ],
)
def test_mixing_flops_follow_the_study(layer: str, flops: int) -> None:
    spec = MIXERS[layer]
    assert spec.flops(spec.shape(LARGE, {}), T) == flops


@pytest.mark.parametrize(("width", "heads"), [(32, 1), (64, 2), (128, 4), (1024, 32), (2048, 64)])
def test_mamba2_has_heads_of_64_at_every_scale(width: int, heads: int) -> None:
    scale = Scale(name="x", width=width, heads=1, state_heads=1, mlp_dim=1, vocab=1)
    shape = MIXERS["mamba2"].shape(scale, {})
    assert (shape.heads, shape.value_dim, shape.key_dim, shape.kv_heads) == (heads, 64, 128, 1)


@given(designs(max_depth=4), st.sampled_from([1, 3]))
def test_a_batch_multiplies_memory_and_nothing_else(design: Design, batch: int) -> None:
    try:
        one = cost(design, LARGE)
    except ValueError as error:
        assert "layer" in str(error) and "must" in str(error)
        return
    many = cost(design, LARGE, batch=batch)
    assert (many.kv_bytes, many.state_bytes) == (batch * one.kv_bytes, batch * one.state_bytes)
    assert many.parameters == one.parameters


@pytest.mark.parametrize("backbone", MATRIX)
def test_matrix_states_are_float32_whatever_the_dtype(backbone: str) -> None:
    spec = MIXERS[backbone]
    shape = spec.shape(LARGE, {})
    assert spec.state_bytes(shape, 2) == spec.state_bytes(shape, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context": 0}, "context = 0: must be at least 1"),
        ({"batch": 0}, "batch = 0: must be at least 1"),
        ({"dtype": "int8"}, "dtype = 'int8': must be one of float32"),
    ],
)
def test_bad_arguments_are_refused_by_name(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cost(Design.parse("1xfull"), LARGE, **change)


def test_head_sizes_a_kernel_cannot_take_are_refused_with_the_layer() -> None:
    with pytest.raises(ValueError, match=r"layer 1 of .* key head size = 8: must be a multiple of 16"):
        cost(Design.parse("2xfull+gated_deltanet:heads=256@1"), LARGE)
    with pytest.raises(ValueError, match=r"heads = 3: must divide"):
        cost(Design.parse("1xgla:heads=3"), LARGE)
    with pytest.raises(ValueError, match=r"mamba2 heads = 3: must divide 4096 \(twice the width at this scale\)"):
        cost(Design.parse("1xmamba2:heads=3"), LARGE)
    with pytest.raises(ValueError, match=r"mamba2 value head size = 2048: must be a multiple of 16 in 16..512"):
        cost(Design.parse("1xmamba2:heads=2"), LARGE)
    with pytest.raises(ValueError, match=r"mamba2 state = 24: must be a multiple of 16 in 16..256"):
        cost(Design.parse("1xmamba2:state=24"), LARGE)
    with pytest.raises(ValueError, match=r"kv_heads = 5: must divide heads = 32"):
        cost(Design.parse("1xfull:kv_heads=5"), LARGE)


def test_scales_are_checked() -> None:
    assert SCALES["1.3b"].to_dict()["width"] == 2048
    with pytest.raises(ValueError, match="scale heads = 3: must divide the width 64"):
        Scale(name="x", width=64, heads=3, state_heads=1, mlp_dim=1, vocab=1)
    with pytest.raises(ValueError, match="scale vocab = 0"):
        Scale(name="x", width=64, heads=1, state_heads=1, mlp_dim=1, vocab=0)
    with pytest.raises(ValueError, match="scale state_bytes = 0"):
        Scale(name="x", width=64, heads=1, state_heads=1, mlp_dim=1, vocab=1, state_bytes=0)


@pytest.mark.parametrize("text", ["12xgla", "12xretnet+full@5,11", "12xgated_deltanet+full@3", "12xhgrn", "12xmamba2"])
def test_at_equal_parameters_only_the_mlps_differ(text: str) -> None:
    design, scale = Design.parse(text), SCALES["340m"]
    same = matched(design, scale, "parameters")
    attention = cost(Design.parse("12xfull"), scale).parameters
    assert abs(cost(design, same).parameters - attention) <= 12 * 3 * scale.width * 8 / 2
    assert replace(same, mlp_dim=scale.mlp_dim) == scale and same.mlp_dim % 8 == 0
    assert cost(design, same).memory_bytes == cost(design, scale).memory_bytes


def test_attention_is_its_own_match_and_an_unknown_match_is_refused() -> None:
    design, scale = Design.parse("4xfull"), SCALES["340m"]
    assert matched(design, scale, "parameters") == matched(design, scale, "width") == scale
    with pytest.raises(ValueError, match="match = 'depth': must be one of width, parameters, state"):
        matched(design, scale, "depth")


SMALL = Scale(name="small", width=32, heads=1, state_heads=1, mlp_dim=64, vocab=32)


@pytest.mark.parametrize("scale", [SMALL, *SCALES.values()], ids=lambda scale: scale.name)
@pytest.mark.parametrize("backbone", MATRIX)
def test_at_equal_state_every_matrix_backbone_keeps_as_many_bytes_a_layer(backbone: str, scale: Scale) -> None:
    design = Design.parse(f"4x{backbone}+full@1+window:size=8@2")
    same = matched(design, scale, "state")
    (linear, full, window, _), spec = layer_shapes(design, same), MIXERS[backbone]
    assert spec.state_bytes(linear, 2) == 4 * scale.width**2 // scale.state_heads
    assert cost(design, same).state_bytes == 2 * (spec.state_bytes(linear, 2) + spec.conv_bytes(linear, 2))
    assert (full, window) == layer_shapes(design, scale)[1:3]
    assert cost(design, same).kv_bytes == cost(design, scale).kv_bytes


@pytest.mark.parametrize("backbone", ["deltanet", "gated_deltanet", "hgrn2", "kda"])
def test_the_reference_state_is_what_most_backbones_have_as_they_are(backbone: str) -> None:
    design = Design.parse(f"2x{backbone}")
    assert layer_shapes(design, matched(None, LARGE, "state")) == layer_shapes(design, LARGE)


@pytest.mark.parametrize(
    ("layer", "heads", "key_dim", "value_dim"),
    [
        ("retnet", 16, 128, 256),
        ("gla:conv=on", 4, 256, 512),
        ("gla:heads=8", 8, 256, 256),  # eight heads were asked for: the keys change
        ("deltanet:heads=16", 16, 256, 128),
        ("gated_deltanet:expand_v=2.0", 16, 128, 256),
        ("mamba2:heads=16", 16, 128, 256),
    ],
)
def test_at_equal_state_what_a_design_names_stays(layer: str, heads: int, key_dim: int, value_dim: int) -> None:
    (shape,) = layer_shapes(Design.parse(f"1x{layer}"), matched(None, LARGE, "state"))
    assert (shape.heads, shape.key_dim, shape.value_dim) == (heads, key_dim, value_dim)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("hgrn", r"must have 2097152 bytes at this scale, the nearest it can have is 65536 with expand_ratio = 8"),
        ("mamba2:state=16", r"must have 2097152 bytes at this scale, the nearest it can have is 262144$"),
        ("gla:heads=3", r"gla heads = 3: must divide 2048"),
    ],
)
def test_a_layer_that_cannot_have_the_state_is_refused_with_the_nearest(layer: str, message: str) -> None:
    design = Design.parse(f"1x{layer}")
    with pytest.raises(ValueError, match=rf"layer 0 of .* at scale large: .*{message}"):
        cost(design, matched(design, LARGE, "state"))
