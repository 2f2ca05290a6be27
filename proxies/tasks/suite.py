"""The suite: every synthetic task by its name, and mixtures that train one model on several at once.

Two ladders in a mixture, each with vocabulary 16 and length 12 (names 16 and 17 come first):

    tokens   16 | the first ladder's 12 tokens        labels   - | its labels
    tokens   17 | the second ladder's 12 tokens       labels   - | its labels
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import torch

from proxies.ladders import Mixture
from proxies.protocol import Recall, Suite
from proxies.tasks.base import Batch, EvenTask, HeldOut, LadderTask, joined
from proxies.tasks.copy import CopyTask
from proxies.tasks.counting import CountingTask
from proxies.tasks.fuzzy import FuzzyTask
from proxies.tasks.k_hop import KHopTask
from proxies.tasks.multi_key import MultiKeyTask
from proxies.tasks.multi_value import MultiValueTask
from proxies.tasks.needle import NeedleTask
from proxies.tasks.noisy import NoisyTask
from proxies.tasks.overwrite import OverwriteTask
from proxies.tasks.recall import RecallTask
from proxies.tasks.state_tracking import StateTrackingTask

TASKS: dict[str, type[LadderTask[Any]]] = {
    task.name: task
    for task in (
        RecallTask, MultiKeyTask, MultiValueTask, OverwriteTask, KHopTask, CopyTask, NoisyTask, FuzzyTask, NeedleTask,
        CountingTask, StateTrackingTask,
    )
}  # fmt: skip


Figure = TypeVar("Figure")


class MixtureTask(EvenTask):
    """Every ladder of a mixture at once, loads growing until step `grown`. A rung keeps the name of its own task."""

    def __init__(self, settings: Mixture, grown: int = 0) -> None:
        self.settings, self.grown = settings, grown
        self.vocab = settings.vocab
        self.num_rungs = settings.num_loads
        self.tasks = {ladder.task: TASKS[ladder.task](ladder) for ladder in settings.ladders}
        self.rungs = {rung: task for task in self.tasks.values() for rung in task.rungs}

    def blocks(self, seed: int, share: int, device: torch.device) -> Iterator[Batch]:
        streams = [task.blocks(seed, share, device, self.grown) for task in self.tasks.values()]
        for blocks in zip(*streams, strict=True):
            yield joined([self._named(block, index) for index, block in enumerate(blocks)])

    def held_out(self, part: HeldOut) -> dict[str, Batch]:
        return {
            rung: self._named(batch, index)
            for index, task in enumerate(self.tasks.values())
            for rung, batch in task.held_out(part).items()
        }

    def chance(self, rung: str) -> float:
        return self.rungs[rung].chance(rung)

    def by_task(self, figures: Mapping[str, Figure]) -> dict[str, dict[int, Figure]]:
        """Figures by rung, sorted by task and load."""
        return {
            name: {load: figures[rung] for rung, load in task.rungs.items() if rung in figures}
            for name, task in self.tasks.items()
        }

    def _named(self, batch: Batch, index: int) -> Batch:
        """The batch with the name of task `index` before its tokens."""
        assert batch.positions is not None
        tokens = torch.nn.functional.pad(batch.tokens, (1, 0), value=self.settings.ladders[0].vocab + index)
        return Batch(tokens, batch.labels, batch.positions + 1)


def recall_task(settings: Recall | Suite) -> RecallTask | MixtureTask:
    """The task of a protocol's recall: pairs alone, or a mixture."""
    if isinstance(settings, Suite):
        return MixtureTask(settings.mixture, round(settings.growth * settings.training.steps))
    return RecallTask(settings)
