"""The one door into this room: train a design's proxies under a protocol and report its scores at each rung.

`rungs` yields a report a rung, so a caller can stop in between; `evaluate` runs to the end. Reports before the last are
made on validation data: the sealed test is opened once, when training is over.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from proxies.protocol import Protocol
from proxies.scoring import Interval, best_rate, interval
from proxies.tasks import LanguageTask, RecallTask, Task
from proxies.tasks.base import CPU, HeldOut
from proxies.text import Corpus
from proxies.trainer import Trainer
from space.cost import layer_shapes
from space.design import Design


@dataclass(frozen=True, kw_only=True)
class Report:
    """The scores of one rung. `budget` is the share of the training done; `details` is what the scores were made of."""

    rung: int
    num_rungs: int
    budget: float
    metrics: dict[str, float]
    details: dict[str, Any]

    @property
    def final(self) -> bool:
        return self.rung == self.num_rungs - 1


def rungs(design: Design, protocol: Protocol, corpus: Corpus, device: torch.device = CPU) -> Iterator[Report]:
    """Trains `design` on `device` and yields a Report at each of the protocol's rungs.

    Raises ValueError for a design that does not fit the proxy scale or a corpus other than the protocol's, and
    FloatingPointError when a task has no learning rate that stayed finite.
    """
    protocol = protocol if protocol.language.text else protocol.with_text(corpus.digest)
    if protocol.language.text != corpus.digest:
        raise ValueError(
            f"text {corpus.source} has digest {corpus.digest}: the protocol asks for {protocol.language.text}"
        )
    layer_shapes(design, protocol.scale)
    recall, language = RecallTask(protocol.recall), LanguageTask(protocol.language, corpus)
    tasks: dict[str, tuple[Task, Trainer]] = {
        name: (task, Trainer(design, protocol, task, training, device))
        for name, task, training in (
            ("recall", recall, protocol.recall.training),
            ("language", language, protocol.language.training),
        )
    }
    started = time.monotonic()
    for rung, budget in enumerate(protocol.rungs):
        metrics: dict[str, float] = {}
        details: dict[str, Any] = {}
        part: HeldOut = "test" if budget == 1 else "validation"
        for name, (task, trainer) in tasks.items():
            trainer.advance(round(budget * trainer.training.steps))
            whole, by_rung, details[name] = _score(task, trainer, part)
            if name == "recall":
                metrics |= {"recall": whole.mean, "recall_low": whole.low, "recall_high": whole.high}
                metrics |= {f"recall_{key}": value for key, value in by_rung.items()}
            else:
                metrics |= {"lm_bits_per_byte": whole.mean, "lm_low": whole.low, "lm_high": whole.high}
        details |= {"part": part, "seconds": time.monotonic() - started}
        yield Report(rung=rung, num_rungs=len(protocol.rungs), budget=budget, metrics=metrics, details=details)


def evaluate(
    design: Design,
    protocol: Protocol,
    corpus: Corpus,
    on_rung: Callable[[Report], bool] | None = None,
    device: torch.device = CPU,
) -> Report:
    """The last report of `design`: that of the whole budget, or the one at which `on_rung` returned False."""
    report = None
    for report in rungs(design, protocol, corpus, device):
        if on_rung is not None and not on_rung(report):
            break
    assert report is not None
    return report


def _score(task: Task, trainer: Trainer, part: HeldOut) -> tuple[Interval, dict[str, float], dict[str, Any]]:
    """The task's score over its seeds at the learning rate chosen on validation data, and what it was made of."""
    validation = trainer.measure("validation")
    mean_LS = sum(validation.values()) / len(validation)
    best, on_edge = best_rate(mean_LS, task.higher_is_better)  # type: ignore[arg-type]
    figures = validation if part == "validation" else trainer.measure(part)
    by_seed = {name: figure[best].tolist() for name, figure in figures.items()}
    seeds = [sum(values) / len(values) for values in zip(*by_seed.values(), strict=True)]
    bounds = (0.0, 1.0) if task.higher_is_better else (0.0, float("inf"))
    details = {
        "learning_rate": trainer.training.learning_rates[best],
        "on_edge": on_edge,
        "validation": {name: figure.tolist() for name, figure in validation.items()},
        "by_seed": by_seed,
        "failed_at": trainer.failed_at_K.tolist(),
        "training_losses": trainer.losses_K.tolist(),
    }
    return interval(seeds, *bounds), {name: sum(v) / len(v) for name, v in by_seed.items()}, details
