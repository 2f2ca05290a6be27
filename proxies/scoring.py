"""From measurements to scores: a figure with an interval over seeds.

A ladder's accuracies by load are summed up as a capacity or an area; both take loads by their logarithm.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

# Two-sided 95 % quantiles of Student's t for 1..30 degrees of freedom.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


Sample = TypeVar("Sample")


@dataclass(frozen=True)
class Interval:
    """A mean over replicas, or another figure of them, and its 95 % interval."""

    mean: float
    low: float
    high: float


def interval(values: Sequence[float], low: float = -math.inf, high: float = math.inf) -> Interval:
    """Student's t interval of the mean, cut to [low, high]. One value has the whole range as its interval."""
    count = len(values)
    middle = mean(values)
    if count == 1:
        return Interval(middle, low, high)
    deviation = math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (count - 1))
    half = _T95[min(count - 1, len(_T95)) - 1] * deviation / math.sqrt(count)
    return Interval(middle, max(low, middle - half), min(high, middle + half))


def capacity(loads: Sequence[float], accuracies: Sequence[float], at: float = 0.9) -> float:
    """The largest load with accuracy `at`, read off the line through accuracies by log load.

    0 when no load has it. The largest load when that has it: the capacity is then at least this.
    Raises ValueError unless loads are positive and rising, with a finite accuracy each.
    """
    _check_curve(loads, accuracies)
    reached = [index for index, accuracy in enumerate(accuracies) if accuracy >= at]
    if not reached or reached[-1] == len(loads) - 1:
        return float(loads[-1]) if reached else 0.0
    here = reached[-1]
    share = (accuracies[here] - at) / (accuracies[here] - accuracies[here + 1])
    return loads[here] * (loads[here + 1] / loads[here]) ** share


def area(loads: Sequence[float], accuracies: Sequence[float], chance: float = 0.0) -> float:
    """The mean accuracy over log load, from the smallest load to the largest; 0 at chance and 1 at the ceiling of 1.

    Raises ValueError unless loads are positive and rising, with a finite accuracy each.
    """
    _check_curve(loads, accuracies)
    above = [(accuracy - chance) / (1 - chance) for accuracy in accuracies]
    if len(loads) == 1:
        return above[0]
    logs = [math.log(load) for load in loads]
    parts = ((logs[i + 1] - logs[i]) * (above[i] + above[i + 1]) / 2 for i in range(len(loads) - 1))
    return math.fsum(parts) / (logs[-1] - logs[0])


def solved_share(accuracies: Sequence[float], at: float = 0.9) -> float:
    """The share of seeds with accuracy `at` or more. A seed that failed, NaN, has not solved it."""
    return sum(accuracy >= at for accuracy in accuracies) / len(accuracies)


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return math.fsum(values) / len(values)


def bootstrap(
    samples: Sequence[Sample],
    figure: Callable[[Sequence[Sample]], float],
    *,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """A figure of all seeds' samples with its percentile bootstrap interval (Efron 1979), seeds drawn again.

    For figures that have no formula, such as a capacity; it is too narrow with few seeds, where `interval` serves means
    better: it never leaves the range of the samples.
    """
    source = random.Random(seed)
    drawn = sorted(figure(source.choices(samples, k=len(samples))) for _ in range(draws))
    tail = (1 - level) / 2
    low, high = (drawn[round(share * (draws - 1))] for share in (tail, 1 - tail))
    return Interval(figure(samples), low, high)


def _check_curve(loads: Sequence[float], accuracies: Sequence[float]) -> None:
    if not loads or loads[0] <= 0 or any(a >= b for a, b in pairwise(loads)):
        raise ValueError(f"loads = {list(loads)}: must be positive and rising, at least one")
    if len(accuracies) != len(loads) or not all(math.isfinite(accuracy) for accuracy in accuracies):
        raise ValueError(f"accuracies = {list(accuracies)}: must be {len(loads)} finite numbers")
