"""What is planned for a replica covers what is allocated, without wasting most of the GPU; shapes that pass run."""

import pytest
import torch

from proxies import stacks
from proxies.evaluate import evaluate
from proxies.memory import OVERHEAD, SAFETY, need
from proxies.mixers import MIXERS
from proxies.tasks import RecallTask
from proxies.text import Corpus
from proxies.trainer import Trainer
from space.design import Design
from tests.gpu.proxy import GPU, proxy

OPTIONS = {"window": "window:size=32"}
CORPUS = Corpus(bytes(range(256)) * 2000, "test")


@pytest.mark.parametrize("mixer", MIXERS)
def test_the_estimate_covers_what_is_allocated(mixer: str) -> None:
    design, protocol = Design.parse(f"4x{OPTIONS.get(mixer, mixer)}"), proxy((1e-3, 2e-3, 3e-3, 4e-3), 20)
    task, training = RecallTask(protocol.recall), protocol.recall.training
    planned = len(training.replicas) * need(design, protocol.scale_for(task.vocab), [task], training, GPU).whole
    stacks.free(GPU)
    torch.cuda.reset_peak_memory_stats()
    before, cached = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    trained = Trainer(design, protocol, task, training, GPU)
    trained.advance(10)
    trained.measure("validation")
    held, taken = torch.cuda.max_memory_allocated() - before, torch.cuda.max_memory_reserved() - cached
    trained.release()
    print(
        f"{mixer}: planned {planned / 2**20:.0f} MiB, peak {held / 2**20:.0f} MiB, with caches {taken / 2**20:.0f} MiB"
    )
    assert held <= SAFETY * planned <= 4 * held
    assert taken <= SAFETY * planned + OVERHEAD


@pytest.mark.parametrize("length", [16, 63, 65, 100])
@pytest.mark.parametrize("mixer", MIXERS)
def test_short_and_odd_lengths_train(mixer: str, length: int) -> None:
    protocol = proxy((1e-3,), 8).with_overrides(
        {"recall": {"length": length, "pairs": [1, 2]}, "language": {"length": length, "training": {"steps": 8}}}
    )
    report = evaluate(Design.parse(f"2x{OPTIONS.get(mixer, mixer)}"), protocol, CORPUS, device=GPU)
    assert report.details["recall"]["failed_at"] == [-1]


@pytest.mark.parametrize("heads", [8, 1])  # heads of 16 and of 128
@pytest.mark.parametrize("mixer", MIXERS)
def test_small_and_large_heads_train(mixer: str, heads: int) -> None:
    protocol = proxy((1e-3,), 8).with_overrides({"state_heads": heads, "language": {"training": {"steps": 8}}})
    report = evaluate(Design.parse(f"2x{OPTIONS.get(mixer, mixer)}"), protocol, CORPUS, device=GPU)
    assert report.details["recall"]["failed_at"] == [-1]


def test_a_cut_stack_has_the_results_of_a_whole_one() -> None:
    protocol, design = proxy((5e-4, 1e-3, 2e-3), 60), Design.parse("4xdeltanet+full@3")
    whole = evaluate(design, protocol, CORPUS, device=GPU)
    parts = evaluate(design, protocol, CORPUS, device=GPU, capacity=2)
    assert (whole.details["recall"]["stacks"], parts.details["recall"]["stacks"]) == ([3], [2, 1])
    for task in ("recall", "language"):
        found, expected = (torch.tensor(x.details[task]["training_losses"]) for x in (parts, whole))
        assert (found - expected).abs().max() < 0.02


def test_memory_that_really_runs_out_is_tried_again_with_half_the_stack() -> None:
    """The limit is over all that 8 replicas take, caches included, and under what 16 need, once all is compiled."""
    design, protocol = Design.parse("4xfull"), proxy(tuple(1e-3 * 0.9**k for k in range(16)), 20)
    for capacity in (16, 8, 16, 8):
        stacks.free(GPU)
        torch.cuda.reset_peak_memory_stats()
        evaluate(design, protocol, CORPUS, device=GPU, capacity=capacity)
        taken, needed = torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()
        print(f"{capacity} replicas: peak {needed / 2**20:.0f} MiB, with caches {taken / 2**20:.0f} MiB")
        if capacity == 16:
            too_much = needed
    stacks.free(GPU)
    assert taken < 0.9 * too_much
    try:
        torch.cuda.set_per_process_memory_fraction((taken + too_much) / 2 / torch.cuda.mem_get_info()[1])
        report = evaluate(design, protocol, CORPUS, device=GPU, capacity=16)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert report.details["recall"]["retried"] and report.details["recall"]["stacks"] == [8, 8]
