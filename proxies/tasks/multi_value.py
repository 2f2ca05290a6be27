"""Recall of several values: say all that was bound to a key, in the order in which it came.

Two keys with two values each, length 12, vocabulary 16 (keys 1..7, values 8..15):

    tokens    4 13  3 14  4 15  3 11 |  4 13  3 14
    labels    -  -  -  -  -  -  -  - | 13 15 14 11

Pairs come in random order. A query is a key and its values but the last; each token's label is the next value, as a
model would write them. Chance: one value in all of them. Ceiling: 1. RULER: needles with several values
(Hsieh et al., arXiv 2404.06654), made like pairs (Arora et al., arXiv 2312.04927).
"""

import torch

from proxies.ladders import MultiValue
from proxies.tasks.base import Batch, LadderTask, distinct, filler, query_places


class MultiValueTask(LadderTask[MultiValue]):
    """The ladder of values a key; rungs are named `multi_value_<values>`."""

    name = "multi_value"
    separates = "designs that add to what a key holds from those that replace it, as delta rules do"
    ruler = ("niah_multivalue",)

    def examples(self, load: int, count: int, generator: torch.Generator) -> Batch:
        settings, keys, pairs = self.settings, self.settings.keys, self.settings.keys * load
        names = 1 + distinct(settings.num_keys, keys, count, generator)
        values = settings.num_keys + 1 + distinct(settings.num_values, pairs, count, generator)
        owners = distinct(pairs, pairs, count, generator) % keys
        by_key = values.gather(
            1, owners.argsort(dim=1, stable=True)
        )  # [count, keys * load], a key's in order of coming
        stride = max(2, load)
        places = query_places(2 * pairs, settings.length, stride, keys, count, generator)
        positions = (places.unsqueeze(2) + torch.arange(load, device=places.device)).flatten(1)
        written = torch.cat([names.unsqueeze(2), by_key.unflatten(1, (keys, load))[:, :, :-1]], dim=2)
        tokens = filler(count, settings.length, generator)
        tokens[:, 0 : 2 * pairs : 2] = names.gather(1, owners)
        tokens[:, 1 : 2 * pairs : 2] = values
        tokens.scatter_(1, positions, written.flatten(1))
        return Batch(tokens, by_key, positions)

    def answers(self, load: int) -> int:
        return self.settings.num_values
