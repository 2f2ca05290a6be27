"""The study of hybrid linear attention (arXiv 2507.06457): does our recall order its cells as its RULER does?"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from search.calibration.agreement import Cell, Scored, agreement, backbones, facts, ordered_pairs
from search.calibration.options import Bench, Say, failed
from search.calibration.reference import reference
from search.calibration.verdict import AGREES, LOWER, SHORT, Row
from search.calibration.weights import weigh
from search.rank import spearman
from space.design import Design
from space.presets import map_layers

if TYPE_CHECKING:
    import torch

    from proxies.protocol import Protocol
    from proxies.text import Corpus

STUDY_DEPTH = 24
DRAWS = 1000
FEWEST = 3  # cells that can be ordered in a way worth a number


def designs(depth: int) -> dict[Cell, Design]:
    """The study's cells at `depth`: those whose number of attention layers is whole there."""
    study, found = reference("study"), {}
    for backbone, row in study["ruler"].items():
        for ratio in row:
            if backbone == "transformer":
                found[backbone, ratio] = Design.parse(f"{depth}xfull")
                continue
            layers = tuple(study["full_layers_of_24"][ratio]["layers"])
            if len(layers) * depth % STUDY_DEPTH == 0:
                found[backbone, ratio] = Design.hybrid(depth, backbone, map_layers(layers, STUDY_DEPTH, depth))
    return found


def rows(bench: Bench) -> Iterator[Row]:
    """The cells' scores, what they agree with, and the facts that must hold."""
    if bench.options.only and "study" not in bench.options.only:
        return
    if bench.options.name is not None:
        scores, short = from_search(bench.options.storage, bench.options.name), False
    elif bench.options.protocol is not None:
        scores, short = {}, bool(_changes(bench))
        for row, cell, score in _run(bench):
            if row is not None:
                yield row
            elif cell is not None:
                scores[cell] = score
    else:
        wanted = "study (give --name SEARCH or --protocol NAME)"
        yield Row(part="study", name=wanted, theirs="-", ours="-", verdict="skipped: no scores")
        return
    yield from compare(scores, short=short)


def compare(scores: Mapping[Cell, Mapping[str, Any]], *, short: bool = False) -> Iterator[Row]:
    """Rows from our scores, of a cell `recall` and perhaps `bits` and `ladders`, the area of each."""
    from proxies.scoring import bootstrap

    study = reference("study")
    published = {(backbone, ratio): value for backbone, row in study["ruler"].items() for ratio, value in row.items()}
    cells = [
        Scored(cell, published[cell], score["recall"], score.get("bits"), score.get("ladders", {}))
        for cell, score in scores.items()
        if cell in published
    ]
    yield from _agreement_rows(cells, study, short, bootstrap)
    yield from _weight_rows(cells, study["tie_below"])
    recall = {cell.cell: cell.recall for cell in cells}
    bits = {cell.cell: cell.bits for cell in cells if cell.bits is not None}
    for name, holds in facts(recall, bits, study).items():
        ours = {True: "true", False: "false", None: "unknown"}[holds]
        found = SHORT if short else {True: AGREES, False: "does not hold", None: "unknown: cells missing"}[holds]
        data = {"fact": name, "holds": holds}
        yield Row(part="study", name=study["must_hold"][name], theirs="true", ours=ours, verdict=found, data=data)


def _agreement_rows(
    cells: Sequence[Scored], study: Mapping[str, Any], short: bool, bootstrap: Callable[..., Any]
) -> Iterator[Row]:
    tie, target = study["tie_below"], study["target"]
    _, pairs = ordered_pairs(cells, tie)
    name = f"pairs ordered as by RULER ({pairs} pairs of {len(cells)} cells)"
    if len(cells) < FEWEST or not pairs:
        wanted = f"unknown: {len(cells)} cells, {FEWEST} needed"
        yield Row(part="study", name=name, theirs=f">= {target:.0%}", ours="-", verdict=wanted)
        return

    def share(sample: Sequence[Scored]) -> float:
        value = agreement(sample, tie)
        return 0.5 if math.isnan(value) else value  # a draw without pairs says nothing either way

    def correlation(sample: Sequence[Scored]) -> float:
        value = spearman([cell.ruler for cell in sample], [cell.recall for cell in sample])
        return 0.0 if math.isnan(value) else value

    whole, ranked = bootstrap(cells, share, draws=DRAWS), bootstrap(cells, correlation, draws=DRAWS)
    without = {
        backbone: agreement([cell for cell in cells if cell.cell[0] != backbone], tie) for backbone in backbones(cells)
    }
    data = {
        "agreement": whole.mean, "low": whole.low, "high": whole.high, "pairs": pairs,
        "without_backbone": {key: None if math.isnan(value) else value for key, value in without.items()},
        "cells": [
            {"cell": " ".join(c.cell), "ruler": c.ruler, "recall": c.recall, "bits": c.bits, "ladders": dict(c.ladders)}
            for c in cells
        ],
    }  # fmt: skip
    yield Row(
        part="study",
        name=name,
        theirs=f">= {target:.0%}",
        ours=f"{whole.mean:.0%} [{whole.low:.0%}, {whole.high:.0%}]",
        verdict=SHORT if short else AGREES if whole.mean >= target else LOWER,
        data=data,
    )
    yield Row(
        part="study", name="Spearman with RULER, cells drawn again", theirs="-", verdict="",
        ours=f"{ranked.mean:.2f} [{ranked.low:.2f}, {ranked.high:.2f}]",
        data={"spearman": ranked.mean, "low": ranked.low, "high": ranked.high},
    )  # fmt: skip


