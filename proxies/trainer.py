"""The training loop: all replicas of a design on one task, one step at a time.

Parameters, gradients and Adam's moments are flat [K, P] buffers, a row a replica, so clipping a replica and giving it
its own learning rate are single operations, and a replica in a stack is trained exactly as it would be alone.
On a GPU data is made there, activations are bfloat16, and the whole step is one CUDA graph: it never waits for the CPU.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from proxies.fusion import fused
from proxies.graph import Graphed
from proxies.layers import GPU_DTYPE
from proxies.model import HybridLM
from proxies.protocol import Protocol, Training
from proxies.tasks import Batch, Task
from proxies.tasks.base import CPU, IGNORE, HeldOut
from space.design import Design

BETAS, EPS = (0.9, 0.95), 1e-8
EVALUATION_ROWS = 64  # examples a forward pass when scoring


class FlatAdamW:
    """AdamW over stacked replicas with a learning rate and a gradient norm for each. Vectors are not decayed."""

    def __init__(self, model: HybridLM, learning_rates_K: Tensor, training: Training) -> None:
        self.training = training
        self.learning_rates = learning_rates_K.unsqueeze(1)
        self.leaves = list(model.parameters())
        self.parameters = torch.cat([leaf.detach().flatten(1) for leaf in self.leaves], dim=1)
        self.gradients = torch.empty_like(self.parameters)
        self.mean, self.square = torch.zeros_like(self.parameters), torch.zeros_like(self.parameters)
        device = self.parameters.device
        self.decay = torch.zeros(self.parameters.shape[1], device=device)
        self.steps_done = torch.zeros(1, dtype=torch.long, device=device)
        self.factors = _factors(training).to(device)
        start = 0
        for leaf in self.leaves:
            here = slice(start, start + leaf[0].numel())
            leaf.data = self.parameters[:, here].view(leaf.shape)
            if leaf.dim() > 2:  # a matrix for each replica
                self.decay[here] = training.weight_decay
            start = here.stop

    def step(self, loss: Tensor, alive_K: Tensor) -> None:
        """One update of the replicas that are alive from the sum of their losses, gradients clipped a replica."""
        found = torch.autograd.grad(loss, self.leaves, materialize_grads=True)  # HGRN in layer 0 alone has no bounds
        gradients = torch.cat([gradient.flatten(1) for gradient in found], dim=1, out=self.gradients)
        norms = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
        alive = alive_K.unsqueeze(1)
        share, *corrections = self.factors.index_select(0, self.steps_done).unbind(1)
        rates = self.learning_rates * share * alive
        clips = (self.training.clip / (norms + 1e-6)).clamp_max(1.0)
        _update(self.parameters, gradients, self.mean, self.square, clips, alive, rates, self.decay, *corrections)
        self.steps_done += 1


@fused
def _update(
    parameters: Tensor, gradients: Tensor, mean: Tensor, square: Tensor, clips: Tensor, alive: Tensor, rates: Tensor,
    decay: Tensor, first_correction: Tensor, second_correction: Tensor,
) -> None:  # fmt: skip
    """Adam's step, in place."""
    first, second = BETAS
    gradients.mul_(clips).masked_fill_(~alive, 0.0)
    mean.lerp_(gradients, 1 - first)
    square.mul_(second).addcmul_(gradients, gradients, value=1 - second)
    denominator = (square / second_correction).sqrt_().add_(EPS)
    parameters.mul_(1 - rates * decay)
    parameters.sub_(mean / denominator * (rates / first_correction))


def _factors(training: Training) -> Tensor:
    """What depends on the step alone, a row a step: the share of the peak learning rate, which warms up linearly and
    falls by a cosine to a tenth, and the bias corrections of Adam's two moments."""
    warmup = max(1, round(training.warmup * training.steps))

    def share(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / max(1, training.steps - warmup)))

    first, second = BETAS
    rows = [(share(step), 1 - first ** (step + 1), 1 - second ** (step + 1)) for step in range(training.steps)]
    return torch.tensor(rows)


