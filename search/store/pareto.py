"""Which points are not dominated. Points are tuples in which smaller is better in every place."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Point = tuple[float, ...]


def signed(metrics: Mapping[str, Any], objectives: Mapping[str, str]) -> Point | None:
    """The objectives' values, signed so that smaller is better; None when one is missing."""
    if any(metrics.get(name) is None for name in objectives):
        return None
    return tuple(-metrics[name] if direction == "max" else metrics[name] for name, direction in objectives.items())


def dominates(first: Point, second: Point) -> bool:
    """Whether `first` is nowhere worse than `second` and somewhere better."""
    return first != second and all(a <= b for a, b in zip(first, second, strict=True))


def non_dominated(points: Sequence[Point]) -> list[int]:
    """Indices of the points that no other dominates, best in the first place first; equal points are all kept.

    O(n log n) for up to two places: in sorted order a point is out exactly when the last
    kept one dominates it.
    """
    order = sorted(range(len(points)), key=lambda index: (points[index], index))
    kept: list[int] = []
    for index in order:
        rivals = kept[-1:] if len(points[index]) <= 2 else kept
        if not any(dominates(points[rival], points[index]) for rival in rivals):
            kept.append(index)
    return kept


def ranks(points: Sequence[Point]) -> list[int]:
    """The front each point lies on once the fronts before it are taken away; 0 is the best.

    In sorted order a point is dominated only by points before it, and those that lie on its own front or a later one do
    not dominate it: its front is found by bisection. O(n log n) for up to two places.
    """
    rank: dict[Point, int] = {}
    if points and len(points[0]) <= 2:
        least: list[float] = []  # the last place of the last point of each front: it rises from front to front
        for point in sorted(set(points)):
            low = bisect_right(least, point[-1])
            least[low : low + 1] = [point[-1]]
            rank[point] = low
        return [rank[point] for point in points]
    fronts: list[list[Point]] = []
    for point in sorted(set(points)):
        low, high = 0, len(fronts)
        while low < high:
            middle = (low + high) // 2
            if any(dominates(rival, point) for rival in fronts[middle]):
                low = middle + 1
            else:
                high = middle
        if low == len(fronts):
            fronts.append([])
        fronts[low].append(point)
        rank[point] = low
    return [rank[point] for point in points]


def crowding(points: Iterable[Point]) -> dict[Point, float]:
    """How much room each distinct point has between its neighbours, summed over the places; infinite at the ends."""
    room = dict.fromkeys(points, 0.0)
    for place in range(len(next(iter(room), ()))):
        order = sorted(room, key=lambda point: (point[place], point))
        low, high = order[0][place], order[-1][place]
        room[order[0]] = room[order[-1]] = math.inf
        for before, here, after in zip(order, order[1:], order[2:], strict=False):
            if high > low:
                room[here] += (after[place] - before[place]) / (high - low)
    return room


def num_better(point: Point, rivals: Sequence[Point]) -> int:
    """How many rivals lie on a better front than `point`, or on the same front with more room."""
    points = [*rivals, point]
    rank = ranks(points)
    same = [other for other, its in zip(points, rank, strict=True) if its == rank[-1]]
    room = crowding(same)
    return sum(its < rank[-1] for its in rank) + sum(room[other] > room[point] for other in same)


def hypervolume(points: Sequence[Point], reference: Point) -> float:
    """The volume that `points` dominate below `reference`, by slices along the last place."""
    inside = sorted({p for p in points if all(a < b for a, b in zip(p, reference, strict=True))}, key=lambda p: p[-1])
    if len(reference) == 1:
        return reference[0] - inside[0][0] if inside else 0.0
    total, area = 0.0, 0.0
    reached: list[Point] = []
    for index, point in enumerate(inside):
        until = inside[index + 1][-1] if index + 1 < len(inside) else reference[-1]
        if not any(all(a <= b for a, b in zip(other, point, strict=False)) for other in reached):
            reached = [inner for inner in reached if not dominates(point[:-1], inner)] + [point[:-1]]
            area = hypervolume(reached, reference[:-1])
        total += area * (until - point[-1])
    return total


def best(points: Sequence[Point], count: int) -> list[int]:
    """Indices of the `count` best points: by front, within a front by room, then the newest."""
    rank = ranks(points)
    room: dict[Point, float] = {}
    for front in sorted(set(rank)):
        if len(room) >= count:
            break
        room |= crowding(point for point, its in zip(points, rank, strict=True) if its == front)
    order = sorted(range(len(points)), key=lambda index: (rank[index], -room.get(points[index], 0.0), -index))
    return order[:count]
