"""A learning rate is chosen on validation data, beyond its grid if need be; seeds that had no say make the score."""

from dataclasses import replace

import pytest
import torch

from proxies import selection
from proxies.evaluate import evaluate
from proxies.ladders import Copy, MultiKey, Pairs
from proxies.protocol import PROTOCOLS, Protocol, Suite, Training, named
from proxies.scoring import area
from proxies.tasks import recall_task
from proxies.tasks.base import IGNORE
from proxies.tasks.language import REPEATED, repeated_only
from proxies.text import Corpus
from proxies.trainer import Trainer
from space.cost import cost
from space.design import Design

CORPUS = Corpus(b"the cat sat on the mat and the rat sat on the hat " * 600, "test")
DESIGN = Design.parse("2xfull")
SWEEP = Training(steps=10, batch=8, learning_rates=(1e-3, 3e-3, 9e-3), num_seeds=2, fresh_seeds=3, extensions=2)


def protocol(training: Training) -> Protocol:
    quick = named("quick", {"recall": {"pairs": [1, 2], "num_examples": 32}, "language": {"num_examples": 8}})
    language = replace(quick.language, length=32, training=replace(quick.language.training, steps=4, num_seeds=2))
    return replace(quick, recall=replace(quick.recall, training=training), language=language)


def test_the_score_is_that_of_fresh_seeds_on_sealed_data() -> None:
    report = evaluate(DESIGN, protocol(SWEEP), CORPUS)
    details = report.details["recall"]
    assert details["seeds"] == [2, 3, 4]
    for rung, figures in details["by_seed"].items():
        assert len(figures) == 3
        assert figures not in details["validation"][rung]
    again = evaluate(DESIGN, protocol(replace(SWEEP, fresh_seeds=4)), CORPUS).details["recall"]
    for rung, figures in again["by_seed"].items():
        assert figures[:3] == pytest.approx(details["by_seed"][rung], abs=1e-6)


def test_each_seed_s_own_scores_are_kept_and_seeds_start_where_the_protocol_says() -> None:
    settings = protocol(replace(SWEEP, first_seed=4))
    report = evaluate(DESIGN, settings, CORPUS)
    assert report.details["recall"]["seeds"] == [6, 7, 8]
    first = evaluate(DESIGN, protocol(SWEEP), CORPUS)
    assert first.details["recall"]["by_seed"] != report.details["recall"]["by_seed"]
    for name, figures in report.details["scores"].items():
        assert sum(figures) / len(figures) == pytest.approx(report.metrics[name])
    by_rung = report.details["recall"]["by_seed"].values()
    assert report.details["scores"]["recall"] == pytest.approx([sum(seed) / 2 for seed in zip(*by_rung, strict=True)])


def test_before_the_end_nothing_is_trained_beyond_the_sweep() -> None:
    report = evaluate(DESIGN, protocol(SWEEP), CORPUS, on_rung=lambda report: False)
    assert report.details["recall"]["seeds"] == [0, 1]
    assert report.details["recall"]["learning_rates"] == [1e-3, 3e-3, 9e-3]


@pytest.mark.parametrize(
    ("rates", "best", "beyond"),
    [([1e-3, 3e-3, 9e-3], 2, 0.027), ([1e-3, 3e-3, 9e-3], 0, 3.33e-4), ([0.1, 0.3, 0.9], 2, None)],
)
def test_the_rate_beyond_keeps_the_grids_step_and_stays_in_range(
    rates: list[float], best: int, beyond: float | None
) -> None:
    assert selection._beyond(rates, best) == beyond


def test_a_grid_whose_best_stays_on_the_edge_grows_there_as_often_as_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "best_rate", lambda means, _: (len(means) - 1, True))
    details = evaluate(DESIGN, protocol(SWEEP), CORPUS).details["recall"]
    assert details["learning_rates"] == [1e-3, 3e-3, 9e-3, 0.027, 0.081]
    assert (details["learning_rate"], details["on_edge"]) == (0.081, True)
    assert [len(figures) for figures in details["validation"].values()] == [5, 5]


def test_extensions_need_fresh_seeds() -> None:
    with pytest.raises(ValueError, match="extensions = 1: must be 0 without fresh_seeds"):
        replace(SWEEP, fresh_seeds=0, extensions=1)


def suite() -> Protocol:
    pairs = Pairs(vocab=16, length=16, loads=(1, 2), num_examples=32)
    copy = Copy(vocab=16, length=16, loads=(2, 4), alphabet=4, num_examples=32)
    return replace(protocol(SWEEP), recall=Suite(training=SWEEP, ladders=(pairs, copy), weights=(3.0, 1.0)))


