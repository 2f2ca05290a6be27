"""A search without Ray: the driver, its store, and a function in place of training."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from search.config import SearchConfig
from search.driver import Driver, Next, Outcome
from search.store import writer
from search.store.opening import Definition
from search.store.recorder import Recorder
from space import Design

Score = Callable[[Design, float], Mapping[str, Any]]


class Silent:
    """A watcher that is told and says nothing."""

    def began(self, *words: object) -> None: ...
    def works_with(self, *words: object) -> None: ...
    def started(self, *words: object) -> None: ...
    def ended(self, *words: object) -> None: ...
    def noticed(self, words: str) -> None: ...


def database(folder: Path) -> Engine:
    return writer(f"sqlite:///{folder}/plait.db")


def definition(config: SearchConfig) -> Definition:
    return Definition(
        name=config.name, space=config.space, protocol=config.proxy.to_dict(), protocol_digest=config.proxy.digest,
        config=config.to_dict(), version="0",
    )  # fmt: skip


def scores(design: Design, budget: float) -> dict[str, float]:
    """Recall that grows with the training and with attention, and differs a little from design to design."""
    own = int(design.digest[:4], 16) / 2**16
    recall = budget * (0.2 + 0.4 * design.num_full / design.depth + 0.4 * own)
    return {"recall": recall, "recall_low": recall, "recall_high": recall, "lm_bits_per_byte": 3.0 - own}


def noise(design: Design, *words: object) -> float:
    """A number in 0..1 that belongs to the design and the words."""
    text = " ".join(map(str, (design.digest, *words)))
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32


def drive(
    config: SearchConfig,
    engine: Engine,
    score: Score = scores,
    num_slots: int = 1,
    kill_after: int | None = None,
    details: Callable[[Any], Mapping[str, Any]] = lambda metrics: {},
) -> Driver:
    """Runs the search; workers take turns, a rung each. After `kill_after` rungs it ends as kill -9 would end it."""
    recorder = Recorder.open(engine, definition(config))
    driver = Driver(config, engine, recorder, Silent(), num_slots)
    running: list[tuple[Any, int]] = []
    measured = 0
    while True:
        while not isinstance(following := driver.next(), Next):
            running.append((following, 0))
        if not running:
            break
        lease, rung = running.pop(0)
        budget = config.proxy.rungs[rung]
        found = score(lease.design, budget)
        outcome = Outcome(rung, budget, budget == 1, found, details(found), worker="here:1")
        if driver.measured(lease.evaluation, outcome):
            running.append((lease, rung + 1))
        measured += 1
        if measured == kill_after:
            with engine.begin() as connection:  # as if the process were gone
                connection.exec_driver_sql("UPDATE searches SET driver = 'elsewhere:1:1', driver_expires = 0")
            return driver
    recorder.close()
    return driver
