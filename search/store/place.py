"""Who has a driver's place: a process, told apart from a later one with the same id."""

import os
import socket
from pathlib import Path

LEASE_SECONDS = 60.0
"""A driver that was not heard of for so long has lost its place, and its evaluations."""


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
