"""A search as an Optuna study in a database of its own, for optuna-dashboard and Optuna's own tools.

The study is a copy to look at: nothing reads it back. Written again, it gains the evaluations that ended since. With
several objectives and stopped trials Optuna's TPE cannot go on from it (it ranks intermediate values by the one
direction of a study); its NSGA-II can.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import create_engine, inspect
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from search.answers import DIRECTIONS, recorded
from search.config import MEASURED
from search.store import queries, shown
from search.store.tables import COMPLETE, FAILED, INFEASIBLE, LOST, STOPPED
from space.design import Design
from space.space import SearchSpace

STATES = {
    COMPLETE: TrialState.COMPLETE,
    STOPPED: TrialState.PRUNED,
    FAILED: TrialState.FAIL,
    INFEASIBLE: TrialState.FAIL,
    LOST: TrialState.FAIL,
}
"""Optuna's state for each in which an evaluation ends; user attribute `state` keeps the search's own."""
_ATTRIBUTES = (
    "design", "digest", "state", "origin", "reason", "recall_low", "recall_high", "memory_bytes", "parameters",
    "seconds", "audit_rung",
)  # fmt: skip


@dataclass(frozen=True)
class Written:
    """How many trials were added, how many the study had, and how many evaluations have not ended."""

    added: int
    known: int
    left: int


def write(session: Session, name: str, url: str) -> Written:
    """Writes the search `name` as a study of that name to the database at `url`.

    Intermediate values are the first measured objective, at percents of the training. Raises ValueError when the
    database cannot be used or its study is that of another search.
    """
    summary = queries.search_summary(session, name)
    space = SearchSpace.from_dict(dict(summary.space))
    rows = queries.evaluations(session, name)
    measured: dict[int, list[queries.RungRow]] = {}
    for item in queries.rungs(session, name):
        measured.setdefault(item.evaluation, []).append(item)
    study = _study(summary, space, url)
    known = {trial.user_attrs.get("digest") for trial in study.get_trials(deepcopy=False)}
    ended = [row for row in rows if row.state in STATES]
    new = [row for row in ended if row.digest not in known]
    study.add_trials([_trial(row, measured.get(row.id, []), summary.objectives, space) for row in new])
    return Written(len(new), len(ended) - len(new), len(rows) - len(ended))


def _study(summary: queries.SearchSummary, space: SearchSpace, url: str) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        engine = create_engine(url)
        if inspect(engine).has_table("searches"):
            raise ValueError(f"to = {shown(url)!r}: holds searches of plait: a study needs a database of its own")
        engine.dispose()
        study = optuna.create_study(
            storage=url,
            study_name=summary.name,
            directions=[DIRECTIONS[direction] for direction in summary.objectives.values()],
            load_if_exists=True,
        )
    except (SQLAlchemyError, ImportError) as error:
        raise ValueError(f"to = {shown(url)!r}: cannot be opened: {str(error).strip().splitlines()[0]}") from None
    mine = {
        "protocol_digest": summary.protocol_digest,
        "space_digest": space.digest,
        "objectives": dict(summary.objectives),
        "deployment": summary.config["deployment"],
    }
    for key, value in mine.items():
        if study.user_attrs.get(key, value) != value or (study.trials and key not in study.user_attrs):
            raise ValueError(
                f"to = {shown(url)!r}: its study {summary.name!r} has {key} = {study.user_attrs.get(key)!r}, "
                f"the search has {value!r}: choose another database"
            )
    for key, value in mine.items():
        study.set_user_attr(key, value)
    study.set_metric_names(list(summary.objectives))
    return study


def _trial(
    row: queries.EvaluationRow, rungs: list[queries.RungRow], objectives: Mapping[str, str], space: SearchSpace
) -> FrozenTrial:
    design, state = Design.parse(row.design), STATES[row.state]
    values: list[Any] = [row.metrics.get(name) for name in objectives]
    if state is TrialState.COMPLETE and None in values:
        state = TrialState.FAIL
    shown = next((name for name in objectives if name in MEASURED), "recall")
    found = recorded(space, design) if space.contains(design) else None
    attributes: dict[str, Any] = {name: getattr(row, name) for name in _ATTRIBUTES} | {"layers": design.strip}
    return FrozenTrial(
        number=-1,
        trial_id=-1,
        state=state,
        value=None,
        values=values if state is TrialState.COMPLETE else None,
        datetime_start=datetime.fromtimestamp(row.started or row.finished or 0),
        datetime_complete=datetime.fromtimestamp(row.finished or row.started or 0),
        params=found.params if found else {},
        distributions=found.distributions if found else {},
        user_attrs={name: value for name, value in attributes.items() if value is not None},
        system_attrs={},
        intermediate_values={
            round(100 * item.budget): item.metrics[shown] for item in rungs if item.metrics.get(shown) is not None
        },
    )
