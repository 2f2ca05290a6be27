"""Recall of the latest: a key may be given again, and then its last value counts.

Two keys, two writes each on average, length 12, vocabulary 16 (keys 1..7, values 8..15):

    tokens    4 13  3 14  3 15  3 11 |  3  .  4  .
    labels    -  -  -  -  -  -  -  - | 11  - 13  -

Every key is written once; the other writes fall on random keys, and all come in random order. Then each key is asked
for. Chance: one value in all of them. Ceiling: 1. RULER: none (its variable tracking never assigns twice). The gap is
the one that delta rules close: Schlag et al., arXiv 2102.11174, section 6.1.
"""

import torch

from proxies.ladders import Overwrite
from proxies.tasks.base import Batch, LadderTask, distinct, filler, query_places


class OverwriteTask(LadderTask[Overwrite]):
    """The ladder of numbers of keys; rungs are named `overwrite_<keys>`."""

    name = "overwrite"
    separates = "designs that replace what a key holds, as delta rules and attention do, from those that only add to it"

    def examples(self, load: int, count: int, generator: torch.Generator) -> Batch:
        settings, writes = self.settings, self.settings.writes * load
        names = 1 + distinct(settings.num_keys, load, count, generator)
        values = settings.num_keys + 1 + distinct(settings.num_values, writes, count, generator)
        once = torch.arange(load, device=names.device).expand(count, load)
        again = torch.randint(load, (count, writes - load), generator=generator, device=names.device)
        order = distinct(writes, writes, count, generator)
        owners = torch.cat([once, again], dim=1).gather(1, order)
        times = torch.arange(writes, device=names.device).expand(count, writes)
        last = torch.zeros_like(names).scatter_reduce(1, owners, times, "amax")
        positions = query_places(2 * writes, settings.length, 2, load, count, generator)
        tokens = filler(count, settings.length, generator)
        tokens[:, 0 : 2 * writes : 2] = names.gather(1, owners)
        tokens[:, 1 : 2 * writes : 2] = values
        tokens.scatter_(1, positions, names)
        return Batch(tokens, values.gather(1, last), positions)

    def answers(self, load: int) -> int:
        return self.settings.num_values
