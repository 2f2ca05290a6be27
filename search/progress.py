"""How a search looks in a terminal: one live line while it runs, one plain line per finished trial elsewhere, and its
front."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from search.store.recorder import Lease
from space.design import Design

if TYPE_CHECKING:
    from search.store.queries import EvaluationRow, SearchSummary

WIDTH = 80
_STRIP = 22  # letters of a design's layers that fit


def bytes_text(value: float) -> str:
    """A number of bytes as a person reads it: `8.0 KiB`, `12.3 MiB`, `1.5 GiB`."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value / 2**10:.1f} KiB"


def serving_table(serving: Mapping[str, str]) -> Table:
    """Mixers and what serves them, a row for each thing that does."""
    table = Table.grid(padding=(0, 2))
    for reason in dict.fromkeys(serving.values()):
        names = ", ".join(name for name, its in serving.items() if its == reason)
        table.add_row("", Text(names), Text(reason))
    return table


def print_front(
    console: Console, summary: "SearchSummary", rows: "Sequence[EvaluationRow]", probability: Mapping[int, float]
) -> None:
    """The front as a table; `p` is how probable it is that the design is on it, by the evaluation's id."""
    again = f", which trains that of {summary.confirms} again" if summary.confirms else ""
    console.print(f"Front: {len(rows)} designs of {summary.name}{again}", highlight=False, style="italic")
    table = Table(box=None, pad_edge=False)
    for heading in ("design", "layers", "recall", "bits/byte", "memory", "p"):
        table.add_column(heading, justify="left" if heading in ("design", "layers") else "right", no_wrap=True)
    for row in rows:
        strip = Design.parse(row.design).strip
        table.add_row(
            row.digest[:8],
            strip if len(strip) <= _STRIP else strip[: _STRIP - 1] + "…",
            f"{row.recall:.3f} [{row.recall_low:.2f}, {row.recall_high:.2f}]",
            f"{row.lm_bits_per_byte:.3f}",
            bytes_text(row.memory_bytes or 0),
            f"{probability[row.id]:.2f}",
        )
    console.print(table)


class Progress:
    """Watches a search: `done` of `total` finished at the start."""

    def __init__(self, console: Console, done: int, total: int) -> None:
        self.console, self.done, self.total = console, done, total
        self.running = self.failed = self.most_running = 0
        self.seconds: list[float] = []
        self.best: float | None = None
        self._live = Live(console=console, get_renderable=self._line, refresh_per_second=2, transient=True)

    def __enter__(self) -> "Progress":
        if self.console.is_terminal:
            self._live.start()
        return self

    def noticed(self, words: str) -> None:
        self._print(words)

    def _print(self, what: Any, **options: Any) -> None:
        """A terminal that is gone ends no search."""
        with suppress(OSError):
            self.console.print(what, markup=False, highlight=False, **options)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            with suppress(OSError):
                self._live.stop()

    def began(self, where: str) -> None:
        self._print(f"{where}; the first results take about a minute. Ctrl-C stops, nothing finished is lost.")

    def works_with(self, gpu: str, serving: Mapping[str, str]) -> None:
        self._print(f"On {gpu}:")
        self._print(serving_table(serving))
        if any("tuned at first use" in reason for reason in serving.values()):
            self._print("Kernels are tuned first, which takes a few minutes.")

    def started(self, lease: Lease) -> None:
        self.running += 1
        self.most_running = max(self.running, self.most_running)

    def ended(self, lease: Lease, state: str, metrics: Mapping[str, float], reason: str, seconds: float) -> None:
        self.running -= 1
        self.failed += state == "failed"
        if state != "lost":
            self.done += 1
            self.seconds.append(seconds)
        recall = metrics.get("recall")
        if state == "complete" and recall is not None:
            self.best = max(recall, self.best if self.best is not None else recall)
        if state in ("failed", "lost") or not self.console.is_terminal:
            figures = reason
            if recall is not None:
                figures = f"recall {recall:.3f}  {bytes_text(metrics['memory_bytes'])}"
            line = f"{self.done}/{self.total}  {state:8}  {figures}  {lease.design}"
            self._print(line, overflow="ellipsis", no_wrap=True)

    def _line(self) -> Text:
        best = "-" if self.best is None else f"{self.best:.3f}"
        words = f"{self.done}/{self.total} done, {self.running} running, {self.failed} failed, best recall {best}"
        if self.seconds:
            mean = sum(self.seconds) / len(self.seconds)
            left = mean * max(0, self.total - self.done) / max(1, self.most_running)
            words += f", {time.strftime('%H:%M:%S', time.gmtime(left))} left"
        return Text(words[:WIDTH])
