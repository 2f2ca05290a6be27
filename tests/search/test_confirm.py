"""The confirm phase: what is trained again, under which seeds, what a kill loses, and the front that comes of it."""

from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from proxies.protocol import Training
from proxies.text import Corpus
from search.config import Confirm, SearchConfig
from search.confirm import candidates, confirmation
from search.driver import design_costs
from search.runner import definition as searched
from search.store import queries
from search.store.recorder import Recorder
from space import Design, SearchSpace
from tests.search.driving import database, definition, drive, scores
from tests.search.test_cli import plait
from tests.search.test_runner import TINY, rows, start, wait_for

SPACE = SearchSpace(depth=(4,), linear=("gla", "retnet"), num_attention=(0, 1, 2, 4))
CONFIG = SearchConfig(name="s", trials=12, sampler="random", space=SPACE)
SPREAD = (-0.08, 0.0, 0.08)  # of the seeds of every design


def by_seed(metrics: dict[str, Any]) -> dict[str, Any]:
    return {"scores": {"recall": [metrics["recall"] + off for off in SPREAD]}}


def confirming(engine: Engine, config: SearchConfig = CONFIG) -> SearchConfig:
    with Session(engine) as session:
        return confirmation(session, config)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """A finished search whose scores have seeds."""
    engine = database(tmp_path)
    drive(CONFIG, engine, num_slots=2, details=by_seed)
    return engine


def test_the_front_and_what_may_be_on_it_are_trained_again_behind_two_controls(engine: Engine) -> None:
    with Session(engine) as session:
        found = candidates(session, "s", 0.1)
        certain = candidates(session, "s", 1.0)
        known = queries.probabilities(session, "s")
        probability = {row.design: known[row.id] for row in queries.evaluations(session, "s")}
        front = {row.design for row in queries.front(session, "s")}
        weakest = min(("4xgla", "4xretnet"), key=lambda text: scores(Design.parse(text), 1.0)["recall"])
    assert [(str(item.design), item.origin) for item in found[:2]] == [("4xfull", "anchor"), (weakest, "anchor")]
    origins = {str(item.design): item.origin for item in found[2:]}
    near = {text for text, value in probability.items() if value >= 0.1} | front
    assert set(origins) == near - {"4xfull", weakest}
    assert all(origin == ("front" if text in front else "edge") for text, origin in origins.items())
    assert "edge" in origins.values() and len(certain) < len(found) < 12
    order = [probability[str(item.design)] for item in found[2:]]
    assert order == sorted(order, reverse=True)


def test_the_front_is_redrawn_from_the_new_scores_and_the_old_one_stays(engine: Engine) -> None:
    def other(design: Design, budget: float) -> dict[str, float]:
        """Now every design with attention in its last layer recalls nothing."""
        found = scores(design, budget)
        return {**found, "recall": 0.0} if design.num_full < 4 and 3 in design.full_layers else found

    with Session(engine) as session:
        before = queries.front(session, "s")
    assert any(3 in Design.parse(row.design).full_layers for row in before if row.design != "4xfull")
    config = confirming(engine)
    assert drive(config, engine, other, num_slots=2).finished == config.trials
    with Session(engine) as session:
        after = queries.front(session, "s-confirm")
        summary = queries.search_summary(session, "s-confirm")
        assert queries.front(session, "s") == before
        assert queries.confirmations(session, "s") == ["s-confirm"]
        assert queries.search_summary(session, "s").finished == 12
    assert summary.confirms == "s"
    assert summary.protocol_digest == config.proxy.digest != CONFIG.proxy.digest
    assert not any(3 in Design.parse(row.design).full_layers for row in after if row.design != "4xfull")


def test_killed_and_started_again_it_repeats_nothing(engine: Engine) -> None:
    trained: list[str] = []

    def counted(design: Design, budget: float) -> dict[str, float]:
        trained.extend([design.text] if budget == 1 else [])
        return scores(design, budget)

    config = confirming(engine)
    for moment in (3, 4):
        drive(config, engine, counted, num_slots=2, kill_after=moment)
        assert confirming(engine) == config
    drive(config, engine, counted, num_slots=2)
    assert Counter(trained) == Counter(set(trained)) and len(trained) == config.trials
    drive(config, engine, counted)
    assert len(trained) == config.trials


def test_when_the_search_goes_on_only_what_is_new_is_confirmed(engine: Engine) -> None:
    first = confirming(engine)
    drive(first, engine)
    drive(replace(CONFIG, trials=20), engine, details=by_seed)
    trained: list[str] = []

    def counted(design: Design, budget: float) -> dict[str, float]:
        trained.extend([design.text] if budget == 1 else [])
        return scores(design, budget)

    second = confirming(engine)
    drive(second, engine, counted)
    assert second.trials > first.trials and len(trained) == second.trials - first.trials


def seeds(training: Training) -> set[int]:
    return {*training.seeds, *training.fresh}


