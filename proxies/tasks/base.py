"""What a task is: a vocabulary, a training stream for each seed, and held-out batches by rung with a metric."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

IGNORE = -100
HeldOut = Literal["validation", "test"]


@dataclass(frozen=True)
class Batch:
    """Tokens [B, T] and labels [B, P] at `positions` [B, P]; without positions, labels are [B, T]."""

    tokens: Tensor
    labels: Tensor
    positions: Tensor | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Tokens and labels, and the positions if there are any."""
        return (self.tokens, self.labels) if self.positions is None else (self.tokens, self.labels, self.positions)

    def map(self, function) -> "Batch":  # type: ignore[no-untyped-def]
        """The batch with `function` applied to every tensor."""
        positions = None if self.positions is None else function(self.positions)
        return Batch(function(self.tokens), function(self.labels), positions)


CPU = torch.device("cpu")


def stream(part: str, seed: int, device: torch.device = CPU) -> torch.Generator:
    """A generator for one part of one seed's data; different parts never share a stream, nor do kinds of device."""
    key = hashlib.sha256(f"{part} {seed}".encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(key[:7], "big"))


class Task(ABC):
    """One task at one setting."""

    vocab: int
    higher_is_better: bool

    @abstractmethod
    def training(self, seed: int, batch: int, device: torch.device = CPU) -> Iterator[Batch]:
        """Endless batches of the training stream of `seed`, made on `device`."""

    @abstractmethod
    def held_out(self, part: HeldOut) -> dict[str, Batch]:
        """Held-out examples by the name of their rung, on the CPU: the same for every design, seed and device."""

    @abstractmethod
    def metric(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The figure of each replica, [K], from logits [K, B, P, V] and labels [B, P]."""
