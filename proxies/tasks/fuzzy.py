"""Fuzzy recall: a key is a motif of several tokens, and no token alone tells it (Poli et al., arXiv 2403.17844).

Two pairs with motifs of two tokens from an alphabet of three, length 12, vocabulary 16 (motifs of 1..3, values 4..15):

    tokens    3  1  7 |  1  2 13 |  3  1  .  1  2  .
    labels    -  -  - |  -  -  - |  -  7  -  - 13  -

Motifs are distinct, their tokens are not. Then each motif is asked for; the label is at its last token. Values are
single tokens, unlike the source's. Chance: one value in all of them. Ceiling: 1. RULER: needles whose keys are long
identifiers.
"""

import torch

from proxies.ladders import Fuzzy
from proxies.tasks.base import Batch, LadderTask, distinct, filler, query_places


class FuzzyTask(LadderTask[Fuzzy]):
    """The ladder of numbers of pairs; rungs are named `fuzzy_<pairs>`."""

    name = "fuzzy"
    separates = "designs that put several tokens together into a key, as short convolutions and depth do"
    ruler = ("niah_multikey_3",)

    def examples(self, load: int, count: int, generator: torch.Generator) -> Batch:
        settings, motif, alphabet, device = self.settings, self.settings.motif, self.settings.alphabet, generator.device
        spelled = distinct(alphabet**motif, load, count, generator)  # a motif's tokens are its number's digits
        powers = alphabet ** torch.arange(motif, device=device)
        motifs = 1 + spelled.unsqueeze(2) // powers % alphabet  # [count, load, motif]
        values = 1 + alphabet + distinct(settings.num_values, load, count, generator)
        width = motif + 1
        context = load * width
        places = query_places(context, settings.length, width, load, count, generator)
        spots = places.unsqueeze(2) + torch.arange(motif, device=device)
        tokens = filler(count, settings.length, generator)
        tokens[:, :context] = torch.cat([motifs, values.unsqueeze(2)], dim=2).flatten(1)
        tokens.scatter_(1, spots.flatten(1), motifs.flatten(1))
        return Batch(tokens, values, places + motif - 1)

    def answers(self, load: int) -> int:
        return self.settings.num_values
