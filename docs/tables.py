"""The parts of `scores.md` that are made from the code and the kept trainings: what stands between two markers."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from docs.measurements import Measurement, expected_best, few_seed_intervals
from proxies.ladders import LADDERS
from proxies.protocol import PROTOCOLS, Protocol, Recall
from proxies.scoring import mean
from proxies.tasks import TASKS

PAGE = Path(__file__).with_name("scores.md")


def filled(page: str, found: Mapping[str, Measurement]) -> str:
    """The page with every part made anew. Raises ValueError when a part has no place in it."""
    parts = {
        "tasks": tasks(),
        "examples": examples(),
        "protocols": protocols(),
        "seeds": seeds(found["seeds"]["half"], found["seeds"]["end"]),
        "ladder": ladder(found["ladder"]),
    }
    for name, text in parts.items():
        marker = re.compile(rf"(<!-- made: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not marker.search(page):
            raise ValueError(f"page = {PAGE.name}: has no part {name!r}")
        page = marker.sub(lambda match, text=text: f"{match[1]}{text}\n{match[2]}", page)  # type: ignore[misc]
    return page


def tasks() -> str:
    """A row a task: what its load counts, its loads, chance at them, ceiling, and its part of RULER."""
    rows = []
    for name, task in TASKS.items():
        settings = LADDERS[name]()
        counted = re.search(r"Load: ([\w ]+)", settings.__doc__ or "")
        assert counted
        made = task(settings)
        chances = dict.fromkeys(f"1/{made.answers(load)}" for load in settings.loads)
        rows.append([
            f"`{name}`", counted[1], ", ".join(map(str, settings.loads)), ", ".join(chances), f"{task.ceiling:g}",
            ", ".join(f"`{part}`" for part in task.ruler) or "none", task.separates,
        ])  # fmt: skip
    return _table(["task", "load", "loads", "chance", "ceiling", "RULER", "what it tells apart"], rows)


def examples() -> str:
    """Each task's own words, which draw an example."""
    return "\n\n".join(
        f"### `{name}`\n\n{(sys.modules[task.__module__].__doc__ or '').strip()}" for name, task in TASKS.items()
    )


def protocols() -> str:
    """A row a protocol: what its scores are made of."""
    return _table(
        ["protocol", "width", "ladders", "steps", "learning rates", "seeds", "fresh seeds", "longer", "looks at"],
        [_protocol(protocol) for protocol in PROTOCOLS.values()],
    )


def seeds(half: list[float], end: list[float]) -> str:
    """What the trainings of one design say about few seeds and about the best of many."""
    centre, third = mean(end), few_seed_intervals(end, 3)
    leaders = sorted(range(len(end)), key=lambda seed: -half[seed])[: len(end) // 3]
    best = sorted(range(len(end)), key=lambda seed: -end[seed])[: len(end) // 3]
    kept = len(set(leaders) & set(best))
    return _table(
        [f"{len(end)} seeds of one design", "accuracy"],
        [
            ["lowest and highest", f"{min(end):.2f} and {max(end):.2f}"],
            ["mean", f"{centre:.2f}"],
            ["best of 3, of 6, of 12", ", ".join(f"{expected_best(end, number):.2f}" for number in (3, 6, 12))],
            ["means of 3 seeds each", ", ".join(f"{middle:.2f}" for middle, _, _ in third)],
            ["of the best third at half the training, in the best third at its end", f"{kept} of {len(best)}"],
        ],
    )


def ladder(found: Measurement) -> str:
    """Each design's figures on one ladder."""
    names = ("area_pairs", "capacity_pairs", "solved_pairs", "recall_low", "recall_high", "recall_x2", "recall_x4")
    return _table(
        ["design", "area", "capacity", "solved", "recall, 95 % interval", "at 2 times", "at 4 times"],
        [
            [f"`{design}`", f"{area:.2f}", f"{capacity:.1f}", f"{solved:.2f}", f"{low:.2f} to {high:.2f}",
             f"{twice:.2f}", f"{four:.2f}"]
            for design, metrics in found["metrics"].items()
            for area, capacity, solved, low, high, twice, four in [[metrics[name] for name in names]]
        ],
    )  # fmt: skip


def _protocol(protocol: Protocol) -> list[str]:
    recall = protocol.recall
    training = recall.training
    ladders = ["pairs"] if isinstance(recall, Recall) else [ladder.task for ladder in recall.ladders]
    return [
        f"`{protocol.name}`", str(protocol.width), ", ".join(ladders), f"{training.steps}",
        ", ".join(f"{rate:g}" for rate in training.learning_rates), f"{training.num_seeds}", f"{training.fresh_seeds}",
        ", ".join(map(str, recall.longer)) or "no", ", ".join(f"{rung:.0%}" for rung in protocol.rungs),
    ]  # fmt: skip


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
