"""The write side: one driver at a time records a search. Every method is one transaction, tried again when the
database is busy, so that killing the driver at any moment loses at most the work in flight."""

import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Engine, func, or_, select, update
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session

from search.store.tables import FAILED, INFEASIBLE, LOST, QUEUED, RUNNING, Evaluation, Rung, Search
from space.design import Design
from space.space import SearchSpace

LEASE_SECONDS = 60.0
MAX_ATTEMPTS = 3
_TRIES = 8
_COLUMNS = ("recall", "recall_low", "recall_high", "lm_bits_per_byte", "memory_bytes", "parameters")

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Definition:
    """What makes a search the search it is. `fixed` are the parts of `config` that may not change when it goes on."""

    name: str
    space: SearchSpace
    protocol: Mapping[str, Any]
    protocol_digest: str
    config: Mapping[str, Any]
    version: str
    fixed: tuple[str, ...] = ("objectives", "deployment", "confirms")


@dataclass(frozen=True)
class Lease:
    """An evaluation handed to this driver to run."""

    evaluation: int
    number: int
    design: Design


class Recorder:
    """Writes one search for one driver. `open` makes or continues the search and takes the driver's place."""

    def __init__(self, engine: Engine, search: int, protocol_digest: str, driver: str) -> None:
        self._engine = engine
        self.search = search
        self.protocol_digest = protocol_digest
        self.driver = driver

    @classmethod
    def open(cls, engine: Engine, definition: Definition, *, extend: bool = False) -> "Recorder":
        """The recorder of the search `definition.name`; work that a dead driver left is queued again.

        Raises ValueError when another driver runs the search, or the search exists and differs. With `extend`, a space
        that includes the old one replaces it.
        """
        driver = driver_token()
        search = _write(engine, lambda session: _open(session, definition, extend, driver))
        recorder = cls(engine, search, definition.protocol_digest, driver)
        recorder._write(recorder._requeue)
        return recorder

    def _write(self, work: Callable[[Session], T]) -> T:
        return _write(self._engine, work)

    def _requeue(self, session: Session) -> None:
        mine = (Evaluation.search_id == self.search, Evaluation.state == RUNNING)
        session.execute(
            update(Evaluation)
            .where(*mine, Evaluation.attempts >= MAX_ATTEMPTS)
            .values(state=LOST, lease_expires=None, finished=time.time(), reason=_lost_reason())
        )
        session.execute(update(Evaluation).where(*mine).values(state=QUEUED, lease_expires=None, worker=None))

    def heartbeat(self) -> None:
        """Says that this driver is alive: its place and its leases last LEASE_SECONDS more."""
        expires = time.time() + LEASE_SECONDS

        def work(session: Session) -> None:
            session.execute(
                update(Search)
                .where(Search.id == self.search, Search.driver == self.driver)
                .values(driver_expires=expires)
            )
            session.execute(
                update(Evaluation)
                .where(Evaluation.search_id == self.search, Evaluation.state == RUNNING)
                .values(lease_expires=expires)
            )

        self._write(work)

    def close(self) -> None:
        """Queues what is still running, without counting the attempt, and gives up the driver's place."""

        def work(session: Session) -> None:
            session.execute(
                update(Evaluation)
                .where(Evaluation.search_id == self.search, Evaluation.state == RUNNING)
                .values(state=QUEUED, lease_expires=None, worker=None, attempts=Evaluation.attempts - 1)
            )
            session.execute(
                update(Search)
                .where(Search.id == self.search, Search.driver == self.driver)
                .values(driver=None, driver_expires=None)
            )

        self._write(work)

    def lease(self, design: Design, origin: str, cost: Mapping[str, float]) -> Lease | None:
        """A new evaluation of `design`, running. None when the search has had this design."""
        return self._new(design, origin, cost, RUNNING)

    def infeasible(self, design: Design, origin: str, cost: Mapping[str, float], reason: str) -> None:
        """Records that `design` is not to be run."""
        self._new(design, origin, cost, INFEASIBLE, reason)

    def _new(
        self, design: Design, origin: str, cost: Mapping[str, float], state: str, reason: str | None = None
    ) -> Lease | None:
        def work(session: Session) -> Lease:
            now = time.time()
            number = session.scalar(select(func.max(Evaluation.number)).where(Evaluation.search_id == self.search))
            running = state == RUNNING
            evaluation = Evaluation(
                search_id=self.search,
                number=0 if number is None else number + 1,
                design=design.text,
                design_digest=design.digest,
                protocol_digest=self.protocol_digest,
                state=state,
                attempts=int(running),
                lease_expires=now + LEASE_SECONDS if running else None,
                origin=origin,
                created=now,
                started=now if running else None,
                finished=None if running else now,
                reason=reason,
                memory_bytes=cost.get("memory_bytes"),
                parameters=cost.get("parameters"),
                metrics=dict(cost),
            )
            session.add(evaluation)
            session.flush()
            return Lease(evaluation.id, evaluation.number, design)

        try:
            return self._write(work)
        except IntegrityError:
            return None

    def lease_queued(self) -> Lease | None:
        """The first queued evaluation, now running: claimed in one statement. None when nothing is queued."""

        def work(session: Session) -> Lease | None:
            first = (
                select(Evaluation.id)
                .where(Evaluation.search_id == self.search, Evaluation.state == QUEUED)
                .order_by(Evaluation.number)
                .limit(1)
                .with_for_update(skip_locked=True)
                .scalar_subquery()
            )
            now = time.time()
            row = session.execute(
                update(Evaluation)
                .where(Evaluation.id == first, Evaluation.state == QUEUED)
                .values(state=RUNNING, attempts=Evaluation.attempts + 1, started=now, lease_expires=now + LEASE_SECONDS)
                .returning(Evaluation.id, Evaluation.number, Evaluation.design)
            ).first()
            return Lease(row.id, row.number, Design.parse(row.design)) if row else None

        return self._write(work)

    def rung(self, evaluation: int, rung: int, budget: float, metrics: Mapping[str, float], worker: str) -> None:
        """Keeps what was measured at a rung; measured again after a restart, the newer figures stay."""

        def work(session: Session) -> None:
            known = session.scalar(select(Rung).where(Rung.evaluation_id == evaluation, Rung.rung == rung))
            kept = known or Rung(evaluation_id=evaluation, rung=rung)
            kept.budget, kept.metrics, kept.recorded = budget, finite(dict(metrics)), time.time()
            session.add(kept)
            session.execute(update(Evaluation).where(Evaluation.id == evaluation).values(worker=worker))

        self._write(work)

    def audit(self, evaluation: int, rung: int) -> None:
        """Marks an evaluation that would have stopped at `rung` and runs on; marked again, the first rung stays."""
        self._write(
            lambda session: session.execute(
                update(Evaluation)
                .where(Evaluation.id == evaluation, Evaluation.audit_rung.is_(None))
                .values(audit_rung=rung)
            )
        )

    def finish(
        self, evaluation: int, state: str, metrics: Mapping[str, float], details: Mapping[str, Any], seconds: float
    ) -> None:
        """Records scores: `state` is complete or stopped."""

        def work(session: Session) -> None:
            row = session.get_one(Evaluation, evaluation)
            row.state, row.finished, row.lease_expires, row.seconds = state, time.time(), None, seconds
            row.metrics = finite({**row.metrics, **metrics})
            row.details = finite(dict(details))
            for name in _COLUMNS:
                setattr(row, name, row.metrics.get(name))

        self._write(work)

    def fail(self, evaluation: int, reason: str, traceback: str = "", seconds: float | None = None) -> None:
        """Records a failure: one line of reason, and the traceback for whoever asks."""
        self._write(
            lambda session: session.execute(
                update(Evaluation)
                .where(Evaluation.id == evaluation)
                .values(
                    state=FAILED,
                    finished=time.time(),
                    lease_expires=None,
                    reason=reason,
                    traceback=traceback,
                    seconds=seconds,
                )
            )
        )

    def lose(self, evaluation: int, reason: str = "worker died", traceback: str = "") -> bool:
        """Records that the worker died; queues the evaluation again and returns True unless it was the last attempt."""

        def work(session: Session) -> bool:
            row = session.get_one(Evaluation, evaluation)
            row.lease_expires = None
            if row.attempts < MAX_ATTEMPTS:
                row.state = QUEUED
                return True
            row.state, row.finished, row.reason = LOST, time.time(), _lost_reason(reason)
            row.traceback = traceback or None
            return False

        return self._write(work)


