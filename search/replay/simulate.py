"""One search, replayed: the sampler and the stopping of a real one, workers that take as long as the table says."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from search.config import METRICS, Halving
from search.proposer import Proposer
from search.replay.table import Entry, Table
from search.stopping import Decision, Rungs
from search.store.pareto import Point, hypervolume, non_dominated, signed
from search.store.tables import COMPLETE
from space.design import Design


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Hypervolume after each evaluation that ended, as a share of that of the whole table, and the virtual seconds."""

    sampler: str
    seed: int
    seconds: tuple[float, ...]
    hypervolume: tuple[float, ...]
    stopped: int = 0
    failed: int = 0

    def at(self, trainings: int) -> float:
        """The hypervolume after so many trainings; a search that ended before keeps what it has."""
        return self.hypervolume[min(trainings, len(self.hypervolume)) - 1] if trainings and self.hypervolume else 0.0

    def reaching(self, share: float) -> tuple[int, float] | None:
        """Trainings and seconds until the hypervolume is `share`; None when it never is."""
        for index, value in enumerate(self.hypervolume):
            if value >= share:
                return index + 1, self.seconds[index]
        return None


class Scale:
    """The objectives of a table between the best and the worst of its complete entries, for a hypervolume in 0..1."""

    def __init__(self, table: Table) -> None:
        self.objectives = table.objectives
        ends = [entry.rungs[-1].metrics for entry in table.entries.values() if entry.state == COMPLETE]
        points = np.array([signed(metrics, table.objectives) for metrics in ends], dtype=float)
        self.low, high = points.min(0), points.max(0)
        self.span = np.where(high > self.low, high - self.low, 1.0)
        self.reference = (1.05,) * points.shape[1]
        self.whole = hypervolume([self.point(metrics) for metrics in ends], self.reference)

    def point(self, metrics: object) -> Point:
        found = signed(metrics, self.objectives)  # type: ignore[arg-type]
        return tuple(float(value) for value in (np.array(found) - self.low) / self.span)

    def of(self, points: Sequence[Point]) -> float:
        return hypervolume(points, self.reference) / self.whole


def replay(
    table: Table,
    sampler: str,
    seed: int,
    *,
    trials: int,
    workers: int = 1,
    stopping: str = "none",
    rule: Halving | None = None,
) -> Curve:
    """A search of `trials` evaluations on `workers` workers; designs that the table lacks are passed over."""
    entries, scale = table.entries, Scale(table)
    measured = ("recall", "recall_low", "recall_high", "lm_bits_per_byte")
    computed = [name for name in table.objectives if name in METRICS and name not in measured]

    def costs(design: Design) -> dict[str, float]:
        entry = entries.get(design.digest)
        reached = entry.rungs[0].metrics if entry and entry.rungs else {}
        return {name: reached.get(name, 0.0) for name in computed}

    proposer = Proposer(
        table.space, table.objectives, sampler, seed, costs=costs,
        infeasible=lambda design: None if design.digest in entries else "not in the table",
    )  # fmt: skip
    rungs = Rungs(stopping, table.objectives, rule or Halving())
    running: list[tuple[float, int, str, int]] = []
    origins: dict[str, str] = {}
    begun: dict[str, float] = {}
    clock, started, finished, exhausted = 0.0, 0, 0, False
    front: list[Point] = []
    seconds: list[float] = []
    volumes: list[float] = []
    counts = {"stopped": 0, "failed": 0}

    def schedule(digest: str, rung: int) -> None:
        entry = entries[digest]
        took = entry.rungs[rung].seconds if rung < len(entry.rungs) else entry.seconds
        heapq.heappush(running, (begun[digest] + took, started, digest, rung))

    while True:
        while not exhausted and len(running) < workers and finished + len(running) < trials:
            proposal = proposer.ask()
            if proposal is None:
                exhausted = True
                break
            digest = proposal.design.digest
            started += 1
            origins[digest], begun[digest] = proposal.origin, clock
            schedule(digest, 0)
        if not running:
            break
        clock, _, digest, rung = heapq.heappop(running)
        entry = entries[digest]
        values = None
        if rung == len(entry.rungs):
            counts["failed"] += 1
        else:
            reached = entry.rungs[rung]
            rungs.note(digest, rung, reached.metrics)
            if not _last(entry, rung):
                anchor = origins[digest] == "anchor"
                if anchor or rungs.decide(digest, rung, reached.budget) is not Decision.STOP:
                    schedule(digest, rung + 1)
                    continue
                counts["stopped"] += 1
            else:
                values = tuple(reached.metrics[name] for name in table.objectives)
                front.append(scale.point(reached.metrics))
                front = [front[index] for index in non_dominated(front)]
        finished += 1
        proposer.tell(Design.parse(entry.design), values)
        seconds.append(clock)
        volumes.append(scale.of(front) if values is not None or not volumes else volumes[-1])
    return Curve(sampler=sampler, seed=seed, seconds=tuple(seconds), hypervolume=tuple(volumes), **counts)


def _last(entry: Entry, rung: int) -> bool:
    return entry.state == COMPLETE and rung == len(entry.rungs) - 1
