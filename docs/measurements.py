"""The small trainings behind the pictures of `scores.md`: real ones, on the CPU, kept in `scores.json`.

A training is made again only when its design or its protocol changes, so pictures are drawn again without one.
"""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from proxies.ladders import Pairs
from proxies.protocol import Protocol, Recall, Suite, Training, named
from proxies.scoring import interval
from proxies.summary import recall_metrics
from proxies.tasks import recall_task
from proxies.trainer import Trainer
from space.design import Design

KEPT = Path(__file__).with_name("scores.json")
LOOK = 10  # steps between two points of a learning curve
Measurement = dict[str, Any]


def measurements(say: Callable[[str], None]) -> dict[str, Measurement]:
    """All of them, those that are not kept yet trained now and kept. `say` is told what is trained."""
    torch.set_num_threads(1)
    known = kept() if KEPT.exists() else {}
    quick = named("quick")
    wanted: dict[str, tuple[Callable[..., Measurement], tuple[str, ...], Protocol]] = {
        "plateau": (_curves, ("2xfull",), _pairs(quick, rate=3e-3, num_seeds=8, length=32, pairs=(4, 8))),
        "seeds": (_by_seed, ("2xgated_deltanet",), _pairs(quick, rate=1e-3, num_seeds=24, length=16, pairs=(2, 4))),
        "ladder": (_ladders, ("2xfull", "2xgated_deltanet", "2xgla"), _ladder(quick)),
    }
    for name, (measure, designs, protocol) in wanted.items():
        source = {"designs": list(designs), "protocol": protocol.digest}
        if known.get(name, {}).get("source") != source:
            say(f"{name}: trains {', '.join(designs)}")
            known[name] = {"source": source} | measure(protocol, *designs)
            KEPT.write_text(json.dumps(known) + "\n")
    return known


def kept() -> dict[str, Measurement]:
    """Those of `scores.json`."""
    found: dict[str, Measurement] = json.loads(KEPT.read_text())
    return found


def expected_best(scores: list[float], tries: int) -> float:
    """The mean, over all ways to try `tries` of the trainings, of the best score among them."""
    ordered, ways = sorted(scores), math.comb(len(scores), tries)
    return math.fsum(score * math.comb(index, tries - 1) for index, score in enumerate(ordered)) / ways


def few_seed_intervals(scores: list[float], number: int) -> list[tuple[float, float, float]]:
    """Mean and 95 % interval of each group of `number` seeds, one after the other: what searches would report."""
    groups = [scores[start : start + number] for start in range(0, len(scores) - number + 1, number)]
    found = [interval(group, 0.0, 1.0) for group in groups]
    return [(each.mean, each.low, each.high) for each in found]


def _pairs(quick: Protocol, *, rate: float, num_seeds: int, length: int, pairs: tuple[int, ...]) -> Protocol:
    training = Training(steps=400, batch=24, learning_rates=(rate,), num_seeds=num_seeds)
    recall = Recall(training=training, vocab=32, length=length, pairs=pairs, num_examples=128, filler="zero")
    return replace(quick, recall=recall)


def _ladder(quick: Protocol) -> Protocol:
    ladders = (Pairs(vocab=32, length=32, loads=(1, 2, 4, 8), num_examples=256),)
    training = Training(steps=400, batch=24, learning_rates=(3e-3,), num_seeds=3)
    return replace(quick, recall=Suite(training=training, ladders=ladders, longer=(2, 4)))


def _trainer(protocol: Protocol, design: str) -> Trainer:
    return Trainer(Design.parse(design), protocol, recall_task(protocol.recall), protocol.recall.training)


def _curves(protocol: Protocol, design: str) -> Measurement:
    """Training loss and accuracy on validation data at every LOOK steps, a list a seed."""
    trainer = _trainer(protocol, design)
    steps, losses, accuracies = [], [], []
    for step in range(LOOK, protocol.recall.training.steps + 1, LOOK):
        trainer.advance(step)
        steps.append(step)
        losses.append(trainer.losses_K.clone())
        accuracies.append(_mean_accuracy(trainer))
    return {"steps": steps, "loss": _rounded(torch.stack(losses, 1)), "accuracy": _rounded(torch.stack(accuracies, 1))}


def _by_seed(protocol: Protocol, design: str) -> Measurement:
    """Accuracy on validation data in the middle and at the end of training, a number a seed."""
    trainer = _trainer(protocol, design)
    found = {}
    for name, share in (("half", 0.5), ("end", 1.0)):
        trainer.advance(round(share * protocol.recall.training.steps))
        found[name] = _rounded(_mean_accuracy(trainer))
    return found


def _ladders(protocol: Protocol, *designs: str) -> Measurement:
    """For each design the metrics of its report on test data, and its recall in longer examples."""
    assert isinstance(protocol.recall, Suite)
    found = {}
    for design in designs:
        trainer = _trainer(protocol, design)
        trainer.advance(protocol.recall.training.steps)
        metrics: dict[str, float] = {}
        for times in (1, *protocol.recall.longer):
            task = recall_task(protocol.recall.at_length(times))
            figures = {rung: figure.tolist() for rung, figure in trainer.measure("test", task).items()}
            scored = recall_metrics(protocol.recall, figures)
            metrics |= scored if times == 1 else {f"recall_x{times}": scored["recall"]}
        found[design] = {name: round(value, 4) for name, value in metrics.items()}
    return {"loads": list(protocol.recall.ladders[0].loads), "metrics": found}


def _mean_accuracy(trainer: Trainer) -> torch.Tensor:
    return torch.stack(list(trainer.measure("validation").values())).mean(0)


def _rounded(figures: torch.Tensor) -> Any:
    return torch.round(figures.double(), decimals=4).tolist()
