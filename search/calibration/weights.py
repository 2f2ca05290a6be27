"""Which weights of the ladders order cells as RULER does, and how such weights order cells that had no say in them.

Weights are multiples of a quarter, of sum 1, chosen by pairs of cells whose RULER differs. On these pairs they flatter
themselves; so they are also chosen without a backbone and judged on the pairs that it has a part in.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from search.calibration.agreement import Scored, backbones, told_apart

_STEPS = 4


@dataclass(frozen=True)
class Weights:
    """`alone`: the share of pairs that each ladder orders as RULER does, by itself. `weights` order the most, the share
    `chosen` of them. `unseen`: the share of each backbone's pairs that weights chosen without it order."""

    alone: Mapping[str, float]
    weights: Mapping[str, float]
    chosen: float
    unseen: Mapping[str, float]

    @property
    def judged(self) -> float:
        """The mean over backbones of what weights chosen without them order."""
        return sum(self.unseen.values()) / len(self.unseen)


def weigh(cells: Sequence[Scored], tie_below: float) -> Weights | None:
    """None where cells have no ladders in common, or a backbone leaves no pairs to choose or to judge by."""
    ladders = [name for name in (cells[0].ladders if cells else ()) if all(name in cell.ladders for cell in cells)]
    pairs = told_apart(cells, tie_below)
    if not ladders or not pairs:
        return None
    # What the better cell of each pair has more, by ladder: [pairs, ladders].
    more_PL = np.array([[better.ladders[name] - worse.ladders[name] for name in ladders] for better, worse in pairs])
    unseen = {}
    for backbone in backbones(cells):
        of_it_P = np.array([backbone in (better.cell[0], worse.cell[0]) for better, worse in pairs])
        if of_it_P.all() or not of_it_P.any():
            return None
        unseen[backbone] = _ordered(more_PL[of_it_P], _best(more_PL[~of_it_P]))
    best_L = _best(more_PL)
    return Weights(
        alone=dict(zip(ladders, (_ordered(more_PL, one_L) for one_L in np.eye(len(ladders))), strict=True)),
        weights={name: float(weight) for name, weight in zip(ladders, best_L, strict=True)},
        chosen=_ordered(more_PL, best_L),
        unseen=unseen,
    )


def _ordered(more_PL: np.ndarray, weights_L: np.ndarray) -> float:
    return float(np.mean(more_PL @ weights_L > 1e-12))


def _best(more_PL: np.ndarray) -> np.ndarray:
    """The weights that order most pairs; of those that order as many, the ones nearest to equal."""
    every_WL = np.array(list(_grid(more_PL.shape[1])))
    ordered_W = (more_PL @ every_WL.T > 1e-12).mean(0)
    best_WL = every_WL[ordered_W == ordered_W.max()]
    return best_WL[(best_WL**2).sum(1).argmin()]


def _grid(number: int) -> Iterator[tuple[float, ...]]:
    for walls in combinations(range(_STEPS + number - 1), number - 1):
        edges = (-1, *walls, _STEPS + number - 1)
        yield tuple((after - before - 1) / _STEPS for before, after in pairwise(edges))
