"""How many of twenty seeds of pure attention solve 32 pairs at length 256 under `screen`, at each learning rate.

`python -m tests.gpu.learnability [DESIGN]` prints JSON: the share of seeds with accuracy 0.9 or more by rung, on
validation data, and the seconds that it took.
"""

import json
import sys
import time
from dataclasses import replace

import torch

from proxies.protocol import named
from proxies.scoring import solved_share
from proxies.tasks import recall_task
from proxies.trainer import Trainer
from space.design import Design
from tests.gpu.proxy import GPU

SEEDS = 20


def main(text: str = "4xfull") -> None:
    protocol, started = named("screen"), time.monotonic()
    training = replace(protocol.recall.training, num_seeds=SEEDS)
    trained = Trainer(Design.parse(text), protocol, recall_task(protocol.recall), training, GPU)
    trained.advance(training.steps)
    found = trained.measure("validation")
    shares = {
        rung: [solved_share(seeds) for seeds in figures.view(-1, SEEDS).tolist()] for rung, figures in found.items()
    }
    report = {"gpu": torch.cuda.get_device_name(), "design": text, "seeds": SEEDS, "steps": training.steps}
    report |= {"learning_rates": training.learning_rates, "solved_share": shares}
    print(json.dumps(report | {"seconds": round(time.monotonic() - started, 1)}, indent=2))


if __name__ == "__main__":
    main(*sys.argv[1:])
