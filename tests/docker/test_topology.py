"""compose.yaml's processes, started without containers: head, worker, search and dashboard on one PostgreSQL.

The commands and the health checks are the file's own; hosts, ports and paths are those of this machine.
"""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

from tests.docker.test_manifests import compose
from tests.services import postgres_url

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests/search/tiny.toml"


class Services:
    """Processes of services by name, each with a folder for Ray and ports of its own."""

    def __init__(self, folder: Path, storage: str) -> None:
        self.folder = folder
        self.gcs = free_port()
        self.described = compose("compose.yaml")["services"]
        self.ports = {name: free_port() for name in self.described}
        (folder / "ray_token").write_text("0123456789abcdef" * 4 + "\n")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("PLAIT", "RAY"))}
        self.environment |= {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        self.here = {"PLAIT_STORAGE": storage, "RAY_AUTH_TOKEN_PATH": str(folder / "ray_token")}

    def command(self, service: str, words: list[str]) -> list[str]:
        """`words` of a service as they are on this machine."""
        own, (folder, options) = self.ports[service], (self.folder / service, "")
        if service == "worker":
            options = "--num-cpus=1"
        replaced = {
            r"\bray start\b": f"ray start --temp-dir={folder} {options}",
            r"\bplait (?=\w)": f"{sys.executable} -m search.cli ",
            r"\bhead:6379\b|--address auto\b": f"--address 127.0.0.1:{self.gcs}",
            r"--address=--address ": "--address=",
            r"--port=6379\b": f"--port={self.gcs}",
            r"\b(6380|8501)\b": str(own),
            r"\$\$HOSTNAME|\b0\.0\.0\.0\b": "127.0.0.1",
            r"/etc/plait/search\.toml": f"{TINY} --trials 2",
        }
        script = words[-1] if words[:2] == ["sh", "-c"] else shlex.join(words)
        for pattern, value in replaced.items():
            script = re.sub(pattern, value, script)
        return ["bash", "-c", script]

    def start(self, service: str, **streams: Any) -> subprocess.Popen[str]:
        wanted = self.described[service].get("environment", {})
        environment = self.environment | {name: self.here.get(name, value) for name, value in wanted.items()}
        environment.pop("PLAIT_PASSWORD_FILE", None)  # the server of the tests asks for none
        command = self.command(service, self.described[service]["command"])
        return subprocess.Popen(command, env=environment, text=True, cwd=self.folder, **streams)

    def wait(self, service: str, seconds: float = 120) -> None:
        """Until the service's own health check passes."""
        check = self.command(service, self.described[service]["healthcheck"]["test"][1:])
        deadline = time.monotonic() + seconds
        while subprocess.run(check, env=self.environment, capture_output=True).returncode != 0:
            assert time.monotonic() < deadline, f"{service} is not healthy after {seconds:.0f} s"
            time.sleep(0.3)

    def stop(self) -> None:
        """Ends every process whose arguments name this folder: Ray's leave the group of the one that started them."""
        for kind in (signal.SIGTERM, signal.SIGKILL):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    if str(self.folder).encode() in path.read_bytes():
                        os.kill(int(path.parent.name), kind)
                except (OSError, ValueError):
                    continue
            time.sleep(1)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def storage() -> Iterator[str]:
    """The URL of a PostgreSQL database that is gone afterwards."""
    url, name = make_url(postgres_url()), f"topology_{os.getpid()}"
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        yield url.set(database=name).render_as_string(hide_password=False)
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
def services(storage: str) -> Iterator[Services]:
    folder = Path(tempfile.mkdtemp(prefix="plait-", dir="/tmp"))  # Ray's sockets need a short path
    services = Services(folder, storage)
    yield services
    services.stop()
    shutil.rmtree(folder, ignore_errors=True)


def test_the_services_of_compose_run_a_search_together(services: Services, storage: str) -> None:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    services.start("head", **quiet)
    services.wait("head")
    services.start("worker", **quiet)
    dashboard = services.start("dashboard", **quiet)
    services.wait("worker")
    search = services.start("search", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    printed, _ = search.communicate(timeout=240)
    assert search.returncode == 0, printed
    assert "2/2  complete" in printed
    assert "1 at a time, 1 of 1 cores each" in printed  # head and search offer nothing
    services.wait("dashboard")
    words = Path(f"/proc/{dashboard.pid}/cmdline").read_text()
    assert "streamlit" in words and "postgresql" not in words  # arguments are for all to see
    with create_engine(storage).connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM evaluations WHERE state = 'complete'")).scalar() == 2

    health = ["ray", "health-check", "--address", f"127.0.0.1:{services.gcs}"]
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": services.here["RAY_AUTH_TOKEN_PATH"]}
    for authorised in (token, {"RAY_AUTH_MODE": "disabled"}):
        done = subprocess.run(health, env=services.environment | authorised, capture_output=True)
        assert (done.returncode == 0) == (authorised is token)