def _write(engine: Engine, work: Callable[[Session], T]) -> T:
    for attempt in range(_TRIES):
        try:
            with Session(engine) as session, session.begin():
                return work(session)
        except OperationalError as error:
            busy = any(word in str(error.orig) for word in ("locked", "deadlock", "could not serialize"))
            if not busy or attempt == _TRIES - 1:
                raise
            time.sleep(0.05 * 2**attempt)
    raise AssertionError("unreachable")


def _open(session: Session, definition: Definition, extend: bool, driver: str) -> int:
    search = session.scalar(select(Search).where(Search.name == definition.name).with_for_update())
    if search is None:
        search = Search(
            name=definition.name,
            space=definition.space.to_dict(),
            space_digest=definition.space.digest,
            protocol=dict(definition.protocol),
            protocol_digest=definition.protocol_digest,
            created=time.time(),
            plait_version=definition.version,
        )
        session.add(search)
    else:
        _same_search(search, definition, extend)
        search.space, search.space_digest = definition.space.to_dict(), definition.space.digest
    search.config = dict(definition.config)
    session.flush()
    now = time.time()
    old = search.driver
    free = [Search.driver.is_(None), Search.driver_expires < now]
    if old and not driver_alive(old):
        free.append(Search.driver == old)
    taken = session.execute(
        update(Search)
        .where(Search.id == search.id, or_(*free))
        .values(driver=driver, driver_expires=now + LEASE_SECONDS)
    )
    if not taken.rowcount:  # type: ignore[attr-defined]
        raise ValueError(f"search {definition.name!r}: another plait run drives it ({old}): stop that one first")
    return search.id


