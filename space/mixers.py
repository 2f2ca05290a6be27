"""The mixers a layer can use, each with its options, valid shapes and cost.

A `MixerSpec` turns a layer's options and a scale into a `Shape`, and says what that shape costs: parameters, bytes
of state and FLOPs. Formulas are those of fla's layers and caches (0.6.0); FLOPs follow arXiv 2507.06457.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from space.scale import Scale

Value = int | float | bool
CONV_COLUMNS = 4  # a short convolution of width 4 keeps 4 columns in fla's cache, not 3
GLA_GATE_RANK = 16
MAMBA2_HEAD = 64  # values of one head
EXPANSIONS = (0.5, 1.0, 2.0)  # of keys or values, tried to reach a size of the state
FLOAT32 = 4  # bytes of a number in a matrix state, whatever the model's dtype


@dataclass(frozen=True, kw_only=True)
class Option:
    """One shape choice of a mixer. A default of None is taken from the scale; `required` has no default."""

    kind: type
    default: Value | None = None
    low: float = 1
    high: float = 1 << 20
    required: bool = False
    doc: str = ""

    def range_text(self) -> str:
        if self.kind is bool:
            return "on or off"
        return f"a {'whole ' if self.kind is int else ''}number in {self.kind(self.low)}..{self.kind(self.high)}"

    def parse(self, text: str) -> Value:
        """The value written as `text`. Raises ValueError that names the allowed range."""
        try:
            if self.kind is bool:
                return {"on": True, "off": False}[text]
            value = self.kind(text)
        except (KeyError, ValueError):
            raise ValueError(f"{text!r}: must be {self.range_text()}") from None
        return self.check(value)

    def check(self, value: Value) -> Value:
        kinds = (int, float) if self.kind is float else self.kind
        if not isinstance(value, kinds) or (self.kind is not bool and isinstance(value, bool)):
            raise ValueError(f"{value!r}: must be {self.range_text()}")
        if self.kind is not bool and not self.low <= value <= self.high:
            raise ValueError(f"{value!r}: must be {self.range_text()}")
        return self.kind(value)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A mixer's dimensions at one scale. `key_dim` and `value_dim` are those of one head.

    Several heads may share a key (and a value, in attention): then `kv_heads` is below `heads`.
    """

    width: int
    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    conv: bool = False
    rope: bool = False
    window: int | None = None

    @property
    def keys(self) -> int:
        return self.heads * self.key_dim

    @property
    def values(self) -> int:
        return self.heads * self.value_dim


