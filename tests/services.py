"""What tests need from the machine: skipped with a reason where it is missing, failed where CI promises it."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest


def chromium() -> str:
    """Path of the browser."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        _missing("Chromium is not installed")
    return path


def postgres_url() -> str:
    """SQLAlchemy URL of a PostgreSQL server that tests may write to."""
    url = os.environ.get("PLAIT_TEST_POSTGRES")
    if not url:
        _missing("PLAIT_TEST_POSTGRES names no PostgreSQL server")
    return url


class Postgres:
    """A PostgreSQL server of its own, empty and running, on a free port; root runs it as postgres."""

    def __init__(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
        if not found:
            _missing("PostgreSQL's server is not installed")
        self._bin = found[-1].parent
        self._folder = Path(tempfile.mkdtemp(prefix="plait-postgres-"))
        self._as_other = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        if self._as_other:
            shutil.chown(self._folder, "postgres")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._call("initdb", "--auth=trust", "--encoding=UTF8", "--no-sync", "--username=postgres")
        self.start()
        self.url = f"postgresql+psycopg://postgres@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -c port={self._port} -c unix_socket_directories={self._folder}"
        self._call("pg_ctl", "-l", f"{self._folder}/log", "-w", "-o", options, "start")

    def stop(self) -> None:
        """At once, as a crash would."""
        self._call("pg_ctl", "-m", "immediate", "-w", "stop")

    def remove(self) -> None:
        """Stopped or not."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _call(self, program: str, *words: str) -> None:
        command = [*self._as_other, str(self._bin / program), "-D", f"{self._folder}/data", *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self._folder)


def _missing(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}, and CI=true says it is there")
    pytest.skip(reason)
