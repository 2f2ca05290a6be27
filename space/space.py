"""A search space: the set of designs a search may propose.

Every choice is canonical text (a layer such as `gla:conv=on`, a placement rule), so a proposal read back from a
database is the one that was written. A design in the space puts attention at `num_attention` places chosen by a rule,
or anywhere when `free` is among the placements, and a linear backbone everywhere else.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations, product
from math import comb
from typing import Any, Protocol

from space.design import MAX_DEPTH, Design, Layer, nearest
from space.mixers import BACKBONES
from space.placement import PLACEMENTS, place
from space.scale import Scale


class Trial(Protocol):
    """The two questions a space asks of an Optuna trial."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any: ...

    def suggest_float(self, name: str, low: float, high: float) -> float: ...


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """Depths, linear layers, attention layers, how many of the latter and where.

    `linear` and `attention` are layer texts. With `mixtures`, each layer chooses its backbone (or attention) by itself;
    without, a design has one of each. Raises ValueError naming the field, its value and what is allowed.
    """

    depth: tuple[int, ...]
    linear: tuple[str, ...]
    attention: tuple[str, ...] = ("full",)
    num_attention: tuple[int, ...] = (0, 1, 2)
    placements: tuple[str, ...] = (*PLACEMENTS, "free")
    mixtures: bool = False

    def __post_init__(self) -> None:
        for field, known in (("linear", BACKBONES), ("attention", ("full", "window"))):
            texts = []
            for text in getattr(self, field):
                try:
                    layer = Layer.parse(text)
                except ValueError as error:
                    raise ValueError(f"space {field}: {error}") from None
                if layer.mixer not in known:
                    raise ValueError(f"space {field} = {text!r}: must be one of {', '.join(known)}")
                texts.append(str(layer))
            object.__setattr__(self, field, tuple(texts))
        for rule in self.placements:
            if rule not in PLACEMENTS and rule != "free":
                known_rules = (*PLACEMENTS, "free")
                raise ValueError(
                    f"space placements = {rule!r}: must be one of {', '.join(known_rules)}{nearest(rule, known_rules)}"
                )
        if any(not 1 <= depth <= MAX_DEPTH for depth in self.depth):
            raise ValueError(f"space depth = {list(self.depth)}: must be in 1..{MAX_DEPTH}")
        if self.depth and any(not 0 <= count <= min(self.depth) for count in self.num_attention):
            raise ValueError(f"space num_attention = {list(self.num_attention)}: must be in 0..{min(self.depth)}")
        for field in ("depth", "linear", "attention", "num_attention", "placements"):
            values = getattr(self, field)
            if not values:
                raise ValueError(f"space {field} = []: must have at least one entry")
            if len(set(values)) < len(values):
                raise ValueError(f"space {field} = {list(values)}: has an entry twice")

    def check(self, scale: Scale) -> None:
        """Raises ValueError when a layer of the space has no valid shape at `scale`."""
        from space.cost import layer_shapes

        for text in (*self.linear, *self.attention):
            layer_shapes(Design((Layer.parse(text),)), scale)

    @cached_property
    def _linear(self) -> tuple[Layer, ...]:
        return tuple(map(Layer.parse, self.linear))

    @cached_property
    def _attention(self) -> tuple[Layer, ...]:
        return tuple(map(Layer.parse, self.attention))

    # Proposing: a trial's answers become a design, and a design gives the answers back.

    def suggest(self, trial: Trial) -> Design:
        """The design that the trial's answers describe."""

        def choose(name: str, choices: Sequence[Any]) -> Any:
            return trial.suggest_categorical(name, choices) if len(choices) > 1 else choices[0]

        depth = choose("depth", self.depth)
        count = choose("num_attention", self.num_attention)
        where: set[int] = set(range(depth)) if count == depth else set()
        if 0 < count < depth:
            rule = choose("placement", self.placements)
            if rule == "free":
                keys = [trial.suggest_float(f"key_{index}", 0.0, 1.0) for index in range(depth)]
                where = set(sorted(range(depth), key=lambda index: -keys[index])[:count])
            else:
                where = set(place(rule, depth, count))
        mixed = self.mixtures and choose("mixed", (False, True))
        linear = attention = ""
        if not mixed:
            linear = choose("linear", self.linear) if count < depth else ""
            attention = choose("attention", self.attention) if count else ""
        layers = []
        for index in range(depth):
            if index in where:
                layers.append(choose(f"attention_{index}", self.attention) if mixed else attention)
            else:
                layers.append(choose(f"linear_{index}", self.linear) if mixed else linear)
        made = {text: Layer.parse(text) for text in layers}
        return Design(tuple(made[text] for text in layers))

    @cached_property
    def parameters(self) -> dict[str, tuple[Any, ...] | None]:
        """Every question that `suggest` may ask and its choices; None for a number in 0..1."""
        deepest = range(max(self.depth))
        asked: dict[str, tuple[Any, ...] | None] = {
            "depth": self.depth,
            "num_attention": self.num_attention,
            "placement": self.placements,
            "mixed": (False, True) if self.mixtures else (False,),
            "linear": self.linear,
            "attention": self.attention,
        }
        if self.mixtures:
            for index in deepest:
                asked |= {f"linear_{index}": self.linear, f"attention_{index}": self.attention}
        asked = {name: choices for name, choices in asked.items() if choices is None or len(choices) > 1}
        return asked | ({f"key_{index}": None for index in deepest} if "free" in self.placements else {})

    def encode(self, design: Design) -> dict[str, Any]:
        """Answers from which `suggest` makes `design`. Raises ValueError when it is not in the space."""
        reason = self._why_not(design)
        if reason:
            raise ValueError(f"design {design}: not in the space: {reason}")
        where = self._attention_places(design)
        depth, count = design.depth, len(where)
        answers: dict[str, Any] = {"depth": depth, "num_attention": count}
        if 0 < count < depth:
            rules = [rule for rule in self.placements if rule != "free" and place(rule, depth, count) == where]
            answers["placement"] = rules[0] if rules else "free"
            if not rules:
                answers |= {f"key_{index}": 0.75 if index in where else 0.25 for index in range(depth)}
        linear = [str(layer) for index, layer in enumerate(design.layers) if index not in where]
        attention = [str(design.layers[index]) for index in where]
        mixed = len(set(linear)) > 1 or len(set(attention)) > 1
        answers["mixed"] = mixed
        if mixed:
            for index, layer in enumerate(design.layers):
                answers[f"{'attention' if index in where else 'linear'}_{index}"] = str(layer)
        else:
            answers |= {"linear": linear[0]} if linear else {}
            answers |= {"attention": attention[0]} if attention else {}
        return answers

    # The set itself.

    def contains(self, design: Design) -> bool:
        return self._why_not(design) == ""

    def enumerate(self) -> Iterator[Design]:
        """Every design once, in a fixed order."""
        for depth in self.depth:
            for count in self.num_attention:
                for where in self._places(depth, count):
                    for choice in self._fillings(depth, count):
                        attention, linear = iter(choice[:count]), iter(choice[count:])
                        chosen = set(where)
                        yield Design(tuple(next(attention if i in chosen else linear) for i in range(depth)))

    @cached_property
    def size(self) -> int:
        """The number of distinct designs."""
        kinds, linear = len(self.attention), len(self.linear)
        total = 0
        for depth in self.depth:
            for count in self.num_attention:
                places = comb(depth, count) if "free" in self.placements else len(self._places(depth, count))
                rest = depth - count
                if self.mixtures:
                    total += places * kinds**count * linear**rest
                else:
                    total += places * (kinds if count else 1) * (linear if rest else 1)
        return total

    def neighbours(self, design: Design) -> list[Design]:
        """Designs of the space one step away: an attention layer moved, added or removed, a kind of layer changed."""
        where = set(self._attention_places(design))
        depth, layers = design.depth, design.layers
        base = next((layer for layer in layers if layer.mixer in BACKBONES), self._linear[0])
        kind = next((layer for layer in layers if layer.mixer not in BACKBONES), self._attention[0])

        def placed(places: Iterable[int]) -> Design:
            chosen = set(places)
            return Design(
                tuple(
                    (layers[i] if i in where else kind) if i in chosen else (base if i in where else layers[i])
                    for i in range(depth)
                )
            )

        def replaced(old: Layer, new: Layer) -> Design:
            return Design(tuple(new if layer == old else layer for layer in layers))

        rest = [index for index in range(depth) if index not in where]
        steps = [placed(where - {here} | {there}) for here in sorted(where) for there in rest]
        steps += [placed(where | {index}) for index in rest]
        steps += [placed(where - {index}) for index in sorted(where)]
        steps += [
            placed(place(rule, depth, count))
            for count in self.num_attention
            for rule in self.placements
            if rule != "free" and abs(count - len(where)) <= 1
        ]
        for choices in (self._linear, self._attention):
            present = [layer for layer in dict.fromkeys(layers) if layer in choices]
            steps += [replaced(old, new) for old in present for new in choices]
            if self.mixtures:
                steps += [
                    Design((*layers[:index], new, *layers[index + 1 :]))
                    for index in range(depth)
                    if layers[index] in choices
                    for new in choices
                ]
        return [step for step in dict.fromkeys(steps) if step != design and self.contains(step)]

    def includes(self, other: "SearchSpace") -> bool:
        """Whether every design of `other` is in this space by its definition: each field a superset."""
        lists = ("depth", "linear", "attention", "num_attention")
        return (
            all(set(getattr(self, field)) >= set(getattr(other, field)) for field in lists)
            and (set(self.placements) >= set(other.placements) or "free" in self.placements)
            and (self.mixtures or not other.mixtures)
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "SearchSpace":
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        return cls(**fields)

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits of SHA-256 over the fields."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def _attention_places(self, design: Design) -> tuple[int, ...]:
        return tuple(index for index, layer in enumerate(design.layers) if layer.mixer not in BACKBONES)

    def _why_not(self, design: Design) -> str:
        where = self._attention_places(design)
        if design.depth not in self.depth:
            return f"depth {design.depth} is not one of {list(self.depth)}"
        if len(where) not in self.num_attention:
            return f"{len(where)} attention layers is not one of {list(self.num_attention)}"
        kinds = {True: set(), False: set()}  # type: dict[bool, set[Layer]]
        for index, layer in enumerate(design.layers):
            kinds[index in where].add(layer)
        for layers, allowed in ((kinds[True], self._attention), (kinds[False], self._linear)):
            for layer in layers - set(allowed):
                return f"{layer} is not one of {', '.join(map(str, allowed))}"
        if not self.mixtures and max(map(len, kinds.values())) > 1:
            return "it mixes layers and the space has no mixtures"
        if "free" not in self.placements and where not in self._places(design.depth, len(where)):
            return f"no placement rule puts attention at {list(where)}"
        return ""

    def _places(self, depth: int, count: int) -> list[tuple[int, ...]]:
        if count in (0, depth):
            return [tuple(range(count))]
        if "free" in self.placements:
            return list(combinations(range(depth), count))
        return list(dict.fromkeys(place(rule, depth, count) for rule in self.placements))

    def _fillings(self, depth: int, count: int) -> Iterator[tuple[Layer, ...]]:
        rest = depth - count
        if self.mixtures:
            yield from (
                first + second
                for first in product(self._attention, repeat=count)
                for second in product(self._linear, repeat=rest)
            )
        else:
            for kind in self._attention if count else self._attention[:1]:
                for base in self._linear if rest else self._linear[:1]:
                    yield (kind,) * count + (base,) * rest
