"""Controls: what a search must show before its scores mean anything. They are said first."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from search.store.queries import evaluations
from search.store.tables import COMPLETE
from space.design import Design

SOLVED = 0.9
"""Recall that pure attention must reach, and the weakest pure backbone must not, for scores to mean anything."""


@dataclass(frozen=True)
class Control:
    """How a control went, in a few words. `warning` says what is wrong; empty when nothing is."""

    words: str
    warning: str = ""


def of(session: Session, name: str) -> list[Control]:
    """The controls of the search `name` that have finished.

    Pure attention must reach SOLVED in recall, of a mixture in pairs, which it is known to solve; a pure backbone, the
    one with the smallest state, must stay below it in recall; and the test must not give its answers away
    (`proxies.leakage`).
    """
    attention, weak, blind, seen = [], [], [], []
    for row in evaluations(session, name, (COMPLETE,)):
        if row.origin != "anchor" or row.recall is None:
            continue
        if is_attention(row.design):
            attention.append(row.metrics.get("area_pairs", row.recall))
        elif is_pure_backbone(row.design):
            weak.append(row.recall)
        blind += [row.metrics["leak_blind"]] if "leak_blind" in row.metrics else []
        seen += [row.metrics["leak_seen"]] if "leak_seen" in row.metrics else []
    found = []
    if attention:
        found.append(Control(
            f"attention recalls {max(attention):.2f} of pairs",
            f"pure attention reached recall {max(attention):.2f} of pairs, not {SOLVED}: the training is too short or "
            "the task too hard, and the ranking may be noise." if max(attention) < SOLVED else "",
        ))  # fmt: skip
    if weak:
        found.append(Control(
            f"weakest backbone {min(weak):.2f}",
            f"the weakest pure backbone reached recall {min(weak):.2f}: the task is too easy to tell designs apart."
            if min(weak) >= SOLVED else "",
        ))  # fmt: skip
    if blind and seen:
        leaks = []
        if max(blind) > 0:
            leaks.append(f"answers are right {max(blind):.0%} beyond chance where nothing is there to recall")
        if max(seen) > 0:
            leaks.append(f"{max(seen):.0%} of the sealed test, beyond chance, is in training")
        words = "the test leaks" if leaks else "the test leaks nothing"
        found.append(Control(words, f"the test leaks: {', and '.join(leaks)}: recall means little." if leaks else ""))
    return found


def warnings(session: Session, name: str) -> list[str]:
    """What is wrong with the controls: sentences, none when all is well or the controls have not finished."""
    return [f"Control failed: {control.warning}" for control in of(session, name) if control.warning]


def is_attention(text: str) -> bool:
    """Whether the design is full attention throughout."""
    design = Design.parse(text)
    return design.num_full == design.depth


def is_pure_backbone(text: str) -> bool:
    """Whether every layer of the design is the same linear-attention layer."""
    design = Design.parse(text)
    return len(set(design.layers)) == 1 and bool(design.backbones)
