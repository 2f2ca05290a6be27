"""A process that hangs ends by itself and says where; one that goes on, however long, does not."""

import subprocess
import sys
import time
from pathlib import Path

from filelock import FileLock

WORKER = """
import time
import torch
from search import worker
from search.worker import Worker

def hangs(*given):
    time.sleep(60)
    yield

def fails(*given):
    raise ValueError("no")
    yield

worker.STALLED = 2.0
made = Worker.__new__(Worker)
made.setup({"design": "1xfull"}, None, None, 1, 0, RUNGS)
made.step()
time.sleep(3)
print("alive")
"""
TRAINING = """
import time
from proxies import watchdog
from proxies.protocol import named
from proxies.tasks import recall_task
from proxies.trainer import Trainer
from space.design import Design

protocol = named("quick", {"recall": {"training": {"steps": 10**6}}})
trainer = Trainer(Design.parse("1xfull"), protocol, recall_task(protocol.recall), protocol.recall.training)
trainer.advance(1)
watchdog.arm(1.0)
started, steps = time.monotonic(), 1
while time.monotonic() - started < 3:
    steps += 20
    trainer.advance(steps)
started = time.monotonic()
while time.monotonic() - started < 2:
    trainer.measure("validation")
print("alive", flush=True)
time.sleep(60)
"""
WAITING = """
import sys, time
from filelock import FileLock
from proxies import watchdog
from proxies.ops import tuning

tuning._WAIT = 0.2
watchdog.arm(1.0)
with tuning._patient(FileLock(sys.argv[1])):
    print("alive", flush=True)
    time.sleep(60)
"""


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=50)


def test_a_worker_that_hangs_ends_and_says_where() -> None:
    ended = run(WORKER.replace("RUNGS", "hangs"))
    assert ended.returncode == 1 and "alive" not in ended.stdout
    assert "in hangs" in ended.stderr


def test_a_worker_between_two_designs_is_not_waited_for() -> None:
    ended = run(WORKER.replace("RUNGS", "fails"))
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr


def test_training_and_scoring_may_take_longer_than_the_watchdog_waits_for_a_step() -> None:
    ended = run(TRAINING)
    assert ended.returncode == 1 and ended.stdout == "alive\n", ended.stderr


def test_waiting_for_the_turn_to_tune_is_not_hanging(tmp_path: Path) -> None:
    path = str(tmp_path / "turn.lock")
    with FileLock(path):
        waits = subprocess.Popen([sys.executable, "-c", WAITING, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(8)
        assert waits.poll() is None
    assert waits.communicate(timeout=30)[0] == b"alive\n"
    assert waits.returncode == 1
