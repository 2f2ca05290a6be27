"""A search written as an Optuna study is one that Optuna's own tools read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session
from typer.testing import CliRunner

from search.cli import app
from search.config import Deployment, Halving, SearchConfig
from search.store import queries
from search.store.recorder import Recorder
from search.study import write
from space import Design, SearchSpace
from tests.search.driving import database, definition, drive, scores

SPACE = SearchSpace(depth=(4,), linear=("gla", "hgrn"), num_attention=(0, 1, 2, 4))
CONFIG = SearchConfig(
    name="s", trials=11, space=SPACE, sampler="random", stopping="pareto", halving=Halving(audit=0, rivals=1)
)


def score(design: Design, budget: float) -> dict[str, Any]:
    found: dict[str, Any] = scores(design, budget)
    return {**found, "recall": float("nan")} if design.text == "4xhgrn" else found


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """Evaluations complete, stopped, failed and infeasible, and one running."""
    engine = database(tmp_path)
    drive(CONFIG, engine, score)
    recorder = Recorder.open(engine, definition(CONFIG))
    with Session(engine) as session:
        seen = {row.design for row in queries.evaluations(session, "s")}
    too_large, running = [design for design in SPACE.enumerate() if design.text not in seen][:2]
    recorder.infeasible(too_large, "sampler", {"memory_bytes": 9e9}, "memory_bytes = 9: too large")
    assert recorder.lease(running, "sampler", {"memory_bytes": 9.0})
    return engine


def both(engine: Engine, folder: Path) -> tuple[optuna.Study, dict[str, queries.EvaluationRow]]:
    url = f"sqlite:///{folder}/study.db"
    with Session(engine) as session:
        write(session, "s", url)
        rows = {row.digest: row for row in queries.evaluations(session, "s")}
    return optuna.load_study(study_name="s", storage=url), rows


def test_a_study_has_every_ended_evaluation_with_its_state_values_and_attributes(
    engine: Engine, tmp_path: Path
) -> None:
    study, rows = both(engine, tmp_path)
    states = {"complete": "COMPLETE", "stopped": "PRUNED", "failed": "FAIL", "infeasible": "FAIL"}
    assert {row.state for row in rows.values()} == {*states, "running"}
    assert len(study.trials) == len(rows) - 1
    for trial in study.trials:
        row = rows[trial.user_attrs["digest"]]
        assert trial.state.name == states[row.state]
        assert trial.user_attrs["design"] == row.design and trial.user_attrs["memory_bytes"] == row.memory_bytes
        assert trial.datetime_complete is not None and trial.datetime_complete.timestamp() == pytest.approx(
            row.finished
        )
        assert SPACE.suggest(optuna.trial.FixedTrial(trial.params)) == Design.parse(row.design)
        if row.state == "complete":
            assert trial.values == [row.recall, row.memory_bytes]
            assert trial.user_attrs["recall_low"] == row.recall_low
            assert set(trial.intermediate_values) == {50, 100} and trial.intermediate_values[100] == row.recall
        elif row.state == "stopped":
            assert set(trial.intermediate_values) == {50}
        elif row.state == "failed":
            assert trial.user_attrs["reason"] == "non_finite: recall" and not trial.intermediate_values


def test_optuna_reads_the_front_and_draws_it(engine: Engine, tmp_path: Path) -> None:
    study, _ = both(engine, tmp_path)
    with Session(engine) as session:
        front = {row.design for row in queries.front(session, "s")}
    assert {trial.user_attrs["design"] for trial in study.best_trials} == front
    assert study.metric_names == ["recall", "memory_bytes"]
    assert optuna.visualization.plot_pareto_front(study).data
    assert optuna.visualization.plot_intermediate_values(study).data
    assert optuna.visualization.plot_slice(study, target=lambda trial: trial.values[0], target_name="recall").data
    study.sampler = optuna.samplers.NSGAIISampler(seed=0, population_size=4)
    assert SPACE.contains(SPACE.suggest(study.ask()))  # type: ignore[arg-type]


def test_written_twice_a_study_gains_only_what_is_new(engine: Engine, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    with Session(engine) as session:
        first = write(session, "s", url)
        again = write(session, "s", url)
        running = queries.evaluations(session, "s", ("running",))[0]
        driver = queries.search_summary(session, "s").driver
    assert (again.added, again.known, again.left) == (0, first.added, 1)
    assert driver is not None
    Recorder(engine, 1, definition(CONFIG), driver, print).fail(running.id, "RuntimeError")
    with Session(engine) as session:
        later = write(session, "s", url)
    assert (later.added, later.known, later.left) == (1, first.added, 0)
    assert len(optuna.load_study(study_name="s", storage=url).trials) == first.added + 1


def test_a_study_of_another_search_or_in_the_search_s_own_database_is_refused(engine: Engine, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    other = replace(CONFIG, deployment=Deployment(context=128), trials=1)
    (tmp_path / "other").mkdir()
    drive(other, database(tmp_path / "other"))
    with Session(engine) as session:
        write(session, "s", url)
        with pytest.raises(ValueError, match="holds searches of plait: a study needs a database of its own"):
            write(session, "s", f"sqlite:///{tmp_path}/plait.db")
    with Session(database(tmp_path / "other")) as session, pytest.raises(ValueError, match="choose another database"):
        write(session, "s", url)


def test_the_command_says_what_it_added(engine: Engine, tmp_path: Path) -> None:
    words = ["study", "s", "--storage", f"sqlite:///{tmp_path}/plait.db", "--to"]
    done = CliRunner().invoke(app, [*words, f"sqlite:///{tmp_path}/study.db"])
    assert done.exit_code == 0 and "Study s: 12 added to 0; 1 have not ended" in done.stdout
    for url in ("nonsense", "sqlite:////no/such/folder/a.db"):
        done = CliRunner().invoke(app, [*words, url])
        assert done.exit_code == 2 and done.stderr.startswith("error: to = ") and done.stderr.count("\n") == 1
