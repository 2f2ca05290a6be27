"""The worker: a Ray Tune trainable that stays alive from design to design. A step is a rung.

Nothing a design does may end a worker: exceptions come back as results, and the driver decides what they mean.
"""

import os
import socket
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from ray import tune

from proxies.protocol import Protocol
from proxies.text import Corpus
from search.driver import Outcome
from space.design import Design

Rungs = Callable[[Design, Protocol, Corpus], Iterator[Any]]
_MAX_REASON = 300


class Worker(tune.Trainable):
    """Trains the design named in its config and hands back an Outcome a rung, as JSON."""

    def setup(  # type: ignore[override]
        self, config: dict[str, Any], protocol: Protocol, corpus: Corpus, num_threads: int, rungs: Rungs | None
    ) -> None:
        self.protocol, self.corpus, self.num_threads, self.rungs = protocol, corpus, num_threads, rungs
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.design = new_config["design"]
        self.reports: Iterator[Any] | None = None
        return True

    def step(self) -> dict[str, Any]:
        worker = f"{socket.gethostname()}:{os.getpid()}"
        try:
            if self.reports is None:
                self.reports = self._start()
            report = next(self.reports)
            outcome = Outcome(report.rung, report.budget, report.final, report.metrics, report.details, worker=worker)
            text = outcome.to_json()
        except Exception as error:
            outcome = Outcome(failure=reason_of(error), traceback=traceback.format_exc(), worker=worker)
            text = outcome.to_json()
        if outcome.done:
            self.reports = None  # frees the models
        return {"outcome": text, "done": outcome.done}

    def _start(self) -> Iterator[Any]:
        import torch

        torch.set_num_threads(self.num_threads)
        if self.rungs is None:
            from proxies.evaluate import rungs

            self.rungs = rungs
        return self.rungs(Design.parse(self.design), self.protocol, self.corpus)


def reason_of(error: Exception) -> str:
    """One line that says what went wrong, and its kind where the kind matters."""
    lines = str(error).strip().splitlines()
    words = lines[0][:_MAX_REASON] if lines else ""
    if isinstance(error, MemoryError) or "out of memory" in str(error) or "can't allocate memory" in str(error):
        return f"out_of_memory: {words or 'the machine has no memory left'}"
    if isinstance(error, FloatingPointError):
        return f"non_finite: {words}"
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
