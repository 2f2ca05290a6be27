"""Tasks that proxies are trained and scored on. Each gives batches for training and held-out rungs for scoring."""

from proxies.tasks.base import Batch, Task, stream
from proxies.tasks.language import LanguageTask
from proxies.tasks.recall import RecallTask

__all__ = ["Batch", "LanguageTask", "RecallTask", "Task", "stream"]
