import pytest
from hypothesis import given
from hypothesis import strategies as st

from space import BACKBONES, PRESETS, preset


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_at_its_own_depth_is_the_published_one(name: str) -> None:
    published = PRESETS[name]
    design = preset(name, backbone="gla")
    assert design.depth == published.layers
    assert design.full_layers == published.full
    windows = {i: dict(layer.options)["size"] for i, layer in enumerate(design.layers) if layer.mixer == "window"}
    assert windows == published.window


@pytest.mark.parametrize(
    ("name", "depth", "full"),
    [
        ("map-6-1", 6, (5,)),
        ("map-3-1", 12, (2, 5, 8, 11)),
        ("map-12-1", 12, (11,)),
        ("qwen3-next", 12, (3, 7, 11)),
        ("jamba-v0.1", 8, (4,)),
    ],
)
def test_a_preset_keeps_its_pattern_at_another_depth(name: str, depth: int, full: tuple[int, ...]) -> None:
    assert preset(name, depth, "gla").full_layers == full


@given(st.sampled_from(tuple(PRESETS)), st.integers(1, 64), st.sampled_from(BACKBONES))
def test_a_preset_has_a_design_at_every_depth(name: str, depth: int, backbone: str) -> None:
    design = preset(name, depth, backbone)
    assert design.depth == depth
    assert set(design.backbones) <= {backbone}
    published = PRESETS[name]
    if not published.window:
        assert design.num_full == max(1, round(len(published.full) * depth / published.layers))


def test_no_rope_is_kept() -> None:
    assert str(preset("jamba-v0.1", 8, "gla")) == "8xgla+full:rope=off@4"


def test_a_preset_keeps_the_backbone_that_was_published() -> None:
    assert preset("kimi-linear-48b").backbones == ("kda",)
    assert preset("nemotron-h-8b").backbones == ("mamba2",)


def test_unknown_names_and_backbones_are_refused() -> None:
    with pytest.raises(ValueError, match=r"preset = 'qwen3-nxt': .*did you mean 'qwen3-next'"):
        preset("qwen3-nxt")
    with pytest.raises(ValueError, match=r"backbone = 'mamba': give one of hgrn"):
        preset("jamba-v0.1")
