"""A test that gives its answers away is told from one that does not, by replicas that were really trained."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from proxies import evaluate as room
from proxies.evaluate import evaluate
from proxies.leakage import exchanged, seen_in_training
from proxies.protocol import Protocol, Recall, Training, named
from proxies.tasks import TASKS, Batch, RecallTask
from proxies.tasks.base import CPU, IGNORE
from proxies.text import Corpus
from space.design import Design
from tests.proxies.test_suite import VARIANTS, build, many, solved

CORPUS = Corpus(b"the cat sat on the mat and the rat sat on the hat " * 600, "test")
DESIGN = Design.parse("1xfull")


def protocol(steps: int = 120) -> Protocol:
    quick = named("quick", {"recall": {"num_examples": 128}, "language": {"num_examples": 4, "length": 16}})
    assert isinstance(quick.recall, Recall)
    training = Training(steps=steps, batch=16, learning_rates=(1e-2,), num_seeds=2, fresh_seeds=1)
    language = replace(quick.language, training=replace(quick.language.training, steps=2, num_seeds=1))
    return replace(quick, recall=replace(quick.recall, training=training), language=language, rungs=(1.0,))


class AnswerInTheQuery(RecallTask):
    """Each query is the value that it asks for."""

    def examples(self, load: int, count: int, generator: torch.Generator) -> Batch:
        batch = super().examples(load, count, generator)
        assert batch.positions is not None
        return replace(batch, tokens=batch.tokens.scatter(1, batch.positions, batch.labels))


class AnswerByPlace(RecallTask):
    """The place of a query says what its value is."""

    def examples(self, load: int, count: int, generator: torch.Generator) -> Batch:
        batch = super().examples(load, count, generator)
        assert batch.positions is not None
        return replace(batch, labels=self.vocab // 2 + batch.positions)


class SomeAnswersMoreOften(RecallTask):
    """One value in two is the same."""

    def examples(self, load: int, count: int, generator: torch.Generator) -> Batch:
        batch = super().examples(load, count, generator)
        often = torch.rand(batch.labels.shape, generator=generator) < 0.5
        return replace(batch, labels=batch.labels.masked_fill(often, self.vocab - 1))


class TestInTraining(RecallTask):
    """Training goes over the sealed test of the smallest load again and again."""

    __test__ = False

    def training(self, seed: int, batch: int, device: torch.device = CPU) -> Iterator[Batch]:
        sealed: list[Tensor] = [part.tokens for part in self.held_out("test").values()]
        for step, honest in enumerate(super().training(seed, batch, device)):
            half, start = batch // 2, step * (batch // 2) % len(sealed[0])
            yield replace(honest, tokens=torch.cat([sealed[0][start : start + half], honest.tokens[half:]]))


def leaks(monkeypatch: pytest.MonkeyPatch, task: Callable[..., RecallTask], steps: int = 120) -> dict[str, float]:
    monkeypatch.setattr(room, "recall_task", task)
    metrics = evaluate(DESIGN, protocol(steps), CORPUS).metrics
    return {name: metrics[name] for name in ("leak_blind", "leak_seen")}


@pytest.mark.parametrize("task", [AnswerInTheQuery, AnswerByPlace, SomeAnswersMoreOften])
def test_an_answer_that_needs_no_context_is_caught(
    monkeypatch: pytest.MonkeyPatch, task: Callable[..., RecallTask]
) -> None:
    found = leaks(monkeypatch, task)
    assert found["leak_blind"] > 0.1 and found["leak_seen"] == 0


def test_a_sealed_test_that_is_in_the_training_stream_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    found = leaks(monkeypatch, TestInTraining, steps=2)
    assert found["leak_seen"] > 0.3 and found["leak_blind"] == 0


def test_a_task_that_is_honest_is_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert leaks(monkeypatch, RecallTask) == {"leak_blind": 0, "leak_seen": 0}


@pytest.mark.parametrize("name", TASKS)
def test_without_its_context_no_task_of_the_suite_can_be_solved(name: str) -> None:
    """The solver knows the rule and reads everything; what it cannot answer is not right."""
    task = build(VARIANTS[name])
    for rung, load in task.rungs.items():
        batch = exchanged(many(task, load, 400))
        assert torch.equal(batch.labels, many(task, load, 400).labels)
        right = [_solved_or_not(task, load, batch.map(lambda x, row=row: x[row : row + 1])) for row in range(400)]
        assert sum(right) / len(right) <= task.chance(rung) + 0.07


def _solved_or_not(task, load: int, batch: Batch) -> float:  # type: ignore[no-untyped-def]
    try:
        return solved(task, load, batch)
    except (KeyError, IndexError, ValueError, StopIteration, AssertionError):
        return 0.0  # what was asked for is not there


@pytest.mark.parametrize("name", TASKS)
def test_a_test_that_shares_a_small_world_with_training_by_chance_is_not_blamed(name: str) -> None:
    """The smallest loads of some tasks have few examples, which training meets as well."""
    task = build(VARIANTS[name])
    training = Training(steps=1, batch=4 * task.num_rungs, learning_rates=(1e-3,), num_seeds=1)
    assert seen_in_training(task, training) == 0


def test_only_what_comes_before_the_first_query_that_is_scored_is_exchanged() -> None:
    batch = Batch(torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]]), torch.tensor([[9, IGNORE], [9, 9]]),
                  torch.tensor([[2, 0], [3, 2]]))  # fmt: skip
    assert exchanged(batch).tokens.tolist() == [[5, 6, 3, 4], [1, 2, 7, 8]]
