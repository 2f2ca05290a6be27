"""Multi-query associative recall (Arora et al., arXiv 2312.04927): say the value that was bound to a key.

Two pairs, length 12, vocabulary 16 (keys 1..7, values 8..15), filler (zeros, or random tokens of the whole vocabulary):

    tokens    5 14  2 10 |  2  .  .  .  .  .  5  .      . filler
    labels    -  -  -  - | 10  -  -  -  -  - 14  -      - not scored

N pairs without repeats, then each key once more at an even distance after them. The gap g is drawn without replacement
with p(g) ~ (g + 1)^(a - 1), a = 0.01, so most queries come early. Accuracy is the mean over the queries.
Chance: one value in all of them. Ceiling: 1. RULER: needles with several keys or several queries.
"""

import torch

from proxies.ladders import Pairs
from proxies.protocol import Recall
from proxies.tasks.base import Batch, LadderTask, distinct, filler, query_places


def examples(settings: Recall | Pairs, pairs: int, count: int, generator: torch.Generator) -> Batch:
    """`count` examples with `pairs` pairs each: tokens [count, T], labels and positions [count, pairs]."""
    half, length, context = settings.vocab // 2, settings.length, 2 * pairs
    keys = 1 + distinct(half - 1, pairs, count, generator)
    values = half + distinct(settings.vocab - half, pairs, count, generator)
    positions = query_places(context, length, 2, pairs, count, generator)
    tokens = filler(count, length, generator)
    if settings.filler == "random":
        tokens.random_(settings.vocab, generator=generator)
    tokens[:, 0:context:2] = keys
    tokens[:, 1:context:2] = values
    tokens.scatter_(1, positions, keys)
    return Batch(tokens, values, positions)


class RecallTask(LadderTask[Recall | Pairs]):
    """The ladder of numbers of pairs; rungs are named `pairs_<N>`."""

    name = "pairs"
    separates = "how many bindings a state holds: attention holds all, a recurrence as many as its state has room for"
    ruler = ("niah_multikey", "niah_multiquery")
    stream_name = "recall"

    def examples(self, load: int, count: int, generator: torch.Generator) -> Batch:
        return examples(self.settings, load, count, generator)

    def answers(self, load: int) -> int:
        return self.vocab - self.vocab // 2
