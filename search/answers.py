"""A design in Optuna's terms: the answers that lead to it, and the distributions they are drawn from."""

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.study import StudyDirection

from space.design import Design
from space.space import SearchSpace

DIRECTIONS = {"max": StudyDirection.MAXIMIZE, "min": StudyDirection.MINIMIZE}


class Recording:
    """A trial that answers from a design's encoding and notes what it was asked."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.params: dict[str, Any] = {}
        self.distributions: dict[str, BaseDistribution] = {}

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        self.distributions[name] = CategoricalDistribution(choices)
        self.params[name] = self.answers[name]
        return self.answers[name]

    def suggest_float(self, name: str, low: float, high: float) -> float:
        self.distributions[name] = FloatDistribution(low, high)
        self.params[name] = self.answers[name]
        return float(self.answers[name])


def recorded(space: SearchSpace, design: Design) -> Recording:
    """What Optuna would have noted had it proposed `design`. Raises ValueError when it is not in the space."""
    recording = Recording(space.encode(design))
    space.suggest(recording)
    return recording
