"""How much sooner two GPUs of a host end a search than one: `python -m tests.gpu.scaling FOLDER` prints JSON.

24 designs under `screen`, three at a time on each GPU, first on both GPUs, then on one with half of the cores; the
compilers' caches are empty both times. Seconds are those of the whole command. A slot that trains nothing is idle.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from search.store import queries, reader
from search.store.tables import COMPLETE
from tests.gpu.retest import storage, write

GPUS = ("0", "1")


def run(folder: Path, gpus: tuple[str, ...], trials: int) -> dict[str, Any]:
    name = f"gpus{len(gpus)}"
    cores = sorted(os.sched_getaffinity(0))
    cores = cores[: len(cores) * len(gpus) // len(GPUS)]
    caches = {"TRITON_CACHE_DIR": f"{folder}/{name}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/{name}/inductor"}
    started = time.time()
    subprocess.run(
        [sys.executable, "-m", "search.cli", "run", "--config", str(write(folder, name, trials=trials))],
        env=os.environ | caches | {"CUDA_VISIBLE_DEVICES": ",".join(gpus)},
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
        stdout=sys.stderr,
        check=True,
    )
    seconds = time.time() - started
    with Session(reader(storage(folder))) as session:
        done, busy = queries.evaluations(session, name, (COMPLETE,)), queries.busy_share(session, name)
    began = sorted((row.started or 0) - started for row in done)
    first = [row.seconds or 0 for row in done if (row.started or 0) < started + began[0] + 1]
    return {
        "cores": len(cores), "complete": len(done), "seconds": round(seconds, 1), "idle": round(1 - (busy or 0), 3),
        "before_first_training": round(began[0], 1), "first_designs": round(sum(first) / len(first), 1),
        "all_designs": round(sum(row.seconds or 0 for row in done) / len(done), 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trials", type=int, default=24)
    options = parser.parse_args()
    two, one = (run(options.folder.absolute(), gpus, options.trials) for gpus in (GPUS, GPUS[:1]))
    print(json.dumps({"two": two, "one": one, "ratio": round(two["seconds"] / one["seconds"], 3)}, indent=1))


if __name__ == "__main__":
    main()
