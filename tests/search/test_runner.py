"""A search on real Ray: it ends, it can be killed at any moment, and a bad trial is one line."""

import gc
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from ray.tune.experiment import Trial
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from proxies.evaluate import Report
from proxies.protocol import Protocol
from proxies.text import Corpus
from search.adapter import forget_finished
from search.apart import Interrupted, interruptible
from search.config import SearchConfig
from search.progress import Progress
from search.runner import run
from search.store import queries, writer
from search.store.recorder import Lease
from search.terminal import Lasting
from space import Design, SearchSpace

ROOT = Path(__file__).parents[2]
TINY = Path(__file__).with_name("tiny.toml")
OWN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


def start(folder: Path, *words: str, terminal: int | None = None) -> subprocess.Popen[str]:
    """`plait run` on the tiny search in `folder`, with pipes or a terminal of its own."""

    def heed() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell ignores it for its background jobs
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and nohup this one

    command = [sys.executable, "-m", "search.cli", "run", "--config", str(TINY), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if terminal is not None:  # a new session, whose leader the kernel tells that its terminal is gone
        command = [sys.executable, "-c", OWN_TERMINAL, *command]
        return subprocess.Popen(
            command, cwd=folder, env=environment, text=True, stdin=terminal, stdout=terminal, stderr=terminal,
            start_new_session=True, preexec_fn=heed,
        )  # fmt: skip
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        preexec_fn=heed,
    )  # fmt: skip


def rows(folder: Path, state: str = "%") -> list[tuple[str, str, float]]:
    """Design, state and time of the end of the evaluations there are."""
    if not (folder / "plait.db").exists():
        return []
    with sqlite3.connect(f"file:{folder}/plait.db?mode=ro", uri=True, timeout=10) as connection:
        try:
            query = "SELECT design, state, finished FROM evaluations WHERE state LIKE ? ORDER BY number"
            return connection.execute(query, (state,)).fetchall()
        except sqlite3.OperationalError:
            return []  # no tables yet


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_kill_9_of_the_driver_at_three_moments_loses_and_repeats_nothing(tmp_path: Path) -> None:
    finished: list[tuple[str, str, float]] = []
    for moment in (
        lambda: rows(tmp_path, "running"),  # the first trial has just begun
        lambda: len(rows(tmp_path, "complete")) >= 2,
        lambda: len(rows(tmp_path, "complete")) >= 4,
    ):
        process = start(tmp_path)
        wait_for(moment, process)
        process.kill()
        process.wait()
        seen = rows(tmp_path, "complete")
        assert set(finished) <= set(seen)
        finished = seen
    last = start(tmp_path)
    output = last.communicate(timeout=120)[0]
    assert last.returncode == 0, output
    done = rows(tmp_path)
    assert set(finished) <= set(done)
    assert len(done) == len({design for design, _, _ in done}) == 6
    assert {state for _, state, _ in done} == {"complete"}
    # pure attention and the backbone with the smallest state come first, once
    assert {design for design, _, _ in done[:2]} == {"2xfull", "2xhgrn"}

    more = start(tmp_path, "--trials", "9")
    output = more.communicate(timeout=120)[0]
    assert more.returncode == 0 and "Space exhausted: all 7 designs" in output
    assert set(done) < set(rows(tmp_path)) and len(rows(tmp_path)) == 7
    assert "Front: " in output and "plait dashboard" in output
    assert "\x1b" not in output and "Traceback" not in output


def driver_of(folder: Path) -> str | None:
    """Who has the driver's place."""
    with sqlite3.connect(f"file:{folder}/plait.db?mode=ro", uri=True, timeout=10) as connection:
        return connection.execute("SELECT driver FROM searches").fetchone()[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_within_5_seconds_and_it_says_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, "--trials", "7")
    wait_for(lambda: rows(tmp_path, "running") and rows(tmp_path, "complete"), process)
    process.send_signal(number)
    begun = time.monotonic()
    assert process.wait(30) == 128 + number
    assert time.monotonic() - begun < 5
    output = process.communicate(timeout=60)[0]  # what Ray started has the pipe for a moment longer
    assert re.search(
        r"Stopped with \d of 7 finished; go on with: plait run --config .*tiny\.toml --trials 7\n$", output
    )
    assert not rows(tmp_path, "running") and driver_of(tmp_path) is None and "Traceback" not in output


def test_a_closed_terminal_ends_a_run_within_5_seconds_and_the_next_run_goes_on(tmp_path: Path) -> None:
    ours, its = pty.openpty()
    process = start(tmp_path, "--trials", "7", terminal=its)
    os.close(its)
    wait_for(lambda: rows(tmp_path, "running"), process)
    os.close(ours)
    begun = time.monotonic()
    assert process.wait(30) == 128 + signal.SIGHUP
    assert time.monotonic() - begun < 5
    assert not rows(tmp_path, "running") and driver_of(tmp_path) is None


def test_signals_that_were_ignored_stay_ignored_as_nohup_wants_it() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(Interrupted) as stop, interruptible():
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
        assert stop.value.number == signal.SIGTERM
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_output_may_be_closed_while_a_search_runs() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    lease = Lease(1, 0, Design.parse("2xgla"))
    with pytest.raises(BrokenPipeError), open(writing, "w") as closed:  # raised when it is closed
        with Progress(Lasting(file=closed), 0, 2) as progress:
            progress.began("2 at a time")
            progress.noticed("The database is away.")
            progress.started(lease)
            progress.ended(lease, "failed", {}, "worker died", 1.0)
        assert progress.done == 1
        closed.write("something")


