"""The confirm phase: a search whose designs are the front of another and what is nearest to it.

It has a protocol of its own, with seeds that the other never used and a longer training, so its front is redrawn from
scores that had no say in who is in it. All else is as in every search: what ran is leased again, nothing is repeated.
"""

from dataclasses import replace

from sqlalchemy.orm import Session

from search.config import Confirm, SearchConfig
from search.proposer import Proposal
from search.store import queries
from search.store.controls import is_attention, is_pure_backbone
from search.store.tables import COMPLETE
from space.design import Design


def candidates(session: Session, name: str, least: float) -> list[Proposal]:
    """The designs of the search `name` to train again: two controls, then its front and what is on it with a
    probability of at least `least`, the most probable first.

    The controls are pure attention and the weakest pure backbone. Raises ValueError when nothing is complete.
    """
    rows = queries.evaluations(session, name, (COMPLETE,))
    probability = queries.probabilities(session, name)
    front = {row.id for row in queries.front(session, name)}
    near = [row for row in rows if row.id in front or probability.get(row.id, 0.0) >= least]
    if not near:
        raise ValueError(f"search = {name!r}: has no complete evaluation to confirm")
    near.sort(key=lambda row: (-probability[row.id], row.number))
    anchors = sorted(
        (row for row in rows if row.origin == "anchor" and row.recall is not None), key=lambda row: row.recall or 0.0
    )
    controls = [row for row in anchors if is_attention(row.design)][-1:]
    controls += [row for row in anchors if is_pure_backbone(row.design)][:1]
    found = {row.design: "anchor" for row in controls}
    for row in near:
        found.setdefault(row.design, "front" if row.id in front else "edge")
    return [Proposal(Design.parse(text), origin) for text, origin in found.items()]


def confirmation(session: Session, config: SearchConfig, name: str = "") -> SearchConfig:
    """The search that confirms the one of `config`: `name`, or `<its name>-confirm`.

    Its trials are its candidates, and what it has from before the other went on. Raises ValueError when there is
    nothing to confirm.
    """
    name = name or f"{config.name}-confirm"
    designs = {item.design.digest for item in candidates(session, config.name, config.confirm.probability)}
    if name in queries.search_names(session):
        designs |= {row.digest for row in queries.histories(session, name, {})}
    return replace(
        config, name=name, confirms=config.name, protocol=config.confirming, trials=len(designs), stopping="none",
        confirm=Confirm(probability=config.confirm.probability),
    )  # fmt: skip
