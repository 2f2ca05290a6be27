"""The training loop: all replicas of a design on one task, one step at a time.

Parameters, gradients and Adam's moments are flat [K, P] buffers, a row a replica, so clipping a replica and giving it
its own learning rate are single operations, and a replica in a stack is trained exactly as it would be alone.
On a GPU data is made there, activations are bfloat16, and a step is one CUDA graph, which never waits for the CPU;
there is a graph for each shape of batch.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from proxies import watchdog
from proxies.fusion import fused
from proxies.graph import Graphs
from proxies.layers import GPU_DTYPE
from proxies.model import HybridLM
from proxies.protocol import Protocol, Training
from proxies.tasks import Batch, Task
from proxies.tasks.base import CPU, IGNORE, HeldOut
from space.design import Design

BETAS, EPS = (0.9, 0.95), 1e-8
EVALUATION_ROWS = 64  # examples a forward pass when scoring
_LOOK = 50  # steps between two looks, for which the CPU waits, at whether any replica is left


class _Flat:
    """Leaves of one dtype as views of one buffer [K, P], with what Adam keeps of them in float32.

    Leaves in half precision are copies of float32 masters, written anew at each step.
    """

    def __init__(self, leaves: list[nn.Parameter], dtype: torch.dtype, weight_decay: float) -> None:
        self.leaves = leaves
        self.masters = torch.cat([leaf.detach().flatten(1) for leaf in leaves], dim=1)
        self.copies = None if dtype == self.masters.dtype else self.masters.to(dtype)
        self.values = self.masters if self.copies is None else self.copies
        self.gradients = torch.empty_like(self.values)
        self.mean, self.square = torch.zeros_like(self.masters), torch.zeros_like(self.masters)
        self.decay = torch.zeros(self.masters.shape[1], device=self.masters.device)
        start = 0
        for leaf in leaves:
            here = slice(start, start + leaf[0].numel())
            leaf.data = self.values[:, here].view(leaf.shape)
            if leaf.dim() > 2:  # a matrix for each replica
                self.decay[here] = weight_decay
            start = here.stop


class FlatAdamW:
    """AdamW over stacked replicas with a learning rate and a gradient norm for each. Vectors are not decayed.

    On a GPU the model's matrices become bfloat16.
    """

    def __init__(self, model: HybridLM, learning_rates_K: Tensor, training: Training) -> None:
        self.training = training
        self.learning_rates = learning_rates_K.unsqueeze(1)
        device = learning_rates_K.device
        halved = {id(leaf) for leaf in model.matrices()} if device.type == "cuda" else set()
        groups = {
            GPU_DTYPE: [leaf for leaf in model.parameters() if id(leaf) in halved],
            torch.float32: [leaf for leaf in model.parameters() if id(leaf) not in halved],
        }
        self.groups = [_Flat(leaves, dtype, training.weight_decay) for dtype, leaves in groups.items() if leaves]
        self.leaves = [leaf for group in self.groups for leaf in group.leaves]
        self.steps_done = torch.zeros(1, dtype=torch.long, device=device)
        self.factors = _factors(training).to(device)

    def step(self, loss: Tensor, alive_K: Tensor) -> None:
        """One update of the replicas that are alive from the sum of their losses, gradients clipped a replica."""
        found = iter(torch.autograd.grad(loss, self.leaves, materialize_grads=True))  # HGRN in layer 0 alone: no bounds
        for group in self.groups:
            torch.cat([next(found).flatten(1) for _ in group.leaves], dim=1, out=group.gradients)
        norms = [torch.linalg.vector_norm(g.gradients, dim=1, keepdim=True, dtype=torch.float32) for g in self.groups]
        whole = norms[0] if len(norms) == 1 else torch.cat(norms, 1).square().sum(1, keepdim=True).sqrt()
        clips = (self.training.clip / (whole + 1e-6)).clamp_max(1.0)
        alive = alive_K.unsqueeze(1)
        share, *corrections = self.factors.index_select(0, self.steps_done).unbind(1)
        rates = self.learning_rates * share * alive
        for group in self.groups:
            _update(group.masters, group.copies, group.gradients, group.mean, group.square,
                    clips, alive, rates, group.decay, *corrections)  # fmt: skip
        self.steps_done += 1


@fused
def _update(
    masters: Tensor, copies: Tensor | None, gradients: Tensor, mean: Tensor, square: Tensor, clips: Tensor,
    alive: Tensor, rates: Tensor, decay: Tensor, first_correction: Tensor, second_correction: Tensor,
) -> None:  # fmt: skip
    """Adam's step, in place."""
    first, second = BETAS
    if copies is None:
        gradients.mul_(clips).masked_fill_(~alive, 0.0)
    else:
        gradients = (gradients.float() * clips).masked_fill(~alive, 0.0)
    mean.lerp_(gradients, 1 - first)
    square.mul_(second).addcmul_(gradients, gradients, value=1 - second)
    denominator = (square / second_correction).sqrt_().add_(EPS)
    masters.mul_(1 - rates * decay)
    masters.sub_(mean / denominator * (rates / first_correction))
    if copies is not None:
        copies.copy_(masters)


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
            protocol.scale_for(task.vocab, design),
            seeds_K,
            init_std=protocol.init_std,
            embedding_std=protocol.embedding_std,
            dropout=training.dropout,
        ).to(device)
        rates = torch.tensor(rates_K, device=device)
        self.optimizer = FlatAdamW(self.model, rates, training)
        self.streams = [task.training(seed, training.batch, device) for seed in seeds]
        self.stream_K = torch.tensor([seeds.index(seed) for seed in seeds_K], device=device)
        self.failed_at_K = torch.full((len(rates),), -1, device=device)
        self.losses_K = torch.full((len(rates),), math.nan, device=device)
        self.totals_K = torch.zeros(len(rates), device=device)
        self.steps_done = 0
        self.release()

    def release(self) -> None:
        """Gives back what captured steps and scores hold on a GPU; the next ones are captured again."""
        self.step: Callable[..., None] = self._step
        self.score: Callable[..., None] = self._add_metric
        if self.device.type == "cuda":
            pool = torch.cuda.graph_pool_handle()
            self.step, self.score = Graphs(self._step, pool), Graphs(self._add_metric, pool)

    def advance(self, steps: int) -> None:
        """Trains until `steps` steps are done in all, at most those of the training, or no replica is left."""
        self.model.train()
        for done in range(self.steps_done, steps):
            watchdog.beat()
            if done % _LOOK == 0 and bool((self.failed_at_K >= 0).all()):
                return
            batches = [next(stream) for stream in self.streams]
            self.step(*_stack(batches, self.stream_K).tensors)
            self.steps_done += 1

    def _step(self, tokens: Tensor, labels: Tensor, positions: Tensor | None = None) -> None:
        """One step. Whatever outlasts it is changed in place, for the sake of the graph."""
        losses_K = _losses(self.model(tokens, positions), labels)
        failed = ~torch.isfinite(losses_K.detach()) & (self.failed_at_K < 0)
        self.failed_at_K.copy_(torch.where(failed, self.optimizer.steps_done, self.failed_at_K))
        self.losses_K.copy_(losses_K.detach())
        self.optimizer.step(losses_K.sum(), self.failed_at_K < 0)

    @torch.no_grad()
    def measure(self, part: HeldOut, task: Task | None = None) -> dict[str, Tensor]:
        """The metric on a held-out part, by rung: [K]. NaN for a replica that failed. Of the task it was trained on, or
        of one that differs in its examples alone."""
        self.model.eval()
        figures: dict[str, Tensor] = {}
        for rung, whole in (task or self.task).held_out(part).items():
            self.totals_K.zero_()
            pieces = zip(*(x.to(self.device).split(EVALUATION_ROWS) for x in whole.tensors), strict=True)
            for piece in pieces:
                watchdog.beat()
                self.score(*piece)
            figures[rung] = torch.where(self.failed_at_K < 0, self.totals_K / len(whole.tokens), math.nan).cpu()
        return figures

    def _add_metric(self, tokens: Tensor, labels: Tensor, positions: Tensor | None = None) -> None:
        """Adds the metric of a piece of a held-out part to the totals."""
        num_replicas = len(self.totals_K)
        whole = Batch(tokens, labels, positions).map(lambda x: x.unsqueeze(0).expand(num_replicas, *x.shape))
        metric = self.task.metric(self.model(whole.tokens, whole.positions), labels)
        self.totals_K.add_(metric, alpha=len(tokens))


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
