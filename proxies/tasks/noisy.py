"""Recall in noise: pairs lie scattered among tokens that mean nothing (Poli et al., arXiv 2403.17844).

Two pairs among four noise tokens, length 12, vocabulary 16 (keys 1..5, values 6..11, noise 12..15):

    tokens   12  1  6 15  4 11 14 13 |  1 14  4 14
    labels    -  -  -  -  -  -  -  - |  6  - 11  -

A pair stays together. Once all pairs have come each key is asked for, with noise between the queries. Chance: one value
in all of them. Ceiling: 1. RULER: needles with several keys in a haystack of other text.
"""

import torch

from proxies.ladders import Noisy
from proxies.tasks.base import Batch, LadderTask, distinct, query_places


class NoisyTask(LadderTask[Noisy]):
    """The ladder of noise tokens before the first query; rungs are named `noisy_<tokens>`."""

    name = "noisy"
    separates = "designs that choose what to write into their state from those that write every token"
    ruler = ("niah_multikey",)

    def examples(self, load: int, count: int, generator: torch.Generator) -> Batch:
        settings, pairs, device = self.settings, self.settings.pairs, generator.device
        keys = 1 + distinct(settings.num_keys, pairs, count, generator)
        values = settings.num_keys + 1 + distinct(settings.num_values, pairs, count, generator)
        items = distinct(load + pairs, pairs, count, generator).sort(1).values  # which items, in order, are pairs
        places = items + torch.arange(pairs, device=device)  # each pair before takes a token more than noise
        positions = query_places(2 * pairs + load, settings.length, 2, pairs, count, generator)
        shape = (count, settings.length)
        tokens = settings.num_symbols + torch.randint(settings.noise, shape, generator=generator, device=device)
        tokens.scatter_(1, places, keys)
        tokens.scatter_(1, places + 1, values)
        tokens.scatter_(1, positions, keys)
        return Batch(tokens, values, positions)

    def answers(self, load: int) -> int:
        return self.settings.num_values
