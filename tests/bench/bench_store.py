"""What a search of 10,000 evaluations costs its driver: opening, proposals, the front, status, memory. Prints JSON.

Run with: PYTHONPATH=. python tests/bench/bench_store.py [--evaluations 10000] [--samplers nsga2,tpe,model]
"""

import argparse
import gc
import itertools
import json
import resource
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, insert
from sqlalchemy.orm import Session

from search.config import SearchConfig
from search.driver import Driver, Next, Outcome, design_costs
from search.store import queries, writer
from search.store.recorder import Recorder
from search.store.tables import Evaluation, Rung
from space import Design, SearchSpace
from tests.search.driving import Silent, definition, noise, scores

SPACE = SearchSpace(
    depth=(14,), linear=("hgrn", "retnet", "gla", "hgrn2", "deltanet", "gated_deltanet"),
    num_attention=(0, 1, 2, 3, 4, 5, 6, 14),
)  # fmt: skip
LIMITS = {"open": 3.0, "nsga2": 0.1, "tpe": 0.3, "model": 0.3, "random": 0.1, "front": 0.2}
"""Seconds."""


def fill(engine: Engine, config: SearchConfig, count: int) -> None:
    """Writes `count` complete evaluations with their rungs, as fast as the database allows."""
    recorder = Recorder.open(engine, definition(config))
    designs = itertools.islice(_spread(config.space), count)
    now, evaluations, rungs = time.time(), [], []
    for number, design in enumerate(designs):
        metrics = {**design_costs(config, design), **scores(design, 1.0)}
        evaluations.append({
            "id": number + 1, "search_id": recorder.search, "number": number, "design": design.text,
            "design_digest": design.digest, "protocol_digest": recorder.protocol_digest, "state": "complete",
            "attempts": 1, "origin": "sampler", "created": now, "started": now, "finished": now, "seconds": 60.0,
            "metrics": metrics, "details": {"validation": [noise(design, index) for index in range(40)]},
            **{name: metrics[name] for name in ("recall", "recall_low", "recall_high", "lm_bits_per_byte",
                                                "memory_bytes", "parameters")},
        })  # fmt: skip
        rungs += [
            {"evaluation_id": number + 1, "rung": rung, "budget": budget, "recorded": now,
             "metrics": scores(design, budget)}
            for rung, budget in enumerate(config.proxy.rungs)
        ]  # fmt: skip
    with Session(engine) as session, session.begin():
        session.execute(insert(Evaluation), evaluations)
        session.execute(insert(Rung), rungs)
    recorder.close()


def _spread(space: SearchSpace) -> Iterator[Design]:
    """The designs of a space, every third one, so that there is something left to propose."""
    return itertools.islice(space.enumerate(), 0, None, 3)


def timed(work: Any, repeats: int = 5) -> float:
    """The median of some repeats, in seconds."""
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return sorted(taken)[len(taken) // 2]


def step(driver: Driver) -> float:
    """One evaluation from proposal to end; returns the seconds until it was proposed."""
    began = time.perf_counter()
    lease = driver.next()
    took = time.perf_counter() - began
    assert not isinstance(lease, Next)
    for rung, budget in enumerate(driver.config.proxy.rungs):
        if not driver.measured(lease.evaluation, Outcome(rung, budget, budget == 1, scores(lease.design, budget), {})):
            break
    return took


def bench(count: int, samplers: list[str], steps: int) -> dict[str, Any]:
    found: dict[str, Any] = {"evaluations": count, "space": SPACE.size, "limits": LIMITS}
    with tempfile.TemporaryDirectory() as folder:
        engine = writer(f"sqlite:///{Path(folder)}/bench.db")
        config = SearchConfig(name="bench", trials=10**6, space=SPACE, stopping="pareto")
        fill(engine, config, count)
        with Session(engine) as session:
            found["front"] = timed(lambda: queries.front(session, "bench"))
            found["summary"] = timed(lambda: queries.search_summary(session, "bench"))
            found["false_prunes"] = timed(lambda: queries.false_prunes(session, "bench"), 1)
        for sampler in samplers:
            own = config.with_options(sampler=sampler)
            began = time.perf_counter()
            recorder = Recorder.open(engine, definition(own))
            driver = Driver(own, engine, recorder, Silent(), 1)
            opened = time.perf_counter() - began
            first = step(driver)
            taken = sorted(step(driver) for _ in range(steps))
            gc.collect()
            tracemalloc.start()
            for _ in range(steps):
                step(driver)
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
            found[sampler] = {
                "open": opened, "first": first, "proposal_median": taken[steps // 2], "proposal_most": taken[-1],
                "bytes_an_evaluation": grown / steps,
            }  # fmt: skip
            recorder.close()
        found["peak_MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--evaluations", type=int, default=10_000)
    words.add_argument("--samplers", default="nsga2,tpe,model")
    words.add_argument("--steps", type=int, default=40)
    asked = words.parse_args()
    print(json.dumps(bench(asked.evaluations, asked.samplers.split(","), asked.steps), indent=1))
