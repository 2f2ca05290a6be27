"""From a task's figures by rung and seed to the scores of each seed, and to the metrics of a report.

Recall is the mean over the seeds of one number a seed. Of a ladder alone it is the mean accuracy over its loads; of a
mixture the weighted mean, over its ladders, of the area under accuracy by log load, 0 at chance and 1 at the ceiling.
"""

import math
from collections.abc import Mapping, Sequence

from proxies.protocol import Recall, Suite
from proxies.scoring import area, capacity, interval, mean, solved_share
from proxies.tasks import MixtureTask, RecallTask, recall_task
from proxies.tasks.language import REPEATED, WHOLE

Figures = Mapping[str, Sequence[float]]  # a number for each seed, by rung


def recall_scores(settings: Recall | Suite, figures: Figures) -> list[float]:
    """The recall of each seed, whose mean is the score."""
    task = recall_task(settings)
    if not isinstance(task, MixtureTask):
        return [mean(seed) for seed in zip(*figures.values(), strict=True)]
    assert isinstance(settings, Suite)
    areas = [_areas(task, name, by_load) for name, by_load in task.by_task(figures).items()]
    return [
        math.fsum(weight * one for weight, one in zip(settings.shares, seed, strict=True))
        for seed in zip(*areas, strict=True)
    ]


def language_scores(figures: Figures) -> list[float]:
    """The bits a byte of each seed."""
    return list(figures[WHOLE])


def recall_metrics(settings: Recall | Suite, figures: Figures) -> dict[str, float]:
    """Recall with its 95 % interval; accuracy by rung; of every ladder the capacity at accuracy 0.9, the share of seeds
    that solved it with 0.9 on average, and of a mixture's also the area."""
    task = recall_task(settings)
    ladders = task.by_task(figures) if isinstance(task, MixtureTask) else {task.name: _by_load(task, figures)}
    metrics = {f"recall_{rung}": mean(values) for rung, values in figures.items()}
    for name, by_load in ladders.items():
        loads = sorted(by_load)
        seeds = list(zip(*(by_load[load] for load in loads), strict=True))
        metrics[f"capacity_{name}"] = capacity(loads, [mean(by_load[load]) for load in loads])
        metrics[f"solved_{name}"] = solved_share([mean(seed) for seed in seeds])
        if isinstance(task, MixtureTask):
            metrics[f"area_{name}"] = mean(_areas(task, name, by_load))
    score = interval(recall_scores(settings, figures), 0.0, 1.0)
    return {"recall": score.mean, "recall_low": score.low, "recall_high": score.high} | metrics


def language_metrics(figures: Figures) -> dict[str, float]:
    """Bits a byte with its 95 % interval, and bits a byte where a bigram comes back, if one does."""
    score = interval(language_scores(figures), 0.0)
    metrics = {"lm_bits_per_byte": score.mean, "lm_low": score.low, "lm_high": score.high}
    return metrics | ({"lm_bits_per_repeated": mean(figures[REPEATED])} if REPEATED in figures else {})


def _areas(task: MixtureTask, name: str, by_load: Mapping[int, Sequence[float]]) -> list[float]:
    """The area under a ladder's accuracy of each seed, none below 0."""
    loads = sorted(by_load)
    chance = mean([task.chance(f"{name}_{load}") for load in loads])
    seeds = zip(*(by_load[load] for load in loads), strict=True)
    return [max(0.0, area(loads, seed, chance)) for seed in seeds]


def _by_load(task: RecallTask, figures: Figures) -> dict[int, Sequence[float]]:
    return {load: figures[rung] for rung, load in task.rungs.items()}
