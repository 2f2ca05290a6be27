"""Proposing designs: Optuna behind `ask` and `tell`, and everything Optuna leaves to its user.

The study lives in memory and is rebuilt from what the database holds. Anchors (controls, whose result is known) come
first. A design is never proposed twice: a repeat is drawn again, then replaced by a new neighbour of a
known design, then by whatever is left of the space. A design that is not feasible is told apart and passed over.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import optuna

from search.model import Model
from search.sampler import Sampler
from search.store.pareto import non_dominated
from space.cost import cost
from space.design import Design, Layer
from space.scale import SCALES
from space.space import SearchSpace

REDRAWS = 4
MIN_OBSERVED = 4  # what the model needs before it says anything
EXPLORE = 16  # one proposal in so many is Optuna's own; half of the pool is random as it is
POOL = 400
MOST_PARENTS = 8
_MAX_LISTED = 200_000  # spaces larger than this are not listed to find what is left


@dataclass(frozen=True)
class Proposal:
    """A design to evaluate and where it came from: anchor, model, sampler or neighbour; front or edge of a search that
    is confirmed."""

    design: Design
    origin: str


@dataclass(frozen=True)
class Past:
    """A design already in the search; `values` are its objectives if it has finished with scores."""

    design: Design
    values: tuple[float, ...] | None = None
    digest: str = ""


class Proposer:
    """Asks for new designs of `space`; `None` says that the space is exhausted.

    `costs` gives the objectives that need no training, which the sampler `model` uses.
    `infeasible` gives the reason why a design may not be trained, or None; `on_infeasible` hears of those passed over.
    """

    def __init__(
        self,
        space: SearchSpace,
        objectives: Mapping[str, str],
        sampler: str = "nsga2",
        seed: int = 0,
        history: Iterable[Past] = (),
        *,
        listed: Iterable[Proposal] | None = None,
        costs: Callable[[Design], Mapping[str, float]] = lambda design: {},
        infeasible: Callable[[Design], str | None] = lambda design: None,
        on_infeasible: Callable[[Proposal, str], None] = lambda proposal, reason: None,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space = space
        self.infeasible, self.on_infeasible = infeasible, on_infeasible
        past = list(history)
        self._seen: dict[str, Design] = {item.digest or item.design.digest: item.design for item in past}
        observed = {item.design: item.values for item in past if item.values is not None}
        self._pending: dict[Design, None] = {}
        self._asked = 0
        start = seed * 1_000_003 + len(past)
        self._random = random.Random(start)
        self._sampler = Sampler(space, objectives, "nsga2" if sampler == "model" else sampler, start, observed)
        self._anchors = iter(anchors(space))
        self._model = Model(space, objectives, lru_cache(20_000)(costs)) if sampler == "model" else None
        self._generator = np.random.default_rng(start)
        self._grid = self._all(random.Random(seed)) if sampler == "grid" else None
        self._listed = None if listed is None else iter(listed)

    def ask(self) -> Proposal | None:
        """A new, feasible design, or None when there is none left."""
        for proposal in self._candidates():
            if proposal.design.digest in self._seen:
                continue
            self._seen[proposal.design.digest] = proposal.design
            reason = self.infeasible(proposal.design)
            if reason is None:
                self._pending[proposal.design] = None
                return proposal
            self.on_infeasible(proposal, reason)
        return None

    def tell(self, design: Design, values: Sequence[float] | None) -> None:
        """The objectives of a design that was asked for, or None when it has no scores."""
        self._pending.pop(design, None)
        self._sampler.tell(design, values)

    def _candidates(self) -> Iterator[Proposal]:
        """Designs in the order they are preferred; some may be known already."""
        if self._listed is not None:
            yield from self._listed
            return
        for design in self._anchors:
            yield Proposal(design, "anchor")
        if self._grid is not None:
            for design in self._grid:
                yield Proposal(design, "sampler")
            return
        self._asked += 1
        designs, points = self._sampler.designs, self._sampler.points
        if self._model is not None and len(designs) >= MIN_OBSERVED and self._asked % EXPLORE:
            for design in self._model.ranked(designs, points, list(self._pending), self._pool(), self._generator):
                yield Proposal(design, "model")
        drawn: list[Design] = []
        for _ in range(REDRAWS):
            number, design = self._sampler.draw()
            if design.digest in self._seen:
                self._sampler.drop(number)
                drawn.append(design)
                continue
            self._sampler.keep(number, design)
            yield Proposal(design, "sampler")
            if self.infeasible(design) is not None:
                self.tell(design, None)
        for design in dict.fromkeys(reversed(drawn)):  # near where the sampler went
            steps = self.space.neighbours(design)
            self._random.shuffle(steps)
            for step in steps:
                yield Proposal(step, "neighbour")
        known = [design for design in self._seen.values() if self.space.contains(design)]
        self._random.shuffle(known)
        for design in known:
            steps = self.space.neighbours(design)
            self._random.shuffle(steps)
            for step in steps:
                yield Proposal(step, "neighbour")
        for design in self.space.enumerate():
            yield Proposal(design, "neighbour")

    def _pool(self) -> list[Design]:
        """New neighbours of some of the best, and new random designs."""
        best = [self._sampler.designs[index] for index in non_dominated(self._sampler.points)]
        self._random.shuffle(best)
        near = [step for design in best[:MOST_PARENTS] for step in self.space.neighbours(design)]
        self._random.shuffle(near)
        far = [self.space.suggest(_Drawn(self._random)) for _ in range(POOL // 2)]

        def usable(designs: Iterable[Design]) -> Iterator[Design]:
            new = (design for design in dict.fromkeys(designs) if design.digest not in self._seen)
            return (design for design in new if self.infeasible(design) is None)

        return list(dict.fromkeys([*islice(usable(near), POOL // 2), *usable(far)]))

    def _all(self, order: random.Random) -> Iterator[Design]:
        """The whole space in an order of its own, or in the order of enumeration where it is too large to hold."""
        if self.space.size > _MAX_LISTED:
            return self.space.enumerate()
        designs = list(self.space.enumerate())
        order.shuffle(designs)
        return iter(designs)


class _Drawn:
    """A trial whose answers are drawn at random."""

    def __init__(self, generator: random.Random) -> None:
        self.generator = generator

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        return self.generator.choice(choices)

    def suggest_float(self, name: str, low: float, high: float) -> float:
        return self.generator.uniform(low, high)


def anchors(space: SearchSpace) -> list[Design]:
    """The controls of every depth that `space` has: pure attention, which must recall, and the pure backbone with the
    smallest state, which must not."""
    found: list[Design] = []
    for depth in space.depth:
        attention, *pure = (Design.hybrid(depth, Layer.parse(text), ()) for text in ("full", *space.linear))
        found += [attention] if space.contains(attention) else []
        found += sorted(filter(space.contains, pure), key=_state_bytes)[:1]
    return found


def _state_bytes(design: Design) -> float:
    """At a scale of every day; infinite where that has no such shape."""
    try:
        return cost(design, SCALES["340m"]).state_bytes
    except ValueError:
        return math.inf
