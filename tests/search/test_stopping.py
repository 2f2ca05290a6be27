"""Stopping decides by rank, then by room, at one rung; it is audited, and depends on the store alone."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from search.config import Halving, SearchConfig
from search.proposer import anchors
from search.stopping import Decision, Rungs, audited, goes_on
from search.store import queries
from search.store.pareto import dominates, hypervolume, ranks
from space import Design, SearchSpace
from tests.search.driving import database, drive, noise, scores

RULE = Halving()
RIVALS = [(-0.9, 4.0), (-0.8, 3.0), (-0.7, 2.0), (-0.6, 1.0)]  # minus recall, memory: all on one front
CONFIG = SearchConfig(
    name="s", trials=60, sampler="random", stopping="pareto", halving=Halving(audit=0.25),
    space=SearchSpace(depth=(6,), linear=("gla", "retnet", "hgrn2"), num_attention=(0, 1, 2, 3, 6)),
)  # fmt: skip
POINTS = st.lists(st.tuples(*[st.integers(0, 4).map(float)] * 3), min_size=1, max_size=25)


def test_a_trial_behind_the_front_stops_and_one_at_its_end_goes_on() -> None:
    assert not goes_on((-0.5, 5.0), RIVALS, 0.5, RULE)
    assert goes_on((-0.95, 5.0), RIVALS, 0.5, RULE)
    assert goes_on((-0.5, 0.5), RIVALS, 0.5, RULE)


def test_nothing_stops_in_the_grace_or_with_few_rivals() -> None:
    assert goes_on((-0.5, 5.0), RIVALS, RULE.grace - 0.01, RULE)
    assert goes_on((-0.5, 5.0), RIVALS[: RULE.rivals - 1], 0.5, RULE)


def test_the_best_share_goes_on_and_no_more() -> None:
    rivals = [(-0.1, 9.0)] * 5 + RIVALS[:2]
    assert goes_on((-0.5, 5.0), rivals, 0.5, RULE)
    assert not goes_on((-0.5, 5.0), rivals, 0.5, replace(RULE, reduction=4))


def test_on_one_front_the_one_without_room_stops() -> None:
    assert not goes_on((-0.7001, 2.0001), RIVALS, 0.5, RULE)
    assert goes_on((-0.75, 2.5), [(-0.9, 4.0), (-0.7, 2.2), (-0.7001, 2.2001), (-0.6, 1.0)], 0.5, RULE)


@given(POINTS)
def test_ranks_are_those_of_taking_one_front_after_the_other_away(points: list[tuple[float, ...]]) -> None:
    for places in (2, 3):
        left = {point[:places] for point in points}
        expected, rank = {}, 0
        while left:
            front = {point for point in left if not any(dominates(other, point) for other in left)}
            expected.update(dict.fromkeys(front, rank))
            left, rank = left - front, rank + 1
        assert ranks([point[:places] for point in points]) == [expected[point[:places]] for point in points]


@given(POINTS)
def test_the_hypervolume_is_the_number_of_dominated_cells(points: list[tuple[float, ...]]) -> None:
    for places in (1, 2, 3):
        cells = {()}
        for _ in range(places):
            cells = {(*cell, side) for cell in cells for side in range(4)}
        inside = sum(any(all(a <= b for a, b in zip(p, cell, strict=False)) for p in points) for cell in cells)
        assert hypervolume([point[:places] for point in points], (4.0,) * places) == inside


@given(st.permutations(range(12)), st.integers(0, 11))
def test_a_decision_does_not_depend_on_the_order_in_which_the_store_is_read(order: list[int], own: int) -> None:
    numbers = random.Random(3)
    points = [(numbers.choice((0.5, 0.6, 0.7)), numbers.choice((1.0, 2.0, 3.0))) for _ in range(12)]
    found = set()
    for indices in (range(12), order):
        rungs = Rungs("pareto", {"recall": "max", "memory_bytes": "min"}, Halving(audit=0))
        for index in indices:
            rungs.note(str(index), 0, {"recall": points[index][0], "memory_bytes": points[index][1]})
        found.add(rungs.decide(str(own), 0, 0.5))
    assert len(found) == 1


def test_a_missing_or_non_finite_metric_is_never_a_rank() -> None:
    rungs = Rungs("recall", {"recall": "max"}, Halving(audit=0, rivals=3))
    for name, recall in {"a": 0.5, "b": 0.6, "c": float("nan"), "d": None, "e": float("inf"), "f": 0.1}.items():
        rungs.note(name, 0, {"recall": recall})
    assert rungs.decide("f", 0, 0.5) is Decision.GO_ON  # two rivals are there, not five
    rungs.note("g", 0, {"recall": 0.7})
    assert rungs.decide("f", 0, 0.5) is Decision.STOP


def test_the_audit_is_the_same_on_every_machine_and_near_its_share() -> None:
    assert [audited(str(number), 0.3) for number in range(8)] == [True, False, True, True, True, False, True, False]
    assert 80 < sum(audited(str(number), 0.1) for number in range(1000)) < 120
    assert not any(audited(str(number), 0.0) for number in range(100))
    assert all(audited(str(number), 1.0) for number in range(100))


def test_stopped_trials_keep_their_rung_and_never_meet_the_front(tmp_path: Path) -> None:
    engine = database(tmp_path)
    drive(CONFIG, engine, num_slots=4)
    with Session(engine) as session:
        stopped = queries.evaluations(session, "s", ("stopped",))
        rows = queries.evaluations(session, "s")
        front = queries.front(session, "s")
        count = queries.search_summary(session, "s").finished
    assert stopped and all(row.rung == 0 and row.audit_rung is None for row in stopped)
    assert front and all(row.state == "complete" and row.rung == 1 for row in front)
    assert count == 60 == len(rows)


def test_controls_are_never_stopped(tmp_path: Path) -> None:
    config = replace(CONFIG, halving=Halving(audit=0, rivals=1, reduction=100), trials=20)
    drive(config, database(tmp_path))
    with Session(database(tmp_path)) as session:
        states = {row.design: row.state for row in queries.evaluations(session, "s")}
    assert {states[str(design)] for design in anchors(CONFIG.space)} == {"complete"}
    assert "stopped" in states.values()


def test_audited_trials_run_to_the_end_and_the_rate_of_false_prunes_is_that_of_the_store(tmp_path: Path) -> None:
    def late(design: Design, budget: float) -> dict[str, float]:
        """What is seen at the rung says nothing about the end."""
        found = scores(design, budget)
        return {**found, "recall": noise(design, budget)}

    engine = database(tmp_path)
    drive(CONFIG, engine, late, num_slots=3)
    with Session(engine) as session:
        rows = queries.evaluations(session, "s")
        front = {row.design for row in queries.front(session, "s")}
        wrong, count = queries.false_prunes(session, "s") or (0, 0)
    marked = [row for row in rows if row.audit_rung is not None]
    assert marked and {row.state for row in marked} == {"complete"} and {row.rung for row in marked} == {1}
    assert all(audited(row.digest, 0.25) for row in marked)
    assert not any(audited(row.digest, 0.25) for row in rows if row.state == "stopped")
    assert count == len(marked) and len({row.design for row in marked} & front) <= wrong <= count
    assert wrong > 0


def test_no_rate_of_false_prunes_without_stopping(tmp_path: Path) -> None:
    drive(replace(CONFIG, stopping="none", trials=12), database(tmp_path))
    with Session(database(tmp_path)) as session:
        assert queries.false_prunes(session, "s") is None
        assert not queries.evaluations(session, "s", ("stopped",))


@pytest.mark.parametrize("moment", [9, 30, 61])
def test_a_driver_that_was_killed_decides_as_one_that_was_not(tmp_path: Path, moment: int) -> None:
    engine = database(tmp_path)
    config = replace(CONFIG, sampler="grid", trials=50)
    (tmp_path / "whole").mkdir()
    whole = database(tmp_path / "whole")
    drive(config, whole)
    drive(config, engine, kill_after=moment)
    drive(config, engine)
    found = []
    for each in (whole, engine):
        with Session(each) as session:
            found.append({row.digest: (row.state, row.audit_rung) for row in queries.evaluations(session, "s")})
    assert found[0] == found[1]
    assert {state for state, _ in found[0].values()} == {"complete", "stopped"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"halving": {"reduction": 1}}, "halving reduction = 1: must be a number in 1.1..100"),
        ({"halving": {"reduktion": 3}}, "did you mean 'reduction'"),
        ({"halving": {"audit": float("nan")}}, "halving audit = nan: must be a number in 0..1"),
        ({"halving": {"rivals": 0}}, "halving rivals = 0: must be a whole number in 1.."),
        ({"halving": {"grace": 0.9}, "stopping": "pareto"}, r"rungs are \[0.5, 1.0\], between halving grace = 0.9"),
        (
            {"protocol": {"name": "quick", "rungs": [1.0]}, "stopping": "recall"},
            "stopping = 'recall': must have a rung",
        ),
        ({"objectives": {"memory_bytes": "min"}, "stopping": "pareto"}, "must have an objective among recall"),
        ({"objectives": {"lm_bits_per_byte": "min"}, "stopping": "recall"}, "stopping = 'recall': must be one of"),
    ],
)
def test_a_combination_that_cannot_stop_anything_is_refused_when_it_is_read(data: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SearchConfig.from_dict(data)
