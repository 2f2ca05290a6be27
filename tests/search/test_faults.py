"""Faults that users of such systems have reported, each by its sentence."""

import threading
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import optuna
import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from search import runner
from search.config import SAMPLERS, SearchConfig
from search.driver import Driver, Outcome
from search.proposer import Past, Proposer, anchors
from search.sampler import POPULATION, Sampler
from search.store import queries
from search.store.recorder import Recorder
from search.store.tables import RUNNING
from space import Design, SearchSpace
from tests.search.driving import Silent, database, definition, drive, noise, scores

SPACE = SearchSpace(depth=(4,), linear=("gla", "retnet"), num_attention=(0, 1, 2, 4))
LARGE = SearchSpace(
    depth=(8,), linear=("gla", "gla:conv=on", "retnet", "hgrn2"), attention=("full", "window:size=128"), mixtures=True
)
OBJECTIVES = {"recall": "max", "memory_bytes": "min"}
CONFIG = SearchConfig(name="s", trials=12, sampler="random", space=SPACE)


# Proposing


@pytest.mark.parametrize("sampler", ["nsga2", "tpe", "random", "model"])
def test_p1_samplers_repeat_designs_and_64_trials_on_75_designs_are_64(tmp_path: Path, sampler: str) -> None:
    space = SearchSpace(depth=(4,), linear=("gla", "retnet", "hgrn", "hgrn2", "deltanet"))
    config = replace(CONFIG, space=space, sampler=sampler, trials=min(64, space.size))
    drive(config, database(tmp_path), num_slots=3)
    with Session(database(tmp_path)) as session:
        rows = queries.evaluations(session, "s")
    assert len(rows) == len({row.digest for row in rows}) == config.trials


def test_p2_choices_come_back_from_the_database_as_they_were_and_the_next_proposal_works(tmp_path: Path) -> None:
    config = replace(CONFIG, space=LARGE, sampler="tpe", trials=16)
    drive(config, database(tmp_path))
    with Session(database(tmp_path)) as session:
        space = SearchSpace.from_dict(dict(queries.search_summary(session, "s").space))
        rows = queries.evaluations(session, "s")
    assert space == LARGE and space.digest == LARGE.digest
    for row in rows:
        assert Design.parse(row.design).digest == row.digest and space.contains(Design.parse(row.design))
    drive(replace(config, trials=20), database(tmp_path))
    with Session(database(tmp_path)) as session:
        assert queries.search_summary(session, "s").counts["complete"] == 20


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_p3_a_space_that_grows_keeps_its_evaluations_and_proposes_what_is_new(tmp_path: Path, sampler: str) -> None:
    engine = database(tmp_path)
    drive(replace(CONFIG, sampler=sampler, trials=10**4), engine)
    larger = replace(SPACE, linear=("gla", "retnet", "hgrn2"))
    config = replace(CONFIG, sampler=sampler, space=larger, trials=10**4)
    with pytest.raises(ValueError, match="--resume"):
        Recorder.open(engine, definition(config))
    Recorder.open(engine, definition(config), extend=True).close()
    drive(config, engine)
    with Session(engine) as session:
        rows = queries.evaluations(session, "s")
        assert not queries.search_summary(session, "s").counts[RUNNING]
    assert len(rows) == larger.size == len({row.digest for row in rows})
    assert all("hgrn2" not in row.design for row in rows[: SPACE.size])


def test_p3_an_incompatible_space_is_refused_before_anything_starts(tmp_path: Path) -> None:
    drive(CONFIG, database(tmp_path))
    other = replace(CONFIG, space=replace(SPACE, linear=("hgrn",)))
    for extend in (False, True):
        with pytest.raises(ValueError, match=r"space\.linear is \['gla', 'retnet'\] there and \['hgrn'\] here"):
            Recorder.open(database(tmp_path), definition(other), extend=extend)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_p4_anchors_run_first_once_also_after_a_kill(tmp_path: Path, sampler: str) -> None:
    config, known = replace(CONFIG, sampler=sampler), anchors(SPACE)
    for moment in (3, 7):
        drive(config, database(tmp_path), kill_after=moment)
    drive(config, database(tmp_path))
    with Session(database(tmp_path)) as session:
        rows = queries.evaluations(session, "s")
    assert [row.design for row in rows[: len(known)]] == [str(design) for design in known]
    assert [row.origin == "anchor" for row in rows] == [index < len(known) for index in range(len(rows))]


@pytest.mark.parametrize(("sampler", "space"), list(product(SAMPLERS, (SPACE, LARGE))))
def test_p5_proposals_work_whatever_states_the_history_has(sampler: str, space: SearchSpace) -> None:
    source = Proposer(space, OBJECTIVES, "random")
    past = []
    for number in range(15):
        proposal = source.ask()
        assert proposal is not None
        past.append(Past(proposal.design, (noise(proposal.design), float(number % 5)) if number % 3 else None))
    for history in ([], [Past(item.design) for item in past], past):
        proposer = Proposer(space, OBJECTIVES, sampler, history=history, costs=lambda design: {"memory_bytes": 1.0})
        for number in range(6):
            proposal = proposer.ask()
            assert proposal is not None and proposal.design not in {item.design for item in history}
            if number % 3:  # one in three stays in flight
                proposer.tell(proposal.design, None if number % 2 else (0.5, 1.0))


