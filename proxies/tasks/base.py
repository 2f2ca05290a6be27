"""What a task is: a vocabulary, a training stream for each seed, and held-out batches by rung with a metric.

A `LadderTask` is a synthetic task at growing loads; it says only how its examples are made.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import ClassVar, Generic, Literal, Protocol, TypeVar

import torch
from torch import Tensor

IGNORE = -100
HeldOut = Literal["validation", "test"]
POWER = 0.01  # of the gaps before queries
_BLOCK = 64  # training batches drawn at once, to spread the cost of small tensor operations


@dataclass(frozen=True)
class Batch:
    """Tokens [B, T] and labels [B, P] at `positions` [B, P]; without positions, labels are [B, T]."""

    tokens: Tensor
    labels: Tensor
    positions: Tensor | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Tokens and labels, and the positions if there are any."""
        return (self.tokens, self.labels) if self.positions is None else (self.tokens, self.labels, self.positions)

    def map(self, function) -> "Batch":  # type: ignore[no-untyped-def]
        """The batch with `function` applied to every tensor."""
        positions = None if self.positions is None else function(self.positions)
        return Batch(function(self.tokens), function(self.labels), positions)


CPU = torch.device("cpu")


def stream(part: str, seed: int, device: torch.device = CPU) -> torch.Generator:
    """A generator for one part of one seed's data; different parts never share a stream, nor do kinds of device."""
    key = hashlib.sha256(f"{part} {seed}".encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(key[:7], "big"))


