"""Copying: repeat a string of symbols from its start (Jelassi et al., arXiv 2402.01032).

Five symbols of an alphabet of three, length 12, vocabulary 16 (symbols 1..3, mark 15):

    tokens    3  1  3  1  2 | 15  3  1  3  1  .  .
    labels    -  -  -  -  - |  3  1  3  1  2  -  -

After the mark each token's label is the next symbol, as a model would write them. Symbols repeat, so the last symbol
alone does not say which comes next: a look-up needs the last several. Chance: one symbol of the alphabet. Ceiling: 1.
RULER: none; every needle is copied out this way.
"""

import torch

from proxies.ladders import Copy
from proxies.tasks.base import Batch, LadderTask, filler


class CopyTask(LadderTask[Copy]):
    """The ladder of numbers of symbols; rungs are named `copy_<symbols>`."""

    name = "copy"
    separates = "verbatim memory: a state of fixed size copies up to a length, attention any"

    def examples(self, load: int, count: int, generator: torch.Generator) -> Batch:
        settings = self.settings
        symbols = torch.randint(settings.alphabet, (count, load), generator=generator, device=generator.device) + 1
        tokens = filler(count, settings.length, generator)
        tokens[:, :load] = symbols
        tokens[:, load] = settings.vocab - 1
        tokens[:, load + 1 : 2 * load] = symbols[:, :-1]
        return Batch(tokens, symbols, torch.arange(load, 2 * load, device=tokens.device).expand(count, load))

    def answers(self, load: int) -> int:
        return self.settings.alphabet