class Trainer:
    """Trains a stack of replicas of `task`, one for each (learning rate, seed): those given, or all of the training's.

    A replica whose loss is not finite stops there; `failed_at_K` names the step (-1: none).
    """

    def __init__(
        self,
        design: Design,
        protocol: Protocol,
        task: Task,
        training: Training,
        device: torch.device = CPU,
        replicas: Sequence[tuple[float, int]] | None = None,
    ) -> None:
        rates_K, seeds_K = zip(*(training.replicas if replicas is None else replicas), strict=True)
        seeds = sorted(set(seeds_K))
        self.task, self.training, self.device = task, training, device
        self.model = HybridLM(
            design,
            protocol.scale_for(task.vocab),
            seeds_K,
            init_std=protocol.init_std,
            embedding_std=protocol.embedding_std,
        ).to(device)
        rates = torch.tensor(rates_K, device=device)
        self.optimizer = FlatAdamW(self.model, rates, training)
        self.streams = [task.training(seed, training.batch, device) for seed in seeds]
        self.stream_K = torch.tensor([seeds.index(seed) for seed in seeds_K], device=device)
        self.failed_at_K = torch.full((len(rates),), -1, device=device)
        self.losses_K = torch.full((len(rates),), math.nan, device=device)
        self.steps_done = 0
        self.release()

    def release(self) -> None:
        """Gives back what a captured step holds on a GPU; the next step captures it again."""
        self.step = Graphed(self._step) if self.device.type == "cuda" else self._step

    def advance(self, steps: int) -> None:
        """Trains until `steps` steps are done in all, at most those of the training."""
        self.model.train()
        for _ in range(self.steps_done, steps):
            batches = [next(stream) for stream in self.streams]
            self.step(*_stack(batches, self.stream_K).tensors)
            self.steps_done += 1

    def _step(self, tokens: Tensor, labels: Tensor, positions: Tensor | None = None) -> None:
        """One step. Whatever outlasts it is changed in place, for the sake of the graph."""
        losses_K = _losses(self._logits(tokens, positions), labels)
        failed = ~torch.isfinite(losses_K.detach()) & (self.failed_at_K < 0)
        self.failed_at_K.copy_(torch.where(failed, self.optimizer.steps_done, self.failed_at_K))
        self.losses_K.copy_(losses_K.detach())
        self.optimizer.step(losses_K.sum(), self.failed_at_K < 0)

    def _logits(self, tokens: Tensor, positions: Tensor | None) -> Tensor:
        with torch.autocast(self.device.type, GPU_DTYPE, enabled=self.device.type == "cuda"):
            return self.model(tokens, positions)

    @torch.no_grad()
    def measure(self, part: HeldOut) -> dict[str, Tensor]:
        """The task's metric on a held-out part, by rung: [K]. NaN for a replica that failed."""
        self.model.eval()
        num_replicas = len(self.failed_at_K)
        figures: dict[str, Tensor] = {}
        for rung, whole in self.task.held_out(part).items():
            total = torch.zeros(num_replicas, device=self.device)
            whole = whole.map(lambda x: x.to(self.device))
            rows = whole.tokens.shape[0]
            for start in range(0, rows, EVALUATION_ROWS):
                piece = whole.map(lambda x, start=start: x[start : start + EVALUATION_ROWS])
                batch = piece.map(lambda x: x.unsqueeze(0).expand(num_replicas, *x.shape))
                logits = self._logits(batch.tokens, batch.positions)
                total += self.task.metric(logits, piece.labels) * piece.tokens.shape[0]
            figures[rung] = torch.where(self.failed_at_K < 0, total / rows, math.nan).cpu()
        return figures


@fused
def _losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Each replica's mean loss over its labels, [K]."""
    rows = logits.float().flatten(0, -2)
    losses = cross_entropy(rows, labels.flatten(), ignore_index=IGNORE, reduction="none")
    return losses.view(len(labels), -1).sum(1) / (labels != IGNORE).flatten(1).sum(1)


def _stack(batches: list[Batch], stream_K: Tensor) -> Batch:
    """One batch a replica, [K, B, ...], each from its stream."""
    positions = [batch.positions for batch in batches if batch.positions is not None]
    stacked = Batch(
        torch.stack([batch.tokens for batch in batches]),
        torch.stack([batch.labels for batch in batches]),
        torch.stack(positions) if positions else None,
    )
    return stacked.map(lambda x: x.index_select(0, stream_K))
