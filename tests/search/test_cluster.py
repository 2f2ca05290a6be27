"""A search on a Ray cluster and PostgreSQL loses nothing, whatever is killed. The long version is bench/chaos.py."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from ray.cluster_utils import Cluster
from sqlalchemy.orm import Session

from proxies.evaluate import Report
from proxies.protocol import Protocol
from proxies.text import Corpus
from search import cluster, runner
from search.apart import Apart
from search.config import SearchConfig
from search.resources import num_cores
from search.runner import run
from search.store import queries, writer
from space import Design
from tests.bench.chaos import Stage
from tests.search.test_resources import CORPUS
from tests.search.test_runner import TINY, Heard, outcomes

TRIALS = 8


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, TRIALS, steps=20, num_nodes=2)
    yield stage
    stage.remove()


def complete(stage: Stage) -> int:
    return stage.counts().get("complete", 0)


def test_a_worker_a_node_the_database_and_the_driver_die_and_8_evaluations_are_complete_once(stage: Stage) -> None:
    stage.watch()
    stage.wait(stage.kill_worker)
    stage.wait(lambda: complete(stage) >= 1)
    stage.kill_node()
    stage.wait(lambda: complete(stage) >= 2)
    stage.restart_database(away=1)
    stage.wait(lambda: complete(stage) >= 3)
    before = complete(stage)
    stage.kill_driver()
    assert stage.driver.wait(240) == 0, stage.output.read_text()
    found, said = stage.figures(), stage.output.read_text()
    assert found["states"] == {"complete": TRIALS} and found["distinct"] == TRIALS and before < TRIALS
    assert (found["noted"], found["repeated"]) == (TRIALS, 0)
    assert found["killed"] == {"workers": 1, "nodes": 1, "drivers": 1, "databases": 1}
    assert TRIALS < found["attempts"] <= TRIALS + 5  # what was in flight ran again, nothing else
    assert "worker died, will run again" in said and "The database is away" in said and "Traceback" not in said


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:1", "no Ray cluster answers there"),
        ("nonsense", "must be HOST:PORT of a Ray cluster's head, or auto"),
        ("ray://127.0.0.1:10001", "must be HOST:PORT of a Ray cluster's head, or auto"),
    ],
)
def test_a_cluster_that_is_not_there_is_refused_in_one_sentence(address: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"address = '{address}': {reason}"):
        cluster.check(address)


@pytest.fixture
def address() -> Iterator[str]:
    """A cluster of one node with two cores."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    yield made.address
    made.shutdown()


def test_more_than_any_node_has_is_refused_and_a_search_without_an_address_has_its_own_ray(
    tmp_path: Path, address: str
) -> None:
    engine, began = writer(f"sqlite:///{tmp_path}/plait.db"), time.monotonic()
    with pytest.raises(ValueError, match=r"^cpus_per_trial = 9: must be in 1\.\.2, the cores there are$"):
        run(SearchConfig(cpus_per_trial=9), CORPUS, engine, Heard(), address=address)
    assert time.monotonic() - began < 5
    heard = Heard()
    run(SearchConfig.read(TINY).with_options(trials=1, workers=1), CORPUS, engine, heard)
    assert heard.where == f"1 at a time, 1 of {num_cores()} cores each"
    assert {row.state for row in outcomes(engine).values()} == {"complete"}
    with Session(engine) as session:
        assert 0 < (queries.busy_share(session, "tiny") or 0) < 1


def together(design: Design, protocol: Protocol, corpus: Corpus, device: torch.device) -> Iterator[Report]:
    """A training that ends when another one is under way in another process, or fails after a minute."""
    folder, deadline = Path(corpus.source), time.monotonic() + 60
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < 2:
        assert time.monotonic() < deadline, "alone"
        time.sleep(0.1)
    metrics = {"recall": 0.5, "recall_low": 0.4, "recall_high": 0.6, "lm_bits_per_byte": 3.0}
    yield Report(rung=0, num_rungs=1, budget=1.0, metrics=metrics, details={})


def test_a_node_that_joins_later_is_used(tmp_path: Path) -> None:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    command = f"{sys.executable} -m ray.scripts.scripts start --address {made.address} --num-cpus 1 --block"
    joined: list[subprocess.Popen[bytes]] = []
    engine, heard, folder = writer(f"sqlite:///{tmp_path}/plait.db"), Heard(), tmp_path / "trainings"
    folder.mkdir()

    def join() -> None:
        while not heard.starts:
            time.sleep(0.1)
        joined.append(subprocess.Popen(command.split(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    Apart(join)
    config, corpus = SearchConfig.read(TINY).with_options(trials=2), Corpus(bytes(range(256)) * 200, str(folder))
    try:
        run(config, corpus, engine, heard, rungs=together, address=made.address)
    finally:
        for node in joined:
            node.terminate()
        made.shutdown()
    assert heard.where.startswith("1 at a time") and heard.notices == ["The cluster has changed: 2 at a time now."]
    assert [state for _, state, _ in heard.ends] == ["complete"] * 2, heard.ends


def test_a_cluster_that_stops_answering_ends_the_run_with_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    head, work = cluster.Head(), Apart(partial(time.sleep, 20))
    head._address = "127.0.0.1:1"  # where nobody listens
    with pytest.raises(ValueError, match=r"^the Ray cluster is gone; nothing finished is lost, and the same command"):
        runner._attend(work, None, head)  # type: ignore[arg-type]  # no beat is due so early
    assert work.running
