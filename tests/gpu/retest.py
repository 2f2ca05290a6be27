"""Test and retest: the same designs under one protocol twice, with seeds that never meet.

`python -m tests.gpu.retest FOLDER` runs two searches of 25 designs in FOLDER and prints JSON: how well their scores
agree, how well each rung agrees with the end, and the seconds a design. Stopped, it goes on.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from sqlalchemy.orm import Session

from search.store import queries, reader
from search.store.tables import COMPLETE

SPACE = """
[space]
depth = [4]
linear = ["gated_deltanet", "gla:conv=on", "hgrn2", "retnet", "deltanet", "gla"]
num_attention = [0, 1, 4]
placements = ["front", "middle", "back"]
"""
RUNGS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0]
SEARCHES = {"test": 0, "retest": 1000}  # and the first seed of each


def write(
    folder: Path, name: str, first_seed: int = 0, trials: int = 24, share: float = 0.33, protocol: str = "screen"
) -> Path:
    """The search.toml of a search of these designs, in a database `retest.db` of `folder`."""
    config = folder / f"{name}.toml"
    config.write_text(
        f'name = "{name}"\nstorage = "{storage(folder)}"\ntrials = {trials}\nsampler = "grid"\n'
        f'gpus_per_trial = {share}\n[protocol]\nname = "{protocol}"\nrungs = {RUNGS}\n'
        f"recall.training.first_seed = {first_seed}\nlanguage.training.first_seed = {first_seed}\n{SPACE}"
    )
    return config


def storage(folder: Path) -> str:
    return f"sqlite:///{folder.absolute()}/retest.db"


def plait(*words: str) -> str:
    command = [sys.executable, "-m", "search.cli", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--protocol", default="screen")
    parser.add_argument("--trials", type=int, default=25)
    parser.add_argument("--gpus-per-trial", type=float, default=0.33)
    options = parser.parse_args()
    url = storage(options.folder)
    for name, seed in SEARCHES.items():
        config = write(options.folder, name, seed, options.trials, options.gpus_per_trial, options.protocol)
        plait("run", "--config", str(config))
    report: dict[str, Any] = {"agreement": json.loads(plait("agree", *SEARCHES, "--storage", url, "--json"))}
    for name in SEARCHES:
        with Session(reader(url)) as session:
            done = queries.evaluations(session, name, (COMPLETE,))
        report[name] = {
            "designs": len(done),
            "slot_seconds_a_design": round(median(row.seconds or 0 for row in done), 1),
            "wall_seconds": round(max(row.finished or 0 for row in done) - min(row.started or 0 for row in done), 1),
            "rungs": json.loads(plait("agree", name, "--storage", url, "--json"))["rows"],
        }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
