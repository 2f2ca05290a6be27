"""Replicas train as they would alone; a broken one stops alone; scores are made from validation and sealed test."""

import math
from dataclasses import replace

import pytest
import torch

from proxies.evaluate import evaluate, rungs
from proxies.protocol import named
from proxies.scoring import interval
from proxies.selection import best_rate
from proxies.tasks import RecallTask
from proxies.text import Corpus
from proxies.trainer import Trainer
from space.design import Design

TINY = named(
    "quick",
    {
        "mlp_dim": 32,
        "recall": {
            "length": 16,
            "pairs": [1, 2],
            "num_examples": 16,
            "training": {"steps": 20, "batch": 4, "learning_rates": [1e-3, 3e-3, 1e-2], "num_seeds": 1},
        },
        "language": {
            "length": 16,
            "num_examples": 8,
            "training": {"steps": 4, "batch": 2, "learning_rates": [3e-3], "num_seeds": 2},
        },
    },
)
CORPUS = Corpus(bytes(range(256)) * 200, "test")
DESIGN = Design.parse("2xgated_deltanet+full@1")


def losses(trainer: Trainer, steps: int) -> torch.Tensor:
    curve = []
    for step in range(1, steps + 1):
        trainer.advance(step)
        curve.append(trainer.losses_K.clone())
    return torch.stack(curve, 1)


@pytest.mark.parametrize(
    "text", ["2xgated_deltanet+full@1", "2xhgrn2+hgrn@1", "2xretnet+window:size=4@1", "2xdeltanet", "2xhgrn+full@1"]
)
def test_a_stack_of_three_has_the_losses_of_three_separate_trainings(text: str) -> None:
    design, task, training = Design.parse(text), RecallTask(TINY.recall), TINY.recall.training
    stacked = losses(Trainer(design, TINY, task, training), 20)
    for replica, rate in enumerate(training.learning_rates):
        alone = losses(Trainer(design, TINY, task, replace(training, learning_rates=(rate,))), 20)
        assert torch.allclose(stacked[replica], alone[0], rtol=0, atol=1e-5)


def test_seeds_differ_in_weights_and_data() -> None:
    training = replace(TINY.recall.training, learning_rates=(3e-3,), num_seeds=2)
    curve = losses(Trainer(DESIGN, TINY, RecallTask(TINY.recall), training), 2)
    assert not torch.allclose(curve[0], curve[1], atol=1e-4)


def test_a_loss_that_is_not_finite_names_its_step_and_ends_that_replica_only() -> None:
    trainer = Trainer(DESIGN, TINY, RecallTask(TINY.recall), TINY.recall.training)
    trainer.advance(3)
    trainer.optimizer.groups[0].values[1, 0:1000] = math.nan
    trainer.advance(8)
    assert trainer.failed_at_K.tolist() == [-1, 3, -1]
    assert torch.isfinite(trainer.optimizer.groups[0].values[[0, 2]]).all()
    assert torch.isnan(trainer.measure("validation")["pairs_1"]).flatten().tolist() == [False, True, False]


def test_training_lowers_the_loss() -> None:
    training = replace(TINY.recall.training, steps=150, batch=16, learning_rates=(1e-2,))
    settings = replace(TINY.recall, vocab=8, pairs=(1,), training=training)
    curve = losses(Trainer(Design.parse("2xfull"), TINY, RecallTask(settings), training), 150)
    assert curve[0, -10:].mean() < 0.5 * curve[0, :10].mean()


def test_rungs_come_in_order_and_only_the_last_opens_the_sealed_test() -> None:
    reports = list(rungs(DESIGN, TINY, CORPUS))
    assert [report.budget for report in reports] == [0.5, 1.0]
    assert [report.details["part"] for report in reports] == ["validation", "test"]
    assert [report.final for report in reports] == [False, True]
    metrics = reports[-1].metrics
    assert metrics["recall_low"] <= metrics["recall"] <= metrics["recall_high"]
    assert metrics["recall"] == pytest.approx((metrics["recall_pairs_1"] + metrics["recall_pairs_2"]) / 2)
    assert 0 < metrics["lm_low"] <= metrics["lm_bits_per_byte"] <= metrics["lm_high"]


def test_evaluate_repeats_exactly_and_stops_when_asked() -> None:
    assert evaluate(DESIGN, TINY, CORPUS).metrics == evaluate(DESIGN, TINY, CORPUS).metrics
    assert evaluate(DESIGN, TINY, CORPUS, on_rung=lambda report: False).rung == 0


def test_another_text_than_the_protocols_is_refused() -> None:
    with pytest.raises(ValueError, match="the protocol asks for 0123"):
        next(rungs(DESIGN, TINY.with_text("0123"), CORPUS))


def test_the_interval_is_student_t() -> None:
    score = interval([0.8, 0.9, 1.0], 0, 1)
    assert score.mean == pytest.approx(0.9)
    assert (score.low, score.high) == (pytest.approx(0.9 - 4.303 * 0.1 / math.sqrt(3)), 1.0)
    assert interval([0.5], 0, 1).high == 1.0


def test_the_learning_rate_is_chosen_by_its_mean_over_seeds_and_a_failed_seed_rules_it_out() -> None:
    assert best_rate(torch.tensor([[0.9, 0.1], [0.6, 0.6], [0.2, 0.2]]), True) == (1, False)
    assert best_rate(torch.tensor([[0.9, math.nan], [0.6, 0.6], [0.7, 0.7]]), True) == (2, True)
    with pytest.raises(FloatingPointError):
        best_rate(torch.tensor([[math.nan]]), False)
