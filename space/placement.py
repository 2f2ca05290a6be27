"""Placement rules: where in the stack the full-attention layers sit.

Each rule is a pure function from (depth, number of full layers) to sorted, distinct, zero-based indices.
"""

from collections.abc import Callable


def group_end(depth: int, num_full: int) -> tuple[int, ...]:
    """The last layer of each of `num_full` equal groups: the study's pattern."""
    return tuple((group + 1) * depth // num_full - 1 for group in range(num_full))


def group_middle(depth: int, num_full: int) -> tuple[int, ...]:
    """The middle layer of each group: Jamba's and Nemotron-H's pattern."""
    return tuple((2 * group + 1) * depth // (2 * num_full) for group in range(num_full))


def front(depth: int, num_full: int) -> tuple[int, ...]:
    return tuple(range(num_full))


def back(depth: int, num_full: int) -> tuple[int, ...]:
    return tuple(range(depth - num_full, depth))


def middle(depth: int, num_full: int) -> tuple[int, ...]:
    """One block in the centre; an odd layer left over goes behind it."""
    start = (depth - num_full) // 2
    return tuple(range(start, start + num_full))


def ends(depth: int, num_full: int) -> tuple[int, ...]:
    """Half at the front and half at the back; an odd layer left over goes to the back."""
    head = num_full // 2
    return tuple(range(head)) + tuple(range(depth - (num_full - head), depth))


PLACEMENTS: dict[str, Callable[[int, int], tuple[int, ...]]] = {
    "group_end": group_end,
    "group_middle": group_middle,
    "front": front,
    "back": back,
    "middle": middle,
    "ends": ends,
}


def place(rule: str, depth: int, num_full: int) -> tuple[int, ...]:
    """Indices of the full layers. Raises ValueError for an unknown rule or a count outside 0..depth."""
    if rule not in PLACEMENTS:
        raise ValueError(f"placement = {rule!r}: must be one of {', '.join(PLACEMENTS)}")
    if not 0 <= num_full <= depth:
        raise ValueError(f"num_full = {num_full}: must be in 0..{depth} at depth {depth}")
    return PLACEMENTS[rule](depth, num_full) if num_full else ()
