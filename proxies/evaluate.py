"""The one door into this room: train a design's proxies under a protocol and report its scores at each rung.

`rungs` yields a report a rung, so a caller can stop in between; `evaluate` runs to the end. Reports before the last are
made on validation data: the sealed test is opened once, when training is over.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from proxies import memory
from proxies.leakage import Blind, answered_blind, seen_in_training
from proxies.ops import kernels
from proxies.protocol import Protocol, Training
from proxies.selection import measured
from proxies.stacks import Stacked, free
from proxies.summary import language_metrics, language_scores, recall_metrics, recall_scores
from proxies.tasks import EvenTask, LanguageTask, Task, recall_task
from proxies.tasks.base import CPU, HeldOut
from proxies.text import Corpus
from space.cost import layer_shapes
from space.design import Design


@dataclass(frozen=True, kw_only=True)
class Report:
    """The scores of one rung. `budget` is the share of the training done; `details` is what the scores were made of,
    with every seed's own under `scores`."""

    rung: int
    num_rungs: int
    budget: float
    metrics: dict[str, float]
    details: dict[str, Any]

    @property
    def final(self) -> bool:
        return self.rung == self.num_rungs - 1


def rungs(
    design: Design, protocol: Protocol, corpus: Corpus, device: torch.device = CPU, capacity: int | None = None
) -> Iterator[Report]:
    """Trains `design` on `device` and yields a Report at each of the protocol's rungs.

    The replicas of a task train in stacks of at most `capacity`; left out, as many as fit into a GPU, all on a CPU.
    Raises ValueError for a design that does not fit the proxy scale or the device, or a corpus other than the
    protocol's; RuntimeError for a device that torch cannot use; OutOfMemory; and FloatingPointError when a task has no
    learning rate that stayed finite.
    """
    protocol = protocol if protocol.language.text else protocol.with_text(corpus.digest)
    if protocol.language.text != corpus.digest:
        raise ValueError(
            f"text {corpus.source} has digest {corpus.digest}: the protocol asks for {protocol.language.text}"
        )
    layer_shapes(design, protocol.scale)
    kernels.require(device)
    tasks: dict[str, tuple[Task, Training]] = {
        "recall": (recall_task(protocol.recall), protocol.recall.training),
        "language": (LanguageTask(protocol.language, corpus), protocol.language.training),
    }
    numbers = [len(training.replicas) for _, training in tasks.values()]
    capacities, together = [capacity or number for number in numbers], capacity is None
    if device.type == "cuda":
        needs = []
        for task, training in tasks.values():
            scored = [task, *_longer(protocol, task).values()]
            needs.append(memory.need(design, protocol.scale_for(task.vocab, design), scored, training, device))
        if capacity is None:
            capacities, together = memory.plan(list(zip(needs, numbers, strict=True)), memory.budget(device))
    stacked: list[Stacked] = []
    for (task, training), most in zip(tasks.values(), capacities, strict=True):
        stacked.append(Stacked(design, protocol, task, training, device, most, together, stacked))
    try:
        yield from _reports(protocol, dict(zip(tasks, stacked, strict=True)), device)
    finally:
        for each in stacked:
            each.trainers.clear()
        free(device)


def _reports(protocol: Protocol, tasks: dict[str, Stacked], device: torch.device) -> Iterator[Report]:
    started = time.monotonic()
    for rung, budget in enumerate(protocol.rungs):
        metrics: dict[str, float] = {}
        scores: dict[str, list[float]] = {}
        details: dict[str, Any] = {"scores": scores}
        part: HeldOut = "test" if budget == 1 else "validation"
        for name, replicas in tasks.items():
            replicas.advance(round(budget * replicas.training.steps))
            task = replicas.task
            if isinstance(task, EvenTask):
                found = measured(replicas, part, {"blind": Blind(task), **_longer(protocol, task)})
                metrics |= recall_metrics(protocol.recall, found.figures)
                scores["recall"] = recall_scores(protocol.recall, found.figures)
                for other, figures in found.others.items():
                    if other == "blind":
                        metrics["leak_blind"] = answered_blind(task, figures)
                        metrics["leak_seen"] = seen_in_training(task, replicas.training, device)
                    else:
                        metrics[f"recall_{other}"] = recall_metrics(protocol.recall, figures)["recall"]
            else:
                found = measured(replicas, part)
                metrics |= language_metrics(found.figures)
                scores["lm_bits_per_byte"] = language_scores(found.figures)
            details[name] = found.details
        details |= {"part": part, "device": device.type, "seconds": time.monotonic() - started}
        yield Report(rung=rung, num_rungs=len(protocol.rungs), budget=budget, metrics=metrics, details=details)


def evaluate(
    design: Design,
    protocol: Protocol,
    corpus: Corpus,
    on_rung: Callable[[Report], bool] | None = None,
    device: torch.device = CPU,
    capacity: int | None = None,
) -> Report:
    """The last report of `design`: that of the whole budget, or the one at which `on_rung` returned False."""
    report = None
    for report in rungs(design, protocol, corpus, device, capacity):
        if on_rung is not None and not on_rung(report):
            break
    assert report is not None
    return report


def _longer(protocol: Protocol, task: Task) -> dict[str, Task]:
    """The recall task in longer examples, named x<how many times>. There are none of language modelling."""
    settings = protocol.recall
    if isinstance(task, LanguageTask):
        return {}
    return {f"x{times}": recall_task(settings.at_length(times)) for times in settings.longer}
