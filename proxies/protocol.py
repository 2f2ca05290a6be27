"""A protocol is everything that defines a score, as plain data with a digest. Scores compare only within one digest.

No torch here: the command line reads protocols without paying for its import.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from proxies.ladders import (
    LADDERS,
    Fuzzy,
    KHop,
    Ladder,
    Mixture,
    MultiValue,
    Needle,
    Overwrite,
    Pairs,
    check_filler,
    check_rising,
)
from proxies.ladders import check as _check
from space.cost import MATCHES, matched
from space.design import Design, nearest
from space.scale import Scale

VERSION = 1  # raised when the code that makes scores changes their meaning


def _check_longer(longer: tuple[int, ...]) -> None:
    if longer:
        check_rising("recall", "longer", longer)
    for times in longer:
        _check("recall", "longer", times, 2, 16)


RATES = (1e-8, 1.0)  # learning rates that make sense


@dataclass(frozen=True, kw_only=True)
class Training:
    """How one task's replicas are trained: AdamW, linear warm-up, cosine decay to a tenth, gradients clipped a replica.

    There is a replica for each pair of a learning rate and one of `num_seeds` seeds from `first_seed` on. With
    `fresh_seeds`, the chosen rate is trained again with that many seeds more, and the score is theirs. A best rate on
    the edge of the grid is followed by one beyond it, `extensions` times at most. `dropout` is the share of the
    embeddings, of attention's weights and of what each mixer and MLP adds that a step leaves out; the device draws it,
    not the seed.
    """

    steps: int
    batch: int
    learning_rates: tuple[float, ...]
    num_seeds: int
    first_seed: int = 0
    fresh_seeds: int = 0
    extensions: int = 0
    warmup: float = 0.1
    weight_decay: float = 0.1
    clip: float = 1.0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _check("training", "steps", self.steps, 1, 10**7)
        _check("training", "batch", self.batch, 1, 2**16)
        _check("training", "num_seeds", self.num_seeds, 1, 64)
        _check("training", "first_seed", self.first_seed, 0, 2**20)
        _check("training", "fresh_seeds", self.fresh_seeds, 0, 64)
        _check("training", "extensions", self.extensions, 0, 8)
        if self.extensions and not self.fresh_seeds:
            raise ValueError(f"training extensions = {self.extensions}: must be 0 without fresh_seeds")
        _check("training", "warmup", self.warmup, 0, 1, float)
        _check("training", "weight_decay", self.weight_decay, 0, 10, float)
        _check("training", "clip", self.clip, 1e-6, 1e6, float)
        _check("training", "dropout", self.dropout, 0, 0.9, float)
        if not self.learning_rates:
            raise ValueError("training learning_rates = []: must have at least one entry")
        for rate in self.learning_rates:
            _check("training", "learning_rates", rate, *RATES, float)

    @property
    def seeds(self) -> range:
        """The seeds that choose the learning rate, and make the score where there are no fresh ones."""
        return range(self.first_seed, self.first_seed + self.num_seeds)

    @property
    def fresh(self) -> range:
        """The fresh seeds: those that follow."""
        return range(self.seeds.stop, self.seeds.stop + self.fresh_seeds)

    @property
    def replicas(self) -> list[tuple[float, int]]:
        """The learning rate and the seed of every replica, learning rates outermost."""
        return [(rate, seed) for rate in self.learning_rates for seed in self.seeds]


@dataclass(frozen=True, kw_only=True)
class Recall:
    """Multi-query associative recall over a ladder of numbers of pairs; every batch has a share of each rung."""

    training: Training
    vocab: int
    length: int
    pairs: tuple[int, ...]
    num_examples: int  # of each rung, in validation and again in the sealed test
    filler: str = "random"
    longer: tuple[int, ...] = ()  # times its length at which the test is taken again

    def __post_init__(self) -> None:
        _check_longer(self.longer)
        check_filler("recall", self.filler)
        _check("recall", "vocab", self.vocab, 4, 2**20)
        _check("recall", "length", self.length, 4, 2**20)
        _check("recall", "num_examples", self.num_examples, 1, 2**20)
        check_rising("recall", "pairs", self.pairs)
        for pairs in self.pairs:
            _check("recall", "pairs", pairs, 1, min(self.length // 4, self.vocab // 2 - 1))
        if self.training.batch % len(self.pairs):
            raise ValueError(
                f"recall batch = {self.training.batch}: must be a multiple of the {len(self.pairs)} rungs of pairs"
            )

    @property
    def loads(self) -> tuple[int, ...]:
        """The ladder, under the name that all ladders have."""
        return self.pairs

    def at_length(self, times: int) -> "Recall":
        """The same loads in examples `times` as long."""
        return replace(self, length=times * self.length)


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Several ladders, trained as one mixture. `weights` of the ladders in recall; equal when there are none.

    Training starts with the smallest load of each; the others come in one after the other, evenly, over the share
    `growth` of its steps. Attention stays on the plateau "one of the values" for long without.
    """

    training: Training
    ladders: tuple[Ladder, ...]
    growth: float = 0.0
    weights: tuple[float, ...] = ()
    longer: tuple[int, ...] = ()  # times their length at which the test is taken again

    def __post_init__(self) -> None:
        _check_longer(self.longer)
        _check("recall", "growth", self.growth, 0, 1, float)
        number = self.mixture.num_loads
        if self.training.batch % number:
            raise ValueError(f"recall batch = {self.training.batch}: must be a multiple of the {number} loads")
        if self.weights and len(self.weights) != len(self.ladders):
            raise ValueError(
                f"recall weights = {list(self.weights)}: must be {len(self.ladders)}, one for each ladder, or none"
            )
        for weight in self.weights:
            _check("recall", "weights", weight, 1e-6, 1e6, float)

    @property
    def mixture(self) -> Mixture:
        return Mixture(ladders=self.ladders)

    @property
    def shares(self) -> list[float]:
        """The weights of the ladders, of sum 1."""
        weights = self.weights or (1.0,) * len(self.ladders)
        return [weight / sum(weights) for weight in weights]

    @property
    def vocab(self) -> int:
        return self.mixture.vocab

    def at_length(self, times: int) -> "Suite":
        """The same loads in examples `times` as long."""
        return replace(self, ladders=tuple(replace(ladder, length=times * ladder.length) for ladder in self.ladders))


