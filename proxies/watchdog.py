"""Ends a process whose training no longer goes on: a lock that nobody gives back, a kernel that does not return.

A worker that dies is replaced; one that hangs would keep its slot for ever. Who trains for others arms the watchdog,
the training loop says at every step that it goes on, and after `seconds` of silence the process writes the stacks of
its threads to standard error and ends with status 1. The clock is faulthandler's own thread, which needs no lock of
Python's. Not armed, it does nothing.
"""

import faulthandler
import time

_STANDARD_ERROR = 2
_PATIENCE = 0.05  # a share of the silence allowed: winding the clock anew at every step would be wasteful

_seconds = 0.0
_wound = 0.0


def arm(seconds: float) -> None:
    """From now on, silence of more than `seconds` ends this process."""
    global _seconds
    _seconds = seconds
    _wind()


def beat() -> None:
    """The training goes on."""
    if _seconds and time.monotonic() - _wound > _PATIENCE * _seconds:
        _wind()


def disarm() -> None:
    global _seconds
    _seconds = 0.0
    faulthandler.cancel_dump_traceback_later()


def _wind() -> None:
    global _wound
    _wound = time.monotonic()
    faulthandler.dump_traceback_later(_seconds, exit=True, file=_STANDARD_ERROR)