def test_recall_of_a_mixture_is_the_weighted_mean_of_its_ladders_areas() -> None:
    report = evaluate(DESIGN, suite(), CORPUS)
    metrics = report.metrics
    assert metrics["recall"] == pytest.approx(0.75 * metrics["area_pairs"] + 0.25 * metrics["area_copy"])
    assert metrics["recall_low"] <= metrics["recall"] <= metrics["recall_high"]
    seeds = zip(*(report.details["recall"]["by_seed"][f"pairs_{load}"] for load in (1, 2)), strict=True)
    areas = [max(0.0, area((1, 2), seed, 1 / 8)) for seed in seeds]
    assert metrics["area_pairs"] == pytest.approx(sum(areas) / 3)
    assert {"capacity_pairs", "solved_copy", "recall_copy_4"} <= set(metrics)


def test_the_test_is_taken_again_in_longer_examples() -> None:
    longer = suite().with_overrides({"recall": {"longer": [2, 4]}})
    metrics = evaluate(DESIGN, longer, CORPUS).metrics
    assert 0 <= metrics["recall_x2"] <= 1 and 0 <= metrics["recall_x4"] <= 1
    assert metrics["recall"] == pytest.approx(evaluate(DESIGN, suite(), CORPUS).metrics["recall"])
    with pytest.raises(ValueError, match=r"recall longer = 1: must be a whole number in 2..16"):
        suite().with_overrides({"recall": {"longer": [1]}})


def test_ladders_are_changed_by_name() -> None:
    changed = suite().with_overrides({"recall": {"ladders": {"copy": {"loads": [3]}}, "training": {"batch": 9}}})
    assert isinstance(changed.recall, Suite)
    assert [ladder.loads for ladder in changed.recall.ladders] == [(1, 2), (3,)]
    assert changed.digest != suite().digest
    with pytest.raises(ValueError, match=r"ladders key 'coppy'.*did you mean 'copy'"):
        suite().with_overrides({"recall": {"ladders": {"coppy": {}}}})
    with pytest.raises(ValueError, match="batch = 7: must be a multiple of the 4 loads"):
        suite().with_overrides({"recall": {"training": {"batch": 7}}})


def test_a_ladder_more_or_less_has_the_vocabulary_and_length_of_the_others() -> None:
    extra = {"multi_key": {"loads": [2, 4], "queries": 2, "values": 4}, "copy": False}
    changed = suite().with_overrides({"recall": {"ladders": extra}})
    assert isinstance(changed.recall, Suite) and isinstance(suite().recall, Suite)
    assert [ladder.task for ladder in changed.recall.ladders] == ["pairs", "multi_key"]
    pairs, added = changed.recall.ladders
    assert isinstance(added, MultiKey) and (added.vocab, added.length) == (pairs.vocab, pairs.length)
    assert (added.loads, added.queries, added.values) == ((2, 4), 2, 4)
    assert {"area_multi_key", "capacity_multi_key"} < set(evaluate(DESIGN, changed, CORPUS).metrics)
    for ladders, message in (
        ({"multi_key": {}}, r"recall.ladders.multi_key: must have loads, such as \[4, 8, 16, 40\]"),
        ({"multi_key": {"loads": [2], "keys": 3}}, r"recall.ladders.multi_key key 'keys': must be one of"),
        ({"copy": 0}, r"recall.ladders copy = 0: must be a table, or false"),
        ({"copy": False, "pairs": False}, r"mixture ladders = \[\]: must be distinct, at least one"),
    ):
        with pytest.raises(ValueError, match=message):
            suite().with_overrides({"recall": {"ladders": ladders}})


def test_protocols_that_share_a_name_with_nothing_have_digests_of_their_own() -> None:
    assert len({each.digest for each in PROTOCOLS.values()}) == len(PROTOCOLS)


def test_only_the_second_byte_of_a_bigram_that_comes_back_is_scored() -> None:
    window = torch.tensor([[ord(c) for c in "abxabyab"]])
    labels = repeated_only(window[:, :-1], window[:, 1:])
    kept = ["." if label == IGNORE else chr(label) for label in labels[0].tolist()]
    assert "".join(kept) == "...b..b"
    assert REPEATED in evaluate(DESIGN, protocol(SWEEP), CORPUS).details["language"]["by_seed"]


def test_at_equal_parameters_a_proxy_has_those_of_attention() -> None:
    design = Design.parse("2xretnet")
    sizes = {}
    for match in ("width", "parameters"):
        settings = replace(protocol(SWEEP), match=match)
        trainer = Trainer(design, settings, recall_task(settings.recall), SWEEP)
        sizes[match] = sum(parameter[0].numel() for parameter in trainer.model.parameters())
    attention = cost(Design.parse("2xfull"), settings.scale).parameters
    assert abs(sizes["parameters"] - attention) <= 2 * 3 * settings.width * 4 < abs(sizes["width"] - attention)
    assert evaluate(design, settings, CORPUS).metrics.keys() >= {"recall", "lm_bits_per_byte"}