class Task(ABC):
    """One task at one setting."""

    vocab: int
    higher_is_better: bool
    deciding: tuple[str, ...] | None = None  # the rungs on which a learning rate is chosen, where not all

    @abstractmethod
    def training(self, seed: int, batch: int, device: torch.device = CPU) -> Iterator[Batch]:
        """Endless batches of the training stream of `seed`, made on `device`.

        Their shapes at a step are the same for all seeds. None is larger than the first, by which memory is planned.
        """

    @abstractmethod
    def held_out(self, part: HeldOut) -> dict[str, Batch]:
        """Held-out examples by the name of their rung, on the CPU: the same for every design, seed and device."""

    @abstractmethod
    def metric(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The figure of each replica, [K], from logits [K, B, P, V] and labels [B, P]."""

    def decided(self, figures: Mapping[str, Tensor]) -> Tensor:
        """The mean over the deciding rungs, shaped as each rung's figures."""
        return torch.stack([figures[rung] for rung in self.deciding or figures]).mean(0)


class SyntheticTask(Task):
    """Examples made on the spot and scored by accuracy."""

    higher_is_better = True

    @abstractmethod
    def chance(self, rung: str) -> float:
        """Accuracy at a rung of the best guess that does not look at the context."""

    def metric(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Accuracy in 0..1 over the labels that are scored."""
        scored = labels != IGNORE
        return ((logits.argmax(-1) == labels) & scored).sum((1, 2)) / scored.sum()


class EvenTask(SyntheticTask):
    """A rung is one load of one ladder, and every training batch has an equal share of each."""

    num_rungs: int

    @abstractmethod
    def blocks(self, seed: int, share: int, device: torch.device) -> Iterator[Batch]:
        """Endless blocks of batches, [blocked batches, rungs * share, ...], `share` examples of each rung in each."""

    def training(self, seed: int, batch: int, device: torch.device = CPU) -> Iterator[Batch]:
        """Batches with an equal share of every rung: labels [B, P], padded with IGNORE to the most queries.

        Raises ValueError when `batch` is not a multiple of the rungs.
        """
        share, rest = divmod(batch, self.num_rungs)
        if rest or not share:
            raise ValueError(f"batch = {batch}: must be a multiple of the {self.num_rungs} rungs")
        return (
            block.map(lambda x, step=step: x[step])
            for block in self.blocks(seed, share, device)
            for step in range(_BLOCK)
        )


class LadderSettings(Protocol):
    """What every ladder's settings have; `proxies.ladders` has them as data."""

    @property
    def vocab(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def loads(self) -> tuple[int, ...]: ...
    @property
    def num_examples(self) -> int: ...


Settings = TypeVar("Settings", bound=LadderSettings)


class LadderTask(EvenTask, Generic[Settings]):
    """One synthetic task; its rungs are named `<name>_<load>`.

    `separates` says which designs it tells apart, `ruler` which RULER sub-tasks (arXiv 2404.06654) it stands for, and
    `ceiling` is the accuracy of one who reads everything.
    """

    name: ClassVar[str]
    separates: ClassVar[str]
    ruler: ClassVar[tuple[str, ...]] = ()
    ceiling: ClassVar[float] = 1.0
    stream_name: ClassVar[str] = ""  # the streams' own, where it is not the name

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.vocab = settings.vocab
        self.num_rungs = len(settings.loads)

    @abstractmethod
    def examples(self, load: int, count: int, generator: torch.Generator) -> Batch:
        """`count` examples of a load on the generator's device: tokens [count, T], labels and positions [count, P]."""

    @abstractmethod
    def answers(self, load: int) -> int:
        """How many answers are equally likely to one who does not look at the context."""

    @property
    def rungs(self) -> dict[str, int]:
        """The loads by the name of their rung."""
        return {f"{self.name}_{load}": load for load in self.settings.loads}

    def chance(self, rung: str) -> float:
        return 1 / self.answers(self.rungs[rung])

    def blocks(self, seed: int, share: int, device: torch.device, grown: int = 0) -> Iterator[Batch]:
        """As `EvenTask` says. The smallest load is there from the start, and all from step `grown` on."""
        generator, loads = self._stream("train", seed, device), self.settings.loads
        largest = self.examples(loads[-1], 1, self._stream("shape", seed, device)).labels.shape[-1]
        for done in count(step=_BLOCK):
            used = loads if done >= grown else loads[: 1 + len(loads) * done // grown]
            shares = [len(range(first, share * len(loads), len(used))) for first in range(len(used))]
            rungs = [
                self.examples(load, _BLOCK * each, generator).map(lambda x, each=each: x.unflatten(0, (_BLOCK, each)))
                for load, each in zip(used, shares, strict=True)
            ]
            yield joined(rungs, largest)

    def held_out(self, part: HeldOut) -> dict[str, Batch]:
        return {
            rung: self.examples(load, self.settings.num_examples, self._stream(part, load))
            for rung, load in self.rungs.items()
        }

    def _stream(self, part: str, seed: int, device: torch.device = CPU) -> torch.Generator:
        return stream(f"{self.stream_name or self.name} {part}", seed, device)


def joined(blocks: Sequence[Batch], at_least: int = 0) -> Batch:
    """Blocks [S, B, ...] side by side along B, padded to the most queries: IGNORE at position 0."""
    most = max(at_least, *(block.labels.shape[-1] for block in blocks))

    def padded(x: Tensor, value: int) -> Tensor:
        return torch.nn.functional.pad(x, (0, most - x.shape[-1]), value=value)

    return Batch(
        torch.cat([block.tokens for block in blocks], dim=1),
        torch.cat([padded(block.labels, IGNORE) for block in blocks], dim=1),
        torch.cat([padded(block.positions, 0) for block in blocks if block.positions is not None], dim=1),
    )


def uniform(generator: torch.Generator, *shape: int) -> Tensor:
    """Numbers from 0 to 1, of `shape`, on the generator's device."""
    return torch.rand(*shape, generator=generator, device=generator.device)


def distinct(choices: int, number: int, count: int, generator: torch.Generator) -> Tensor:
    """`number` of 0..choices-1 without repeats and in random order, for each of `count` examples: [count, number]."""
    return uniform(generator, count, choices).topk(number, 1, largest=False).indices


def filler(count: int, length: int, generator: torch.Generator) -> Tensor:
    """Tokens [count, length] that are all 0."""
    return torch.zeros(count, length, dtype=torch.long, device=generator.device)


def query_places(
    context: int, length: int, stride: int, queries: int, count: int, generator: torch.Generator
) -> Tensor:
    """Where queries of at most `stride` tokens begin, [count, queries]: after the context, a gap g of strides apart.

    Gaps are drawn without replacement with p(g) ~ (g + 1)^(a - 1), a = 0.01 (arXiv 2312.04927): most come early.
    """
    num_gaps = (length - context) // stride
    log_p = (POWER - 1) * torch.arange(1, num_gaps + 1, device=generator.device).log()
    gumbel = -(-uniform(generator, count, num_gaps).clamp_min(1e-20).log()).log()
    return context + stride * (log_p + gumbel).topk(queries, dim=1).indices  # Gumbel top-k: without replacement