class Heard:
    """A watcher that keeps what it was told."""

    def __init__(self) -> None:
        self.ends: list[tuple[str, str, str]] = []
        self.starts: list[float] = []
        self.notices: list[str] = []
        self.where = ""

    def began(self, where: str) -> None:
        self.where = where

    def works_with(self, gpu: str, serving: object) -> None:
        self.notices.append(f"works with {gpu}")

    def started(self, lease: object) -> None:
        self.starts.append(time.monotonic())

    def noticed(self, words: str) -> None:
        self.notices.append(words)

    def ended(self, lease, state, metrics, reason, seconds) -> None:  # type: ignore[no-untyped-def]
        self.ends.append((str(lease.design), state, reason))


def faulty(design: Design, protocol: Protocol, corpus: Corpus, device: torch.device) -> Iterator[Report]:
    """What a training may do wrong, by design."""
    metrics = {"recall": 0.5, "recall_low": 0.4, "recall_high": 0.6, "lm_bits_per_byte": 3.0}
    marker = Path(corpus.source)
    match str(design):
        case "2xgla":
            metrics["recall"] = float("nan")
        case "2xhgrn":
            del metrics["recall"]
        case "2xfull":
            raise RuntimeError("the kernel failed\nand says more on other lines")
        case "2xgla+full@1" if not marker.exists():
            marker.touch()
            os._exit(1)
    yield Report(rung=0, num_rungs=1, budget=1.0, metrics=metrics, details={})


def outcomes(engine: Engine) -> dict[str, queries.EvaluationRow]:
    with Session(engine) as session:
        return {row.design: row for row in queries.evaluations(session, "tiny")}


def test_a_bad_trial_fails_alone_with_one_line_and_a_dead_worker_is_tried_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = writer(f"sqlite:///{tmp_path}/plait.db")
    corpus = Corpus(bytes(range(256)) * 200, str(tmp_path / "marker"))
    heard = Heard()
    config = SearchConfig.read(TINY).with_options(trials=7)
    assert run(config, corpus, engine, heard, rungs=faulty).finished == 7
    rows = outcomes(engine)
    assert {row.state for row in rows.values()} == {"complete", "failed"}
    assert rows["2xgla"].reason == "non_finite: recall" and rows["2xgla"].recall is None
    assert rows["2xhgrn"].reason == "missing_metric: recall"
    assert rows["2xfull"].reason == "RuntimeError: the kernel failed"
    with Session(engine) as session:
        traceback = queries.details(session, rows["2xfull"].id)[1]
    assert traceback is not None and "and says more on other lines" in traceback
    again = rows["2xgla+full@1"]
    assert (again.state, again.attempts) == ("complete", 2)
    assert ("2xgla+full@1", "lost", "worker died, will run again") in heard.ends
    assert "raylet" not in "".join(capfd.readouterr())  # Ray has a paragraph to say of it


def test_workers_start_side_by_side_and_not_one_after_the_other(tmp_path: Path) -> None:
    heard = Heard()
    config = SearchConfig.read(TINY).with_options(trials=4)
    corpus = Corpus(bytes(range(256)) * 200, str(tmp_path / "marker"))
    run(config, corpus, writer(f"sqlite:///{tmp_path}/plait.db"), heard, rungs=faulty)
    assert heard.starts[1] - heard.starts[0] < 0.5  # a worker needs longer to start


class Counting(Heard):
    """Counts Tune's trials in this process as a search goes on, and those of them whose worker died."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: list[tuple[int, int]] = []

    def ended(self, *words) -> None:  # type: ignore[no-untyped-def]
        super().ended(*words)
        if len(self.ends) % 10 == 0:
            gc.collect()
            trials = [thing for thing in gc.get_objects() if type(thing) is Trial]
            self.alive.append((len(trials), sum(trial.status == Trial.ERROR for trial in trials)))


def brief(design: Design, protocol: Protocol, corpus: Corpus, device: torch.device) -> Iterator[Report]:
    """A training that takes no time. The first one of a design ends its worker."""
    marker = Path(corpus.source)
    if str(design) == "4xfull" and not marker.exists():
        marker.touch()
        os._exit(1)
    metrics = {"recall": 0.5, "recall_low": 0.4, "recall_high": 0.6, "lm_bits_per_byte": 3.0}
    yield Report(rung=0, num_rungs=1, budget=1.0, metrics=metrics, details={})


def test_trials_that_ended_do_not_stay_in_the_drivers_memory(tmp_path: Path) -> None:
    space = SearchSpace(depth=(4,), linear=("gla", "hgrn", "retnet"), num_attention=(0, 1, 2, 4), mixtures=True)
    config = SearchConfig.read(TINY).with_options(trials=80, space=space)
    corpus, counting = Corpus(bytes(range(256)) * 200, str(tmp_path / "marker")), Counting()
    assert run(config, corpus, writer(f"sqlite:///{tmp_path}/plait.db"), counting, rungs=brief).finished == 80
    assert Counter(state for _, state, _ in counting.ends) == {"complete": 80, "lost": 1}
    alive, died = zip(*counting.alive, strict=True)
    assert len(alive) == 8 and max(alive) <= 6, counting.alive
    assert died[-1] == 0, counting.alive


class Elsewhere:
    """A controller of Tune that keeps its trials in ways of its own: a list of its own making, a tuple, nothing."""

    def __init__(self, *trials: Trial) -> None:
        self._stopped_trials = trials

    def get_trials(self) -> list[Trial]:
        return list(self._stopped_trials)


def test_trials_that_another_ray_keeps_elsewhere_stay_there() -> None:
    trials = [Trial("brief", stub=True) for _ in range(3)]
    for trial in trials:
        trial.set_status(Trial.TERMINATED)
    controller = Elsewhere(*trials)
    forget_finished(controller)
    assert controller.get_trials() == trials
