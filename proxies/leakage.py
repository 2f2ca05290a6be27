"""A control on the tasks themselves, made with every score: a test that gives its answers away says nothing.

Two things betray it. Without its context, all that comes before the first query, an example cannot be answered: who
scores above chance there reads the label off the query, its place, or what labels are like. And the sealed test is not
among the training batches, but for the chance that two examples are equal.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import torch
from torch import Tensor

from proxies.protocol import Training
from proxies.scoring import mean
from proxies.tasks.base import CPU, IGNORE, Batch, EvenTask, HeldOut, SyntheticTask, Task

DEVIATIONS = 5  # beyond chance by so many standard deviations is no accident
BATCHES = 64  # of each seed, among which the test is looked for


class Blind(Task):
    """A task whose held-out examples have the context of the one before: nothing is left to recall.

    The queries and labels stay, and so does whatever links them.
    """

    def __init__(self, task: SyntheticTask) -> None:
        self.task, self.vocab, self.higher_is_better = task, task.vocab, task.higher_is_better

    def training(self, seed: int, batch: int, device: torch.device = CPU) -> Iterator[Batch]:
        return self.task.training(seed, batch, device)

    def held_out(self, part: HeldOut) -> dict[str, Batch]:
        return {rung: exchanged(batch) for rung, batch in self.task.held_out(part).items()}

    def metric(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self.task.metric(logits, labels)


def exchanged(batch: Batch) -> Batch:
    """The batch with the tokens before its first query moved on by one example."""
    assert batch.positions is not None
    first = int(batch.positions[batch.labels != IGNORE].min())
    tokens = torch.cat([batch.tokens[:, :first].roll(1, 0), batch.tokens[:, first:]], dim=1)
    return Batch(tokens, batch.labels, batch.positions)


def answered_blind(task: SyntheticTask, figures: Mapping[str, Sequence[float]]) -> float:
    """How far the accuracy without a context, mean over seeds, is above what chance explains; 0 when nowhere.

    `figures` are those of `Blind(task)`; of its rungs the worst counts.
    """
    held_out = task.held_out("test")
    return max(_beyond(mean(values), task.chance(rung), len(held_out[rung].tokens)) for rung, values in figures.items())


def seen_in_training(task: EvenTask, training: Training, device: torch.device = CPU) -> float:
    """How much more of the sealed test than chance explains is among the first batches of the seeds; 0 when nothing.

    Of its rungs the worst counts. Two examples are equal with a probability that the test's own repeats bound; where
    the world of a rung is small, training meets much of it and nobody is blamed.
    """
    held_out = {rung: batch.tokens.to(device) for rung, batch in task.held_out("test").items()}
    length = next(iter(held_out.values())).shape[1]
    factors = torch.randint(-(2**62), 2**62, (length,), generator=torch.Generator().manual_seed(0)).to(device)

    def keys(tokens: Tensor) -> Tensor:
        return (tokens * factors).sum(-1)  # wraps around: a hash of the row

    seeds = (*training.seeds, *training.fresh)
    batches = (batch for seed in seeds for batch in islice(task.training(seed, training.batch, device), BATCHES))
    trained = torch.cat([keys(batch.tokens) for batch in batches])
    worst = 0.0
    for tokens in held_out.values():
        test = keys(tokens)
        counts = test.unique(return_counts=True)[1]
        equal = int((counts * (counts - 1)).sum()) // 2
        pairs = max(1, len(test) * (len(test) - 1) // 2)
        alike = min(1.0, (equal + 3 * math.sqrt(equal) + 3) / pairs)  # at most, with few repeats to tell by
        chance = 1 - (1 - alike) ** (len(trained) / task.num_rungs)
        worst = max(worst, _beyond(float(torch.isin(test, trained).float().mean()), chance, len(test)))
    return worst


def _beyond(share: float, chance: float, count: int) -> float:
    return max(0.0, share - chance - DEVIATIONS * math.sqrt(chance * (1 - chance) / count))
