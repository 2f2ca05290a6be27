"""One run of a search on Ray Tune: workers that stay, signals, and the driver's place in the database.

Tune keeps no truth: its storage is a temporary folder that goes when the run ends. Ray works in a thread of its own;
the main thread waits for it, for signals and for trouble, and can leave it behind at any moment.
"""

import logging
import os
import shutil
import tempfile
import time
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from proxies.text import Corpus
from search import cluster, version
from search.apart import Abandoned, Apart, arm, interruptible
from search.config import SearchConfig
from search.driver import Driver, Watcher
from search.resources import gpu_share, in_words, num_slots, this_machine
from search.store import shown
from search.store.opening import Definition
from search.store.place import LEASE_SECONDS
from search.store.recorder import Recorder
from search.store.transaction import PATIENCE, in_a_line

ROOT = Path(__file__).parents[1]
_GO_ON = "nothing finished is lost, and the same command goes on"
_CLOSING_SECONDS = 2.0
_LOOK_SECONDS = 2.0
_SETTINGS = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "false",  # an idle process for each core, which no trial ever uses
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


@dataclass(frozen=True)
class Ending:
    """How a run ended: how many evaluations are finished, and whether there are no more designs."""

    finished: int
    exhausted: bool = False


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
    """Runs the search until `config.trials` evaluations are finished or the space is exhausted.

    `rungs` replaces `proxies.evaluate.rungs` in the workers. Raises ValueError when the search cannot run as asked or
    cannot go on, and Interrupted after a signal: then Ray is still at work in this process, see `search.apart.leave`.
    """
    if address is None:
        num_slots(config, [this_machine()])
    else:
        cluster.check(address)
    recorder = Recorder.open(engine, definition(config, corpus), extend=extend, on_away=lambda reason: watcher.noticed(
        f"The database is away ({reason}): waiting for it, {PATIENCE / 60:.0f} minutes at most."
    ))  # fmt: skip
    folder = tempfile.mkdtemp(prefix="plait-")
    head, work = cluster.Head(), None
    try:
        with interruptible():
            driver = Driver(config, engine, recorder, watcher, 0)
            if driver.finished < config.trials:
                work = Apart(partial(_tune, driver, config, corpus, address, head, rungs, folder))
                _attend(work, recorder, head)
        if driver.too_many_losses:
            raise ValueError(
                f"{driver.losses_in_a_row} workers died in a row (the last: {driver.last_loss}): "
                f"look at the machine's memory and its GPU; {_GO_ON}"
            )
        return Ending(driver.finished, driver.exhausted)
    except (ValueError, DBAPIError) as error:
        kind = Abandoned if work is not None and work.running else ValueError
        words = f"database: {in_a_line(error)}; {_GO_ON}" if isinstance(error, DBAPIError) else str(error)
        raise kind(words) from error
    finally:
        Apart(recorder.close).wait(_CLOSING_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)


def _attend(work: Apart, recorder: Recorder, head: cluster.Head) -> None:
    """Waits for the end of the work. Meanwhile it keeps the driver's place, and looks whether the cluster is there."""
    beat = look = time.monotonic()
    while not work.wait(0.1):
        arm()  # Ray puts handlers of its own in their place
        now = time.monotonic()
        if now < look:
            continue
        look = now + _LOOK_SECONDS
        if now - beat > LEASE_SECONDS / 4:
            beat = now
            recorder.heartbeat()
        if head.is_gone():
            raise ValueError(f"the Ray cluster is gone; {_GO_ON}")


def _tune(
    driver: Driver,
    config: SearchConfig,
    corpus: Corpus,
    address: str | None,
    head: cluster.Head,
    rungs: Any,
    folder: str,
) -> None:
    os.environ.update(_SETTINGS)
    warnings.filterwarnings("ignore")
    import ray

    from search.adapter import Suggesting

    # What Ray would print of a lost worker, a paragraph each time. The driver says it in a line.
    setattr(ray._private.worker, "print_to_stdstream", lambda *words, **how: None)  # noqa: B010
    here = this_machine() if address is None else None
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
        if address is not None:
            head.connected()
        nodes = [here] if here else cluster.nodes()
        gpu = gpu_share(config, nodes)
        driver.has_slots(num_slots(config, nodes))
        driver.trains_on("cuda" if gpu else "cpu")
        resources = {"CPU": config.cpus_per_trial, **({"GPU": gpu} if gpu else {})}
        driver.watcher.began(in_words(config, nodes))
        os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(driver.num_slots)  # else workers start one after the other
        searcher = Suggesting(driver, None if here else partial(cluster.slots, config))
        _fit(searcher, config, corpus, resources, rungs, folder)
    finally:
        ray.shutdown()


def _fit(
    searcher: Any, config: SearchConfig, corpus: Corpus, resources: dict[str, float], rungs: Any, folder: str
) -> None:
    from ray import tune

    from search.adapter import Ended, Quiet, Stopping
    from search.worker import Worker

    mixers = list(dict.fromkeys(text.split(":")[0] for text in (*config.space.attention, *config.space.linear)))
    for name in ("ray", "ray.tune", "ray.train"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    trainable = tune.with_parameters(
        Worker,
        protocol=config.proxy.with_text(corpus.digest),
        corpus=corpus,
        num_threads=config.cpus_per_trial,
        gpu=resources.get("GPU", 0),
        rungs=rungs,
        mixers=mixers,
    )
    tuner = tune.Tuner(
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
            callbacks=[Quiet()],
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )
    try:
        tuner.fit()
    except Ended as ended:
        raise ended.error from None


def short_name(trial: Any) -> str:
    """What Tune calls a trial and its folder: a design's text would be too long for a file system."""
    return str(trial.trial_id)
