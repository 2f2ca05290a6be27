"""Rank agreement of two lists of scores of the same designs."""

import math
from collections.abc import Sequence


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1, equal values with the mean of their places."""
    order = sorted(range(len(values)), key=values.__getitem__)
    places = [0.0] * len(values)
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or values[order[end]] != values[order[start]]:
            for index in order[start:end]:
                places[index] = (start + 1 + end) / 2
            start = end
    return places


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """The rank correlation (Pearson's of their ranks); NaN where one does not vary."""
    middle = (len(one) + 1) / 2
    x, y = ([rank - middle for rank in ranks(values)] for values in (one, other))
    spread = math.sqrt(math.fsum(a * a for a in x) * math.fsum(b * b for b in y))
    return math.fsum(a * b for a, b in zip(x, y, strict=True)) / spread if spread else math.nan


def kept(early: Sequence[float], late: Sequence[float], share: float, best: float = 0.25) -> float:
    """Of the `best` share by the late scores, larger is better, the share among the first `share` by the early ones.

    What stopping the others early would have left of the best. Equal early scores share their places' chance.
    """
    number = len(early)
    cut, top = max(1, round(share * number)), max(1, round(best * number))
    order = sorted(early, reverse=True)
    border = order[cut - 1]
    chance = (cut - sum(value > border for value in early)) / order.count(border)
    last = sorted(late, reverse=True)[top - 1]
    found = [
        1.0 if value > border else chance if value == border else 0.0
        for value, end in zip(early, late, strict=True)
        if end >= last
    ]
    return math.fsum(found) / len(found)
