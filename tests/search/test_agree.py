"""How far scores can be trusted: rungs against the end, and one search against another."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from search.agree import METRICS
from search.cli import app
from search.config import SearchConfig
from search.driver import design_costs
from search.offline import BROUGHT
from search.rank import kept, ranks, spearman
from search.replay import Table
from search.store import writer
from search.store.recorder import Recorder
from space.space import SearchSpace
from tests.search.driving import definition

NUM = 8
ORDER = [3, 1, 4, 0, 7, 5, 2, 6]  # the final places of the designs, worst first


def test_ranks_and_their_correlation_are_as_by_hand() -> None:
    assert ranks([3.0, 1.0, 3.0, 7.0]) == [2.5, 1.0, 2.5, 4.0]
    assert spearman([1, 2, 3, 4], [2, 1, 4, 3]) == pytest.approx(0.6)  # 1 - 6 * 4 / 60
    assert spearman([1, 2, 3], [6, 5, 4]) == pytest.approx(-1)
    assert str(spearman([1, 1, 1], [1, 2, 3])) == "nan"


def test_what_early_stopping_keeps_of_the_best_is_as_by_hand() -> None:
    late = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]  # the best quarter: the last two
    assert kept(late, late, 0.5) == 1
    assert kept([-value for value in late], late, 0.5) == 0
    assert kept([0, 1, 1, 1, 1, 0, 0, 1], late, 0.5) == pytest.approx(0.5 * 4 / 5)  # four of five equals go on
    assert kept([0.0] * 8, late, 0.5) == 0.5


@pytest.fixture
def storage(tmp_path: Path) -> str:
    """`first` and `again` score eight designs alike but for two neighbours; the first rung of `first` is the reverse
    of its end, the second is its end. `harder` has another training."""
    url = f"sqlite:///{tmp_path}/a.db"
    space = SearchSpace(depth=(4,), linear=("gla", "hgrn2"), num_attention=(0, 1, 4), placements=("free",))
    designs = list(space.enumerate())[:NUM]
    for name, overrides, swap in (
        ("first", {"rungs": [0.25, 0.5, 1.0]}, False),
        ("again", {"rungs": [0.25, 0.5, 1.0], "recall": {"training": {"first_seed": 100}}}, True),
        ("few", {}, False),
    ):
        config = SearchConfig(name=name, space=space, protocol={"name": "quick", **overrides})
        recorder = Recorder.open(writer(url), definition(config))
        for place, design in zip(ORDER, designs[: 3 if name == "few" else NUM], strict=False):
            lease = recorder.lease(design, "sampler", design_costs(config, design))
            assert lease is not None
            place = {6: 7, 7: 6}.get(place, place) if swap else place
            score = {"recall": place / 10, "lm_bits_per_byte": 3 - place / 10}
            early = {"recall": 0.9 - place / 10, "lm_bits_per_byte": 3 - place / 10}
            recorder.rung(lease.evaluation, 0, 0.25, early, "w")
            recorder.rung(lease.evaluation, 1, 0.5, score, "w")
            recorder.rung(lease.evaluation, 2, 1.0, score, "w")
            recorder.finish(lease.evaluation, "complete", score, {}, 1.0)
    return url


def plait(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_each_rung_is_compared_with_the_end(storage: str) -> None:
    found = json.loads(plait("agree", "first", "--storage", storage, "--json"))
    rows = {(row["metric"], row["budget"]): row for row in found["rows"]}
    assert set(rows) == {(metric, budget) for metric in ("recall", "lm_bits_per_byte") for budget in (0.25, 0.5)}
    assert rows["recall", 0.25]["correlation"]["mean"] == pytest.approx(-1) and rows["recall", 0.25]["kept"] == 0
    for key in (("recall", 0.5), ("lm_bits_per_byte", 0.25), ("lm_bits_per_byte", 0.5)):
        assert rows[key]["correlation"]["mean"] == pytest.approx(1) and rows[key]["kept"] == 1
    assert {row["designs"] for row in found["rows"]} == {NUM}


def test_two_searches_are_compared_over_the_designs_of_both(storage: str) -> None:
    found = json.loads(plait("agree", "first", "again", "--storage", storage, "--json"))
    assert found["differs"] == ["recall.training.first_seed"]
    assert [row["metric"] for row in found["rows"]] == ["recall", "lm_bits_per_byte"]
    for row in found["rows"]:  # two neighbours of eight change places: 1 - 6 * 2 / (8 * 63)
        assert row["correlation"]["mean"] == pytest.approx(1 - 12 / 504)
        assert row["correlation"]["low"] < row["correlation"]["mean"] <= row["correlation"]["high"]
    text = plait("agree", "first", "again", "--storage", storage)
    assert "first against again: 8 designs" in text and "0.98 [" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("words", [("few",), ("first", "few")])
def test_too_few_designs_say_nothing(storage: str, words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["agree", *words, "--storage", storage])
    assert result.exit_code == 2 and "designs = 3: must be 4 or more" in result.stderr


def test_the_page_says_of_quicks_rungs_what_its_table_says() -> None:
    table = Table.read(BROUGHT.with_name("quick.csv"))
    page = (Path(__file__).parents[2] / "docs" / "scores.md").read_text()
    for index, budget in enumerate(table.protocol["rungs"][:-1]):
        figures = []
        for metric, sign in METRICS.items():
            early, late = (
                [sign * entry.rungs[rung].metrics[metric] for entry in table.entries.values()] for rung in (index, -1)
            )
            figures.append(rf"{spearman(early, late):.2f} \[[-.0-9, ]+\] \| {kept(early, late, 0.5):.0%}")
        assert re.search(rf"^\| {budget:.0%} \| {figures[0]} \| {figures[1]} \|$", page, re.M), (budget, figures)
