"""Recall from a crowd: pairs fill the context, and a few of their keys are asked for.

Four pairs, two of them asked for, length 12, vocabulary 16 (keys 1..11, values 12..15):

    tokens    5 14  2 12  9 14  7 13 |  2  .  7  .
    labels    -  -  -  -  -  -  -  - | 12  - 13  -

Nothing says which will be asked for, so all must be kept. Keys do not repeat, values do. Queries come after the pairs,
as in multi-query recall (Arora et al., arXiv 2312.04927), which asks for every key and so has room for half as many.
Chance: one value in all of them. Ceiling: 1. RULER: needles among other needles (Hsieh et al., arXiv 2404.06654).
"""

import torch

from proxies.ladders import MultiKey
from proxies.tasks.base import Batch, LadderTask, distinct, filler, query_places


class MultiKeyTask(LadderTask[MultiKey]):
    """The ladder of numbers of pairs; rungs are named `multi_key_<pairs>`."""

    name = "multi_key"
    separates = "designs whose state overflows from those that look back: it takes twice as many bindings as `pairs`"
    ruler = ("niah_multikey_2",)

    def examples(self, load: int, count: int, generator: torch.Generator) -> Batch:
        settings, context, queries = self.settings, 2 * load, min(load, self.settings.queries)
        keys = 1 + distinct(settings.num_keys, load, count, generator)
        drawn = torch.randint(settings.num_values, (count, load), generator=generator, device=generator.device)
        values = settings.num_keys + 1 + drawn
        asked = distinct(load, queries, count, generator)
        positions = query_places(context, settings.length, 2, queries, count, generator)
        tokens = filler(count, settings.length, generator)
        tokens[:, 0:context:2] = keys
        tokens[:, 1:context:2] = values
        tokens.scatter_(1, positions, keys.gather(1, asked))
        return Batch(tokens, values.gather(1, asked), positions)

    def answers(self, load: int) -> int:
        return self.settings.num_values
