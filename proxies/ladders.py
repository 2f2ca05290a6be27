"""Ladders as plain data: each synthetic task's settings, and mixtures of them. `proxies.tasks` makes the examples.

A ladder is one task at growing loads. What a load counts, and which loads fit, is the task's own. The defaults share
one vocabulary and one length, so any of them mix. No torch here, as in `proxies.protocol`.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple


def check(where: str, name: str, value: Any, low: float, high: float, kind: type = int) -> None:
    """Raises ValueError unless `value` is a number of `kind` in low..high; the message names field, value and range."""
    number = isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        what = "a number" if kind is float else "a whole number"
        raise ValueError(f"{where} {name} = {value!r}: must be {what} in {low:g}..{high:g}")


def check_filler(where: str, filler: str) -> None:
    if filler not in ("random", "zero"):
        raise ValueError(f"{where} filler = {filler!r}: must be 'random' or 'zero'")


def check_rising(where: str, name: str, values: tuple[int, ...]) -> None:
    """Raises ValueError unless `values` are distinct and rising, at least one."""
    if not values or list(values) != sorted(set(values)):
        raise ValueError(f"{where} {name} = {list(values)}: must be distinct and rising, at least one")


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """What all ladders have: tokens 0..vocab-1, of which 0 is filler; examples of `length` tokens; rising loads."""

    task: str = field(init=False)
    vocab: int = 64
    length: int = 128
    loads: tuple[int, ...] = ()
    num_examples: int = 256  # of each load, in validation and again in the sealed test

    def __post_init__(self) -> None:
        check(self.task, "vocab", self.vocab, 16, 2**20)
        check(self.task, "length", self.length, 4, 2**20)
        check(self.task, "num_examples", self.num_examples, 1, 2**20)
        self._check_own()
        check_rising(self.task, "loads", self.loads)
        for load in self.loads:
            check(self.task, "loads", load, self.smallest, self.largest)

    def _check_own(self) -> None:
        """Checks the fields that are the task's own."""

    @property
    def num_keys(self) -> int:
        """Keys are the tokens 1..num_keys, where a task has keys and values."""
        return self.num_symbols // 2 - 1

    @property
    def num_values(self) -> int:
        """Values are the tokens num_keys+1..num_keys+num_values."""
        return self.num_symbols - self.num_keys - 1

    @property
    def num_symbols(self) -> int:
        """Filler, keys and values together."""
        return self.vocab

    @property
    def smallest(self) -> int:
        """The smallest load that makes sense."""
        return 1

    @property
    def largest(self) -> int:
        """The largest load that fits the vocabulary and the length."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Pairs(Ladder):
    """Multi-query associative recall. Load: pairs."""

    task: str = field(init=False, default="pairs")
    loads: tuple[int, ...] = (4, 8, 16, 24)
    filler: str = "zero"

    def _check_own(self) -> None:
        check_filler("pairs", self.filler)

    @property
    def largest(self) -> int:
        return min(self.num_keys, self.length // 4)


@dataclass(frozen=True, kw_only=True)
class MultiKey(Ladder):
    """Pairs of which `queries` are asked for, or all; the last `values` tokens are values. Load: pairs."""

    task: str = field(init=False, default="multi_key")
    loads: tuple[int, ...] = (4, 8, 16, 40)
    queries: int = 8
    values: int = 16

    def _check_own(self) -> None:
        check("multi_key", "values", self.values, 2, self.vocab - 2)
        check("multi_key", "queries", self.queries, 1, min(self.num_keys, self.length // 4))

    @property
    def num_keys(self) -> int:
        return self.vocab - 1 - self.values

    @property
    def largest(self) -> int:
        return min(self.num_keys, self.length // 2 - self.queries)


@dataclass(frozen=True, kw_only=True)
class MultiValue(Ladder):
    """`keys` keys, each with several values. Load: values a key."""

    task: str = field(init=False, default="multi_value")
    loads: tuple[int, ...] = (1, 2, 4, 8)
    keys: int = 4

    def _check_own(self) -> None:
        check(self.task, "keys", self.keys, 1, min(self.num_keys, self.length // 4))

    @property
    def largest(self) -> int:
        return min(self.num_values // self.keys, self.length // (3 * self.keys))


@dataclass(frozen=True, kw_only=True)
class Overwrite(Ladder):
    """Keys written again and again. Load: keys; there are `writes` pairs for each on average."""

    task: str = field(init=False, default="overwrite")
    loads: tuple[int, ...] = (2, 4, 8, 16)
    writes: int = 2

    def _check_own(self) -> None:
        check(self.task, "writes", self.writes, 1, min(self.num_values, self.length // 2 - 1))

    @property
    def largest(self) -> int:
        return min(self.num_keys, self.num_values // self.writes, self.length // (2 * self.writes + 2))


@dataclass(frozen=True, kw_only=True)
class KHop(Ladder):
    """`chains` chains of pointers. Load: hops. Pairs that are asked for by nobody fill up to the largest load's."""

    task: str = field(init=False, default="k_hop")
    loads: tuple[int, ...] = (1, 2, 3, 4)
    chains: int = 4

    def _check_own(self) -> None:
        check(self.task, "chains", self.chains, 1, min(self.num_keys, self.length // 4))

    @property
    def largest(self) -> int:
        return min(self.num_keys // self.chains, self.length // (2 * self.chains) - 1)

    @property
    def num_pairs(self) -> int:
        """Pairs of every example, whatever its load."""
        return self.chains * max(self.loads)


@dataclass(frozen=True, kw_only=True)
class Copy(Ladder):
    """Symbols to repeat, drawn from an `alphabet`. Load: symbols."""

    task: str = field(init=False, default="copy")
    loads: tuple[int, ...] = (8, 16, 32, 64)
    alphabet: int = 16

    def _check_own(self) -> None:
        check(self.task, "alphabet", self.alphabet, 2, self.vocab - 2)

    @property
    def largest(self) -> int:
        return self.length // 2


@dataclass(frozen=True, kw_only=True)
class Noisy(Ladder):
    """`pairs` pairs scattered among noise, which has the last `noise` tokens of the vocabulary. Load: noise tokens."""

    task: str = field(init=False, default="noisy")
    loads: tuple[int, ...] = (8, 16, 32, 64)
    pairs: int = 4
    noise: int = 16

    def _check_own(self) -> None:
        check(self.task, "noise", self.noise, 1, self.vocab - 4)
        check(self.task, "pairs", self.pairs, 1, min(self.num_keys, (self.length - 1) // 4))

    @property
    def num_symbols(self) -> int:
        return self.vocab - self.noise

    @property
    def largest(self) -> int:
        return self.length - 4 * self.pairs


@dataclass(frozen=True, kw_only=True)
class Fuzzy(Ladder):
    """Keys that are motifs of `motif` tokens from a small `alphabet`. Load: pairs."""

    task: str = field(init=False, default="fuzzy")
    loads: tuple[int, ...] = (2, 4, 8, 16)
    motif: int = 2
    alphabet: int = 6

    def _check_own(self) -> None:
        check(self.task, "motif", self.motif, 1, self.length // 2 - 1)
        check(self.task, "alphabet", self.alphabet, 2, self.vocab - 2)
        if self.alphabet**self.motif > 4096:
            raise ValueError(f"fuzzy motif = {self.motif}: {self.alphabet}^motif must be at most 4096")

    @property
    def num_keys(self) -> int:
        """Tokens that motifs are made of."""
        return self.alphabet

    @property
    def largest(self) -> int:
        return min(self.alphabet**self.motif, self.num_values, self.length // (2 * self.motif + 2))


@dataclass(frozen=True, kw_only=True)
class Needle(Ladder):
    """One pair in a long filler. Load: tokens of filler."""

    task: str = field(init=False, default="needle")
    loads: tuple[int, ...] = (16, 32, 64, 120)

    @property
    def largest(self) -> int:
        return self.length - 3


@dataclass(frozen=True, kw_only=True)
class Counting(Ladder):
    """The `ranks` most frequent symbols, `repeats` more each. Load: symbols, each there `repeats` times or more."""

    task: str = field(init=False, default="counting")
    loads: tuple[int, ...] = (4, 8, 16, 32)
    repeats: int = 2
    ranks: int = 1

    def _check_own(self) -> None:
        check(self.task, "ranks", self.ranks, 1, self.vocab // 2 - 1)
        check(self.task, "repeats", self.repeats, 1, (self.length - self.ranks) // (self.num_extra + self.smallest))

    @property
    def num_symbols(self) -> int:
        return self.vocab - 1 - self.ranks

    @property
    def smallest(self) -> int:
        return self.ranks + 1

    @property
    def largest(self) -> int:
        return min(self.num_symbols, (self.length - self.ranks) // self.repeats - self.num_extra)

    @property
    def num_extra(self) -> int:
        """How many times `repeats` the ranks are there beyond what every symbol is."""
        return self.ranks * (self.ranks + 1) // 2


@dataclass(frozen=True, kw_only=True)
class StateTracking(Ladder):
    """A product of elements of a `group`, `s3` or `parity`. Load: elements."""

    task: str = field(init=False, default="state_tracking")
    loads: tuple[int, ...] = (2, 4, 8, 16)
    group: str = "s3"

    def _check_own(self) -> None:
        if self.group not in ("s3", "parity"):
            raise ValueError(f"state_tracking group = {self.group!r}: must be 's3' or 'parity'")

    @property
    def num_symbols(self) -> int:
        """Elements of the group."""
        return 6 if self.group == "s3" else 2

    @property
    def smallest(self) -> int:
        return 2

    @property
    def largest(self) -> int:
        return self.length


LADDERS: dict[str, type[Ladder]] = {
    str(ladder.__dataclass_fields__["task"].default): ladder
    for ladder in (Pairs, MultiKey, MultiValue, Overwrite, KHop, Copy, Noisy, Fuzzy, Needle, Counting, StateTracking)
}


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Several ladders in one training; every batch has an equal share of every load of each.

    An example is a token that names its ladder, then the ladder's own tokens; the names come after the vocabulary.
    """

    ladders: tuple[Ladder, ...]

    def __post_init__(self) -> None:
        names = [ladder.task for ladder in self.ladders]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"mixture ladders = {names}: must be distinct, at least one")
        for name in ("vocab", "length"):
            values = [getattr(ladder, name) for ladder in self.ladders]
            if len(set(values)) > 1:
                raise ValueError(f"mixture {name} = {values}: must be the same for every ladder")

    @property
    def vocab(self) -> int:
        return self.ladders[0].vocab + len(self.ladders)

    @property
    def length(self) -> int:
        return self.ladders[0].length + 1

    @property
    def num_loads(self) -> int:
        """Loads of all ladders together; a batch has a multiple of them."""
        return sum(len(ladder.loads) for ladder in self.ladders)


class Segment(NamedTuple):
    """Examples of one length, in tokens, with one number of pairs."""

    length: int
    pairs: int


@dataclass(frozen=True, kw_only=True)
class Segments:
    """Multi-query associative recall in segments: every training batch is of one of `train`.

    A round has `shares` batches of each of them. `test` are the rungs, with `num_examples` examples each in validation
    and again in the sealed test. One of `train`, the largest, has both the greatest length and the most pairs.
    """

    train: tuple[Segment, ...]
    shares: tuple[int, ...]
    test: tuple[Segment, ...]
    vocab: int = 8192
    filler: str = "random"
    num_examples: int = 1000

    def __post_init__(self) -> None:
        check("segments", "vocab", self.vocab, 16, 2**20)
        check("segments", "num_examples", self.num_examples, 1, 2**20)
        check_filler("segments", self.filler)
        for name, segments in (("train", self.train), ("test", self.test)):
            shown = [tuple(segment) for segment in segments]
            if not segments or len(set(segments)) != len(segments):
                raise ValueError(f"segments {name} = {shown}: must be distinct, at least one")
            for length, pairs in segments:
                check(f"segments {name}", "length", length, 4, 2**20)
                check(f"segments {name}", "pairs", pairs, 1, min(self.vocab // 2 - 1, length // 4))
        if len(self.shares) != len(self.train):
            raise ValueError(f"segments shares = {list(self.shares)}: must be {len(self.train)}, one for each of train")
        for share in self.shares:
            check("segments", "shares", share, 1, 1000)
        if self.largest not in self.train:
            shown = [tuple(segment) for segment in self.train]
            raise ValueError(f"segments train = {shown}: one must have both the greatest length and the most pairs")

    @property
    def largest(self) -> Segment:
        """The segment of `train` whose batches are the largest."""
        return Segment(max(segment.length for segment in self.train), max(segment.pairs for segment in self.train))
