"""The training loop: all replicas of a design on one task, one step at a time.

Parameters, gradients and Adam's moments are flat [K, P] buffers, a row a replica, so clipping a replica and giving it
its own learning rate are single operations, and a replica in a stack is trained exactly as it would be alone.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from proxies.model import HybridLM
from proxies.protocol import Protocol, Training
from proxies.tasks import Batch, Task
from proxies.tasks.base import IGNORE, HeldOut
from space.design import Design

BETAS, EPS = (0.9, 0.95), 1e-8
_EVALUATION_ROWS = 64  # examples a forward pass when scoring


class FlatAdamW:
    """AdamW over stacked replicas with a learning rate and a gradient norm for each. Vectors are not decayed."""

    def __init__(self, model: HybridLM, learning_rates_K: Tensor, training: Training) -> None:
        self.training = training
        self.learning_rates = learning_rates_K.unsqueeze(1)
        self.leaves = list(model.parameters())
        self.parameters = torch.cat([leaf.detach().flatten(1) for leaf in self.leaves], dim=1)
        self.gradients = torch.empty_like(self.parameters)
        self.mean, self.square = torch.zeros_like(self.parameters), torch.zeros_like(self.parameters)
        self.decay = torch.zeros(self.parameters.shape[1])
        self.step_count = 0
        start = 0
        for leaf in self.leaves:
            here = slice(start, start + leaf[0].numel())
            leaf.data = self.parameters[:, here].view(leaf.shape)
            if leaf.dim() > 2:  # a matrix for each replica
                self.decay[here] = training.weight_decay
            start = here.stop

    def schedule(self) -> float:
        """The share of the peak learning rate at this step: linear warm-up, then cosine down to a tenth."""
        warmup = max(1, round(self.training.warmup * self.training.steps))
        if self.step_count < warmup:
            return (self.step_count + 1) / warmup
        done = (self.step_count - warmup) / max(1, self.training.steps - warmup)
        return 0.1 + 0.45 * (1 + math.cos(math.pi * done))

    def step(self, loss: Tensor, alive_K: Tensor) -> None:
        """One update of the replicas that are alive from the sum of their losses, gradients clipped a replica."""
        found = torch.autograd.grad(loss, self.leaves, materialize_grads=True)  # HGRN in layer 0 alone has no bounds
        gradients = torch.cat([gradient.flatten(1) for gradient in found], dim=1, out=self.gradients)
        norms = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
        gradients.mul_((self.training.clip / (norms + 1e-6)).clamp_max(1.0))
        gradients.masked_fill_(~alive_K.unsqueeze(1), 0.0)
        rates = self.learning_rates * self.schedule() * alive_K.unsqueeze(1)
        self.step_count += 1
        first, second = BETAS
        self.mean.lerp_(gradients, 1 - first)
        self.square.mul_(second).addcmul_(gradients, gradients, value=1 - second)
        denominator = (self.square / (1 - second**self.step_count)).sqrt_().add_(EPS)
        self.parameters.mul_(1 - rates * self.decay)
        self.parameters.sub_(self.mean / denominator * (rates / (1 - first**self.step_count)))


class Trainer:
    """Trains a replica for each (learning rate, seed) of `task`, learning rates outermost.

    A replica whose loss is not finite stops there; `failed_at_K` names the step (-1: none).
    """

    def __init__(self, design: Design, protocol: Protocol, task: Task, training: Training) -> None:
        seeds = range(training.num_seeds)
        self.task, self.training = task, training
        self.num_rates = len(training.learning_rates)
        self.model = HybridLM(
            design,
            protocol.scale_for(task.vocab),
            [seed for _ in training.learning_rates for seed in seeds],
            init_std=protocol.init_std,
            embedding_std=protocol.embedding_std,
        )
        rates = torch.tensor([rate for rate in training.learning_rates for _ in seeds])
        self.optimizer = FlatAdamW(self.model, rates, training)
        self.streams = [task.training(seed, training.batch) for seed in seeds]
        self.failed_at_K = torch.full((len(rates),), -1)
        self.losses_K = torch.full((len(rates),), math.nan)

    @property
    def steps_done(self) -> int:
        return self.optimizer.step_count

    def advance(self, steps: int) -> None:
        """Trains until `steps` steps are done in all."""
        self.model.train()
        while self.steps_done < steps:
            self._step()

    def _step(self) -> None:
        batches = [next(stream) for stream in self.streams]
        batch = _stack(batches, self.num_rates)
        logits = self.model(batch.tokens, batch.positions)
        losses = cross_entropy(logits.flatten(0, -2), batch.labels.flatten(), ignore_index=IGNORE, reduction="none")
        counts = (batch.labels != IGNORE).flatten(1).sum(1)
        losses_K = losses.view(len(counts), -1).sum(1) / counts
        failed = ~torch.isfinite(losses_K.detach()) & (self.failed_at_K < 0)
        self.failed_at_K = torch.where(failed, self.steps_done, self.failed_at_K)
        self.losses_K = losses_K.detach()
        self.optimizer.step(losses_K.sum(), self.failed_at_K < 0)

    @torch.no_grad()
    def measure(self, part: HeldOut) -> dict[str, Tensor]:
        """The task's metric on a held-out part, by rung: [learning rates, seeds]. NaN for a replica that failed."""
        self.model.eval()
        num_replicas = len(self.failed_at_K)
        figures: dict[str, Tensor] = {}
        for rung, whole in self.task.held_out(part).items():
            total = torch.zeros(num_replicas)
            rows = whole.tokens.shape[0]
            for start in range(0, rows, _EVALUATION_ROWS):
                piece = whole.map(lambda x, start=start: x[start : start + _EVALUATION_ROWS])
                batch = piece.map(lambda x: x.unsqueeze(0).expand(num_replicas, *x.shape))
                logits = self.model(batch.tokens, batch.positions)
                total += self.task.metric(logits, piece.labels) * piece.tokens.shape[0]
            figure = torch.where(self.failed_at_K < 0, total / rows, math.nan)
            figures[rung] = figure.view(self.num_rates, -1)
        return figures


def _stack(batches: list[Batch], num_rates: int) -> Batch:
    """One batch a replica, [K, B, ...]: the seeds' batches, once for each learning rate."""
    positions = [batch.positions for batch in batches if batch.positions is not None]
    stacked = Batch(
        torch.stack([batch.tokens for batch in batches]),
        torch.stack([batch.labels for batch in batches]),
        torch.stack(positions) if positions else None,
    )
    return stacked.map(lambda x: x.repeat(num_rates, *[1] * (x.dim() - 1)))
