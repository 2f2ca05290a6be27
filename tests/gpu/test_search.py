"""A search on a GPU under Ray: workers say what they work with, and compile in their own process."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from proxies.text import Corpus
from search.config import SearchConfig
from search.runner import run
from search.store import writer
from tests.search.test_runner import Heard, outcomes

CONFIG = SearchConfig.from_dict(
    {
        "name": "tiny", "trials": 3, "sampler": "grid", "gpus_per_trial": 0.3, "workers": 2,
        "space": {"depth": [2], "linear": ["gla"], "num_attention": [0, 1, 2], "placements": ["back"]},
        "protocol": {"name": "screen", "recall": {"training": {"steps": 60}}, "language": {"training": {"steps": 60}}},
    }
)  # fmt: skip


class Looking(Heard):
    """Looks at what else runs when a design ends."""

    def ended(self, lease, state, metrics, reason, seconds) -> None:  # type: ignore[no-untyped-def]
        super().ended(lease, state, metrics, reason, seconds)
        self.notices += [words for words in commands() if "compile_worker" in words]


def commands() -> Iterator[str]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            yield file.read_text().replace("\0", " ")


def test_workers_say_what_they_work_with_once_and_compile_by_themselves(tmp_path: Path) -> None:
    engine, heard = writer(f"sqlite:///{tmp_path}/plait.db"), Looking()
    ending = run(CONFIG, Corpus.load(None), engine, heard)
    rows = outcomes(engine)
    print({name: (row.state, row.recall, row.seconds, row.reason) for name, row in rows.items()}, heard.notices)
    assert ending.finished == 3 and {row.state for row in rows.values()} == {"complete"}
    assert len(heard.notices) == 1 and heard.notices[0].startswith("works with NVIDIA")
