"""A search on a Ray cluster of four nodes and PostgreSQL, while workers, nodes, the driver and the database are killed.

Everything is on this machine and everything is real; trainings are small. Prints JSON: what was killed, and what the
database holds in the end. `repeated` counts evaluations that ended more than once, which the database itself notes.

Run with: PYTHONPATH=. python tests/bench/chaos.py [--trials 60] [--every 10] [--runs 1]
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from tests.services import Postgres

ROOT = Path(__file__).parents[2]
NUM_NODES = 4
SEARCH = """
name = "chaos"
sampler = "random"
[protocol]
name = "quick"
recall = {{ num_examples = 16, training = {{ steps = {steps}, batch = 4, num_seeds = 2 }} }}
language = {{ num_examples = 8, length = 16, training = {{ steps = {steps}, batch = 2, num_seeds = 2 }} }}
[space]
depth = [2]
linear = ["gla", "hgrn", "retnet", "hgrn2", "deltanet", "gated_deltanet", "gla:conv=on"]
attention = ["full", "window:size=8"]
num_attention = [0, 1, 2]
mixtures = true
"""
NOTED = (  # the database's own account, which plait knows nothing of
    "CREATE TABLE ends (evaluation integer, state text)",
    "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN INSERT INTO ends VALUES (NEW.id, NEW.state); RETURN NEW; END $$",
    "CREATE TRIGGER note AFTER UPDATE ON evaluations FOR EACH ROW WHEN (NEW.state = 'complete') "
    "EXECUTE FUNCTION note()",
)


class Stage:
    """The cluster, the database and the driver of one search of `trials`, and what can be done to them.

    The driver is connected to the first node, which has the head of the cluster: that one stays, and trains nothing.
    """

    def __init__(self, folder: Path, trials: int, steps: int, num_nodes: int = NUM_NODES, seed: int = 0) -> None:
        self.database = Postgres()
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self.nodes = [self.cluster.add_node(num_cpus=1) for _ in range(num_nodes)]
        self.engine = create_engine(self.database.url, pool_pre_ping=True)
        self.done: Counter[str] = Counter()
        self.output = folder / "output.txt"
        self._random = random.Random(seed)
        config = folder / "chaos.toml"
        config.write_text(SEARCH.format(steps=steps))
        words = (
            f"run --config {config} --trials {trials} --storage {self.database.url} --address {self.cluster.address}"
        )
        self._command = [sys.executable, "-m", "search.cli", *words.split()]
        self.start_driver()

    def start_driver(self) -> None:
        with self.output.open("a") as output:
            self.driver = subprocess.Popen(
                self._command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env={**os.environ, "PYTHONPATH": "."}
            )

    def counts(self) -> dict[str, int]:
        """How many evaluations are in each state; none while the database is away or new."""
        with contextlib.suppress(DBAPIError), self.engine.connect() as connection:
            rows = connection.execute(text("SELECT state, count(*) FROM evaluations GROUP BY state"))
            return {str(state): int(count) for state, count in rows}
        return {}

    def wait(self, condition: Callable[[], object], seconds: float = 240) -> None:
        """Waits until `condition` holds; the driver must live and time must not run out."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.driver.poll() is None and time.monotonic() < deadline, self.output.read_text()
            time.sleep(0.1)

    def watch(self) -> None:
        """The database notes ends from now on, which is before the first."""
        self.wait(self.counts)
        with self.engine.begin() as connection:
            for statement in NOTED:
                connection.execute(text(statement))

    def kill_worker(self) -> bool:
        """kill -9 of a process that trains or is about to. Whether there was one."""
        workers = [pid for node in self.nodes for pid in _workers(node)]
        if workers:
            os.kill(self._random.choice(workers), signal.SIGKILL)
            self.done["workers"] += 1
        return bool(workers)

    def kill_node(self) -> None:
        """kill -9 of everything on a node, and another in its place."""
        node = self.nodes.pop(0)
        workers = _workers(node)
        self.cluster.remove_node(node, allow_graceful=False)
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.nodes.append(self.cluster.add_node(num_cpus=1))
        self.done["nodes"] += 1

    def kill_driver(self) -> None:
        """kill -9, and the same command again."""
        self.driver.kill()
        self.driver.wait()
        self.start_driver()
        self.done["drivers"] += 1

    def restart_database(self, away: float = 3.0) -> None:
        """A crash, `away` seconds without it, and a recovery."""
        self.database.stop()
        time.sleep(away)
        self.database.start()
        self.done["databases"] += 1

    def figures(self) -> dict[str, Any]:
        """What the search came to."""
        with self.engine.connect() as connection:
            designs = connection.execute(text("SELECT design_digest, state, attempts FROM evaluations")).all()
            ends = connection.execute(text("SELECT evaluation, count(*) FROM ends GROUP BY evaluation")).all()
        return {
            "exit": self.driver.poll(),
            "states": Counter(row.state for row in designs),
            "distinct": len({row.design_digest for row in designs}),
            "noted": len(ends),
            "repeated": sum(count > 1 for _, count in ends),
            "attempts": sum(row.attempts for row in designs),
            "killed": dict(self.done),
        }

    def remove(self) -> None:
        self.driver.kill()
        self.driver.wait()
        self.engine.dispose()
        self.cluster.shutdown()
        self.database.remove()


def _workers(node: Any) -> list[int]:
    """Processes of `node` that train: children of its raylet that Ray has given a trainable's name."""
    raylet = node.all_processes["raylet"][0].process.pid
    return [pid for pid, parent, name in _processes() if parent == raylet and name.startswith("ray::ResourceTrainable")]


def _processes() -> Iterator[tuple[int, int, str]]:
    """Id, parent and command line of every process."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            yield int(folder.name), parent, (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()


def chaos(trials: int, steps: int, every: float, patience: float, seed: int) -> dict[str, Any]:
    """One search: a worker is killed `every` seconds, the rest as it goes on, a share of its trials each."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder), trials, steps, seed=seed)
        acts = [(0.1, stage.kill_node), (0.25, stage.kill_driver), (0.4, stage.restart_database),
                (0.55, stage.kill_node), (0.7, stage.kill_driver)]  # fmt: skip
        try:
            stage.watch()
            first = last = time.monotonic()
            while stage.driver.poll() is None and time.monotonic() - began < patience:
                complete = stage.counts().get("complete", 0)
                if acts and complete >= acts[0][0] * trials:
                    acts.pop(0)[1]()
                if time.monotonic() - last >= every and stage.kill_worker():
                    last = time.monotonic()
                time.sleep(0.2)
            return {
                **stage.figures(), "seconds": round(time.monotonic() - first),
                "said": [line for line in stage.output.read_text().splitlines() if "lost" in line or "away" in line],
            }  # fmt: skip
        finally:
            stage.remove()


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--trials", type=int, default=60)
    words.add_argument("--steps", type=int, default=30, help="of training, of each task")
    words.add_argument("--every", type=float, default=10, help="seconds between kills of a worker")
    words.add_argument("--patience", type=float, default=900, help="seconds for one run")
    words.add_argument("--runs", type=int, default=1)
    asked = words.parse_args()
    for number in range(asked.runs):
        print(json.dumps(chaos(asked.trials, asked.steps, asked.every, asked.patience, number), indent=1), flush=True)
