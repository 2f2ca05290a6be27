"""When a number of ours agrees with a published one."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

AGREES, HIGHER, LOWER, SHORT = "agrees", "higher", "lower", "short run, no verdict"
POINTS = 3.0  # of accuracy in %, where no standard deviation is published


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published number and how far ours may be from it. `at_least`: it is a bound, and more agrees too."""

    value: float
    tolerance: float
    at_least: bool = False


def accuracy(value: float, deviation: float, at_least: float) -> Published:
    """An accuracy in %: within 2 of its standard deviations over seeds, or POINTS where there is none."""
    return Published(
        value=value, tolerance=2 * deviation if deviation else POINTS, at_least=not deviation and value >= at_least
    )


def verdict(ours: float, published: Published, *, short: bool = False) -> str:
    """AGREES, HIGHER or LOWER; a `short` run has no verdict."""
    if short:
        return SHORT
    difference = ours - published.value
    if abs(difference) <= published.tolerance + 1e-9 or (published.at_least and difference > 0):
        return AGREES
    return HIGHER if difference > 0 else LOWER


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table, and `data`, what it was made of. `failed`: the cell has no figure and is tried again."""

    part: str
    name: str
    theirs: str
    ours: str
    verdict: str
    data: Mapping[str, Any] = field(default_factory=dict)
    failed: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "data": dict(self.data)}
