"""Multi-query associative recall against the table of Log-Linear Attention (arXiv 2506.04761).

A cell is a mixer and a width. All its learning rates and seeds train together; the rate is the one with the best mean
over seeds on validation data, and the accuracy is read once on sealed test data.
"""

import math
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from proxies.ladders import Segment, Segments, check
from search.calibration.options import Bench, Say, failed
from search.calibration.reference import reference
from search.calibration.verdict import SHORT, Published, Row, accuracy, verdict
from space.design import Design, nearest

if TYPE_CHECKING:
    import torch

MIXERS = {"transformer": "full", "mamba2": "mamba2", "gated_deltanet": "gated_deltanet"}
_TRAINED = (
    "layers", "train", "shares", "test", "vocab", "filler", "learning_rates", "batch", "steps", "seeds", "num_examples",
    "heads", "warmup", "init_std", "embedding_std", "solved", "look_every",
)  # fmt: skip


def cells() -> dict[str, tuple[str, int, Published]]:
    """Mixer, width and published accuracy of every cell, by its name."""
    data = reference("mqar")
    return {
        f"mqar {name} {width}": (MIXERS[name], int(width), accuracy(figures[0], figures[1], data["at_least"]))
        for name, row in data["accuracy"].items()
        for width, figures in row.items()
    }


def settings_of(mixer: str, width: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """How a cell is trained: as the reference says, with `changes`. Raises ValueError for a change of what is no
    setting, or that is of another kind."""
    data = reference("mqar")
    settings = {
        "mixer": mixer,
        "width": width,
        "mlp_dim": data["mlp_over_width"] * width,
        **{key: data[key] for key in _TRAINED},
    }
    for key, value in changes.items():
        if key not in settings:
            raise ValueError(f"set {key!r}: must be one of {', '.join(settings)}{nearest(key, settings)}")
        _check_like(settings[key], key, value)
    return {**settings, **changes}


def _check_like(known: Any, key: str, value: Any) -> None:
    kinds: tuple[type[Any], ...] = (int, float) if isinstance(known, float) else (type(known),)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise ValueError(f"set {key} = {value!r}: must be like {known!r}")
    if key in ("train", "test") and any(not isinstance(each, list) or len(each) != 2 for each in value):
        raise ValueError(f"set {key} = {value!r}: must be of lengths with a number of pairs each, like [[64, 4]]")
    if key == "look_every":
        check("set", key, value, 1, 10**7)


def rows(bench: Bench) -> Iterator[Row]:
    """A row a cell, in the order of the table. Another mixer than a cell's, set, leaves the cell out."""
    known, sets = cells(), bench.options.sets
    suffix = f" with {', '.join(f'{key}={value}' for key, value in sets.items())}" if sets else ""
    for name in bench.chosen(list(known)):
        mixer, width, published = known[name]
        settings = settings_of(mixer, width, {**sets, **bench.options.changes})
        if Design.parse(f"1x{settings['mixer']}").layers[0].mixer != mixer:
            continue
        cell = bench.cell(name, settings, lambda device, say, settings=settings: run(settings, device, say))  # type: ignore[misc]
        deviation = reference("mqar")["accuracy"][name.split()[1]][str(width)][1]
        theirs = f">= {published.value:g} %" if published.at_least else f"{published.value} ± {deviation} %"
        if "failure" in cell:
            yield failed("mqar", name + suffix, theirs, cell["failure"])
            continue
        ours = f"{cell['accuracy']:.1f}" + (f" ± {cell['deviation']:.1f} %" if cell["deviation"] is not None else " %")
        found = verdict(cell["accuracy"], published, short=bench.options.short(reference("mqar")))
        if found != SHORT and cell["on_edge"]:
            found += ", rate on edge"
        yield Row(part="mqar", name=name + suffix, theirs=theirs, ours=ours, verdict=found, data=cell)


def run(settings: Mapping[str, Any], device: "torch.device", say: Say) -> dict[str, Any]:
    """Trains one cell. Raises FloatingPointError when no learning rate stayed finite with every seed."""
    from proxies.selection import best_rate
    from proxies.tasks import SegmentsTask
    from search.calibration.training import Fit, proxy, training

    started = time.monotonic()
    train, test = (tuple(Segment(*segment) for segment in settings[part]) for part in ("train", "test"))
    fields = {key: settings[key] for key in ("vocab", "filler", "num_examples")}
    task = SegmentsTask(Segments(train=train, shares=tuple(settings["shares"]), test=test, **fields))
    design = Design.parse(f"{settings['layers']}x{settings['mixer']}")
    fit = Fit(design, proxy(settings), task, training(settings), device)
    try:
        for look in fit.looks(settings["look_every"]):
            best, on_edge = best_rate(look.figures_LS, True)
            reached = float(look.figures_LS[best].mean())
            rate = settings["learning_rates"][best]
            say(
                f"step {look.step} of {settings['steps']}: validation {100 * reached:.1f} % at {rate:g}, "
                f"{look.seconds:.0f} s"
            )
            if reached >= settings["solved"]:
                break
        by_rung = {rung: figures[best].tolist() for rung, figures in fit.replicas.measure("test").items()}
        by_seed = [100 * statistics.fmean(seed) for seed in zip(*by_rung.values(), strict=True)]
        return {
            "accuracy": statistics.fmean(by_seed),
            "deviation": statistics.stdev(by_seed) if len(by_seed) > 1 else None,
            "by_seed": by_seed,
            "by_segment": {rung: 100 * statistics.fmean(figures) for rung, figures in by_rung.items()},
            "learning_rate": settings["learning_rates"][best],
            "on_edge": on_edge,
            "validation": [[100 * value for value in row] for row in look.figures_LS.tolist()],
            "steps_done": look.step,
            "chance": 100 * statistics.fmean(task.chance(rung) for rung in by_rung),
            "last_losses": [loss if math.isfinite(loss) else None for loss in fit.replicas.losses_K.tolist()],
            "stacks": fit.replicas.sizes,
            "device": device.type,
            "seconds": time.monotonic() - started,
        }
    finally:
        fit.close()
