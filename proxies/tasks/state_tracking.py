"""State tracking: say the product of all group elements so far (Liu et al., arXiv 2210.10749).

Six elements of S3, length 12, vocabulary 16 (elements 1..6; the turns 1, 2, 3 and the flips 4, 5, 6):

    tokens    3  4  6  1  2  4 |  .  .  .  .  .  .
    labels    -  -  -  1  2  5 |  -  -  -  -  -  -

S3 as the symmetries of a triangle: token 1 + r + 3 f maps corner i to r + (-1)^f i modulo 3, and x y means y first.
Parity has tokens 1 (leave) and 2 (flip). Only the later half of the elements is labelled, so that a load is not scored
on what a smaller one asks. Chance: one element of the group. Ceiling: 1. RULER: none.
"""

import torch

from proxies.ladders import StateTracking
from proxies.tasks.base import Batch, LadderTask, filler


class StateTrackingTask(LadderTask[StateTracking]):
    """The ladder of numbers of elements; rungs are named `state_tracking_<elements>`."""

    name = "state_tracking"
    separates = "recurrences whose state can change sign or swap from decays and attention, which need depth for it"

    def examples(self, load: int, count: int, generator: torch.Generator) -> Batch:
        order = self.settings.num_symbols
        turns = order // 2  # one for parity, whose elements are then flips alone
        elements = torch.randint(order, (count, load), generator=generator, device=generator.device)
        flips = (elements // turns).cumsum(1)
        before = flips - elements // turns
        states = ((1 - 2 * (before % 2)) * (elements % turns)).cumsum(1) % turns + turns * (flips % 2)
        tokens = filler(count, self.settings.length, generator)
        tokens[:, :load] = 1 + elements
        half = load // 2
        positions = torch.arange(half, load, device=tokens.device).expand(count, load - half)
        return Batch(tokens, 1 + states[:, half:], positions)

    def answers(self, load: int) -> int:
        return self.settings.num_symbols
