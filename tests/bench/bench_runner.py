"""What the control plane costs: the share of the slots' time in which real trainings run, of 10 and 3 seconds.

A slot's time is from the start of its first training to the end of its last. Prints JSON. How many steps take so
long is measured before.

Run with: PYTHONPATH=. python tests/bench/bench_runner.py [--seconds 10,3] [--trials 16] [--slots 2]
"""

import argparse
import json
import math
import tempfile
import time
from typing import Any

import torch
from sqlalchemy import text
from sqlalchemy.orm import Session

from proxies.evaluate import evaluate
from proxies.text import Corpus
from search.config import SearchConfig
from search.runner import run
from search.store import queries, writer
from space import Design, SearchSpace
from tests.search.driving import Silent

# Designs that take about the same time.
SPACE = SearchSpace(depth=(4,), linear=("gla", "gla:conv=on"), num_attention=(0, 1, 2), mixtures=True)
TARGET = 0.97


def search(trials: int, slots: int, steps: int) -> SearchConfig:
    training = {"steps": steps, "batch": 8, "num_seeds": 2}
    protocol = {
        "name": "quick",
        "recall": {"num_examples": 16, "training": training},
        "language": {"num_examples": 8, "length": 16, "training": {**training, "steps": max(1, steps // 10)}},
    }
    return SearchConfig(name="bench", trials=trials, workers=slots, sampler="random", space=SPACE, protocol=protocol)


def seconds_a_step(corpus: Corpus) -> float:
    """Of a typical design, in one thread."""
    torch.set_num_threads(1)
    taken = []
    for steps in (20, 120):
        began = time.monotonic()
        evaluate(Design.parse("4xgla+full@1"), search(1, 1, steps).proxy.with_text(corpus.digest), corpus)
        taken.append(time.monotonic() - began)
    return (taken[1] - taken[0]) / 100


def bench(corpus: Corpus, seconds: float, trials: int, slots: int, step: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        config = search(trials, slots, max(2, round(seconds / step)))
        engine = writer(f"sqlite:///{folder}/bench.db")
        began = time.monotonic()
        run(config, corpus, engine, Silent())
        whole = time.monotonic() - began
        with Session(engine) as session:
            rows = session.execute(
                text("SELECT worker, finished, json_extract(details, '$.seconds') AS trained FROM evaluations")
            ).all()
            share = queries.busy_share(session, "bench")
    spans: dict[str, tuple[float, float]] = {}
    for row in rows:
        first, last = spans.get(row.worker, (math.inf, 0.0))
        spans[row.worker] = min(first, row.finished - row.trained), max(last, row.finished)
    firsts, lasts = zip(*spans.values(), strict=True)
    offered, trained = sum(lasts) - sum(firsts), sum(row.trained for row in rows)
    return {
        "trials": len(rows),
        "seconds_a_trial": trained / len(rows),
        "processes": len(spans),
        "busy": trained / offered,
        "overhead_a_trial": (offered - trained) / len(rows),
        "busy_with_the_uneven_end": trained / (slots * (max(lasts) - min(firsts))),
        "busy_of_the_whole_run": share,
        "seconds_of_the_whole_run": whole,
    }


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seconds", default="10,3", help="of a training, one after the other")
    words.add_argument("--trials", type=int, default=16)
    words.add_argument("--slots", type=int, default=2)
    asked = words.parse_args()
    corpus = Corpus.load(None)
    step = seconds_a_step(corpus)
    for each in map(float, asked.seconds.split(",")):
        print(
            json.dumps({"target": TARGET, **bench(corpus, each, asked.trials, asked.slots, step)}, indent=1), flush=True
        )
