"""The write side: one driver at a time records a search. Every method is one transaction, so that killing the driver
at any moment loses at most the work in flight; the database may be busy or away for a while.

A driver that lost its place, because it slept through its lease and another took over, writes nothing more.
"""

import itertools
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Engine, func, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from search.store.opening import Definition, open_search
from search.store.place import LEASE_SECONDS, driver_token
from search.store.tables import FAILED, INFEASIBLE, LOST, QUEUED, RUNNING, Evaluation, Rung, Search
from search.store.transaction import PATIENCE, transaction
from space.design import Design

MAX_ATTEMPTS = 4  # the first, and three more
_COLUMNS = ("recall", "recall_low", "recall_high", "lm_bits_per_byte", "memory_bytes", "parameters")

T = TypeVar("T")


@dataclass(frozen=True)
class Lease:
    """An evaluation handed to this driver to run."""

    evaluation: int
    number: int
    design: Design


class Recorder:
    """Writes one search for one driver. `open` makes or continues the search and takes the driver's place."""

    def __init__(
        self, engine: Engine, search: int, definition: Definition, driver: str, on_away: Callable[[str], None]
    ) -> None:
        self._engine, self._on_away = engine, on_away
        self.search, self.name, self.driver = search, definition.name, driver
        self.protocol_digest = definition.protocol_digest
        self._marks = itertools.count()
        self._num_slots, self._counted, self._uncounted = 0, 0.0, 0.0

    @classmethod
    def open(
        cls,
        engine: Engine,
        definition: Definition,
        *,
        extend: bool = False,
        on_away: Callable[[str], None] = lambda reason: None,
    ) -> "Recorder":
        """The recorder of the search `definition.name`; work that a dead driver left is queued again.

        `on_away` hears why the database cannot be reached when a write waits for it. Raises ValueError when another
        driver runs the search, or the search exists and differs. With `extend`, a space that includes the old one
        replaces it.
        """
        driver = driver_token()
        search = transaction(engine, lambda session: open_search(session, definition, extend, driver), on_away=on_away)
        recorder = cls(engine, search, definition, driver, on_away)
        recorder._write(recorder._requeue)
        return recorder

    def _write(self, work: Callable[[Session], T], patience: float = PATIENCE) -> T:
        def in_place(session: Session) -> T:
            place = select(Search.driver).where(Search.id == self.search).with_for_update()
            holder = session.scalar(place)
            if holder != self.driver:
                raise ValueError(f"search {self.name!r}: another plait run took it over ({holder}): this one ends")
            return work(session)

        return transaction(self._engine, in_place, patience, self._on_away)

    def _requeue(self, session: Session) -> None:
        mine = (Evaluation.search_id == self.search, Evaluation.state == RUNNING)
        session.execute(
            update(Evaluation)
            .where(*mine, Evaluation.attempts >= MAX_ATTEMPTS)
            .values(state=LOST, lease_expires=None, finished=time.time(), reason=_lost_reason())
        )
        session.execute(update(Evaluation).where(*mine).values(state=QUEUED, lease_expires=None, worker=None))

    def has_slots(self, number: int) -> None:
        """From now on as many trainings can run at once."""
        now = time.monotonic()
        self._uncounted += self._num_slots * (now - self._counted)
        self._num_slots, self._counted = number, now

    def _count_slots(self, session: Session, now: float) -> None:
        offered = self._uncounted + self._num_slots * (now - self._counted)
        session.execute(
            update(Search).where(Search.id == self.search).values(slot_seconds=Search.slot_seconds + offered)
        )

    def heartbeat(self) -> None:
        """Says that this driver is alive: its place and its leases last LEASE_SECONDS more.

        A database that is away is not waited for: the next beat comes well before the lease ends. Raises ValueError
        when another driver took over.
        """
        expires, now = time.time() + LEASE_SECONDS, time.monotonic()

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
            self._count_slots(session, now)

        with suppress(DBAPIError):
            self._write(work, patience=0)
            self._counted, self._uncounted = now, 0.0

    def close(self) -> None:
        """Queues what is still running, without counting the attempt, and gives up the driver's place.

        Where that cannot be done, the next driver finds things as after a kill.
        """
        now = time.monotonic()

        def work(session: Session) -> None:
            self._count_slots(session, now)
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

        with suppress(DBAPIError, ValueError):
            self._write(work, patience=1)

    def lease(self, design: Design, origin: str, cost: Mapping[str, float]) -> Lease | None:
        """A new evaluation of `design`, running. None when the search has had this design."""
        return self._new(design, origin, cost, RUNNING)

    def infeasible(self, design: Design, origin: str, cost: Mapping[str, float], reason: str) -> None:
        """Records that `design` is not to be run."""
        self._new(design, origin, cost, INFEASIBLE, reason)

    def _new(
        self, design: Design, origin: str, cost: Mapping[str, float], state: str, reason: str | None = None
    ) -> Lease | None:
        mark = self._mark()

        def work(session: Session) -> Lease:
            if (leased := self._leased(session, mark)) is not None:
                return leased
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
                worker=mark if running else None,
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

        mark = self._mark()

        def work(session: Session) -> Lease | None:
            if (leased := self._leased(session, mark)) is not None:
                return leased
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
                .values(
                    state=RUNNING,
                    attempts=Evaluation.attempts + 1,
                    started=now,
                    lease_expires=now + LEASE_SECONDS,
                    worker=mark,
                )
                .returning(Evaluation.id, Evaluation.number, Evaluation.design)
            ).first()
            return Lease(row.id, row.number, Design.parse(row.design)) if row else None

        return self._write(work)

    def _mark(self) -> str:
        """What an evaluation has in place of its worker until that is known: tells one lease from every other."""
        return f"{self.driver}:{next(self._marks)}"

    def _leased(self, session: Session, mark: str) -> Lease | None:
        """The lease with this mark: there is one when its commit was made and the answer to it got lost."""
        row = session.execute(
            select(Evaluation.id, Evaluation.number, Evaluation.design).where(
                Evaluation.search_id == self.search, Evaluation.state == RUNNING, Evaluation.worker == mark
            )
        ).first()
        return Lease(row.id, row.number, Design.parse(row.design)) if row else None

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
            if row.state == RUNNING:  # not again, when the answer to the commit got lost
                self._count_busy(session, float(details.get("seconds", seconds)))
            row.state, row.finished, row.lease_expires, row.seconds = state, time.time(), None, seconds
            row.metrics = finite({**row.metrics, **metrics})
            row.details = finite(dict(details))
            for name in _COLUMNS:
                setattr(row, name, row.metrics.get(name))

        self._write(work)

    def _count_busy(self, session: Session, seconds: float) -> None:
        session.execute(
            update(Search).where(Search.id == self.search).values(busy_seconds=Search.busy_seconds + seconds)
        )

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


def _lost_reason(reason: str = "worker died") -> str:
    return f"{reason} {MAX_ATTEMPTS} times"


def finite(data: Any) -> Any:
    """`data` as JSON that every database takes: numbers that are not finite become None."""
    if isinstance(data, Mapping):
        return {str(key): finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
