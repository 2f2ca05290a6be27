"""Work in a thread of its own, so that the main thread hears signals at once, whatever library the work is in.

Python hears a signal between two of its own instructions in the main thread. There, in the middle of Ray's or of a
database's code, an exception would come late or break things.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked to stop. `how_far` the work had come is for people."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.how_far = "before it began"


class Abandoned(ValueError):
    """The work cannot go on, and a library is still busy in this process: end it with `leave`."""


def arm() -> None:
    """From now on a signal to stop raises Interrupted in the main thread. Signals that were ignored stay ignored."""

    def interrupt(number: int, frame: object) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)  # once is enough: the rest is cleaning up
        raise Interrupted(number)

    for each in SIGNALS:
        if signal.getsignal(each) is not signal.SIG_IGN:  # as nohup wants it
            signal.signal(each, interrupt)


@contextmanager
def interruptible() -> Iterator[None]:
    """Armed inside, as before outside. Only the main thread hears signals: RuntimeError elsewhere."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("a search runs in the main thread")
    before = {each: signal.getsignal(each) for each in SIGNALS}
    arm()
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class Apart:
    """`work`, begun in a thread of its own."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._error: BaseException | None = None

        def run() -> None:
            try:
                work()
            except BaseException as error:  # raised again where it is waited for
                self._error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """Whether the work has ended, waiting for it so long at most. Raises what it raised."""
        self._thread.join(seconds)
        if not self.running and self._error is not None:
            raise self._error
        return not self.running


def leave(code: int) -> NoReturn:
    """Ends this process at once, in whatever its other threads are. The processes that Ray started for it end too."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
