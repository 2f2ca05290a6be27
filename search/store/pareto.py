"""Which points are not dominated. Points are tuples in which smaller is better in every place."""

from collections.abc import Sequence

Point = tuple[float, ...]


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
    """The front each point lies on once the fronts before it are taken away; 0 is the best."""
    result = [0] * len(points)
    left = list(range(len(points)))
    rank = 0
    while left:
        front = {left[index] for index in non_dominated([points[index] for index in left])}
        for index in front:
            result[index] = rank
        left = [index for index in left if index not in front]
        rank += 1
    return result


def crowding(points: Sequence[Point]) -> list[float]:
    """How much room each point has between its neighbours, summed over the places; infinite at the ends."""
    room = [0.0] * len(points)
    for place in range(len(points[0]) if points else 0):
        order = sorted(range(len(points)), key=lambda index: points[index][place])
        low, high = points[order[0]][place], points[order[-1]][place]
        room[order[0]] = room[order[-1]] = float("inf")
        for before, here, after in zip(order, order[1:], order[2:], strict=False):
            if high > low:
                room[here] += (points[after][place] - points[before][place]) / (high - low)
    return room
