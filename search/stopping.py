"""Which trials stop at a rung: asynchronous successive halving for several objectives.

An evaluation is compared with those that reached the same rung, by the front it lies on and within a front by the room
it has there; the best share goes on. A few of those that would stop are audited: they run to the end, so that the rate
of wrong stops is known. Every decision follows from what the store holds, in whatever order it is read.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from search.config import Halving
from search.store.pareto import Point, num_better, signed


class Decision(Enum):
    """What a trial does at a rung. AUDIT: it would stop, and runs on to the end as a check on stopping."""

    GO_ON = "go on"
    STOP = "stop"
    AUDIT = "audit"


def goes_on(point: Point, rivals: Sequence[Point], budget: float, rule: Halving) -> bool:
    """Whether an evaluation that measured `point` is in the best share of its rung, or the rung may not stop it yet."""
    if budget < rule.grace or len(rivals) < rule.rivals:
        return True
    return num_better(point, rivals) * rule.reduction < len(rivals) + 1


def audited(digest: str, share: float) -> bool:
    """Whether the design with this digest is one of the `share` that no stop ends: the same on every machine."""
    number = int.from_bytes(hashlib.sha256(f"audit {digest}".encode()).digest()[:8], "big")
    return number < share * 2**64


class Rungs:
    """What a search measured at each rung, by the digests of its designs.

    `stopping` is none, pareto, or the objective that decides alone.
    """

    def __init__(self, stopping: str, objectives: Mapping[str, str], rule: Halving) -> None:
        self.stopping, self.rule = stopping, rule
        self.objectives = objectives if stopping in ("none", "pareto") else {stopping: objectives[stopping]}
        self._points: dict[int, dict[str, Point]] = {}
        self._audits: dict[str, int] = {}

    def note(self, digest: str, rung: int, metrics: Mapping[str, Any]) -> None:
        """Keeps what a design measured; a missing or non-finite objective is no measurement."""
        point = signed(metrics, self.objectives)
        if point is not None and all(map(math.isfinite, point)):
            self._points.setdefault(rung, {})[digest] = point

    def note_audit(self, digest: str, rung: int) -> None:
        """Keeps that a design would have stopped at `rung`: beyond it, it is nobody's rival."""
        self._audits.setdefault(digest, rung)

    def decide(self, digest: str, rung: int, budget: float) -> Decision:
        """What the design does, having measured this rung."""
        points = self._points.get(rung, {})
        if self.stopping == "none" or digest not in points or digest in self._audits:
            return Decision.GO_ON
        rivals = [point for other, point in points.items() if other != digest and self._audits.get(other, rung) >= rung]
        if goes_on(points[digest], rivals, budget, self.rule):
            return Decision.GO_ON
        if not audited(digest, self.rule.audit):
            return Decision.STOP
        self.note_audit(digest, rung)
        return Decision.AUDIT
