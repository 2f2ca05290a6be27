"""A made landscape to try samplers on before a table of real evaluations exists. It says nothing about real designs.

For a design of depth n with k attention layers at relative places p, and backbone quality q:

    recall = 1 - (1 - q) * exp(-5 k / n * (0.4 + 0.6 * spread) * (0.7 + 0.6 * mean(p))) + noise / 50

where `spread` is n / (k + 1) over the largest gap between attention layers. At half the budget a design has recall
minus a lag of its own of up to 0.15. Memory is that of deployment at 340M. A training takes 60 to 120 seconds.
"""

from search.config import SearchConfig
from search.driver import design_costs
from search.replay import Entry, Reached, Table
from space import BACKBONES, Design, SearchSpace
from tests.search.driving import noise

QUALITY = {"hgrn": 0.15, "retnet": 0.25, "gla": 0.35, "hgrn2": 0.4, "gated_deltanet": 0.55, "deltanet": 0.5}
SPACE = SearchSpace(depth=(8,), linear=tuple(QUALITY), num_attention=(0, 1, 2, 3, 4, 8))


def recall(design: Design) -> float:
    """The formula above."""
    where = [index for index, layer in enumerate(design.layers) if layer.mixer not in BACKBONES]
    linear = [QUALITY[layer.mixer] for layer in design.layers if layer.mixer in BACKBONES]
    depth, count = design.depth, len(where)
    quality = sum(linear) / len(linear) if linear else 0.0
    gaps = [b - a for a, b in zip([-1, *where], [*where, depth], strict=True)]
    spread = depth / (count + 1) / max(gaps)
    mean = sum(where) / max(1, count) / max(1, depth - 1)
    gain = 5 * count / depth * (0.4 + 0.6 * spread) * (0.7 + 0.6 * mean)
    return 1 - (1 - quality) * 2.718281828 ** (-gain) + noise(design, "recall") / 50


def table(space: SearchSpace = SPACE) -> Table:
    """Every design of `space` with two rungs, under the protocol `quick`."""
    config = SearchConfig(name="made", space=space)
    entries = {}
    for design in space.enumerate():
        costs, seconds = design_costs(config, design), 60 + 60 * noise(design, "seconds")
        early = recall(design) - 0.15 * noise(design, "lag")
        rungs = tuple(
            Reached(budget=budget, seconds=seconds * budget, metrics={**costs, "recall": value})
            for budget, value in ((0.5, early), (1.0, recall(design)))
        )
        entries[design.digest] = Entry(design=str(design), state="complete", seconds=seconds, rungs=rungs)
    return Table(
        search="made", protocol=config.proxy.to_dict(), protocol_digest=config.proxy.digest, space=space,
        objectives=config.objectives, deployment=config.to_dict()["deployment"], entries=entries,
    )  # fmt: skip
