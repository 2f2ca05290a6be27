"""One run of a search on Ray Tune: workers that stay, signals, and the driver's place in the database.

Tune keeps no truth: its storage is a temporary folder that goes when the run ends.
"""

import logging
import math
import os
import shutil
import signal
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from proxies.text import Corpus
from search import version
from search.config import SearchConfig
from search.driver import MOST_LOSSES, Driver, Watcher
from search.store.recorder import LEASE_SECONDS, Definition, Recorder

ROOT = Path(__file__).parents[1]
_QUIET = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


class Interrupted(BaseException):
    """A signal asked the search to stop."""


@dataclass(frozen=True)
class Ending:
    """How a run ended: how many evaluations are finished, and why there are no more."""

    finished: int
    exhausted: bool = False
    interrupted: bool = False


def definition(config: SearchConfig, corpus: Corpus) -> Definition:
    """What the store keeps of a search on `corpus`."""
    protocol = config.proxy.with_text(corpus.digest)
    return Definition(
        name=config.name,
        space=config.space,
        protocol=protocol.to_dict(),
        protocol_digest=protocol.digest,
        config=config.to_dict(),
        version=version(),
    )


def num_cores() -> int:
    """Cores this process may use: affinity and the container's quota count."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass  # no quota
    return max(1, cores)


def num_slots(config: SearchConfig, cores: int) -> int:
    """How many trainings run at once. Raises ValueError when not even one fits."""
    fitting = cores // config.cpus_per_trial
    if not fitting:
        raise ValueError(f"cpus_per_trial = {config.cpus_per_trial}: must be in 1..{cores}, the cores there are")
    return min(fitting, config.workers) if config.workers else fitting


def run(
    config: SearchConfig,
    corpus: Corpus,
    engine: Engine,
    watcher: Watcher,
    *,
    extend: bool = False,
    address: str | None = None,
    rungs: Any = None,
) -> Ending:
    """Runs the search until `config.trials` evaluations are finished, the space is exhausted, or a signal comes.

    `rungs` replaces `proxies.evaluate.rungs` in the workers. Raises ValueError when the search cannot be run as asked.
    """
    if address is None:
        num_slots(config, num_cores())
    recorder = Recorder.open(engine, definition(config, corpus), extend=extend)
    driver = None
    try:
        with _signals(), _heartbeat(recorder):
            driver = Driver(config, engine, recorder, watcher, 1)
            if driver.finished < config.trials:
                _tune(driver, config, corpus, address, rungs)
        if driver.losses_in_a_row >= MOST_LOSSES:
            raise ValueError(
                f"{driver.losses_in_a_row} workers died in a row: look at the machine's memory; "
                "nothing finished is lost, and the same command goes on"
            )
        return Ending(driver.finished, driver.exhausted)
    except (Interrupted, KeyboardInterrupt):
        return Ending(driver.finished if driver else 0, interrupted=True)
    finally:
        recorder.close()


def _tune(driver: Driver, config: SearchConfig, corpus: Corpus, address: str | None, rungs: Any) -> None:
    os.environ.update(_QUIET)
    warnings.filterwarnings("ignore")
    import ray
    from ray import tune

    from search.adapter import Stopping, Suggesting
    from search.worker import Worker

    searcher = Suggesting(driver)
    folder = tempfile.mkdtemp(prefix="plait-")
    environment = {"OMP_NUM_THREADS": str(config.cpus_per_trial)}
    try:
        if address is None:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        ray.init(
            address=address,
            num_cpus=num_cores() if address is None else None,
            include_dashboard=False if address is None else None,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            runtime_env={"env_vars": environment},
        )
        for name in ("ray", "ray.tune", "ray.train"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        _catch_signals()  # Ray has put its own in their place
        driver.num_slots = num_slots(config, int(ray.cluster_resources().get("CPU", 0)))
        trainable = tune.with_parameters(
            Worker,
            protocol=config.proxy.with_text(corpus.digest),
            corpus=corpus,
            num_threads=config.cpus_per_trial,
            rungs=rungs,
        )
        tune.Tuner(
            tune.with_resources(trainable, {"CPU": config.cpus_per_trial}),
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                scheduler=Stopping(searcher),
                num_samples=-1,
                reuse_actors=True,
                trial_name_creator=lambda trial: trial.trial_id,
                trial_dirname_creator=lambda trial: trial.trial_id,
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=folder,
                verbose=0,
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        ).fit()
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _catch_signals() -> None:
    def interrupt(number: int, frame: object) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)  # once is enough: the rest is cleaning up
        raise Interrupted

    for each in _SIGNALS:
        signal.signal(each, interrupt)


@contextmanager
def _signals() -> Iterator[None]:
    """Inside, a signal to stop raises Interrupted. Only the main thread can hear signals."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("a search runs in the main thread")
    before = {each: signal.getsignal(each) for each in _SIGNALS}
    _catch_signals()
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def _heartbeat(recorder: Recorder) -> Iterator[None]:
    """Renews the driver's place in the database for as long as it lives."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(LEASE_SECONDS / 4):
            try:
                recorder.heartbeat()
            except SQLAlchemyError:
                continue  # the next beat comes well before the lease ends

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
