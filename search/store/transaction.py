"""One transaction, tried again while the database is busy, and waited for while it is away."""

import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session

PATIENCE = 300.0
"""Seconds for which a database that is away is waited for."""
_LONGEST_PAUSE = 2.0
_BUSY = ("locked", "deadlock", "could not serialize")
_AWAY = ("08", "57P", "53300")  # SQLSTATE: connection lost, server going down or coming up, too many connections

T = TypeVar("T")


def transaction(
    engine: Engine,
    work: Callable[[Session], T],
    patience: float = PATIENCE,
    on_away: Callable[[str], None] = lambda reason: None,
) -> T:
    """What `work` returns, committed. It may run several times, also when the answer to a commit got lost.

    `on_away` hears once why the database cannot be reached. Raises the last error after `patience` seconds of trying,
    and any other error at once.
    """
    deadline, pause, told = time.monotonic() + patience, 0.05, False
    while True:
        try:
            with Session(engine) as session, session.begin():
                return work(session)
        except DBAPIError as error:
            away = is_away(error)
            if not (away or _is_busy(error)) or time.monotonic() + pause > deadline:
                raise
            if away and not told:
                on_away(in_a_line(error))
                told = True
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def is_away(error: DBAPIError) -> bool:
    """Whether the database could not be reached, or the connection to it broke."""
    if error.connection_invalidated:
        return True
    if not isinstance(error, OperationalError) or not type(error.orig).__module__.startswith("psycopg"):
        return False
    state = getattr(error.orig, "sqlstate", None)  # none: libpq's own errors, which are those of connections
    return state is None or state.startswith(_AWAY)


def in_a_line(error: DBAPIError) -> str:
    """What the database said, without SQLAlchemy's words."""
    lines = str(error.orig).strip().splitlines()
    return lines[0] if lines else type(error.orig).__name__


def _is_busy(error: DBAPIError) -> bool:
    return isinstance(error, OperationalError) and any(word in str(error.orig) for word in _BUSY)
