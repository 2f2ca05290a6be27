"""Multi-query associative recall (Arora et al., arXiv 2312.04927): say the value that was bound to a key.

Two pairs, length 12, vocabulary 16 (keys 1..7, values 8..15), filler (zeros, or random tokens of the whole vocabulary):

    tokens   3 12  5  9 | 14  .  3  .  .  .  5  .        . filler
    labels   -  -  -  - |  -  - 12  -  -  -  9  -        - not scored

N pairs without repeats, then each key once more at an even distance after them. The gap g is drawn without replacement
with p(g) ~ (g + 1)^(a - 1), a = 0.01, so most queries come early. Accuracy is the mean over the queries.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from proxies.protocol import Recall
from proxies.tasks.base import CPU, IGNORE, Batch, HeldOut, Task, stream

POWER = 0.01
_CHUNK = 64  # training batches drawn at once, to spread the cost of small tensor operations


def examples(settings: Recall, pairs: int, count: int, generator: torch.Generator) -> Batch:
    """`count` examples with `pairs` pairs each: tokens [count, T], labels and positions [count, pairs]."""
    half, length, context = settings.vocab // 2, settings.length, 2 * pairs

    def uniform(choices: int) -> Tensor:
        return torch.rand(count, choices, generator=generator, device=generator.device)

    keys = 1 + uniform(half - 1).argsort(1)[:, :pairs]
    values = half + uniform(settings.vocab - half).argsort(1)[:, :pairs]
    num_gaps = (length - context) // 2
    log_p = (POWER - 1) * torch.arange(1, num_gaps + 1, device=generator.device).log()
    gumbel = -(-uniform(num_gaps).clamp_min(1e-20).log()).log()
    gaps = (log_p + gumbel).topk(pairs, dim=1).indices  # Gumbel top-k: draws without replacement
    positions = context + 2 * gaps
    tokens = torch.zeros(count, length, dtype=torch.long, device=generator.device)
    if settings.filler == "random":
        tokens.random_(settings.vocab, generator=generator)
    tokens[:, 0:context:2] = keys
    tokens[:, 1:context:2] = values
    tokens.scatter_(1, positions, keys)
    return Batch(tokens, values, positions)


class RecallTask(Task):
    """The ladder of `settings.pairs`; rungs are named `pairs_<N>`."""

    higher_is_better = True

    def __init__(self, settings: Recall) -> None:
        self.settings = settings
        self.vocab = settings.vocab

    def training(self, seed: int, batch: int, device: torch.device = CPU) -> Iterator[Batch]:
        """Batches with an equal share of every rung, padded to the most pairs: labels [B, P], IGNORE where padded."""
        generator = stream("recall train", seed, device)
        share = batch // len(self.settings.pairs)
        most = max(self.settings.pairs)
        while True:
            rungs = [
                _padded(examples(self.settings, pairs, _CHUNK * share, generator), most).map(
                    lambda x: x.unflatten(0, (_CHUNK, share))
                )
                for pairs in self.settings.pairs
            ]
            steps = [torch.cat(pieces, 1) for pieces in zip(*(rung.tensors for rung in rungs), strict=True)]
            for tensors in zip(*steps, strict=True):
                yield Batch(*tensors)

    def held_out(self, part: HeldOut) -> dict[str, Batch]:
        return {
            f"pairs_{pairs}": examples(
                self.settings, pairs, self.settings.num_examples, stream(f"recall {part}", pairs)
            )
            for pairs in self.settings.pairs
        }

    def metric(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Accuracy in 0..1."""
        return (logits.argmax(-1) == labels).float().mean((1, 2))


def _padded(batch: Batch, most: int) -> Batch:
    assert batch.positions is not None
    missing = most - batch.labels.shape[1]
    pad = torch.nn.functional.pad
    return Batch(batch.tokens, pad(batch.labels, (0, missing), value=IGNORE), pad(batch.positions, (0, missing)))
