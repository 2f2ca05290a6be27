"""Which trials stop at a rung: pure functions of what was measured at that rung, never of another budget.

Points are tuples of objectives in which smaller is better. A trial goes on when it is in the better part of its rung:
by the front it lies on, and within a front by the room it has there.
"""

from collections.abc import Sequence

from search.store.pareto import Point, crowding, ranks

GRACE = 0.3
"""Share of the budget before which nothing stops: accuracy jumps late."""
MIN_RIVALS = 4
KEEP = 0.5


def goes_on(point: Point, rivals: Sequence[Point], budget: float) -> bool:
    """Whether a trial that measured `point` goes on, given what others measured at the same rung."""
    if budget < GRACE or len(rivals) < MIN_RIVALS:
        return True
    points = [*rivals, point]
    rank = ranks(points)
    same = [index for index in range(len(points)) if rank[index] == rank[-1]]
    room = dict(zip(same, crowding([points[index] for index in same]), strict=True))
    better = sum(value < rank[-1] for value in rank)
    better += sum(room[index] > room[len(rivals)] for index in same)
    return rank[-1] == 0 or better < KEEP * len(points)
