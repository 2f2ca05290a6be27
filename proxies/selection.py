"""Which learning rate a task gets, and the figures its score is made of.

The rate is chosen on validation data by its mean over seeds; a best rate on the edge of its grid asks for one beyond
it, as often as the protocol allows. The figures come from sealed data, and from fresh seeds where the protocol has
them: seeds that had no say in the choice, since the best of many runs is better than it will be again.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from proxies.protocol import RATES
from proxies.stacks import Stacked
from proxies.tasks.base import HeldOut, Task


@dataclass(frozen=True)
class Measured:
    """Figures by rung, one for each seed, and how they came about. `others`: the same of other tasks."""

    figures: dict[str, list[float]]
    details: dict[str, Any]
    others: dict[str, dict[str, list[float]]]


def measured(sweep: Stacked, part: HeldOut, others: Mapping[str, Task] | None = None) -> Measured:
    """The figures on `part` at the chosen rate. `sweep` has trained every learning rate with every seed.

    `others` are tasks that differ in their examples alone, taken at the end. Before it, on validation data, the figures
    are the sweep's own. Raises FloatingPointError when no rate stayed finite, or a fresh seed did not.
    """
    task, training, rates = sweep.task, sweep.training, list(sweep.training.learning_rates)
    validation = sweep.measure("validation")
    best, on_edge = best_rate(task.decided(validation), task.higher_is_better)
    figures, scored, seeds = validation, sweep, list(training.seeds)
    if part == "test":
        for _ in range(training.extensions):
            beyond = _beyond(rates, best) if on_edge else None
            if beyond is None:
                break
            extra = sweep.another([(beyond, seed) for seed in seeds])
            found = extra.measure("validation")
            extra.close()
            first = best == 0
            rates.insert(0 if first else len(rates), beyond)
            validation = {
                rung: torch.cat([found[rung], figure] if first else [figure, found[rung]])
                for rung, figure in validation.items()
            }
            best, on_edge = best_rate(task.decided(validation), task.higher_is_better)
        if training.fresh_seeds:
            seeds = list(training.fresh)
            scored = sweep.another([(rates[best], seed) for seed in seeds])
        figures = scored.measure(part)
    row = best if scored is sweep else 0
    by_seed = {rung: figure[row].tolist() for rung, figure in figures.items()}
    elsewhere = {
        name: {rung: figure[row].tolist() for rung, figure in scored.measure(part, other).items()}
        for name, other in ((others or {}) if part == "test" else {}).items()
    }
    details = {
        "learning_rate": rates[best],
        "learning_rates": rates,
        "on_edge": on_edge,
        "seeds": seeds,
        "validation": {rung: figure.tolist() for rung, figure in validation.items()},
        "by_seed": by_seed,
        "failed_at": sweep.failed_at_K.tolist(),
        "training_losses": sweep.losses_K.tolist(),
        "stacks": sweep.sizes,
        "retried": sweep.retried or scored.retried,
    }
    if scored is not sweep:
        failed = [seed for seed, step in zip(seeds, scored.failed_at_K.tolist(), strict=True) if step >= 0]
        scored.close()
        if failed:
            raise FloatingPointError(f"learning rate {rates[best]:g}: not finite with the fresh seeds {failed}")
    return Measured(by_seed, details, elsewhere)


def best_rate(validation_LS: Tensor, higher_is_better: bool) -> tuple[int, bool]:
    """The learning rate whose mean over seeds is best on validation data, and whether it is on the grid's edge.

    A rate with a failed seed is out. Raises FloatingPointError when every rate has one.
    """
    means = validation_LS.mean(1)
    if not torch.isfinite(means).any():
        raise FloatingPointError("no learning rate has a finite result with every seed")
    worst = -math.inf if higher_is_better else math.inf
    means = torch.where(torch.isfinite(means), means, worst)
    best = int(means.argmax() if higher_is_better else means.argmin())
    return best, len(means) > 2 and best in (0, len(means) - 1)


def _beyond(rates: list[float], best: int) -> float | None:
    """The next rate outside a grid whose best is at its edge, as far away as the last two are from each other."""
    edge, inner = (rates[0], rates[1]) if best == 0 else (rates[-1], rates[-2])
    rate = float(f"{edge * edge / inner:.3g}")
    return rate if RATES[0] <= rate <= RATES[1] else None