def _weight_rows(cells: Sequence[Scored], tie_below: float) -> Iterator[Row]:
    """What each ladder alone and other weights of them would order."""
    found = weigh(cells, tie_below)
    if found is None:
        return
    for name, share in found.alone.items():
        yield Row(part="study", name=f"by {name} alone", theirs="-", ours=f"{share:.0%}", verdict="")
    weights = ", ".join(f"{name} {weight:g}" for name, weight in found.weights.items() if weight)
    unseen = ", ".join(f"{backbone} {share:.0%}" for backbone, share in found.unseen.items())
    yield Row(
        part="study", name="by the weights that order these cells best", theirs="-", verdict="",
        ours=f"{found.chosen:.0%}: {weights}", data=asdict(found),
    )  # fmt: skip
    yield Row(
        part="study", name="each backbone's pairs by weights chosen without it", theirs="-", verdict="",
        ours=f"{found.judged:.0%}: {unseen}",
    )  # fmt: skip


def from_search(storage: str, name: str) -> dict[Cell, dict[str, Any]]:
    """The scores of the study's cells in a search, at the depth at which it has most of them.

    A cell is found by its layers, whatever the options of its mixers; a design without options comes first. Raises
    ValueError when there is no such search, or none of its complete designs is a cell.
    """
    from sqlalchemy.orm import Session

    from search.store import queries, reader

    with Session(reader(storage)) as session:
        queries.search_summary(session, name)
        complete = queries.evaluations(session, name, (queries.COMPLETE,))
    by_strip: dict[str, queries.EvaluationRow] = {}
    for row in sorted(complete, key=lambda row: any(layer.options for layer in Design.parse(row.design).layers)):
        if row.recall is not None:
            by_strip.setdefault(Design.parse(row.design).strip, row)
    at_depth = [
        {cell: by_strip[design.strip] for cell, design in designs(depth).items() if design.strip in by_strip}
        for depth in sorted({len(strip) for strip in by_strip})
    ]
    found = max(at_depth, key=len, default={})
    if not found:
        raise ValueError(f"search = {name!r}: none of its {len(complete)} complete designs is a cell of the study")
    return {
        cell: {
            "design": row.design, "recall": row.recall, "bits": row.lm_bits_per_byte, "ladders": _areas(row.metrics),
        }
        for cell, row in found.items()
    }  # fmt: skip


def _run(bench: Bench) -> Iterator[tuple[Row | None, Cell | None, dict[str, Any]]]:
    """Each cell's score under the protocol, or the row that says why there is none."""
    from proxies.protocol import named
    from proxies.text import Corpus

    assert bench.options.protocol is not None
    changes = _changes(bench)
    overrides = {"recall": {"training": changes}, "language": {"training": changes}} if changes else {}
    corpus = Corpus.load(None)
    protocol = named(bench.options.protocol, overrides).with_text(corpus.digest)
    for cell, design in designs(bench.options.depth).items():
        name = f"study {' '.join(cell)}"
        settings = {"design": design.text, "protocol": protocol.digest}
        made = bench.cell(
            name,
            settings,
            lambda device, say, design=design: _score(design, protocol, corpus, device, say),  # type: ignore[misc]
        )
        if "failure" in made:
            yield failed("study", name, "-", made["failure"]), None, {}
        else:
            yield None, cell, made


def _changes(bench: Bench) -> dict[str, int]:
    """What replaces the protocol's own training: its batch and held-out examples stay."""
    names = {"seeds": "num_seeds", "steps": "steps"}
    return {names[key]: value for key, value in bench.options.changes.items() if key in names}


def _score(design: Design, protocol: "Protocol", corpus: "Corpus", device: "torch.device", say: Say) -> dict[str, Any]:
    from proxies.evaluate import evaluate

    report = evaluate(design, protocol, corpus, device=device)
    metrics = report.metrics
    say(f"recall {metrics['recall']:.3f} [{metrics['recall_low']:.3f}, {metrics['recall_high']:.3f}]")
    return {
        "recall": metrics["recall"], "low": metrics["recall_low"], "high": metrics["recall_high"],
        "bits": metrics.get("lm_bits_per_byte"), "ladders": _areas(metrics), "device": device.type,
        "seconds": report.details.get("seconds"),
    }  # fmt: skip


def _areas(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The area of each ladder by its name; none of a protocol with one ladder."""
    return {key.removeprefix("area_"): value for key, value in metrics.items() if key.startswith("area_")}
