"""A stack of replicas against the same replicas trained one after the other, on a CPU.

`python -m tests.bench.bench_trainer [threads]` prints JSON: milliseconds a replica-step of both, and their ratio, the
median over rounds in which the two take turns.
"""

import json
import sys
import time
from statistics import median

import torch

from proxies.protocol import named
from proxies.tasks import RecallTask
from proxies.trainer import Trainer
from space.design import Design

DESIGNS = ("4xfull", "4xgla", "4xgated_deltanet", "4xhgrn2+full@3")
STEPS, ROUNDS = 12, 5


def main(threads: int = 1) -> None:
    torch.set_num_threads(threads)
    protocol = named("quick")
    training = protocol.recall.training
    report = {}
    for text in DESIGNS:
        design, task = Design.parse(text), RecallTask(protocol.recall)
        stack = [Trainer(design, protocol, task, training)]
        alone = [Trainer(design, protocol, task, training, replicas=[replica]) for replica in training.replicas]
        rounds = []
        for index in range(ROUNDS + 1):
            rounds.append([_seconds(trainers, (index + 1) * STEPS) for trainers in (stack, alone)])
        rounds = rounds[1:]
        steps = STEPS * len(training.replicas)
        report[text] = {
            "stacked_ms": round(median(a for a, _ in rounds) / steps * 1e3, 2),
            "alone_ms": round(median(b for _, b in rounds) / steps * 1e3, 2),
            "times_as_fast": round(median(b / a for a, b in rounds), 2),
        }
    print(json.dumps({"threads": threads, "replicas": len(training.replicas)} | report, indent=2))


def _seconds(trainers: list[Trainer], steps: int) -> float:
    start = time.perf_counter()
    for trainer in trainers:
        trainer.advance(steps)
    return time.perf_counter() - start


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
