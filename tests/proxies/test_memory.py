"""A stack is cut so that it fits, cutting changes no result, and running out of memory is tried once more, smaller."""

from dataclasses import replace

import pytest
import torch

from proxies import memory, stacks
from proxies.evaluate import Report, evaluate
from proxies.memory import OVERHEAD, SAFETY, Need, Sizes, estimate, fitting, plan
from proxies.memory import stacks as cut
from proxies.mixers import MIXERS
from proxies.ops.kernels import KERNELS, LARGEST_GRID, SOFTMAX, check, choose
from proxies.tasks import RecallTask
from proxies.tasks.base import CPU
from proxies.trainer import Trainer
from space.cost import cost
from space.design import Design
from tests.proxies.test_trainer import CORPUS, DESIGN, TINY

SIX = TINY.with_overrides({"recall": {"training": {"num_seeds": 2}}})  # six replicas of recall, two of language
TRAINING, SCORING = Sizes(batch=32, length=256, labels=32), [Sizes(batch=64, length=256, labels=32)]


def need(text: str, training: Sizes = TRAINING) -> Need:
    return estimate(Design.parse(text), TINY.scale, training, SCORING, CPU)


def same(report: Report, expected: Report) -> None:
    for name, value in expected.metrics.items():
        assert report.metrics[name] == pytest.approx(value, abs=1e-5), name
    for task in ("recall", "language"):
        for name in ("training_losses", "failed_at"):
            assert report.details[task][name] == pytest.approx(expected.details[task][name], abs=1e-5), name
        for rung, figures in expected.details[task]["validation"].items():
            for found, wanted in zip(report.details[task]["validation"][rung], figures, strict=True):
                assert found == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(("capacity", "sizes"), [(1, [1] * 6), (4, [3, 3]), (5, [3, 3]), (6, [6])])
def test_a_cut_stack_has_the_results_of_a_whole_one(capacity: int, sizes: list[int]) -> None:
    report = evaluate(DESIGN, SIX, CORPUS, capacity=capacity)
    assert report.details["recall"]["stacks"] == sizes and not report.details["recall"]["retried"]
    same(report, evaluate(DESIGN, SIX, CORPUS))


class Full(Trainer):
    """Runs out of memory in its third step, or when it is scored, with more than `room` replicas."""

    room, when = 6, "training"

    def _step(self, *batch: torch.Tensor) -> None:
        self._fill("training")
        super()._step(*batch)

    def _add_metric(self, *batch: torch.Tensor) -> None:
        self._fill("scoring")
        super()._add_metric(*batch)

    def _fill(self, when: str) -> None:
        if len(self.losses_K) > self.room and when == self.when and self.steps_done > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free.")


