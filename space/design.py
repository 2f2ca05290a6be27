"""A design: the mixer of every layer, immutable, with one canonical text and one digest.

The text names the most frequent layer first and then the exceptions with their zero-based indices:

    12xgated_deltanet+full@2,5,8,11
    6xgla:conv=on+window:size=64@1+full:kv_heads=1:rope=off@3-5

Ranges are accepted when parsing; the canonical text writes every index. Options equal to the mixer's default are left
out, so equal designs have equal texts. The text needs no quotes in a shell.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property

from space.mixers import BACKBONES, MIXERS, Value

MAX_DEPTH = 256


def nearest(word: str, known: Iterable[str]) -> str:
    """' (did you mean ...?)' when a known word is close, else the empty string."""
    match = get_close_matches(word, list(known), n=1)
    return f" (did you mean {match[0]!r}?)" if match else ""


@dataclass(frozen=True)
class Layer:
    """One layer: a mixer and those of its options that differ from the default, sorted by name.

    Raises ValueError for an unknown mixer or option, a value outside its range, or a required option left out.
    """

    mixer: str
    options: tuple[tuple[str, Value], ...] = ()

    def __post_init__(self) -> None:
        if self.mixer not in MIXERS:
            raise ValueError(f"mixer = {self.mixer!r}: must be one of {', '.join(MIXERS)}{nearest(self.mixer, MIXERS)}")
        known = MIXERS[self.mixer].options
        kept: dict[str, Value] = {}
        for name, value in self.options:
            if name not in known:
                raise ValueError(
                    f"{self.mixer} option {name!r}: must be one of {', '.join(known)}{nearest(name, known)}"
                )
            if name in kept:
                raise ValueError(f"{self.mixer} option {name!r}: given twice")
            try:
                kept[name] = known[name].check(value)
            except ValueError as error:
                raise ValueError(f"{self.mixer} {name} = {error}") from None
        for name, option in known.items():
            if option.required and name not in kept:
                raise ValueError(f"{self.mixer} {name}: missing, must be {option.range_text()}")
        canonical = {name: value for name, value in kept.items() if value != known[name].default}
        object.__setattr__(self, "options", tuple(sorted(canonical.items())))

    @classmethod
    def of(cls, mixer: str, **options: Value) -> "Layer":
        return cls(mixer, tuple(options.items()))

    @classmethod
    def parse(cls, text: str) -> "Layer":
        """The layer written as `mixer:option=value:...`."""
        mixer, *parts = text.split(":")
        if mixer not in MIXERS:
            return cls(mixer)  # raises
        options: list[tuple[str, Value]] = []
        for part in parts:
            name, equals, value = part.partition("=")
            if not equals:
                raise ValueError(f"{part!r}: must be option=value")
            option = MIXERS[mixer].options.get(name)
            try:
                options.append((name, option.parse(value) if option else 0))
            except ValueError as error:
                raise ValueError(f"{mixer} {name} = {error}") from None
        return cls(mixer, tuple(options))

    def __str__(self) -> str:
        return ":".join([self.mixer, *(f"{name}={_value_text(value)}" for name, value in self.options)])

    def with_options(self, **options: Value) -> "Layer":
        return Layer.of(self.mixer, **{**dict(self.options), **options})

    @property
    def spec_options(self) -> Mapping[str, Value]:
        return dict(self.options)


def _value_text(value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return repr(value)


@dataclass(frozen=True)
class Design:
    """The mixer of every layer. Two designs are equal exactly when their canonical texts are."""

    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.layers) <= MAX_DEPTH:
            raise ValueError(f"depth = {len(self.layers)}: must be in 1..{MAX_DEPTH}")

    @classmethod
    def hybrid(
        cls, depth: int, linear: Layer | str, full_layers: Iterable[int], full: Layer | str = "full"
    ) -> "Design":
        """`linear` everywhere but `full` at `full_layers`."""
        linear, full = (Layer.parse(item) if isinstance(item, str) else item for item in (linear, full))
        indices = set(full_layers)
        return cls(tuple(full if index in indices else linear for index in range(depth)))

    @classmethod
    def parse(cls, text: str) -> "Design":
        """The design written as `text`. Raises ValueError that names the place in the text."""
        position = 0

        def fail(message: object) -> ValueError:
            return ValueError(f"design {text!r}, at character {position + 1}: {message}")

        head, *rest = text.split("+")
        match = re.fullmatch(r"(\d+)x(.+)", head)
        if not match:
            raise fail("must start with depth and mixer, such as 12xgated_deltanet")
        depth = int(match[1])
        if not 1 <= depth <= MAX_DEPTH:
            raise fail(f"depth = {depth}: must be in 1..{MAX_DEPTH}")
        position = match.start(2)
        try:
            layers = [Layer.parse(match[2])] * depth
            position = len(head) + 1
            placed: set[int] = set()
            for part in rest:
                words, at, where = part.partition("@")
                if not at:
                    raise ValueError(f"{part!r}: must say where, such as full@2,5")
                layer = Layer.parse(words)
                position += len(words) + 1
                for index in _indices(where, depth):
                    if index in placed:
                        raise ValueError(f"layer {index}: given twice")
                    placed.add(index)
                    layers[index] = layer
                position += len(where) + 1
        except ValueError as error:
            raise fail(error) from None
        return cls(tuple(layers))

    @cached_property
    def text(self) -> str:
        counts = Counter(self.layers)
        base = max(counts, key=lambda layer: (counts[layer], -self.layers.index(layer)))
        places: dict[Layer, list[int]] = {}
        for index, layer in enumerate(self.layers):
            if layer != base:
                places.setdefault(layer, []).append(index)
        return "+".join(
            [f"{self.depth}x{base}", *(f"{layer}@{','.join(map(str, where))}" for layer, where in places.items())]
        )

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Design.parse({self.text!r})"

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits of SHA-256 over the canonical text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def depth(self) -> int:
        return len(self.layers)

    @property
    def full_layers(self) -> tuple[int, ...]:
        return tuple(index for index, layer in enumerate(self.layers) if layer.mixer == "full")

    @property
    def num_full(self) -> int:
        return len(self.full_layers)

    @property
    def backbones(self) -> tuple[str, ...]:
        """The distinct linear backbones, in order of first use."""
        return tuple(dict.fromkeys(layer.mixer for layer in self.layers if layer.mixer in BACKBONES))

    @property
    def family(self) -> str:
        """One word for grouping: the backbone, `mixture` for several, `attention` for none."""
        return {0: "attention", 1: "".join(self.backbones)}.get(len(self.backbones), "mixture")

    @property
    def strip(self) -> str:
        """One letter a layer.

        F full, W window, H hgrn, R retnet, L gla, N hgrn2, D deltanet, G gated_deltanet, M mamba2, K kda.
        """
        return "".join(MIXERS[layer.mixer].letter for layer in self.layers)


def _indices(text: str, depth: int) -> list[int]:
    indices: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not match:
            raise ValueError(f"{part!r}: must be a layer index or a range, such as 3 or 3-5")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < depth:
            raise ValueError(f"layer {part}: must be in 0..{depth - 1}")
        indices += range(first, last + 1)
    return indices
