"""The worker: a Ray Tune trainable that stays alive from design to design. A step is a rung.

Nothing a design does may end a worker: exceptions come back as results, and the driver decides what they mean. There
are two exceptions. After an error that loses a process its GPU, the worker says so, and ends. One that hangs is ended
by the watchdog; the driver sees a lost worker and trains the design again.
"""

import os
import socket
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ray import tune

from proxies import watchdog
from proxies.protocol import Protocol
from proxies.text import Corpus
from search.driver import Outcome
from space.design import Design

if TYPE_CHECKING:
    import torch

Rungs = Callable[[Design, Protocol, Corpus, "torch.device"], Iterator[Any]]
_MAX_REASON = 300
STALLED = 900.0  # seconds without a step of training; tuning a mixer, the longest silence, takes up to 120
GPU_ERROR = "gpu_error"
# What CUDA, its libraries and Triton say when the process has lost its GPU.
_DEAD = (
    "CUDA error", "illegal memory access", "device-side assert", "unspecified launch failure", "misaligned address",
    "CUBLAS_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS_INTERNAL_ERROR", "CUBLAS_STATUS_NOT_INITIALIZED",
)  # fmt: skip


class Worker(tune.Trainable):
    """Trains the design named in its config and hands back an Outcome a rung, as JSON.

    `gpu` is its share of the GPU that Ray shows it; 0 is the CPU. On a GPU its first step is an introduction, which
    says what serves each of `mixers` there.
    """

    def setup(  # type: ignore[override]
        self,
        config: dict[str, Any],
        protocol: Protocol,
        corpus: Corpus,
        num_threads: int,
        gpu: float,
        rungs: Rungs | None,
        mixers: Sequence[str] = (),
    ) -> None:
        self.protocol, self.corpus, self.num_threads, self.gpu, self.rungs = protocol, corpus, num_threads, gpu, rungs
        self.mixers, self.introduced = mixers, not gpu or rungs is not None
        self.dying = False
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.design = new_config["design"]
        self.reports: Iterator[Any] | None = None
        return True

    def step(self) -> dict[str, Any]:
        if self.dying:
            os._exit(1)  # nothing that cleans up may wait for a dead GPU
        watchdog.arm(STALLED)
        try:
            outcome, text = self._next()
        finally:
            watchdog.disarm()
        if outcome.done:
            self.reports = None  # frees the models
        return {"outcome": text, "done": outcome.done}

    def _next(self) -> tuple[Outcome, str]:
        """The next outcome, and as JSON."""
        if not self.introduced:
            self.introduced = True
            outcome = introduction(self.gpu, self.mixers)
            return outcome, outcome.to_json()
        worker = f"{socket.gethostname()}:{os.getpid()}"
        try:
            if self.reports is None:
                self.reports = self._start()
            report = next(self.reports)
            outcome = Outcome(report.rung, report.budget, report.final, report.metrics, report.details, worker=worker)
            return outcome, outcome.to_json()
        except Exception as error:
            reason, trace = reason_of(error), traceback.format_exc()
            self.dying = reason.startswith(GPU_ERROR)
            outcome = Outcome(failure=reason, traceback=trace, worker=worker, dying=self.dying)
            return outcome, outcome.to_json()

    def _start(self) -> Iterator[Any]:
        import torch

        torch.set_num_threads(self.num_threads)
        if self.rungs is None:
            from proxies.evaluate import rungs

            self.rungs = rungs
        device = torch.device("cuda" if self.gpu else "cpu")
        if 0 < self.gpu < 1 and torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(self.gpu)
        return self.rungs(Design.parse(self.design), self.protocol, self.corpus, device)


def introduction(gpu: float, mixers: Sequence[str]) -> Outcome:
    """The name of this process's GPU and what serves each mixer on it, or why torch cannot use it."""
    import torch

    from proxies.mixers import serving
    from proxies.ops.kernels import require

    device = torch.device("cuda")
    try:
        require(device)
        return Outcome(gpu=torch.cuda.get_device_name(), serving=serving(mixers, device))
    except Exception as error:
        words = f"gpus_per_trial = {gpu:g}: {error}; or train on the CPU with --gpus-per-trial 0"
        return Outcome(failure=words, serving={})


def reason_of(error: Exception) -> str:
    """One line that says what went wrong, and its kind where the kind matters."""
    lines = str(error).strip().splitlines()
    words = lines[0][:_MAX_REASON] if lines else ""
    if isinstance(error, MemoryError) or "out of memory" in str(error) or "can't allocate memory" in str(error):
        return f"out_of_memory: {words or 'the machine has no memory left'}"
    if any(sign in str(error) for sign in _DEAD):
        return f"{GPU_ERROR}: {words}"
    if isinstance(error, FloatingPointError):
        return f"non_finite: {words}"
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
