"""Character-level language modelling of tiny Shakespeare against nanoGPT's best validation loss."""

import hashlib
import math
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.calibration.options import Bench, Say, failed
from search.calibration.reference import reference
from search.calibration.verdict import Published, Row, verdict
from space.design import Design

if TYPE_CHECKING:
    import torch

NAME = "text nanogpt"
_TRAINED = (
    "layers", "width", "heads", "mlp_dim", "length", "learning_rates", "batch", "steps", "seeds", "look_every",
    "warmup", "dropout", "num_examples",
)  # fmt: skip


def settings_of(text: bytes, changes: Mapping[str, Any]) -> dict[str, Any]:
    """How the cell is trained: as the reference says, with `changes`. Weights start at 0.02, as nanoGPT's."""
    data = reference("text")
    digest = hashlib.sha256(text).hexdigest()[:16]
    return {"text": digest, "init_std": 0.02, "embedding_std": 0.02, **{key: data[key] for key in _TRAINED}, **changes}


def rows(bench: Bench) -> Iterator[Row]:
    """The one row; without a text it says that it is skipped."""
    data = reference("text")
    published = Published(value=data["loss"], tolerance=data["tolerance"])
    theirs = f"{published.value} nats"
    if not bench.chosen([NAME]):
        return
    if bench.options.text is None:
        yield Row(part="text", name=NAME, theirs=theirs, ours="-", verdict="skipped: no --text")
        return
    text = read(bench.options.text)
    settings = settings_of(text, bench.options.changes)
    source = bench.options.text
    cell = bench.cell(NAME, settings, lambda device, say: run(settings, text, source, device, say))
    if "failure" in cell:
        yield failed("text", NAME, theirs, cell["failure"])
        return
    ours = f"{cell['loss']:.4f}" + (f" ± {cell['deviation']:.4f}" if cell["deviation"] is not None else " nats")
    found = verdict(cell["loss"], published, short=bench.options.short(data))
    yield Row(part="text", name=NAME, theirs=theirs, ours=ours, verdict=found, data=cell)


def read(path: str) -> bytes:
    """The bytes of the file at `path`. Raises ValueError naming it and the reason when it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"text = {path}: cannot be read: {error.strerror}") from None


def run(settings: Mapping[str, Any], text: bytes, source: str, device: "torch.device", say: Say) -> dict[str, Any]:
    """Trains the cell: the mean over seeds of each one's lowest validation loss.

    Raises ValueError for a text that is too short, and FloatingPointError when a seed did not stay finite.
    """
    from proxies.protocol import Language
    from proxies.tasks import CharacterTask
    from search.calibration.training import Fit, proxy, training
    from space.cost import cost

    started = time.monotonic()
    own = training(settings)
    task = CharacterTask(
        Language(training=own, length=settings["length"], num_examples=settings["num_examples"]), text, source
    )
    design, protocol = Design.parse(f"{settings['layers']}xfull"), proxy(settings)
    fit = Fit(design, protocol, task, own, device)
    curve: list[tuple[int, list[float]]] = []
    try:
        for look in fit.looks(settings["look_every"]):
            losses = [bits * math.log(2) for bits in look.figures_LS[0].tolist()]
            curve.append((look.step, losses))
            mean = statistics.fmean(losses)
            say(f"step {look.step} of {settings['steps']}: validation {mean:.4f} nats, {look.seconds:.0f} s")
            if not math.isfinite(mean):
                raise FloatingPointError("a seed's loss is not finite")
        stacks = fit.replicas.sizes
    finally:
        fit.close()
    lowest = [min(losses) for losses in zip(*(losses for _, losses in curve), strict=True)]
    return {
        "loss": statistics.fmean(lowest),
        "deviation": statistics.stdev(lowest) if len(lowest) > 1 else None,
        "by_seed": lowest,
        "at_step": [min(curve, key=lambda look: look[1][seed])[0] for seed in range(len(lowest))],
        "last_losses": curve[-1][1],
        "curve": curve,
        "vocab": task.vocab,
        "parameters": cost(design, protocol.scale_for(task.vocab)).parameters,
        "stacks": stacks,
        "device": device.type,
        "seconds": time.monotonic() - started,
    }