def test_p6_the_same_name_with_another_config_is_refused_naming_what_differs(tmp_path: Path) -> None:
    drive(CONFIG, database(tmp_path))
    for change, words in (
        ({"objectives": {"recall": "max"}}, r"objectives\.memory_bytes is min there and None here"),
        ({"protocol": {"name": "quick", "width": 64}}, r"protocol\.width is 32 there and 64 here"),
    ):
        with pytest.raises(ValueError, match=words):
            Recorder.open(database(tmp_path), definition(replace(CONFIG, **change)))


def test_p7_conditional_parameters_do_not_turn_nsga2_into_random_search() -> None:
    designs = list(replace(LARGE, mixtures=False, linear=("gla", "retnet", "hgrn2", "hgrn")).enumerate())
    space = replace(LARGE, mixtures=False, linear=("gla", "retnet", "hgrn2", "hgrn"))
    # Only hgrn2 scores; memory does not matter.
    observed = {d: (float("hgrn2" in str(d)) + noise(d) / 100, 1.0) for d in designs[:: len(designs) // 200]}
    drawn: dict[str, int] = {}
    for name in ("nsga2", "random"):
        sampler = Sampler(space, OBJECTIVES, name, 0, observed)
        drawn[name] = sum("hgrn2" in str(sampler.draw()[1]) for _ in range(100))
    assert drawn["random"] < 45 and drawn["nsga2"] > 75


def test_p7_tpe_is_multivariate_and_grouped() -> None:
    sampler = Sampler(LARGE, OBJECTIVES, "tpe", 0, {})._study.sampler
    assert isinstance(sampler, optuna.samplers.TPESampler)
    assert sampler._multivariate and sampler._group


def test_p7_nsga2_goes_on_from_the_best_evaluations_after_a_restart() -> None:
    space = replace(SPACE, depth=(8,))
    observed = {d: (noise(d), 1.0) for d in list(space.enumerate())[:30]}
    trials = Sampler(space, OBJECTIVES, "nsga2", 0, observed)._study.trials
    first = [trial for trial in trials if trial.system_attrs]
    assert len(first) == POPULATION and len(trials) == 30
    assert {trial.values[0] for trial in first} == {v for v, _ in sorted(observed.values())[-POPULATION:]}


# Results


def test_r1_r2_a_nan_or_a_missing_metric_fails_alone_and_nothing_is_left_running(tmp_path: Path) -> None:
    def broken(design: Design, budget: float) -> dict[str, float]:
        found = scores(design, budget)
        if noise(design) < 0.3:
            return {**found, "recall": float("nan")}
        return {key: value for key, value in found.items() if key != "recall"} if noise(design) < 0.6 else found

    drive(CONFIG, database(tmp_path), broken, num_slots=3)
    with Session(database(tmp_path)) as session:
        rows = queries.evaluations(session, "s")
        fronts = queries.front(session, "s")
    reasons = Counter(row.reason for row in rows)
    assert reasons["non_finite: recall"] and reasons["missing_metric: recall"] and reasons[None]
    assert {row.state for row in rows} == {"complete", "failed"}
    assert all(row.recall is None for row in rows if row.state == "failed")
    assert fronts and all(row.state == "complete" for row in fronts)


def test_r5_a_write_that_the_database_refuses_for_a_moment_is_tried_again(tmp_path: Path) -> None:
    engine = database(tmp_path)
    refused = []

    def refuse(connection, cursor, statement, parameters, context, many):  # type: ignore[no-untyped-def]
        if statement.startswith("UPDATE evaluations") and len(refused) < 3:
            refused.append(statement)
            raise OperationalError(statement, parameters, Exception("database is locked"))

    event.listen(engine, "before_cursor_execute", refuse)
    drive(replace(CONFIG, trials=4), engine)
    assert len(refused) == 3
    with Session(engine) as session:
        assert [row.state for row in queries.evaluations(session, "s")] == ["complete"] * 4


def test_r5_a_database_error_that_stays_is_raised_and_no_good_trial_is_failed(tmp_path: Path) -> None:
    engine = database(tmp_path)
    drive(replace(CONFIG, trials=3), engine)

    def refuse(connection, cursor, statement, *rest):  # type: ignore[no-untyped-def]
        if statement.startswith("INSERT INTO rungs"):
            raise OperationalError(statement, (), Exception("disk I/O error"))

    event.listen(engine, "before_cursor_execute", refuse)
    with pytest.raises(OperationalError):
        drive(replace(CONFIG, trials=6), engine)
    with Session(database(tmp_path)) as session:
        counts = queries.search_summary(session, "s").counts
    assert (counts["complete"], counts["failed"], counts["running"]) == (3, 0, 1)


def test_r6_the_front_keeps_ties_in_a_stable_order(tmp_path: Path) -> None:
    def tied(design: Design, budget: float) -> dict[str, float]:
        return {**scores(design, budget), "recall": design.num_full / 4}

    drive(replace(CONFIG, trials=10**4), database(tmp_path), tied)
    with Session(database(tmp_path)) as session:
        front = queries.front(session, "s")
        assert front == queries.front(session, "s")
        rows = queries.evaluations(session, "s")
    best = Counter((row.recall, row.memory_bytes) for row in front)
    assert max(best.values()) > 1  # designs that differ only in where attention sits
    for row in rows:
        if (row.recall, row.memory_bytes) in best:
            assert row in front
    keys = [(-(row.recall or 0), row.memory_bytes, row.number) for row in front]
    assert keys == sorted(keys)


# Restart and sharing


def test_s1_what_was_in_flight_runs_again_once_and_nothing_finished_is_repeated(tmp_path: Path) -> None:
    trained: list[str] = []

    def counted(design: Design, budget: float) -> dict[str, float]:
        trained.extend([design.text] if budget == 1 else [])
        return scores(design, budget)

    drive(CONFIG, database(tmp_path), counted, num_slots=3, kill_after=11)
    with Session(database(tmp_path)) as session:
        flying = {row.design for row in queries.evaluations(session, "s", (RUNNING,))}
    assert len(flying) in (2, 3)
    drive(CONFIG, database(tmp_path), counted, num_slots=3)
    assert Counter(trained) == Counter(set(trained)) and len(trained) == 12
    with Session(database(tmp_path)) as session:
        rows = queries.evaluations(session, "s")
    assert {row.attempts for row in rows if row.design in flying} == {2}
    assert {row.state for row in rows} == {"complete"}


def test_s2_a_search_of_8_with_trials_12_runs_4_more_with_its_history(tmp_path: Path) -> None:
    drive(replace(CONFIG, trials=8), database(tmp_path))
    with Session(database(tmp_path)) as session:
        before = queries.evaluations(session, "s")
    drive(replace(CONFIG, trials=12), database(tmp_path))
    with Session(database(tmp_path)) as session:
        after = queries.evaluations(session, "s")
    assert after[:8] == before and len(after) == 12


def test_s4_of_many_threads_that_claim_at_once_each_gets_another_evaluation(tmp_path: Path) -> None:
    engine = database(tmp_path)
    recorder = Recorder.open(engine, definition(CONFIG))
    for design in list(SPACE.enumerate())[:16]:
        assert recorder.lease(design, "sampler", {})
    recorder.close()  # all are queued now
    recorder = Recorder.open(engine, definition(CONFIG))
    claimed: list[int] = []

    def claim() -> None:
        while (lease := recorder.lease_queued()) is not None:
            claimed.append(lease.evaluation)

    threads = [threading.Thread(target=claim) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(claimed) == 16 == len(set(claimed))


def test_s6_a_killed_trial_does_not_count_and_the_budget_is_met_exactly(tmp_path: Path) -> None:
    engine = database(tmp_path)
    drive(CONFIG, engine, num_slots=4, kill_after=3)
    recorder = Recorder.open(engine, definition(CONFIG))
    driver = Driver(CONFIG, engine, recorder, Silent(), 1)
    lease = driver.next()
    driver.lost(lease.evaluation)  # type: ignore[union-attr]
    again = driver.next()
    assert again.design == lease.design  # type: ignore[union-attr]
    assert driver.measured(again.evaluation, Outcome(0, 0.5, False, scores(again.design, 0.5)))  # type: ignore[union-attr]
    recorder.close()
    drive(CONFIG, engine, num_slots=4)
    with Session(engine) as session:
        summary = queries.search_summary(session, "s")
    assert summary.finished == 12 and sum(summary.counts.values()) == 12


def test_s7_a_long_design_does_not_make_a_long_directory() -> None:
    long = "256xfull:kv_heads=2:rope=off+gla:conv=on@" + ",".join(map(str, range(1, 256, 2)))
    assert Design.parse(long).text == long and len(long) > 255
    trial = SimpleNamespace(trial_id="3f2a9c01_00001", config={"design": long}, trainable_name="Worker")
    assert runner.short_name(trial) == "3f2a9c01_00001"


def test_scores_of_a_gpu_and_of_a_cpu_do_not_meet_in_one_search(tmp_path: Path) -> None:
    engine, config = database(tmp_path), CONFIG.with_options(trials=2)
    driver = drive(config, engine, details=lambda metrics: {"device": "cuda"})
    driver.trains_on("cpu")  # it had no scores when it began
    again = drive(config.with_options(trials=3), engine, details=lambda metrics: {"device": "cuda"})
    again.trains_on("cuda")
    with pytest.raises(ValueError, match="train on a CPU, and the scores of search 's' were made on a GPU"):
        again.trains_on("cpu")
