"""Published hybrid designs by name, mapped to any depth.

Sources are the released configurations and papers named in `source`; `mark` says whether the indices are exact.
"""

from dataclasses import dataclass, field
from itertools import pairwise

from space.design import Design, Layer, nearest
from space.mixers import BACKBONES


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A published design: zero-based full and window layers out of `layers` token-mixing layers."""

    name: str
    layers: int
    full: tuple[int, ...]
    linear: str
    mark: str
    source: str
    rope: bool = True
    window: dict[int, int] = field(default_factory=dict)


def _every(step: int, layers: int, start: int) -> tuple[int, ...]:
    return tuple(range(start, layers, step))


_STUDY = "arXiv 2507.06457"
PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(name="map-3-1", layers=24, full=_every(3, 24, 2), linear="gated_deltanet", source=_STUDY,
               mark="count second-hand, indices inferred"),
        Preset(name="map-6-1", layers=24, full=_every(6, 24, 5), linear="gated_deltanet", source=_STUDY,
               mark="inferred"),
        Preset(name="map-12-1", layers=24, full=(11, 23), linear="gated_deltanet", source=_STUDY, mark="second-hand"),
        Preset(name="map-24-1", layers=24, full=(23,), linear="gated_deltanet", source=_STUDY, mark="inferred"),
        Preset(name="jamba-v0.1", layers=32, full=_every(8, 32, 4), linear="mamba", rope=False,
               source="released configuration", mark="exact"),
        Preset(name="qwen3-next", layers=48, full=_every(4, 48, 3), linear="gated_deltanet",
               source="released configuration", mark="exact"),
        Preset(name="kimi-linear-48b", layers=27, full=(3, 7, 11, 15, 19, 23, 26), linear="kda", rope=False,
               source="released configuration", mark="exact"),
        Preset(name="minimax-text-01", layers=80, full=_every(8, 80, 7), linear="retnet",
               source="released configuration", mark="exact"),
        Preset(name="nemotron-h-8b", layers=28, full=(4, 10, 16, 22), linear="mamba2", rope=False,
               source="released configuration", mark="exact, MLP blocks left out"),
        Preset(name="granite-4.0-h", layers=40, full=_every(10, 40, 5), linear="mamba2", rope=False,
               source="released configuration", mark="exact"),
        Preset(name="zamba2-2.7b", layers=54, full=(6, 12, 18, 24, 30, 36, 42, 47, 51), linear="mamba2",
               source="released configuration", mark="exact"),
        Preset(name="hymba-1.5b", layers=32, full=(0, 15, 31), linear="mamba",
               source="released configuration", mark="exact"),
        Preset(name="jet-nemotron-2b", layers=28, full=(14, 19), window={20: 1152, 21: 1152},
               linear="gated_deltanet", source="released configuration", mark="exact"),
        Preset(name="samba", layers=18, full=(), window=dict.fromkeys(_every(2, 18, 1), 2048), linear="mamba",
               source="released configuration", mark="exact"),
        Preset(name="recurrentgemma-2b", layers=26, full=(), window=dict.fromkeys(_every(3, 26, 2), 2048),
               linear="hgrn", source="released configuration", mark="exact"),
        Preset(name="meta-1-5", layers=24, full=(3, 9, 15, 21), linear="mamba2", source="arXiv 2510.04800",
               mark="inferred"),
    )
}  # fmt: skip


def preset(name: str, depth: int | None = None, backbone: str | None = None) -> Design:
    """The published design `name` at `depth` (its own when left out), with `backbone` for its linear layers.

    At another depth the number of attention layers keeps its share. Evenly spaced layers keep their place in the
    period; others keep their relative depth. Raises ValueError for an unknown name, or where the design's own
    backbone is not one of ours and none is given.
    """
    if name not in PRESETS:
        raise ValueError(f"preset = {name!r}: must be one of {', '.join(PRESETS)}{nearest(name, PRESETS)}")
    published = PRESETS[name]
    linear = backbone or published.linear
    if linear not in BACKBONES:
        raise ValueError(f"preset {name}: backbone = {linear!r}: give one of {', '.join(BACKBONES)}")
    depth = depth or published.layers
    base = Layer(linear)
    layers = [base] * depth
    for index, size in zip(
        map_layers(tuple(published.window), published.layers, depth),
        _resample(tuple(published.window.values()), published.layers, depth),
        strict=True,
    ):
        layers[index] = Layer.of("window", size=size)
    for index in map_layers(published.full, published.layers, depth):
        layers[index] = Layer.of("full", rope=published.rope)
    return Design(tuple(layers))


def _count(num: int, layers: int, depth: int) -> int:
    return min(depth, max(1, round(num * depth / layers))) if num else 0


def _resample(values: tuple[int, ...], layers: int, depth: int) -> tuple[int, ...]:
    count = _count(len(values), layers, depth)
    return tuple(values[(2 * j + 1) * len(values) // (2 * count)] for j in range(count))


def map_layers(indices: tuple[int, ...], layers: int, depth: int) -> tuple[int, ...]:
    """Distinct, sorted indices at `depth` for published `indices` out of `layers`."""
    if depth == layers or not indices:
        return indices
    count = _count(len(indices), layers, depth)
    steps = {later - earlier for earlier, later in pairwise(indices)}
    group = layers / len(indices)
    regular = len(steps) <= 1 and indices[0] < group
    relative = [(index + 0.5) / layers for index in indices]
    mapped: list[int] = []
    for j in range(count):
        first = j * len(indices) // count
        chunk = relative[first : max((j + 1) * len(indices) // count, first + 1)]
        place = (j + (indices[0] + 0.5) / group) / count if regular else sum(chunk) / len(chunk)
        low = mapped[-1] + 1 if mapped else 0
        mapped.append(min(max(int(place * depth), low), depth - (count - j)))
    return tuple(mapped)
