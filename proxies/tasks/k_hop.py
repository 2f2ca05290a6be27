"""Following pointers: a key leads to a key, and so on to a value; say the value at the end.

Two chains of two hops, length 12, vocabulary 16 (keys 1..7, values 8..15):

    tokens    7 11  3  5  4  7  5 15 |  4  .  3  .
    labels    -  -  -  -  -  -  -  - | 11  - 15  -

All pairs come in random order, so a pointer may come before or after the one that leads to it. Then each chain's first
key is asked for. Every load has as many pairs: those not in a chain bind other keys to other values, so that a load
adds hops and not bindings. Chance: one value in all of them. Ceiling: 1. RULER: variable tracking, and question
answering over two hops. Source: the k-hop task of Sanford et al., arXiv 2402.09268, on pairs.
"""

import torch

from proxies.ladders import KHop
from proxies.tasks.base import Batch, LadderTask, distinct, filler, query_places


class KHopTask(LadderTask[KHop]):
    """The ladder of numbers of hops; rungs are named `k_hop_<hops>`."""

    name = "k_hop"
    separates = "depth: how many look-ups, each in what the one before found, a design chains"
    ruler = ("vt", "qa")

    def examples(self, load: int, count: int, generator: torch.Generator) -> Batch:
        settings, chains, pairs = self.settings, self.settings.chains, self.settings.num_pairs
        keys = 1 + distinct(settings.num_keys, pairs, count, generator)
        values = settings.num_keys + 1 + distinct(settings.num_values, pairs, count, generator)
        inner = chains * (load - 1)  # pair i of these leads to the key of pair i + chains
        targets = torch.cat([keys[:, chains : chains + inner], values[:, inner:]], dim=1)
        order = distinct(pairs, pairs, count, generator)
        positions = query_places(2 * pairs, settings.length, 2, chains, count, generator)
        tokens = filler(count, settings.length, generator)
        tokens[:, 0 : 2 * pairs : 2] = keys.gather(1, order)
        tokens[:, 1 : 2 * pairs : 2] = targets.gather(1, order)
        tokens.scatter_(1, positions, keys[:, :chains])
        return Batch(tokens, targets[:, inner : inner + chains], positions)

    def answers(self, load: int) -> int:
        return self.settings.num_values
