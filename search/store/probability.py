"""How probable it is that a design is on the front, given that its scores are means over a few seeds.

Seeds are drawn again, as often as there are, for every design at once; the probability is the share of draws in which
no other design dominates. What has no seeds, such as memory, is the same in every draw.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from search.store.pareto import non_dominated

DRAWS = 1000
FIRST = 100  # draws after which a design that was never on the front is out
_BLOCK = 1_000_000  # draws times designs held at once

Samples = Sequence[float]
Floats = NDArray[np.float64]


def front_probability(designs: Sequence[Sequence[Samples]], *, draws: int = DRAWS, seed: int = 0) -> list[float]:
    """The probability of each design; a design is, for each objective, its seeds' values, of which smaller is better.

    Two kinds are out with probability 0: a design that at its best is dominated by another at its worst, since a mean
    lies between the smallest and the largest of its samples; and one that is on the front in none of the FIRST draws.
    Objectives are drawn apart, as they are trained apart.
    """
    times = np.zeros(len(designs), dtype=np.int64)
    near, source = _near(designs), np.random.default_rng(seed)
    for stage in (min(FIRST, draws), draws - FIRST):
        tables = [_table([designs[index][place] for index in near]) for place in range(len(designs[0]))] if near else []
        block = max(1, _BLOCK // max(1, len(near)))
        for start in range(0, stage if near else 0, block):
            times[near] += _times_on_front([_drawn(*table, min(block, stage - start), source) for table in tables])
        near = np.flatnonzero(times).tolist()
    return (times / draws).tolist()


def _near(designs: Sequence[Sequence[Samples]]) -> list[int]:
    """The designs that may be on the front in some draw."""
    if not designs:
        return []
    best = np.array([[min(samples) for samples in design] for design in designs])
    worst = [tuple(max(samples) for samples in design) for design in designs]
    out = np.zeros(len(designs), dtype=bool)
    for rival in {worst[index] for index in non_dominated(worst)}:
        out |= (rival <= best).all(1) & (rival < best).any(1)
    return np.flatnonzero(~out).tolist()


def _table(samples: Sequence[Samples]) -> tuple[Floats, NDArray[np.int64]]:
    """The samples of every design, [designs, most samples], and how many it has."""
    counts = np.array([len(each) for each in samples])
    filled = np.zeros((len(samples), counts.max()))
    for row, each in zip(filled, samples, strict=True):
        row[: len(each)] = each
    return filled, counts


def _drawn(samples: Floats, counts: NDArray[np.int64], draws: int, source: np.random.Generator) -> Floats:
    """Means of samples drawn again, [draws, designs]. Equal samples have their own value as their mean, to the bit."""
    means = np.tile(samples[:, 0], (draws, 1))
    for count in set(counts.tolist()) - {1}:
        rows = np.flatnonzero((counts == count) & (samples[:, :1] != samples).any(1))
        picked = samples[rows, source.integers(count, size=(count, draws, len(rows)))]
        means[:, rows] = picked.mean(0)
    return means


def _times_on_front(places: list[Floats]) -> NDArray[np.int64]:
    """In how many draws no other design dominates each. Of every draw, those smallest in the first place, then in the
    next, are on the front; what they beat goes, and again with what is left."""
    draws, number = places[0].shape
    times = np.zeros(number, dtype=np.int64)
    design, draw = np.tile(np.arange(number), draws), np.repeat(np.arange(draws), number)
    left = [place.ravel() for place in places]
    while design.size:
        starts = np.flatnonzero(np.diff(draw, prepend=-1))
        lengths = np.diff(starts, append=design.size)
        on_front, beaten = np.ones(design.size, dtype=bool), np.ones(design.size, dtype=bool)
        for place in left:
            least = np.repeat(np.minimum.reduceat(np.where(on_front, place, np.inf), starts), lengths)
            on_front &= place == least
            beaten &= place >= least
        times += np.bincount(design[on_front], minlength=number)
        design, draw, left = design[~beaten], draw[~beaten], [place[~beaten] for place in left]
    return times
