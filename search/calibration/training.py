"""One task of one design trained at all its learning rates and seeds, with looks at validation data on the way."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from proxies import memory
from proxies.ops import kernels
from proxies.protocol import Protocol, Training, named
from proxies.stacks import Stacked, free
from proxies.tasks import Task
from space.design import Design


def device_of(name: str) -> torch.device:
    """The device `auto`, `cpu` or `gpu`. Raises ValueError for a GPU that torch cannot use."""
    device = torch.device("cuda" if name == "gpu" or (name == "auto" and torch.cuda.is_available()) else "cpu")
    try:
        kernels.require(device)
    except RuntimeError as error:
        raise ValueError(f"device = {name!r}: {error}") from None
    return device


def proxy(settings: Mapping[str, Any]) -> Protocol:
    """A protocol with the dimensions and the start of `settings`, for a trainer; its own tasks are not used."""
    fields = ("width", "heads", "mlp_dim", "init_std", "embedding_std")
    return replace(
        named("quick"), name="calibration", state_heads=settings["heads"], **{key: settings[key] for key in fields}
    )


def training(settings: Mapping[str, Any]) -> Training:
    """The training of `settings`."""
    return Training(
        steps=settings["steps"],
        batch=settings["batch"],
        learning_rates=tuple(settings["learning_rates"]),
        num_seeds=settings["seeds"],
        warmup=settings["warmup"],
        dropout=settings.get("dropout", 0.0),
    )


@dataclass(frozen=True)
class Look:
    """A metric on validation data after `step` steps, the mean over rungs: [learning rates, seeds]."""

    step: int
    figures_LS: Tensor
    seconds: float


class Fit:
    """All replicas of one task; the stacks are as large as the device has memory for. `close` gives it back."""

    def __init__(
        self, design: Design, protocol: Protocol, task: Task, settings: Training, device: torch.device
    ) -> None:
        number = len(settings.replicas)
        capacity = number if device.type == "cpu" else min(number, _fitting(design, protocol, task, settings, device))
        siblings: list[Stacked] = []
        self.replicas = Stacked(design, protocol, task, settings, device, capacity, capacity == number, siblings)
        siblings.append(self.replicas)
        self.device = device

    def looks(self, every: int) -> Iterator[Look]:
        """Trains to the end, with a look after every `every` steps and one at the end."""
        started, steps = time.monotonic(), self.replicas.training.steps
        for step in [*range(every, steps, every), steps]:
            self.replicas.advance(step)
            figures = self.replicas.measure("validation")
            yield Look(step, self.replicas.task.decided(figures), time.monotonic() - started)

    def close(self) -> None:
        self.replicas.trainers.clear()
        free(self.device)


def _fitting(design: Design, protocol: Protocol, task: Task, settings: Training, device: torch.device) -> int:
    """How many replicas a GPU has memory for at once. Raises ValueError for what its kernels cannot take."""
    need = memory.need(design, protocol.scale_for(task.vocab, design), [task], settings, device)
    number = len(settings.replicas)
    (capacity,), _ = memory.plan([(need, number)], memory.budget(device))
    return capacity
