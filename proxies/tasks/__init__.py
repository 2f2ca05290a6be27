"""Tasks that proxies are trained and scored on. Each gives batches for training and held-out rungs for scoring."""

from proxies.tasks.base import Batch, EvenTask, LadderTask, SyntheticTask, Task, stream
from proxies.tasks.characters import CharacterTask
from proxies.tasks.language import LanguageTask
from proxies.tasks.recall import RecallTask
from proxies.tasks.segments import SegmentsTask
from proxies.tasks.suite import TASKS, MixtureTask, recall_task

__all__ = [
    "Batch", "CharacterTask", "EvenTask", "LadderTask", "LanguageTask", "MixtureTask", "RecallTask", "SegmentsTask",
    "SyntheticTask", "TASKS", "Task", "recall_task", "stream",
]  # fmt: skip
