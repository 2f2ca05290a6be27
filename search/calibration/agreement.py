"""Whether our recall orders the study's cells as its RULER does (arXiv 2507.06457), and the facts that must hold.

A cell is a pair of a backbone and a ratio by the study's name. Nothing is fitted: scores are compared as they are.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

Cell = tuple[str, str]


@dataclass(frozen=True)
class Scored:
    """A cell with the study's RULER and our recall; our bits a byte and the area of each ladder where known."""

    cell: Cell
    ruler: float
    recall: float
    bits: float | None = None
    ladders: Mapping[str, float] = field(default_factory=dict)


def backbones(cells: Sequence[Scored]) -> list[str]:
    """The backbones that have cells."""
    return sorted({cell.cell[0] for cell in cells} - {"transformer"})


def told_apart(cells: Sequence[Scored], tie_below: float) -> list[tuple[Scored, Scored]]:
    """The pairs whose RULER differs by `tie_below` or more, the better cell first."""
    pairs = [(one, other) if one.ruler > other.ruler else (other, one) for one, other in combinations(cells, 2)]
    return [(better, worse) for better, worse in pairs if better.ruler - worse.ruler >= tie_below - 1e-9]


def ordered_pairs(cells: Sequence[Scored], tie_below: float) -> tuple[int, int]:
    """Pairs ordered as RULER orders them, and all pairs whose RULER differs by `tie_below` or more.

    A pair that we score the same is not ordered.
    """
    pairs = told_apart(cells, tie_below)
    return sum(better.recall > worse.recall for better, worse in pairs), len(pairs)


def agreement(cells: Sequence[Scored], tie_below: float) -> float:
    """The share of pairs that are ordered as RULER orders them; NaN where no pair differs."""
    same, total = ordered_pairs(cells, tie_below)
    return same / total if total else math.nan


def facts(recall: Mapping[Cell, float], bits: Mapping[Cell, float], study: Mapping[str, Any]) -> dict[str, bool | None]:
    """The study's must-hold facts by name: true, false, or None where cells are missing that decide."""
    families = [name for name in study["ruler"] if name != "transformer"]
    return {
        "weak_pure": _weak_pure(recall, families),
        "best_ratio": _best_ratio(recall, families, study),
        "recall_rises": _recall_rises(recall, bits, families, study["lm_moves_below"]),
    }


def _weak_pure(recall: Mapping[Cell, float], families: Sequence[str]) -> bool | None:
    weak = {"gla", "hgrn2"}
    low = [recall[name, "pure"] for name in families if name in weak and (name, "pure") in recall]
    high = [recall[name, "pure"] for name in families if name not in weak and (name, "pure") in recall]
    if low and high and max(low) >= min(high):
        return False
    return True if len(low) + len(high) == len(families) else None


def _best_ratio(recall: Mapping[Cell, float], families: Sequence[str], study: Mapping[str, Any]) -> bool | None:
    best, unknown = ("3-1", "6-1"), False
    for name in families:
        known = {ratio: recall[name, ratio] for ratio in study["ruler"][name] if (name, ratio) in recall}
        top = [known[ratio] for ratio in best if ratio in known]
        others = [value for ratio, value in known.items() if ratio not in best]
        if len(top) == len(best) and others and max(others) > max(top):
            return False
        unknown = unknown or len(known) < len(study["ruler"][name])
    return None if unknown else True


def _recall_rises(
    recall: Mapping[Cell, float], bits: Mapping[Cell, float], families: Sequence[str], moves_below: float
) -> bool | None:
    def means(scores: Mapping[Cell, float]) -> tuple[float, float] | None:
        if not all((name, ratio) in scores for name in families for ratio in ("pure", "3-1")):
            return None
        pure, hybrid = (math.fsum(scores[name, ratio] for name in families) for ratio in ("pure", "3-1"))
        return pure / len(families), hybrid / len(families)

    found, language = means(recall), means(bits)
    if found is not None and found[1] <= found[0]:
        return False
    if language is not None and abs(language[1] / language[0] - 1) >= moves_below:
        return False
    return None if found is None or language is None else True