@pytest.mark.parametrize("when", ["training", "scoring"])
def test_out_of_memory_starts_the_task_again_with_half_the_stack(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    expected = evaluate(DESIGN, SIX, CORPUS)
    monkeypatch.setattr(stacks, "Trainer", Full)
    monkeypatch.setattr(Full, "room", 4)
    monkeypatch.setattr(Full, "when", when)
    report = evaluate(DESIGN, SIX, CORPUS)
    assert (report.details["recall"]["stacks"], report.details["recall"]["retried"]) == ([3, 3], True)
    assert (report.details["language"]["stacks"], report.details["language"]["retried"]) == ([2], False)
    same(report, expected)


@pytest.mark.parametrize(("room", "last"), [(2, 3), (0, 3)])
def test_a_second_out_of_memory_names_design_stack_and_memory(
    monkeypatch: pytest.MonkeyPatch, room: int, last: int
) -> None:
    monkeypatch.setattr(stacks, "Trainer", Full)
    monkeypatch.setattr(Full, "room", room)
    with pytest.raises(stacks.OutOfMemory, match=f"^2xgated.*: a stack of {last} replicas does not fit: .* 1.00 GiB"):
        evaluate(DESIGN, SIX, CORPUS)


def test_an_error_while_a_step_is_captured_does_not_hide_out_of_memory() -> None:
    try:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        finally:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
    except RuntimeError as error:
        assert stacks.ran_out(error)
    assert not stacks.ran_out(RuntimeError("another"))


@pytest.mark.parametrize("capacity", range(1, 9))
def test_stacks_are_as_few_and_as_equal_as_can_be(capacity: int) -> None:
    sizes = cut(7, capacity)
    assert sum(sizes) == 7 and max(sizes) <= capacity and max(sizes) - min(sizes) <= 1
    assert len(sizes) == -(-7 // capacity)


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_replica_needs_more_when_anything_grows(mixer: str) -> None:
    text = f"2x{mixer}:size=8" if mixer == "window" else f"2x{mixer}"
    small = need(text)
    assert small.kept == 16 * cost(Design.parse(text), TINY.scale).parameters
    assert need(text.replace("2x", "3x")).whole > small.whole
    for name, value in (("batch", 64), ("length", 512), ("labels", 64)):
        assert need(text, replace(TRAINING, **{name: value})).passing > small.passing


def test_what_fits_is_never_more_than_the_memory_or_the_grid_takes() -> None:
    small = need("2xgla")
    room = OVERHEAD + int(10.5 * SAFETY * small.passing)
    assert fitting(small, room) == 10
    assert fitting(small, 0) == 1
    assert fitting(small, 1 << 60) == small.most == LARGEST_GRID // 64


def test_tasks_that_fit_together_keep_their_memory_and_others_take_turns() -> None:
    one = Need(kept=100 << 20, passing=1 << 30, most=100)
    assert plan([(one, 6), (one, 3)], 100 << 30) == ([6, 3], True)
    capacities, together = plan([(one, 6), (one, 3)], 9 << 30)
    assert not together and capacities == [5, 3]
    assert plan([(replace(one, most=4), 6)], 100 << 30) == ([4], False)


@pytest.mark.parametrize("mixer", MIXERS)
def test_every_mixer_names_what_serves_it(mixer: str) -> None:
    op = MIXERS[mixer].op
    assert op == SOFTMAX or op in KERNELS
    assert choose(op, CPU).reason


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key_dim": 8}, "delta key head size = 8: must be a multiple of 16 in 16..256"),
        ({"key_dim": 512}, "delta key head size = 512: must be a multiple of 16 in 16..256"),
        ({"value_dim": 40}, "delta value head size = 40: must be a multiple of 16 in 16..512"),
        ({"sequences": 40000}, "delta sequences = 40000: must be in 1..32767 with 2 heads"),
    ],
)
def test_a_shape_that_kernels_cannot_take_is_named(change: dict[str, int], message: str) -> None:
    shape = {"heads": 2, "key_dim": 64, "value_dim": 64, "sequences": 32}
    check("delta", **shape)
    with pytest.raises(ValueError, match=message):
        check("delta", **{**shape, **change})
    check("softmax", **{**shape, "key_dim": 8})


def test_a_task_is_measured_by_its_own_batches_and_its_shapes_are_checked() -> None:
    task, training = RecallTask(TINY.recall), TINY.recall.training
    found = memory.need(DESIGN, TINY.scale, [task], training, CPU)
    steps, scoring = Sizes(batch=4, length=16, labels=2), [Sizes(batch=16, length=16, labels=n) for n in (1, 2)]
    assert found == estimate(DESIGN, TINY.scale, steps, scoring, CPU)
    with pytest.raises(ValueError, match=r"delta sequences = 65536: must be in 1\.\.65535"):
        memory.need(Design.parse("2xdeltanet"), TINY.scale, [task], replace(training, batch=2**16), CPU)


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU here")
def test_a_gpu_that_torch_cannot_use_is_an_error_that_says_what_to_install() -> None:
    with pytest.raises(RuntimeError, match=r"sees no GPU: install torch's CUDA build and plait\[gpu\]"):
        evaluate(DESIGN, TINY, CORPUS, device=torch.device("cuda"))
