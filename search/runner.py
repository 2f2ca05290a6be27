"""One run of a search on Ray Tune: workers that stay, signals, and the driver's place in the database.

Tune keeps no truth: its storage is a temporary folder that goes when the run ends.
"""

import logging
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
from search.resources import Node, gpu_share, in_words, num_slots, this_machine
from search.store import shown
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
        config=config.to_dict() | {"storage": shown(config.storage)},
        version=version(),
    )


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
        num_slots(config, [this_machine()])
    recorder = Recorder.open(engine, definition(config, corpus), extend=extend)
    driver = None
    try:
        with _signals(), _heartbeat(recorder):
            driver = Driver(config, engine, recorder, watcher, 1)
            if driver.finished < config.trials:
                _tune(driver, config, corpus, address, rungs)
        if driver.losses_in_a_row >= MOST_LOSSES:
            raise ValueError(
                f"{driver.losses_in_a_row} workers died in a row (the last: {driver.last_loss}): "
                "look at the machine's memory and its GPU; "
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

    here = this_machine() if address is None else None
    searcher = Suggesting(driver)
    folder = tempfile.mkdtemp(prefix="plait-")
    environment = {"OMP_NUM_THREADS": str(config.cpus_per_trial)}
    try:
        if address is None:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        ray.init(
            address=address or "local",  # never a cluster that happens to run on this machine
            num_cpus=here.cores if here else None,
            num_gpus=here.gpus if here else None,
            include_dashboard=False if address is None else None,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            runtime_env={"env_vars": environment},
        )
        for name in ("ray", "ray.tune", "ray.train"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        _catch_signals()  # Ray has put its own in their place
        nodes = [here] if here else _nodes(ray.nodes())
        driver.num_slots, gpu = num_slots(config, nodes), gpu_share(config, nodes)
        resources = {"CPU": config.cpus_per_trial, **({"GPU": gpu} if gpu else {})}
        name, serving = _look(config, resources) if gpu and rungs is None else ("", {})
        driver.watcher.began(in_words(config, nodes), name, serving)
        trainable = tune.with_parameters(
            Worker,
            protocol=config.proxy.with_text(corpus.digest),
            corpus=corpus,
            num_threads=config.cpus_per_trial,
            gpu=gpu,
            rungs=rungs,
        )
        tune.Tuner(
            tune.with_resources(trainable, resources),
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                scheduler=Stopping(searcher),
                num_samples=-1,
                reuse_actors=True,
                trial_name_creator=short_name,
                trial_dirname_creator=short_name,
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


def short_name(trial: Any) -> str:
    """What Tune calls a trial and its folder: a design's text would be too long for a file system."""
    return str(trial.trial_id)


def _nodes(found: list[dict[str, Any]]) -> list[Node]:
    """The machines of a Ray cluster that are alive."""
    offers = [node["Resources"] for node in found if node["Alive"]]
    return [Node(int(offer.get("CPU", 0)), int(offer.get("GPU", 0))) for offer in offers]


def _look(config: SearchConfig, resources: dict[str, float]) -> tuple[str, dict[str, str]]:
    """A worker's GPU, and what serves each mixer of the space on it. Raises ValueError when a worker cannot use one."""
    import ray

    from search.worker import look

    mixers = [text.split(":")[0] for text in (*config.space.attention, *config.space.linear)]
    remote = ray.remote(num_cpus=resources["CPU"], num_gpus=resources["GPU"], max_retries=0)(look)
    try:
        return ray.get(remote.remote(list(dict.fromkeys(mixers))))
    except ray.exceptions.RayTaskError as error:
        raise ValueError(
            f"gpus_per_trial = {resources['GPU']:g}: {error.cause}; or train on the CPU with --gpus-per-trial 0"
        ) from None


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
