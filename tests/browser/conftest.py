"""A real store, a real dashboard process and a real browser."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from search.store import writer
from search.store.opening import Definition
from search.store.recorder import Recorder
from space import SCALES, Design, SearchSpace, cost
from tests.services import chromium

ROOT = Path(__file__).parents[2]
SCREENSHOTS = ROOT / "build/screenshots"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
RECALLS = {
    "12xfull": 0.99,
    "12xgated_deltanet": 0.42,
    "12xgated_deltanet+full@11": 0.66,
    "12xgated_deltanet+full@5,11": 0.83,
    "12xgated_deltanet+full@2,5,8,11": 0.97,
    "12xgla": 0.31,
    "12xgla+full@5,11": 0.74,
    "12xhgrn2": 0.36,
    "12xhgrn2+full@5,11": 0.81,
    "12xhgrn+full@0": 0.28,
    "12xdeltanet+full@5": 0.62,
    "12xretnet+full@5,11": 0.55,
    "12xgla+hgrn2@0,1,2+full@5": 0.58,
}


def start_search(url: str, name: str) -> Recorder:
    return Recorder.open(
        writer(url),
        Definition(
            name=name,
            space=SearchSpace(depth=(12,), linear=("gated_deltanet",)),
            protocol={"name": "screen"},
            protocol_digest="0" * 16,
            config={"objectives": {"recall": "max", "memory_bytes": "min"}, "trials": 20},
            version="0.1.0",
        ),
    )


def finish(recorder: Recorder, text: str, recall: float) -> None:
    design = Design.parse(text)
    price = cost(design, SCALES["340m"])
    costs = {"memory_bytes": price.memory_bytes, "parameters": price.parameters}
    lease = recorder.lease(design, "anchor" if text == "12xfull" else "sampler", costs)
    assert lease is not None
    metrics = {"recall": recall, "recall_low": recall - 0.03, "recall_high": min(1.0, recall + 0.02),
               "lm_bits_per_byte": 2.4 - 0.2 * recall}  # fmt: skip
    recorder.finish(lease.evaluation, "complete", metrics, {}, 60.0)


def fail(recorder: Recorder, text: str, reason: str) -> None:
    lease = recorder.lease(Design.parse(text), "sampler", {})
    assert lease is not None
    recorder.fail(lease.evaluation, reason)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Searches with many evaluations, with none, with one and with only failed ones."""
    url = f"sqlite:///{tmp_path_factory.mktemp('store') / 'plait.db'}"
    start_search(url, "nothing-yet").close()
    single = start_search(url, "single")
    finish(single, "12xgla+full@5", 0.5)
    failing = start_search(url, "all-failed")
    fail(failing, "12xgla", "non_finite: recall")
    many = start_search(url, "hybrids")
    for text, recall in RECALLS.items():
        finish(many, text, recall)
    fail(many, "12xhgrn", "non_finite: recall")
    many.lease(Design.parse("12xretnet"), "sampler", {"memory_bytes": 1e8, "parameters": 3e8})
    return url


@contextmanager
def serving(url: str) -> Iterator[str]:
    """The dashboard's address while it runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "streamlit", "run", "dashboard/app.py", "--server.address", "127.0.0.1",
        "--server.port", str(port), "--server.headless", "true", "--", "--storage", url,
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_until_healthy(process, f"{address}/_stcore/health")
        yield address
    finally:
        process.terminate()
        process.wait(timeout=20)


def _wait_until_healthy(process: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "the dashboard stopped"
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError("the dashboard did not start in a minute")


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[str], str]]:
    """Starts the dashboard on a database, once for each, and gives its address."""
    addresses: dict[str, str] = {}
    with ExitStack() as stack:

        def start(url: str) -> str:
            if url not in addresses:
                addresses[url] = stack.enter_context(serving(url))
            return addresses[url]

        yield start


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1360, "height": 1080})
    page.set_default_timeout(60_000)
    yield page
    page.close()
