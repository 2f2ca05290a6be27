"""How the driver of a search on real Ray grows: its memory and its trials a second, with trainings that take no time.

Prints JSON. `KiB_a_trial` is the growth of the process from the first quarter of the trials to the last trial. What the
search remembers of each is part of it: `bytes_an_evaluation` of tests/bench/bench_store.py, which does without Ray.
`alive` counts Ray Tune's trials.

Run with: PYTHONPATH=. python tests/bench/bench_driver.py [--trials 2000] [--sampler nsga2] [--slots 2]
"""

import argparse
import gc
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from proxies.evaluate import Report
from proxies.protocol import Protocol
from proxies.text import Corpus
from search.config import SearchConfig
from search.runner import run
from space import Design, SearchSpace
from tests.search.driving import Silent, database, scores

SPACE = SearchSpace(
    depth=(14,), linear=("hgrn", "retnet", "gla", "hgrn2", "deltanet", "gated_deltanet"),
    num_attention=(0, 1, 2, 3, 4, 5, 6, 14),
)  # fmt: skip
MARKS = 8


def instant(design: Design, protocol: Protocol, corpus: Corpus, device: torch.device) -> Iterator[Report]:
    """The rungs of a training that never was."""
    for rung, budget in enumerate(protocol.rungs):
        metrics = scores(design, budget)
        yield Report(rung=rung, num_rungs=len(protocol.rungs), budget=budget, metrics=metrics, details={"seconds": 0.0})


def resident() -> int:
    """KiB of memory that this process has."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def trials_of_tune() -> int:
    """How many of Ray Tune's trials are alive in this process."""
    from ray.tune.experiment import Trial

    gc.collect()
    return sum(type(thing) is Trial for thing in gc.get_objects())


class Measuring(Silent):
    """A watcher that measures the process at every eighth of `trials`."""

    def __init__(self, trials: int) -> None:
        self.every, self.count = trials // MARKS, 0
        self.states: Counter[str] = Counter()
        self.marks: list[dict[str, float]] = []
        self._since = time.monotonic()

    def ended(self, lease: object, state: str, *words: object) -> None:  # type: ignore[override]
        self.states[state] += 1
        self.count += 1
        if self.count % self.every == 0:
            rate = self.every / (time.monotonic() - self._since)
            alive = trials_of_tune()
            self.marks.append(
                {"trials": self.count, "KiB": resident(), "alive": alive, "trials_a_second": round(rate, 1)}
            )
            self._since = time.monotonic()


def bench(trials: int, sampler: str, slots: int) -> dict[str, Any]:
    config = SearchConfig(name="bench", trials=trials, workers=slots, sampler=sampler, space=SPACE)
    measuring = Measuring(trials)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(bytes(range(256)) * 200, "bench")
        run(config, corpus, database(Path(folder)), measuring, rungs=instant)
    first, last = measuring.marks[MARKS // 4 - 1], measuring.marks[-1]
    grown = (last["KiB"] - first["KiB"]) / (last["trials"] - first["trials"])
    return {"sampler": sampler, "KiB_a_trial": round(grown, 2), "states": measuring.states, "marks": measuring.marks}


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--trials", type=int, default=2000, help="at least 8")
    words.add_argument("--sampler", default="nsga2")
    words.add_argument("--slots", type=int, default=2)
    asked = words.parse_args()
    print(json.dumps(bench(asked.trials, asked.sampler, asked.slots), indent=1))