@dataclass(frozen=True, kw_only=True)
class Language:
    """Language modelling on bytes. `text` is the corpus digest, empty until a corpus is chosen."""

    training: Training
    length: int
    num_examples: int
    text: str = ""

    def __post_init__(self) -> None:
        _check("language", "length", self.length, 2, 2**16)
        _check("language", "num_examples", self.num_examples, 1, 2**20)


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Tasks, their training, the proxy scale (its vocabulary is the task's) and the rungs, as shares of the budget.

    Weights start normal with `init_std`, embeddings with `embedding_std`. fla's 0.02 suits a width of 1024; at a
    proxy's width it hides the token behind the first layers' output, and attention stays on the plateau for long.
    Designs are compared at equal width; with `match` "parameters" or "state", also at equal parameters or with equal
    state in every linear layer (`space.cost.matched`).
    """

    name: str
    width: int
    heads: int
    state_heads: int
    mlp_dim: int
    recall: Recall | Suite
    language: Language
    init_std: float = 0.02
    embedding_std: float = 0.02
    match: str = "width"
    rungs: tuple[float, ...] = (0.5, 1.0)
    version: int = field(default=VERSION)

    def __post_init__(self) -> None:
        if not self.rungs or list(self.rungs) != sorted(set(self.rungs)) or self.rungs[0] <= 0 or self.rungs[-1] != 1:
            raise ValueError(f"protocol rungs = {list(self.rungs)}: must rise from above 0 and end at 1.0")
        if self.match not in MATCHES:
            raise ValueError(f"protocol match = {self.match!r}: must be one of {', '.join(MATCHES)}")
        for name in ("init_std", "embedding_std"):
            _check("protocol", name, getattr(self, name), 1e-4, 10, float)
        _ = self.scale

    def scale_for(self, vocab: int, design: Design | None = None) -> Scale:
        """The proxy's dimensions with a task's vocabulary, for `design` where designs differ in theirs."""
        scale = Scale(name=f"{self.name} proxy", width=self.width, heads=self.heads, state_heads=self.state_heads,
                      mlp_dim=self.mlp_dim, vocab=vocab)  # fmt: skip
        return matched(design, scale, self.match)

    @property
    def scale(self) -> Scale:
        """The dimensions of the recall proxy."""
        return self.scale_for(self.recall.vocab)

    def with_text(self, digest: str) -> "Protocol":
        return replace(self, language=replace(self.language, text=digest))

    def with_overrides(self, overrides: Mapping[str, Any]) -> "Protocol":
        """This protocol with some fields changed, nested as in `to_dict`. Unknown keys are refused."""
        return _override(self, overrides, "protocol")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits of SHA-256 over every field but the name."""
        data = {key: value for key, value in self.to_dict().items() if key != "name"}
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def _override(settings: Any, overrides: Mapping[str, Any], where: str) -> Any:
    known = [item.name for item in fields(settings) if item.init and item.name not in ("name", "version", "text")]
    changed: dict[str, Any] = {}
    for key, value in overrides.items():
        if key not in known:
            raise ValueError(f"{where} key {key!r}: must be one of {', '.join(known)}{nearest(key, known)}")
        current = getattr(settings, key)
        if key == "ladders":
            value = _override_ladders(current, value, f"{where}.{key}")
        elif isinstance(value, Mapping):
            value = _override(current, value, f"{where}.{key}")
        elif isinstance(current, tuple):
            if not isinstance(value, list | tuple):
                raise ValueError(f"{where} {key} = {value!r}: must be a list")
            value = tuple(value)
        changed[key] = value
    return replace(settings, **changed)


def _override_ladders(ladders: tuple[Ladder, ...], overrides: Any, where: str) -> tuple[Ladder, ...]:
    """Ladders with some fields changed, by the name of their task: a new name is one more ladder, false one less."""
    if not isinstance(overrides, Mapping):
        raise ValueError(f"{where} = {overrides!r}: must have a table for each ladder that changes")
    kept = {ladder.task: ladder for ladder in ladders}
    for name, changes in overrides.items():
        if name not in LADDERS:
            raise ValueError(f"{where} key {name!r}: must be one of {', '.join(LADDERS)}{nearest(name, LADDERS)}")
        if changes is False:
            kept.pop(name, None)
        elif not isinstance(changes, Mapping):
            raise ValueError(f"{where} {name} = {changes!r}: must be a table, or false to leave the ladder out")
        elif name in kept:
            kept[name] = _override(kept[name], changes, f"{where}.{name}")
        else:
            kept[name] = _new_ladder(name, ladders[0], changes, f"{where}.{name}")
    return tuple(kept.values())


def _new_ladder(name: str, beside: Ladder, changes: Mapping[str, Any], where: str) -> Ladder:
    """The ladder `name` with the vocabulary and the length of another. Its loads have to be among `changes`."""
    if "loads" not in changes:
        raise ValueError(f"{where}: must have loads, such as {list(LADDERS[name]().loads)}")
    return _override(LADDERS[name](), {"vocab": beside.vocab, "length": beside.length, **changes}, where)


def _suite(name: str, *, steps: int, fresh_seeds: int) -> Protocol:
    """A protocol for a GPU: six ladders at once, a sweep of learning rates, and fresh seeds for the score."""

    def training(steps: int, batch: int, *rates: float) -> Training:
        return Training(
            steps=steps, batch=batch, learning_rates=rates, num_seeds=4, fresh_seeds=fresh_seeds,
            extensions=1,
        )  # fmt: skip

    sizes: dict[str, Any] = {"vocab": 128, "length": 255}  # 256 with the name of the ladder: whole chunks
    ladders = (
        Pairs(**sizes, loads=(2, 8, 16, 32)),
        MultiValue(**sizes, keys=2),
        Overwrite(**sizes),
        KHop(**sizes, chains=2),
        Fuzzy(**sizes),
        Needle(**sizes, loads=(16, 64, 128, 240)),
    )
    return Protocol(
        name=name, width=64, heads=1, state_heads=1, mlp_dim=128, init_std=0.05, embedding_std=0.5, rungs=(0.4, 1.0),
        recall=Suite(training=training(steps, 24, 1e-3, 2e-3, 4e-3), ladders=ladders, growth=0.5, longer=(2, 4)),
        language=Language(training=training(steps // 4, 16, 4e-3, 8e-3, 16e-3), length=256, num_examples=256),
    )  # fmt: skip


PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            name="quick", width=32, heads=1, state_heads=1, mlp_dim=64, init_std=0.1, embedding_std=0.5,
            recall=Recall(
                training=Training(steps=400, batch=24, learning_rates=(3e-3, 6e-3), num_seeds=3),
                vocab=32, length=16, pairs=(2, 4), num_examples=256, filler="zero",
            ),
            language=Language(
                training=Training(steps=120, batch=8, learning_rates=(3e-3,), num_seeds=3),
                length=64, num_examples=128,
            ),
        ),
        _suite("screen", steps=2400, fresh_seeds=5),
        _suite("confirm", steps=7200, fresh_seeds=7),
    )
}  # fmt: skip


def named(name: str, overrides: Mapping[str, Any] | None = None) -> Protocol:
    """The protocol `name`, with `overrides` nested as in `Protocol.to_dict`. Raises ValueError for unknown names."""
    if name not in PROTOCOLS:
        raise ValueError(f"protocol = {name!r}: must be one of {', '.join(PROTOCOLS)}{nearest(name, PROTOCOLS)}")
    return PROTOCOLS[name].with_overrides(overrides or {})