@pytest.mark.parametrize(
    ("protocol", "confirm"),
    [
        ({"name": "quick"}, {}),
        ({"name": "screen"}, {}),
        ({"name": "screen", "recall": {"training": {"steps": 500}}}, {}),
        ({"name": "quick"}, {"name": "confirm"}),
        ({"name": "quick"}, {"name": "quick", "recall": {"training": {"first_seed": 2}}}),
    ],
)
def test_no_seed_of_the_search_is_used_again(protocol: dict[str, Any], confirm: dict[str, Any]) -> None:
    config = SearchConfig(protocol=protocol, confirm=Confirm(protocol=confirm))
    later = replace(config, protocol=config.confirming)
    for name in ("recall", "language"):
        old, new = (getattr(each.proxy, name).training for each in (config, later))
        assert not seeds(old) & seeds(new)
        if not confirm:
            assert new.steps > old.steps and len(seeds(new)) == len(seeds(old)) + 2
    assert later.proxy.digest != config.proxy.digest
    if protocol == {"name": "screen"}:
        assert later.proxy.name == "confirm"
    # and a confirmation can itself be confirmed
    third = replace(later, protocol=later.confirming).proxy.recall.training
    assert not seeds(third) & seeds(later.proxy.recall.training)


def test_a_bad_confirm_table_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "search.toml"
    for text, message in (
        ("[confirm]\nprotocol = { name = 'slow' }", "protocol = 'slow': must be one of quick"),
        ("[confirm]\nprotocol = { recall = {} }", "confirm protocol name: missing"),
        ("[confirm]\nprobability = 2", r"confirm probability = 2: must be a number in 0\.001\.\.1"),
        ("[confirm]\nafter_run = 1", "confirm after_run = 1: must be true or false"),
        ("[confirm]\nafter = true", r"confirm key 'after': must be one of after_run"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            SearchConfig.read(path)


def test_what_cannot_be_confirmed_is_one_line(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/plait.db"
    engine = database(tmp_path)
    Recorder.open(engine, definition(CONFIG)).close()
    for words, message in (
        (("s",), "search = 's': has no complete evaluation to confirm"),
        (("t",), "search = 't': must be one of s"),
        (("s", "--protocol", "slow"), "protocol = 'slow': must be one of quick, screen, confirm"),
    ):
        code, _, errors = plait("confirm", *words, "--storage", storage)
        assert code == 2 and errors.count("\n") == 1 and message in errors
    with Session(engine) as session:
        assert queries.search_names(session) == ["s"]
    # here the search was made of another text than the library's
    drive(CONFIG, engine)
    code, _, errors = plait("confirm", "s", "--storage", storage)
    assert code == 2 and "the search was run with" in errors


def test_another_search_of_that_name_is_not_taken_for_a_confirmation(engine: Engine) -> None:
    config = confirming(engine)
    Recorder.open(engine, definition(replace(config, confirms=None))).close()
    with pytest.raises(ValueError, match="confirms is None there and s here"):
        Recorder.open(engine, definition(config))


def test_a_search_of_an_older_protocol_is_refused_naming_the_field(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE searches SET protocol_digest = 'old', "
            "protocol = json_remove(protocol, '$.recall.training.first_seed')"
        )
    with pytest.raises(ValueError, match=r"protocol\.recall\.training\.first_seed is None there and 0 here: choose"):
        Recorder.open(engine, definition(CONFIG))


def test_after_kill_9_of_real_trainings_the_same_command_ends_the_confirmation(tmp_path: Path) -> None:
    """With `after_run`: the search is finished already, its confirmation is killed in the middle."""
    path = tmp_path / "search.toml"
    path.write_text(TINY.read_text() + "\n[confirm]\nafter_run = true\nprobability = 0.3\n")
    config = SearchConfig.read(path)
    recorder = Recorder.open(database(tmp_path), searched(config, Corpus.load()))
    for design in islice(config.space.enumerate(), config.trials):
        lease = recorder.lease(design, "anchor", design_costs(config, design))
        assert lease is not None
        found = scores(design, 1.0)
        recorder.finish(lease.evaluation, "complete", found, by_seed(found), 1.0)
    recorder.close()
    before = rows(tmp_path)

    def confirmed(state: str = "complete") -> list[tuple[str, str, float]]:
        return [row for row in rows(tmp_path, state) if row not in before]

    process = start(tmp_path, "--config", str(path))
    wait_for(lambda: confirmed() and confirmed("running"), process, 180)
    process.kill()
    process.wait()
    first = confirmed()
    again = start(tmp_path, "--config", str(path))
    output = again.communicate(timeout=180)[0]
    assert again.returncode == 0 and "Traceback" not in output, output
    done = confirmed()
    assert set(first) < set(done) == set(confirmed("%"))
    assert len({design for design, _, _ in done}) == len(done)
    assert "The budget is met: 6 evaluations are finished." in output
    assert "of tiny-confirm, which trains that of tiny again" in output
    code, text, _ = plait("front", "tiny", "--storage", f"sqlite:///{tmp_path}/plait.db")
    assert code == 0 and "Trained again with fresh seeds: plait front tiny-confirm" in text
