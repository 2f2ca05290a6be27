"""A needle in a haystack: one pair somewhere in a long filler, asked for at its end.

Eight tokens of hay, length 12, vocabulary 16 (keys 1..7, values and hay 8..15):

    tokens    1 11  9 11 13 15  8  8  9 12 |  1  .
    labels    -  -  -  -  -  -  -  -  -  - | 11  -

Hay is made of values, so only the key before it tells the needle. Chance: one value in all of them. Ceiling: 1.
RULER: its single needle (Hsieh et al., arXiv 2404.06654).
"""

import torch

from proxies.ladders import Needle
from proxies.tasks.base import Batch, LadderTask, filler


class NeedleTask(LadderTask[Needle]):
    """The ladder of haystacks; rungs are named `needle_<tokens of hay>`."""

    name = "needle"
    separates = "how long one binding lasts: fixed decay and windows forget it with distance, gates can keep it"
    ruler = ("niah_single",)

    def examples(self, load: int, count: int, generator: torch.Generator) -> Batch:
        settings, device = self.settings, generator.device

        def draw(choices: int, number: int) -> torch.Tensor:
            return torch.randint(choices, (count, number), generator=generator, device=device)

        key, value = 1 + draw(settings.num_keys, 1), settings.num_keys + 1 + draw(settings.num_values, 1)
        place = draw(load + 1, 1)
        tokens = filler(count, settings.length, generator)
        tokens[:, : load + 2] = settings.num_keys + 1 + draw(settings.num_values, load + 2)
        tokens.scatter_(1, place, key)
        tokens.scatter_(1, place + 1, value)
        tokens[:, load + 2 : load + 3] = key
        return Batch(tokens, value, torch.full_like(value, load + 2))

    def answers(self, load: int) -> int:
        return self.settings.num_values
