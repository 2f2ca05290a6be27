"""A model of the scores from the features of a design, to choose the most promising of many before any is trained.

A Gaussian process for each measured objective: a part for where attention stands, whatever the backbone, and a part for
the whole design, each Matérn 5/2. Their shares, length and noise are chosen by marginal likelihood; what is computed is
not modelled. Candidates are ranked by expected hypervolume improvement: the integral, over what the front
does not dominate yet, of the probability that the candidate does. Designs in training count as they are predicted.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from search.store.pareto import Point, best, non_dominated
from space.design import Design
from space.mixers import BACKBONES
from space.space import SearchSpace

Array = NDArray[np.float64]
MOST_DATA = 160
NUM_BINS = 12
NUM_CELLS = 1024
_LENGTHS, _NOISES = (0.25, 0.5, 1.0, 2.0), (3e-3, 3e-2, 1e-1)
_PLACE_SHARES = (0.0, 0.2, 0.5, 0.8)  # of the variance that where attention stands explains by itself
_X = np.linspace(-6, 6, 4001)
_PHI = np.array([0.5 * (1 + math.erf(x / math.sqrt(2))) for x in _X])


class Features:
    """Numbers that describe a design of `space`: what its layers are, then (from `places` on) how many there are, how
    many of them attention, and where it stands."""

    def __init__(self, space: SearchSpace) -> None:
        self.kinds = {text: index for index, text in enumerate((*space.linear, *space.attention))}
        parts = sorted({part for text in self.kinds for part in text.split(":")})
        self.parts = {part: index for index, part in enumerate(parts)}
        self.bins = min(NUM_BINS, max(space.depth))
        self.places = len(self.kinds) + len(self.parts)
        self._known: dict[Design, Array] = {}

    def __call__(self, designs: Sequence[Design]) -> Array:
        for design in designs:
            if design not in self._known:
                if len(self._known) > 20_000:
                    self._known.clear()
                self._known[design] = self._of(design)
        return np.array([self._known[design] for design in designs])

    def _of(self, design: Design) -> Array:
        kinds, parts, bins = np.zeros(len(self.kinds)), np.zeros(len(self.parts)), np.zeros(self.bins)
        depth = design.depth
        where = [index for index, layer in enumerate(design.layers) if layer.mixer not in BACKBONES]
        for layer in design.layers:
            text = str(layer)
            if text not in self.kinds:
                continue  # from outside of the space
            kinds[self.kinds[text]] += 1 / depth
            for part in text.split(":"):
                parts[self.parts[part]] += 1 / depth
        for index in where:  # a layer between two bins is shared by them
            place = index * (self.bins - 1) / max(1, depth - 1)
            low = int(place)
            bins[low] += 1 - (place - low)
            bins[min(low + 1, self.bins - 1)] += place - low
        relative = [index / max(1, depth - 1) for index in where]
        gaps = [b - a for a, b in zip([-1, *where], [*where, depth], strict=True)]
        spread = [np.mean(relative), relative[0], relative[-1]] if where else [0.5, 1.0, 0.0]
        whole = [float(depth), len(where) / depth]
        return np.concatenate([kinds, parts, whole, bins, spread, [max(gaps) / depth]])


class _Process:
    """A Gaussian process for one objective. `places` is where the features begin that say where attention stands."""

    def __init__(self, x_ND: Array, y_N: Array, places: int) -> None:
        self.mean, self.deviation = float(y_N.mean()), float(y_N.std()) or 1.0
        y = (y_N - self.mean) / self.deviation
        self.centre, scale = x_ND.mean(0), x_ND.std(0)
        varies = scale > 1e-9
        scale = np.where(varies, 1 / np.where(varies, scale, 1), 0.0)
        parts = np.arange(len(scale)) >= places, np.full(len(scale), True)
        self.weights = [part * scale / math.sqrt(max(1, (varies & part).sum())) for part in parts]
        self.x = x_ND - self.centre
        squares = [_squares(self.x * weights, self.x * weights) for weights in self.weights]
        best = -math.inf
        for length in _LENGTHS:
            place, whole = (_matern(part / length**2) for part in squares)
            for share, noise in product(_PLACE_SHARES, _NOISES):
                kernel = share * place + (1 - share) * whole + noise * np.eye(len(y))
                factor = np.linalg.cholesky(kernel)
                half = np.linalg.solve(factor, y)
                likelihood = -0.5 * half @ half - np.log(np.diag(factor)).sum()
                if likelihood > best:
                    best = likelihood
                    self.length, self.share, self.factor, self.half = length, share, factor, half

    def predict(self, x_MD: Array) -> tuple[Array, Array]:
        """Mean and deviation, without the noise of a measurement."""
        x = x_MD - self.centre
        place, whole = (_matern(_squares(self.x * weights, x * weights) / self.length**2) for weights in self.weights)
        across = np.linalg.solve(self.factor, self.share * place + (1 - self.share) * whole)
        variance = np.maximum(1 - (across**2).sum(0), 1e-6)
        return self.mean + self.deviation * (across.T @ self.half), self.deviation * np.sqrt(variance)


def _squares(a_ND: Array, b_MD: Array) -> Array:
    found: Array = (a_ND**2).sum(1)[:, None] + (b_MD**2).sum(1) - 2 * a_ND @ b_MD.T
    return np.maximum(found, 0)


def _matern(squares: Array) -> Array:
    distance = np.sqrt(5 * squares)
    found: Array = (1 + distance + distance**2 / 3) * np.exp(-distance)
    return found


def _chosen(points: Sequence[Point]) -> list[int]:
    """What the model learns from: everything, or the best half and the newest half of what fits."""
    if len(points) <= MOST_DATA:
        return list(range(len(points)))
    return sorted({*best(points, MOST_DATA // 2), *range(len(points) - MOST_DATA // 2, len(points))})


class Model:
    """Ranks designs of `space`. `costs` gives the objectives that need no training."""

    def __init__(
        self,
        space: SearchSpace,
        objectives: Mapping[str, str],
        costs: Callable[[Design], Mapping[str, float]] = lambda design: {},
    ) -> None:
        self.signs = [-1.0 if direction == "max" else 1.0 for direction in objectives.values()]
        self.names, self.costs, self.features = list(objectives), costs, Features(space)

    def ranked(
        self,
        designs: Sequence[Design],
        points: Sequence[Point],
        pending: Sequence[Design],
        pool: Sequence[Design],
        generator: np.random.Generator,
    ) -> list[Design]:
        """`pool`, the most promising first. `points` are what `designs` measured, signed so that smaller is better."""
        if not pool:
            return []
        data = _chosen(points)
        x, y = self.features([designs[index] for index in data]), np.array([points[index] for index in data])
        asked = [*pending, *pool]
        mean, deviation = self._predict(x, y, asked)
        if pending:  # as if they had ended where they are predicted
            believed = mean[: len(pending)]
            y, x = np.vstack([y, believed]), np.vstack([x, self.features(pending)])
            mean, deviation = self._predict(x, y, asked)
        mean, deviation = mean[len(pending) :], deviation[len(pending) :]
        low, high = np.minimum(y.min(0), mean.min(0)), y.max(0)
        span = np.where(high > low, high - low, 1.0)
        low, high = low - 0.05 * span, high + 0.05 * span
        cells = low + (high - low) * generator.random((NUM_CELLS, len(low)))
        front = y[non_dominated([tuple(row) for row in y])]
        cells = cells[~(front[:, None] <= cells).all(2).any(0)]
        chance = np.ones((len(pool), len(cells)))
        for place in range(len(low)):
            distance = cells[:, place] - mean[:, place, None]
            spread = deviation[:, place, None]
            certain = (distance >= 0).astype(float)
            chance *= np.where(spread > 0, np.interp(distance / np.where(spread > 0, spread, 1), _X, _PHI), certain)
        return [pool[index] for index in np.argsort(-chance.sum(1), kind="stable")]

    def _predict(self, x_ND: Array, y_NO: Array, designs: Sequence[Design]) -> tuple[Array, Array]:
        mean, deviation = (np.zeros((len(designs), len(self.names))) for _ in range(2))
        computed = [self.costs(design) for design in designs]
        asked = self.features(designs)
        for place, name in enumerate(self.names):
            if name in computed[0]:
                mean[:, place] = [self.signs[place] * cost[name] for cost in computed]
            else:
                process = _Process(x_ND, y_NO[:, place], self.features.places)
                mean[:, place], deviation[:, place] = process.predict(asked)
        return mean, deviation
