"""Optuna's samplers, with what they need to work in this space and for long.

The study lives in memory and holds at most MOST_TRIALS: then it is begun again with the best and the newest
evaluations, so that neither memory nor the time of a proposal grows with the search.

NSGA-II crosses only the parameters that every trial has. Here parameters depend on one another (a design without
attention has no placement), so nearly nothing would be crossed and it would be random search: it is asked for every
parameter of the space each time, and what a design has no use for is carried along. Its first population is random; a
study begun again, also after a restart, begins with the best evaluations there are.
"""

import random
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from search.answers import DIRECTIONS, recorded
from search.store.pareto import best
from space.design import Design
from space.space import SearchSpace

POPULATION = 12
MOST_TRIALS = 600
KEPT = 200
Values = tuple[float, ...]


class Sampler:
    """One of nsga2, tpe and random over `space`. `observed` are the designs that have scores, oldest first.

    `designs` have scores, and `points` are these, signed so that smaller is better.
    """

    def __init__(
        self, space: SearchSpace, objectives: Mapping[str, str], name: str, seed: int, observed: Mapping[Design, Values]
    ) -> None:
        self.space, self.name = space, name
        self._directions = [DIRECTIONS[direction] for direction in objectives.values()]
        self._signs = [-1 if direction == "max" else 1 for direction in objectives.values()]
        self.designs = list(observed)
        self.points = [self._signed(values) for values in observed.values()]
        self._random = random.Random(seed)
        self._genome = _genome(space) if name == "nsga2" else None
        self._begin()

    def draw(self) -> tuple[int, Design]:
        """A trial's number and its design, which may be known already."""
        if self._size >= MOST_TRIALS:
            self._begin()
        self._size += 1
        if self._genome is None:
            trial = self._study.ask()
            return trial.number, self.space.suggest(trial)
        trial = self._study.ask(self._genome)
        return trial.number, self.space.suggest(optuna.trial.FixedTrial(trial.params))

    def drop(self, number: int) -> None:
        """The trial drew a design that is not new."""
        self._study.tell(number, state=TrialState.FAIL)

    def keep(self, number: int, design: Design) -> None:
        """The trial's design is being evaluated."""
        self._pending[design] = number

    def tell(self, design: Design, values: Sequence[float] | None) -> None:
        """The objectives of a design, or None when it ended without scores."""
        number = self._pending.pop(design, None)
        known = values is not None and self.space.contains(design)
        if values is not None and known:
            self.designs.append(design)
            self.points.append(self._signed(values))
        if number is not None:
            self._study.tell(number, values, state=TrialState.FAIL if values is None else TrialState.COMPLETE)
        elif known:
            self._size += 1
            self._study.add_trial(self._trial(len(self.designs) - 1))

    def _signed(self, values: Sequence[float]) -> Values:
        return tuple(s * v for s, v in zip(self._signs, values, strict=True))

    def _begin(self) -> None:
        self._pending: dict[Design, int] = {}
        sampler = _sampler(self.name, self._random.randrange(2**32))
        self._study = optuna.create_study(directions=self._directions, sampler=sampler)
        designs, points = self.designs, self.points
        order = best(points, KEPT // 2)
        first = set(order[:POPULATION]) if len(points) >= 2 * POPULATION else set()
        kept = sorted({*order, *range(max(0, len(points) - KEPT // 2), len(points))})
        kept = [index for index in kept if self.space.contains(designs[index])]
        self._study.add_trials([self._trial(index, index in first) for index in kept])
        self._size = len(kept)

    def _trial(self, index: int, first: bool = False) -> FrozenTrial:
        """What Optuna would have recorded; with `first`, as one of NSGA-II's first population."""
        design = self.designs[index]
        found = recorded(self.space, design)
        params: dict[str, Any] = dict(found.params)
        distributions: dict[str, BaseDistribution] = dict(found.distributions)
        if self._genome is not None:
            chance = random.Random(design.digest)
            distributions = self._genome
            params = {
                name: params[name] if name in params else _any(kind, chance) for name, kind in self._genome.items()
            }
        return create_trial(
            state=TrialState.COMPLETE,
            values=self._signed(self.points[index]),
            params=params,
            distributions=distributions,
            system_attrs={NSGAIISampler._get_generation_key(): 0} if first and self.name == "nsga2" else None,
        )


def _genome(space: SearchSpace) -> dict[str, BaseDistribution]:
    """Every parameter of the space."""
    return {
        name: FloatDistribution(0.0, 1.0) if choices is None else CategoricalDistribution(choices)
        for name, choices in space.parameters.items()
    }


def _any(kind: BaseDistribution, chance: random.Random) -> Any:
    return chance.choice(kind.choices) if isinstance(kind, CategoricalDistribution) else chance.random()


def _sampler(name: str, seed: int) -> BaseSampler:
    if name == "nsga2":
        return NSGAIISampler(population_size=POPULATION, seed=seed)
    if name == "tpe":
        with warnings.catch_warnings():  # Optuna calls `group` experimental at each start
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return TPESampler(multivariate=True, group=True, seed=seed)
    return RandomSampler(seed=seed)
