"""Training all replicas of a task in stacks that fit into memory, one stack after the other.

A replica depends on its learning rate and seed alone, so the results are those of one stack.
"""

import gc
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from proxies.memory import stacks
from proxies.protocol import Protocol, Training
from proxies.tasks import Task
from proxies.tasks.base import HeldOut
from proxies.trainer import Trainer
from space.design import Design

Result = TypeVar("Result")
Replica = tuple[float, int]  # learning rate and seed


class OutOfMemory(MemoryError):
    """A task did not fit into memory, even in smaller stacks."""


class Stacked:
    """The replicas of `task`, all of its training's unless some are given, in stacks of at most `capacity`.

    Unless `together`, a stack gives back what it needs only in passing before the next one trains. When memory runs out
    all of `siblings`, this task and those beside it, do so, and the task starts again from its first step with half the
    capacity; the second time it raises OutOfMemory.
    """

    def __init__(
        self,
        design: Design,
        protocol: Protocol,
        task: Task,
        training: Training,
        device: torch.device,
        capacity: int,
        together: bool,
        siblings: list["Stacked"],
        replicas: Sequence[Replica] | None = None,
    ) -> None:
        self.design, self.protocol, self.task, self.training, self.device = design, protocol, task, training, device
        self.capacity, self.together, self.retried = capacity, together, False
        self.siblings, self.steps_done = siblings, 0
        self.replicas = list(training.replicas if replicas is None else replicas)
        self.trainers: list[Trainer] = []

    def another(self, replicas: Sequence[Replica]) -> "Stacked":
        """Other replicas of this task, trained as far as these. Until it is closed it is one of the siblings."""
        for each in self.siblings:
            each.release()
        other = Stacked(
            self.design,
            self.protocol,
            self.task,
            self.training,
            self.device,
            self.capacity,
            False,
            self.siblings,
            replicas,
        )
        self.siblings.append(other)
        other.advance(self.steps_done)
        return other

    def close(self) -> None:
        """Gives everything back, and leaves the siblings."""
        self.trainers.clear()
        self.siblings.remove(self)
        free(self.device)

    @property
    def sizes(self) -> list[int]:
        """Replicas in each stack."""
        return stacks(len(self.replicas), self.capacity)

    def advance(self, steps: int) -> None:
        """Trains every replica until `steps` steps are done in all."""
        self.steps_done = steps
        self._with_memory(self._advance)

    def measure(self, part: HeldOut, task: Task | None = None) -> dict[str, Tensor]:
        """The metric on a held-out part, by rung: [learning rates, seeds]. NaN for a replica that failed. Of this task,
        or of one that differs in its examples alone."""
        figures = self._with_memory(lambda: self._measure(part, task))
        num_rates = len({rate for rate, _ in self.replicas})
        return {rung: torch.cat([figure[rung] for figure in figures]).view(num_rates, -1) for rung in figures[0]}

    @property
    def failed_at_K(self) -> Tensor:
        return torch.cat([trainer.failed_at_K for trainer in self.trainers])

    @property
    def losses_K(self) -> Tensor:
        return torch.cat([trainer.losses_K for trainer in self.trainers])

    def release(self) -> None:
        """Gives back what is needed only while a stack takes steps."""
        for trainer in self.trainers:
            trainer.release()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _measure(self, part: HeldOut, task: Task | None) -> list[dict[str, Tensor]]:
        self._advance()  # done already, unless the task had to start again
        figures = []
        for trainer in self.trainers:
            figures.append(trainer.measure(part, task))
            if not self.together:
                self.release()
        return figures

    def _advance(self) -> None:
        replicas, start = self.replicas, 0
        for index, size in enumerate(self.sizes):
            if index == len(self.trainers):
                mine = replicas[start : start + size]
                self.trainers.append(Trainer(self.design, self.protocol, self.task, self.training, self.device, mine))
            trainer, start = self.trainers[index], start + size
            if trainer.steps_done < self.steps_done:
                trainer.advance(self.steps_done)
                if not self.together:
                    self.release()

    def _with_memory(self, work: Callable[[], Result]) -> Result:
        while True:
            try:
                return work()
            except Exception as error:
                if not ran_out(error):
                    raise
                words = str(error)
            # Here the error is gone, and with it what its frames held.
            largest = max(self.sizes)
            self.trainers.clear()
            for each in self.siblings:
                each.together = False
                each.release()
            free(self.device)
            if self.retried or largest == 1:
                raise OutOfMemory(f"{self.design}: a stack of {largest} replicas does not fit: {words}")
            self.retried, self.capacity = True, largest // 2


def ran_out(error: BaseException | None) -> bool:
    """Whether the error, or one that it hides, says that the GPU has no memory left."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def free(device: torch.device) -> None:
    """Gives the memory of models nobody holds any more back to the device."""
    gc.collect()  # a trainer and its captured step hold each other
    if device.type == "cuda":
        torch.cuda.empty_cache()
