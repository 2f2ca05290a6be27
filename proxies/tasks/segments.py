"""Multi-query associative recall as its authors train it (zoology, arXiv 2402.18668): a batch is of one segment.

A segment is a length and a number of pairs. Most batches are short and easy, so most steps cost little. Batches of one
example as in `proxies.tasks.recall`, vocabulary 16; a round has one of length 12 with 2 pairs and two of length 8 with
1 pair:

    step 0    5 14  2 10 |  2  .  .  .  .  .  5  .      a round begins with the largest segment
    step 1    7  9 |  .  .  .  .  7  .
    step 2    3 12 |  3  .  .  .  .  .
    step 3    6 11  1 15 |  6  .  1  .  .  .  .  .      the next round

Accuracy is the mean over the queries. Chance: one value in all of them. Ceiling: 1.
"""

from collections.abc import Iterator

import torch

from proxies.ladders import Pairs, Segment, Segments
from proxies.tasks.base import CPU, Batch, HeldOut, SyntheticTask, stream
from proxies.tasks.recall import examples

_BLOCK = 16  # batches of a segment drawn at once: drawing the keys of one example takes half a vocabulary of floats


class SegmentsTask(SyntheticTask):
    """Recall in segments; rungs are named `pairs_<N>_at_<length>`."""

    def __init__(self, settings: Segments) -> None:
        self.settings = settings
        self.vocab = settings.vocab
        self.rungs = {f"pairs_{segment.pairs}_at_{segment.length}": segment for segment in settings.test}

    def training(self, seed: int, batch: int, device: torch.device = CPU) -> Iterator[Batch]:
        """Batches of one segment each, [batch, length] with [batch, pairs] labels, in an order that all seeds share."""
        batches = [self._batches(segment, seed, batch, device) for segment in self.settings.train]
        return (next(batches[index]) for index in self.order())

    def order(self) -> Iterator[int]:
        """Which of the training segments each step has: rounds of all their shares, shuffled behind the largest.

        The largest is first of all because memory is planned by the first batch, and first in every round so that its
        CUDA graph is captured before those of other rare segments, which then fit into the memory that it took.
        """
        settings, source = self.settings, stream("segments order", 0)
        largest = settings.train.index(settings.largest)
        rest = [index for index, share in enumerate(settings.shares) for _ in range(share - (index == largest))]
        while True:
            yield largest
            yield from (rest[place] for place in torch.randperm(len(rest), generator=source).tolist())

    def held_out(self, part: HeldOut) -> dict[str, Batch]:
        return {
            rung: self._examples(segment, self.settings.num_examples, stream(_stream_name(part, segment), 0))
            for rung, segment in self.rungs.items()
        }

    def chance(self, rung: str) -> float:
        return 1 / (self.vocab - self.vocab // 2)

    def _batches(self, segment: Segment, seed: int, batch: int, device: torch.device) -> Iterator[Batch]:
        generator = stream(_stream_name("train", segment), seed, device)
        while True:
            block = self._examples(segment, _BLOCK * batch, generator).map(lambda x: x.unflatten(0, (_BLOCK, batch)))
            yield from (block.map(lambda x, step=step: x[step]) for step in range(_BLOCK))

    def _examples(self, segment: Segment, count: int, generator: torch.Generator) -> Batch:
        length, pairs = segment
        ladder = Pairs(vocab=self.vocab, length=length, loads=(pairs,), filler=self.settings.filler)
        return examples(ladder, pairs, count, generator)


def _stream_name(part: str, segment: Segment) -> str:
    return f"segments {part} {segment.pairs} at {segment.length}"
