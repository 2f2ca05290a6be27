"""Recall in segments: every batch is of one, in exact shares and one order; stacks of it train as replicas alone."""

from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch

from proxies import memory
from proxies.ladders import Segment, Segments
from proxies.memory import Sizes, estimate
from proxies.protocol import Training, named
from proxies.tasks import Batch, SegmentsTask
from proxies.tasks.base import CPU, HeldOut
from proxies.trainer import Trainer
from space.design import Design
from tests.proxies.solvers import SOLVERS
from tests.proxies.test_trainer import losses

SETTINGS = Segments(
    train=(Segment(8, 1), Segment(16, 2), Segment(24, 4)),
    shares=(3, 1, 2),
    test=(Segment(8, 1), Segment(8, 2), Segment(24, 6)),
    vocab=64,
    num_examples=16,
)
TASK = SegmentsTask(SETTINGS)
PARTS: tuple[HeldOut, ...] = ("validation", "test")
QUICK = named("quick", {"mlp_dim": 32})
TRAINING = Training(steps=24, batch=4, learning_rates=(3e-3, 1e-2), num_seeds=2)


def batches(seed: int, count: int, size: int = 4) -> list[Batch]:
    return list(islice(TASK.training(seed, size), count))


def segment(batch: Batch) -> Segment:
    return Segment(batch.tokens.shape[1], batch.labels.shape[1])


def rows(*found: Batch) -> list[tuple[int, ...]]:
    return [tuple(row) for batch in found for row in batch.tokens.tolist()]


def test_a_batch_is_of_one_segment_and_a_round_has_the_exact_shares_the_largest_first() -> None:
    found = batches(0, 60)
    assert {segment(batch) for batch in found} == set(SETTINGS.train)
    assert all(x.shape[0] == 4 for batch in found for x in batch.tensors)
    rounds = [tuple(segment(batch) for batch in found[start : start + 6]) for start in range(0, 60, 6)]
    for one in rounds:
        assert Counter(one) == dict(zip(SETTINGS.train, SETTINGS.shares, strict=True))
        assert one[0] == SETTINGS.largest == (24, 4)
    assert len(set(rounds)) > 1


def test_all_seeds_have_the_segments_in_one_order_but_not_the_examples() -> None:
    first, again, other = batches(0, 40), batches(0, 40), batches(1, 40)
    assert [segment(batch) for batch in first] == [segment(batch) for batch in other]
    assert rows(*first) == rows(*again)
    assert not set(rows(*first)) & set(rows(*other))


def test_examples_are_fresh_at_every_step_and_never_those_of_another_part() -> None:
    """Beyond the first block of every segment; 16 tokens of random filler leave no room for accidents."""
    long = [batch for seed in (0, 1) for batch in batches(seed, 240) if segment(batch) != (8, 1)]
    held_out = [TASK.held_out(part)["pairs_6_at_24"] for part in PARTS]
    found = rows(*long, *held_out)
    assert len(set(found)) == len(found) and Counter(map(len, found)).keys() == {16, 24}


def test_held_out_rungs_are_the_test_segments_at_their_own_lengths() -> None:
    for part in PARTS:
        held_out = TASK.held_out(part)
        assert list(held_out) == ["pairs_1_at_8", "pairs_2_at_8", "pairs_6_at_24"]
        assert [segment(batch) for batch in held_out.values()] == list(SETTINGS.test)
        assert rows(*held_out.values()) == rows(*TASK.held_out(part).values())
        assert all(len(batch.tokens) == 16 for batch in held_out.values())


def test_the_tokens_up_to_a_query_determine_its_label() -> None:
    for batch in (*batches(0, 6, size=8), *TASK.held_out("test").values()):
        assert batch.positions is not None
        for tokens, labels, places in zip(*(x.tolist() for x in batch.tensors), strict=True):
            for label, place in zip(labels, places, strict=True):
                assert SOLVERS["pairs"](SETTINGS, len(labels), tokens[: place + 1]) == label


def test_chance_is_one_value_in_all_and_the_rungs_decide_alike() -> None:
    assert [TASK.chance(rung) for rung in TASK.rungs] == [1 / 32] * 3
    assert set(batches(0, 1, size=64)[0].labels.flatten().tolist()) == set(range(32, 64))
    figures = dict(zip(TASK.rungs, torch.tensor([[0.1], [0.2], [0.9]]), strict=True))
    assert TASK.decided(figures).item() == pytest.approx(0.4)


def test_memory_is_planned_by_the_largest_segment_and_the_rungs_own_lengths() -> None:
    design, scale = Design.parse("2xgla"), QUICK.scale
    found = memory.need(design, scale, [TASK], TRAINING, CPU)
    scoring = [Sizes(batch=16, length=length, labels=pairs) for length, pairs in SETTINGS.test]
    assert found == estimate(design, scale, Sizes(batch=4, length=24, labels=4), scoring, CPU)
    assert found.passing > estimate(design, scale, Sizes(batch=4, length=16, labels=2), scoring, CPU).passing


@pytest.mark.parametrize("text", ["2xfull", "2xmamba2", "2xgated_deltanet"])
def test_a_stack_on_segments_has_the_losses_of_its_replicas_alone(text: str) -> None:
    design = Design.parse(text)
    stacked = Trainer(design, QUICK, TASK, TRAINING)
    curves, figures = losses(stacked, 24), stacked.measure("test")
    for index, replica in enumerate(TRAINING.replicas):
        alone = Trainer(design, QUICK, TASK, TRAINING, replicas=[replica])
        assert torch.allclose(curves[index], losses(alone, 24)[0], rtol=0, atol=1e-5)
        for rung, figure in alone.measure("test").items():
            assert figures[rung][index] == pytest.approx(figure.item(), abs=0.02)
    assert stacked.failed_at_K.tolist() == [-1] * 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab": 8}, r"segments vocab = 8: must be a whole number in 16\.\."),
        ({"num_examples": 0}, r"segments num_examples = 0: must be a whole number in 1\.\."),
        ({"filler": "blank"}, "segments filler = 'blank': must be 'random' or 'zero'"),
        ({"train": ()}, r"segments train = \[\]: must be distinct, at least one"),
        ({"test": (Segment(8, 1),) * 2}, r"segments test = \[\(8, 1\), \(8, 1\)\]: must be distinct"),
        ({"test": (Segment(2, 1),)}, r"segments test length = 2: must be a whole number in 4\.\."),
        ({"test": (Segment(24, 7),)}, r"segments test pairs = 7: must be a whole number in 1\.\.6"),
        ({"train": (Segment(256, 32),)}, r"segments train pairs = 32: must be a whole number in 1\.\.31"),
        ({"train": (Segment(8, 1.5),)}, r"segments train pairs = 1\.5: must be a whole number in 1\.\.2"),
        ({"shares": (3, 1)}, r"segments shares = \[3, 1\]: must be 3, one for each of train"),
        ({"shares": (3, 0, 1)}, r"segments shares = 0: must be a whole number in 1\.\.1000"),
        (
            {"train": (Segment(8, 2), Segment(16, 1)), "shares": (1, 1)},
            r"segments train = \[\(8, 2\), \(16, 1\)\]: one must have both the greatest length and the most pairs",
        ),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused_by_name_value_and_range(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        replace(SETTINGS, **change)