class MixerSpec(ABC):
    """What one mixer is called, which options it takes, which shapes are valid and what they cost."""

    name: str
    letter: str
    options: dict[str, Option]

    def shape(self, scale: Scale, options: Mapping[str, Value]) -> Shape:
        """The dimensions at `scale`. Raises ValueError naming the field, its value and what is allowed.

        Where the scale says how large a state is, a linear layer that has another takes one option more: the first in
        `sizings` that makes the state exactly so large. What `options` name stays. A layer that cannot is refused, with
        the nearest it could have.
        """
        wanted = scale.state_bytes
        if wanted is None or not (sizings := self.sizings(scale)):
            return self._filled(scale, options)
        more = [{name: value} for name, values in sizings.items() if name not in options for value in values]
        found: dict[int, str] = {}  # the states it can have, and with what
        for extra in ({}, *more):
            try:
                shape = self._filled(scale, {**options, **extra})
            except ValueError:
                continue
            state = self.state_bytes(shape, FLOAT32)
            if state == wanted:
                return shape
            found.setdefault(state, "".join(f" with {name} = {value}" for name, value in extra.items()))
        if not found:
            return self._filled(scale, options)  # raises: the options it names fit nothing
        nearest = min(found, key=lambda state: abs(state - wanted))
        raise ValueError(
            f"{self.name} state: must have {wanted} bytes at this scale, "
            f"the nearest it can have is {nearest}{found[nearest]}"
        )

    def sizings(self, scale: Scale) -> dict[str, Iterable[Value]]:
        """The options that size the recurrent state, the least invasive first, and values they may take."""
        return {}

    def _filled(self, scale: Scale, options: Mapping[str, Value]) -> Shape:
        return self._shape(scale, {key: options.get(key, option.default) for key, option in self.options.items()})

    @abstractmethod
    def _shape(self, scale: Scale, options: Mapping[str, Value | None]) -> Shape: ...

    @abstractmethod
    def parameters(self, shape: Shape) -> int:
        """Parameters of one layer's mixer, norms and convolutions included."""

    def shared_parameters(self, shape: Shape, depth: int) -> int:
        """Parameters the model has once for all layers; of several such needs, the largest."""
        return 0

    def kv_bytes(self, shape: Shape, context: int, element_bytes: int) -> int:
        """KV cache of one sequence in one layer, bytes."""
        return 0

    def state_bytes(self, shape: Shape, element_bytes: int) -> int:
        """Recurrent state of one sequence in one layer, bytes."""
        return 0

    def conv_bytes(self, shape: Shape, element_bytes: int) -> int:
        """Short-convolution state of one sequence in one layer, bytes."""
        return CONV_COLUMNS * self._conv_channels(shape) * element_bytes if shape.conv else 0

    def _conv_channels(self, shape: Shape) -> int:
        return 2 * shape.keys + shape.values

    def _conv_parameters(self, shape: Shape) -> int:
        return CONV_COLUMNS * self._conv_channels(shape) if shape.conv else 0

    @abstractmethod
    def flops(self, shape: Shape, context: int) -> float:
        """Forward FLOPs a token of mixing alone, projections left out."""

    def _divide(self, total: float, heads: int, field: str) -> int:
        if heads > total or total % heads:
            raise ValueError(f"{self.name} {field} = {heads}: must divide {total:g} (the width at this scale)")
        return int(total // heads)

    def _check_head(self, size: int, step: int, high: int, what: str) -> None:
        if size % step or not step <= size <= high:
            raise ValueError(f"{self.name} {what} = {size}: must be a multiple of {step} in {step}..{high}")


_HEADS = Option(kind=int, doc="number of heads; the scale's when left out")


class AttentionSpec(MixerSpec):
    """Softmax attention over everything before (`full`) or over the last `size` tokens (`window`)."""

    def __init__(self, name: str, letter: str, *, windowed: bool) -> None:
        self.name, self.letter = name, letter
        self.options = {
            "heads": _HEADS,
            "kv_heads": Option(kind=int, doc="heads of keys and values; as many as heads when left out"),
            "rope": Option(kind=bool, default=True, doc="rotary position embedding"),
        }
        if windowed:
            self.options["size"] = Option(kind=int, required=True, doc="tokens a query sees, itself included")

    def _shape(self, scale: Scale, options: Mapping[str, Value | None]) -> Shape:
        heads = int(options["heads"] or scale.heads)
        kv_heads = int(options["kv_heads"] or heads)
        head_dim = self._divide(scale.width, heads, "heads")
        if kv_heads > heads or heads % kv_heads:
            raise ValueError(f"{self.name} kv_heads = {kv_heads}: must divide heads = {heads}")
        self._check_head(head_dim, 8, 256, "head size")
        window = options.get("size")
        return Shape(
            width=scale.width, heads=heads, kv_heads=kv_heads, key_dim=head_dim, value_dim=head_dim,
            rope=bool(options["rope"]), window=int(window) if window is not None else None,
        )  # fmt: skip

    def parameters(self, shape: Shape) -> int:
        return 2 * shape.width * shape.keys + 2 * shape.width * shape.kv_heads * shape.key_dim

    def kv_bytes(self, shape: Shape, context: int, element_bytes: int) -> int:
        kept = min(context, shape.window) if shape.window else context
        return 2 * shape.kv_heads * shape.key_dim * kept * element_bytes

    def flops(self, shape: Shape, context: int) -> float:
        seen = min(context, shape.window) if shape.window else context
        return 2.0 * seen * shape.width


class MatrixStateSpec(MixerSpec):
    """A backbone whose state is one key_dim x value_dim matrix a head, kept in float32 whatever the model's dtype."""

    def __init__(
        self,
        name: str,
        letter: str,
        *,
        flops_factor: int,
        expand: tuple[float, float] | None,
        conv: bool,
        extra_parameters: Callable[[Shape], int],
        rope: bool = False,
        lower_bounds: bool = False,
    ) -> None:
        self.name, self.letter, self.flops_factor = name, letter, flops_factor
        self.extra_parameters, self.rope, self.lower_bounds = extra_parameters, rope, lower_bounds
        self.options = {"heads": _HEADS}
        if expand is not None:
            self.options["expand_k"] = Option(kind=float, default=expand[0], low=0.125, high=4, doc="keys over width")
            self.options["expand_v"] = Option(kind=float, default=expand[1], low=0.125, high=4, doc="values over width")
        self.options["conv"] = Option(kind=bool, default=conv, doc="short convolution of width 4 on q, k and v")

    def _shape(self, scale: Scale, options: Mapping[str, Value | None]) -> Shape:
        heads = int(options["heads"] or scale.state_heads)
        self._divide(scale.width, heads, "heads")
        key_dim = self._divide(scale.width * float(options.get("expand_k") or 1), heads, "heads")
        value_dim = self._divide(scale.width * float(options.get("expand_v") or 1), heads, "heads")
        self._check_head(key_dim, 16, 256, "key head size")
        self._check_head(value_dim, 16, 512, "value head size")
        return Shape(
            width=scale.width, heads=heads, kv_heads=heads, key_dim=key_dim, value_dim=value_dim,
            conv=bool(options["conv"]), rope=self.rope,
        )  # fmt: skip

    def sizings(self, scale: Scale) -> dict[str, Iterable[Value]]:
        """Heads first: fewer and larger ones have more state at the same projections."""
        heads = [count for count in range(1, scale.width + 1) if scale.width % count == 0]
        return {"heads": heads} | {name: EXPANSIONS for name in ("expand_k", "expand_v") if name in self.options}

    def parameters(self, shape: Shape) -> int:
        projections = 2 * shape.width * (shape.keys + shape.values)  # q, k (or the forget gate), v, o
        return projections + self.extra_parameters(shape) + self._conv_parameters(shape)

    def shared_parameters(self, shape: Shape, depth: int) -> int:
        return depth * shape.keys if self.lower_bounds else 0

    def state_bytes(self, shape: Shape, element_bytes: int) -> int:
        return FLOAT32 * shape.heads * shape.key_dim * shape.value_dim

    def flops(self, shape: Shape, context: int) -> float:
        return float(self.flops_factor * shape.heads * shape.key_dim * shape.value_dim)


class Mamba2Spec(MixerSpec):
    """Mamba-2: twice the width in heads of `state` x value_dim, all with the same keys; always a short convolution."""

    name, letter = "mamba2", "M"

    def __init__(self) -> None:
        self.options = {
            "heads": Option(kind=int, doc="number of heads; heads of 64 values when left out"),
            "state": Option(kind=int, default=128, low=16, high=256, doc="numbers kept for each value"),
        }

    def _shape(self, scale: Scale, options: Mapping[str, Value | None]) -> Shape:
        heads = int(options["heads"] or max(1, 2 * scale.width // MAMBA2_HEAD))
        if 2 * scale.width % heads:
            raise ValueError(f"mamba2 heads = {heads}: must divide {2 * scale.width} (twice the width at this scale)")
        state, value_dim = int(options["state"] or 0), 2 * scale.width // heads
        self._check_head(state, 16, 256, "state")
        self._check_head(value_dim, 16, 512, "value head size")
        return Shape(width=scale.width, heads=heads, kv_heads=1, key_dim=state, value_dim=value_dim, conv=True)

    def sizings(self, scale: Scale) -> dict[str, Iterable[Value]]:
        return {"state": range(16, 257, 16)}

    def parameters(self, shape: Shape) -> int:
        channels = self._conv_channels(shape)
        projections = shape.width * (shape.values + channels + shape.heads) + shape.values * shape.width
        return projections + (CONV_COLUMNS + 1) * channels + 3 * shape.heads + shape.values

    def state_bytes(self, shape: Shape, element_bytes: int) -> int:
        return FLOAT32 * shape.values * shape.key_dim

    def _conv_channels(self, shape: Shape) -> int:
        return shape.values + 2 * shape.kv_heads * shape.key_dim

    def flops(self, shape: Shape, context: int) -> float:
        return 5.0 * shape.values * shape.key_dim


class VectorStateSpec(MixerSpec):
    """HGRN: one gated number a channel."""

    name, letter = "hgrn", "H"

    def __init__(self) -> None:
        self.options = {
            "expand_ratio": Option(kind=int, default=1, high=8, doc="channels of the state over width"),
            "conv": Option(kind=bool, default=False, doc="short convolution of width 4 on input and forget gate"),
        }

    def _shape(self, scale: Scale, options: Mapping[str, Value | None]) -> Shape:
        channels = scale.width * int(options["expand_ratio"] or 1)
        return Shape(width=scale.width, heads=1, kv_heads=1, key_dim=1, value_dim=channels, conv=bool(options["conv"]))

    def sizings(self, scale: Scale) -> dict[str, Iterable[Value]]:
        return {"expand_ratio": range(1, 9)}

    def parameters(self, shape: Shape) -> int:
        return 4 * shape.width * shape.values + shape.values + self._conv_parameters(shape)

    def shared_parameters(self, shape: Shape, depth: int) -> int:
        return depth * shape.values

    def state_bytes(self, shape: Shape, element_bytes: int) -> int:
        return shape.values * element_bytes

    def _conv_channels(self, shape: Shape) -> int:
        return 2 * shape.values

    def flops(self, shape: Shape, context: int) -> float:
        return 5.0 * shape.values


MIXERS: dict[str, MixerSpec] = {
    spec.name: spec
    for spec in (
        AttentionSpec("full", "F", windowed=False),
        AttentionSpec("window", "W", windowed=True),
        VectorStateSpec(),
        MatrixStateSpec(
            "retnet",
            "R",
            flops_factor=5,
            expand=(1.0, 2.0),
            conv=False,
            rope=True,
            extra_parameters=lambda s: s.width * s.values + s.value_dim,
        ),
        MatrixStateSpec(
            "gla",
            "L",
            flops_factor=7,
            expand=(0.5, 1.0),
            conv=False,
            extra_parameters=lambda s: s.width * s.values + s.value_dim + GLA_GATE_RANK * (s.width + s.keys) + s.keys,
        ),
        MatrixStateSpec(
            "hgrn2",
            "N",
            flops_factor=7,
            expand=None,
            conv=False,
            lower_bounds=True,
            extra_parameters=lambda s: s.values,
        ),
        MatrixStateSpec(
            "deltanet",
            "D",
            flops_factor=8,
            expand=(1.0, 1.0),
            conv=True,
            extra_parameters=lambda s: s.width * s.heads + s.value_dim,
        ),
        MatrixStateSpec(
            "gated_deltanet",
            "G",
            flops_factor=8,
            expand=(1.0, 1.0),
            conv=True,
            extra_parameters=lambda s: s.width * s.values + 2 * s.width * s.heads + 2 * s.heads + s.value_dim,
        ),
        Mamba2Spec(),
        MatrixStateSpec(
            "kda",
            "K",
            flops_factor=8,
            expand=(1.0, 1.0),
            conv=True,
            extra_parameters=lambda s: (
                s.value_dim * (2 * s.width + s.keys + s.values + 1) + s.width * s.heads + s.heads + s.keys + s.values
            ),
        ),
    )
}
BACKBONES: tuple[str, ...] = tuple(name for name in MIXERS if name not in ("full", "window"))
