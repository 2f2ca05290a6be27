"""Counting: say the most frequent symbols of a list, the most frequent first.

Three symbols once or more, two ranks, length 12, vocabulary 16 (symbols 1..13, asking for the first 14, the second 15):

    tokens    3 13  3  4 13 13 |  .  . 14  . 15  .
    labels    -  -  -  -  -  - |  -  - 13  -  3  -

With r ranks, the i-th most frequent symbol is there r - i + 2 times as often as those without a rank, in random order.
Chance: one symbol in all of them. Ceiling: 1. RULER: common and frequent words (Hsieh et al., arXiv 2404.06654).
"""

import torch

from proxies.ladders import Counting
from proxies.tasks.base import Batch, LadderTask, distinct, filler, query_places


class CountingTask(LadderTask[Counting]):
    """The ladder of numbers of symbols; rungs are named `counting_<symbols>`."""

    name = "counting"
    separates = "designs that sum evenly over the whole context from those that fade it or pick single tokens"
    ruler = ("cwe", "fwe")

    def examples(self, load: int, count: int, generator: torch.Generator) -> Batch:
        settings, ranks, device = self.settings, self.settings.ranks, generator.device
        symbols = 1 + distinct(settings.num_symbols, load, count, generator)
        shares = [torch.arange(size, device=device) for size in (*range(1, ranks + 1), load)]
        template = torch.cat(shares).repeat(settings.repeats)
        context = len(template)
        order = template[distinct(context, context, count, generator)]
        positions = query_places(context, settings.length, 1, ranks, count, generator)
        tokens = filler(count, settings.length, generator)
        tokens[:, :context] = symbols.gather(1, order)
        tokens.scatter_(1, positions, (settings.num_symbols + 1 + torch.arange(ranks, device=device)).expand(count, -1))
        return Batch(tokens, symbols[:, :ranks], positions)

    def answers(self, load: int) -> int:
        return self.settings.num_symbols