def _same_search(search: Search, definition: Definition, extend: bool) -> None:
    differences = []
    if search.protocol_digest != definition.protocol_digest:
        differences += _differences("protocol", search.protocol, definition.protocol)
    for part in definition.fixed:
        differences += _differences(part, search.config.get(part), definition.config.get(part))
    if search.space_digest != definition.space.digest:
        if not definition.space.includes(SearchSpace.from_dict(search.space)):
            differences += _differences("space", search.space, definition.space.to_dict())
        elif not extend:
            raise ValueError(
                f"search {definition.name!r}: its space is smaller than the one asked for: "
                "add --resume to go on in the larger one, or choose another --name"
            )
    if differences:
        raise ValueError(
            f"search {definition.name!r} exists and differs: {'; '.join(differences)}: choose another --name"
        )


def _differences(where: str, old: Any, new: Any) -> list[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = [*old, *(key for key in new if key not in old)]
        return [line for key in keys for line in _differences(f"{where}.{key}", old.get(key), new.get(key))]
    old, new = (list(value) if isinstance(value, tuple) else value for value in (old, new))
    return [] if old == new else [f"{where} is {old} there and {new} here"]


def _lost_reason(reason: str = "worker died") -> str:
    return f"{reason} {MAX_ATTEMPTS} times"


def finite(data: Any) -> Any:
    """`data` as JSON that every database takes: numbers that are not finite become None."""
    if isinstance(data, Mapping):
        return {str(key): finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def driver_token() -> str:
    """This process, told apart from a later one with the same id."""
    return f"{socket.gethostname()}:{os.getpid()}:{_start_time(os.getpid())}"


def driver_alive(token: str) -> bool:
    """Whether the process of `token` may still run: known for this host, assumed for another."""
    host, pid, started = token.rsplit(":", 2)
    if host != socket.gethostname():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _start_time(int(pid)) == started


def _start_time(pid: int) -> str:
    """Clock ticks between boot and the start of the process; empty where /proc is missing or the process a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
