"""From measurements to scores: choose a learning rate on validation data, then a mean with an interval over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Two-sided 95 % quantiles of Student's t for 1..30 degrees of freedom.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True)
class Interval:
    """A mean over replicas and its 95 % interval."""

    mean: float
    low: float
    high: float


def interval(values: Sequence[float], low: float = -math.inf, high: float = math.inf) -> Interval:
    """Student's t interval of the mean, cut to [low, high]. One value has the whole range as its interval."""
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Interval(mean, low, high)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    half = _T95[min(count - 1, len(_T95)) - 1] * deviation / math.sqrt(count)
    return Interval(mean, max(low, mean - half), min(high, mean + half))


def best_rate(validation_LS: Tensor, higher_is_better: bool) -> tuple[int, bool]:
    """The learning rate whose mean over seeds is best on validation data, and whether it is on the grid's edge.

    A rate with a failed seed is out. Raises FloatingPointError when every rate has one.
    """
    means = validation_LS.mean(1)
    if not torch.isfinite(means).any():
        raise FloatingPointError("no learning rate has a finite result with every seed")
    worst = -math.inf if higher_is_better else math.inf
    means = torch.where(torch.isfinite(means), means, worst)
    best = int(means.argmax() if higher_is_better else means.argmin())
    return best, len(means) > 2 and best in (0, len(means) - 1)
