"""The read side, for the command line and the dashboard. Every function takes a session and gives plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Row, func, select
from sqlalchemy.orm import Session

from search.store.pareto import non_dominated, num_better
from search.store.place import LEASE_SECONDS
from search.store.probability import front_probability
from search.store.tables import COMPLETE, FINISHED, INFEASIBLE, RUNNING, STATES, Evaluation, Rung, Search
from space.design import Design

SEEDS_OF = {"recall": "recall", "recall_low": "recall", "lm_bits_per_byte": "lm_bits_per_byte"}
"""Whose scores by seed say how sure an objective is; the others are the same for every seed."""


@dataclass(frozen=True, kw_only=True)
class SearchSummary:
    """A search, what defines it, and how many of its evaluations are in each state.

    `confirms` names the search whose front it trains again, if it does.
    """

    id: int
    name: str
    created: float
    space: Mapping[str, Any]
    protocol: Mapping[str, Any]
    protocol_digest: str
    config: Mapping[str, Any]
    objectives: Mapping[str, str]
    trials: int
    confirms: str | None
    counts: Mapping[str, int]
    driver: str | None
    driver_expires: float | None

    @property
    def finished(self) -> int:
        return sum(self.counts[state] for state in FINISHED)


@dataclass(frozen=True, kw_only=True)
class EvaluationRow:
    """One evaluation as it stands. `rung` is the last one measured, None before the first.

    `audit_rung` is the rung at which it would have stopped, had it not been chosen as a check on stopping.
    """

    id: int
    number: int
    design: str
    digest: str
    state: str
    origin: str
    attempts: int
    reason: str | None
    recall: float | None
    recall_low: float | None
    recall_high: float | None
    lm_bits_per_byte: float | None
    memory_bytes: float | None
    parameters: float | None
    seconds: float | None
    started: float | None
    finished: float | None
    metrics: Mapping[str, Any] = field(repr=False, default_factory=dict)
    audit_rung: int | None = None
    rung: int | None = None


@dataclass(frozen=True, kw_only=True)
class RungRow:
    """What an evaluation measured at one rung."""

    evaluation: int
    rung: int
    budget: float
    metrics: Mapping[str, Any]
    recorded: float


class History(NamedTuple):
    """An evaluation and its objectives, None where there are none."""

    id: int
    design: str
    digest: str
    state: str
    origin: str
    audit_rung: int | None
    values: tuple[float | None, ...]
    directions: tuple[str, ...]

    @property
    def point(self) -> tuple[float, ...] | None:
        """The objectives, signed so that smaller is better; None when one is missing."""
        if None in self.values:
            return None
        return tuple(
            -value if direction == "max" else value
            for value, direction in zip(self.values, self.directions, strict=True)
            if value is not None
        )


_FIELDS = (
    Evaluation.id, Evaluation.number, Evaluation.design, Evaluation.design_digest.label("digest"), Evaluation.state,
    Evaluation.origin, Evaluation.attempts, Evaluation.reason, Evaluation.recall, Evaluation.recall_low,
    Evaluation.recall_high, Evaluation.lm_bits_per_byte, Evaluation.memory_bytes, Evaluation.parameters,
    Evaluation.seconds, Evaluation.started, Evaluation.finished, Evaluation.metrics,
    Evaluation.audit_rung,
)  # fmt: skip

_LAST = select(func.max(Rung.rung)).where(Rung.evaluation_id == Evaluation.id).scalar_subquery().label("rung")
_MOST_NAMED = 500  # what one statement may name


def search_names(session: Session) -> list[str]:
    """The names of all searches, newest first."""
    return list(session.scalars(select(Search.name).order_by(Search.created.desc(), Search.id.desc())))


def confirmations(session: Session, name: str) -> list[str]:
    """The searches that train the front of the search `name` again, the oldest first."""
    rows = session.scalars(
        select(Search.name).where(Search.config["confirms"].as_string() == name).order_by(Search.created, Search.id)
    )
    return list(rows)


def search_summary(session: Session, name: str) -> SearchSummary:
    """The search `name`. Raises ValueError naming those there are."""
    search = session.scalar(select(Search).where(Search.name == name))
    if search is None:
        raise ValueError(f"search = {name!r}: must be one of {', '.join(search_names(session)) or '(there are none)'}")
    counts = dict.fromkeys(STATES, 0)
    grouped = select(Evaluation.state, func.count()).where(Evaluation.search_id == search.id).group_by(Evaluation.state)
    counts.update((state, count) for state, count in session.execute(grouped))
    return SearchSummary(
        id=search.id,
        name=search.name,
        created=search.created,
        space=search.space,
        protocol=search.protocol,
        protocol_digest=search.protocol_digest,
        config=search.config,
        objectives=search.config["objectives"],
        trials=search.config["trials"],
        confirms=search.config.get("confirms"),
        counts=counts,
        driver=search.driver,
        driver_expires=search.driver_expires,
    )


def failures(session: Session, name: str) -> list[tuple[str, int]]:
    """Why evaluations of the search `name` failed or could not be, and how many of each, most first."""
    count = func.count()
    rows = session.execute(
        select(Evaluation.reason, count)
        .join(Search)
        .where(Search.name == name, Evaluation.state.in_(("failed", "infeasible")))
        .group_by(Evaluation.reason)
        .order_by(count.desc(), Evaluation.reason)
    )
    return [(reason or "no reason was recorded", number) for reason, number in rows]


def busy_share(session: Session, name: str) -> float | None:
    """The share of its slots' time in which evaluations of the search `name` trained; None before the first count.

    What is running counts from its start to the driver's last beat. What was lost with a worker counts as idle.
    """
    search = session.execute(
        select(Search.id, Search.slot_seconds, Search.busy_seconds, Search.driver_expires).where(Search.name == name)
    ).one()
    if not search.slot_seconds:
        return None
    beat = (search.driver_expires or 0.0) - LEASE_SECONDS
    started = session.scalars(
        select(Evaluation.started).where(
            Evaluation.search_id == search.id, Evaluation.state == RUNNING, Evaluation.started < beat
        )
    )
    return min(1.0, (search.busy_seconds + sum(beat - start for start in started if start)) / search.slot_seconds)


def evaluations(session: Session, name: str, states: Sequence[str] = STATES) -> list[EvaluationRow]:
    """The evaluations of the search `name` that are in one of `states`, in the order they were proposed."""
    rows = session.execute(
        select(*_FIELDS, _LAST)
        .join(Search)
        .where(Search.name == name, Evaluation.state.in_(states))
        .order_by(Evaluation.number)
    )
    return [_row(row) for row in rows]


def devices(session: Session, name: str) -> set[str]:
    """The kinds of device, cpu or cuda, on which the scores of the search `name` were made."""
    kind = Evaluation.details["device"].as_string()
    rows = session.scalars(select(kind).join(Search).where(Search.name == name, kind.is_not(None)).distinct())
    return {row for row in rows if row}


def rungs(session: Session, name: str) -> list[RungRow]:
    """Every rung that evaluations of the search `name` reached, in the order of evaluation and rung."""
    rows = session.execute(
        select(Rung.evaluation_id.label("evaluation"), Rung.rung, Rung.budget, Rung.metrics, Rung.recorded)
        .join(Evaluation)
        .join(Search)
        .where(Search.name == name)
        .order_by(Evaluation.number, Rung.rung)
    )
    return [RungRow(**row._mapping) for row in rows]


def front(session: Session, name: str) -> list[EvaluationRow]:
    """The complete evaluations of the search `name` that no other dominates in its objectives; ties are kept.

    Best in the first objective first, then in the others, then in the order they were proposed.
    """
    objectives = search_summary(session, name).objectives
    signs = [-1 if direction == "max" else 1 for direction in objectives.values()]
    rows = session.execute(
        select(Evaluation.id, *(_value(metric) * sign for metric, sign in zip(objectives, signs, strict=True)))
        .join(Search)
        .where(Search.name == name, Evaluation.state == COMPLETE, *(_value(m).is_not(None) for m in objectives))
        .order_by(Evaluation.number)
    ).all()
    kept = [rows[index][0] for index in non_dominated([tuple(row[1:]) for row in rows])]
    found: dict[int, EvaluationRow] = {}
    for start in range(0, len(kept), _MOST_NAMED):
        some = select(*_FIELDS, _LAST).where(Evaluation.id.in_(kept[start : start + _MOST_NAMED]))
        found |= {row.id: _row(row) for row in session.execute(some)}
    return [found[number] for number in kept]


def probabilities(session: Session, name: str) -> dict[int, float]:
    """How probable it is that each complete evaluation of the search `name` is on its front, by the evaluation's id.

    Its seeds are drawn again; without scores by seed an evaluation counts as certain.
    """
    objectives = search_summary(session, name).objectives
    rows = session.execute(
        select(Evaluation.id, Evaluation.details["scores"], *(_value(metric) for metric in objectives))
        .join(Search)
        .where(Search.name == name, Evaluation.state == COMPLETE, *(_value(m).is_not(None) for m in objectives))
        .order_by(Evaluation.number)
    ).all()
    designs = []
    for row in rows:
        scores, samples = row[1] or {}, []
        for (metric, direction), value in zip(objectives.items(), row[2:], strict=True):
            seeds = scores.get(SEEDS_OF.get(metric, "")) or [value]
            middle = sum(seeds) / len(seeds)
            sign = -1 if direction == "max" else 1
            samples.append([sign * (value + seed - middle) for seed in seeds])
        designs.append(samples)
    return dict(zip((row[0] for row in rows), front_probability(designs), strict=True))


def histories(
    session: Session, name: str, objectives: Mapping[str, str], states: Sequence[str] = STATES
) -> list[History]:
    """As `evaluations`, with little more than the objectives: for what reads a whole search."""
    rows = session.execute(
        select(
            Evaluation.id, Evaluation.design, Evaluation.design_digest, Evaluation.state, Evaluation.origin,
            Evaluation.audit_rung, *(_value(metric) for metric in objectives),
        )
        .join(Search)
        .where(Search.name == name, Evaluation.state.in_(states))
        .order_by(Evaluation.number)
    )  # fmt: skip
    directions = tuple(objectives.values())
    return [History(row[0], row[1], row[2], row[3], row[4], row[5], tuple(row[6:]), directions) for row in rows]


def _value(metric: str) -> Any:
    """A metric of an evaluation: its column where it has one."""
    columns = Evaluation.__table__.columns
    return columns[metric] if metric in columns else Evaluation.metrics[metric].as_float()


def rung_values(session: Session, name: str, metrics: Sequence[str]) -> list[tuple[int, int, tuple[float | None, ...]]]:
    """Evaluation, rung and the values of `metrics` there, None where they were not measured."""
    rows = session.execute(
        select(Rung.evaluation_id, Rung.rung, *(Rung.metrics[metric].as_float() for metric in metrics))
        .join(Evaluation)
        .join(Search)
        .where(Search.name == name)
        .order_by(Evaluation.number, Rung.rung)
    )
    return [(row[0], row[1], tuple(row[2:])) for row in rows]


def false_prunes(session: Session, name: str) -> tuple[int, int] | None:
    """How many audited evaluations of the search `name` ended on the front or in the best share, and of how many.

    The share is the one that stopping lets go on, among all evaluations that are complete. None when the search does
    not stop early.
    """
    config = search_summary(session, name).config
    rule, objectives = config.get("stopping", "none"), config["objectives"]
    if rule == "none":
        return None
    compared = objectives if rule == "pareto" else {rule: objectives[rule]}
    rows = histories(session, name, compared, (COMPLETE,))
    known = [(row, place) for row in rows if (place := row.point)]
    best = {row.id for row in front(session, name)}
    audited = [index for index, (row, _) in enumerate(known) if row.audit_rung is not None]
    places = [place for _, place in known]
    false = sum(
        known[index][0].id in best
        or num_better(places[index], places[:index] + places[index + 1 :]) * config["halving"]["reduction"] < len(known)
        for index in audited
    )
    return false, len(audited)


def find_design(session: Session, digest: str, search: str | None = None) -> Design:
    """The design whose digest starts with `digest`. Raises ValueError when there is none, or several."""
    query = select(Evaluation.design).where(Evaluation.design_digest.startswith(digest, autoescape=True)).distinct()
    if search is not None:
        query = query.join(Search).where(Search.name == search)
    found = list(session.scalars(query.limit(3)))
    if not found:
        raise ValueError(f"design = {digest!r}: no evaluation here has a digest that starts so")
    if len(found) > 1:
        raise ValueError(f"design = {digest!r}: several designs start so, give more digits")
    return Design.parse(found[0])


def results(session: Session, design: Design) -> list[tuple[str, EvaluationRow]]:
    """Every evaluation of `design`, with the name of its search."""
    rows = session.execute(
        select(Search.name.label("search"), *_FIELDS)
        .join(Search)
        .where(Evaluation.design_digest == design.digest)
        .order_by(Search.created)
    )
    return [(row.search, _row(row, skip=("search",))) for row in rows]


def details(session: Session, evaluation: int) -> tuple[Mapping[str, Any], str | None]:
    """What the scores of an evaluation were made of, and its traceback if it failed."""
    row = session.get_one(Evaluation, evaluation)
    return row.details, row.traceback


def _row(row: Row[Any], skip: tuple[str, ...] = ()) -> EvaluationRow:
    return EvaluationRow(**{key: value for key, value in row._mapping.items() if key not in skip})


__all__ = [
    "COMPLETE", "FINISHED", "INFEASIBLE", "RUNNING", "STATES",
    "EvaluationRow", "History", "RungRow", "SearchSummary",
    "busy_share", "confirmations", "details", "devices", "evaluations", "false_prunes", "find_design", "front",
    "histories", "probabilities", "results", "rung_values", "rungs", "search_names", "search_summary",
]  # fmt: skip
