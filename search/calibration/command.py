"""`plait calibrate`: our numbers beside published ones, and whether they agree. Light until it runs."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from search import version
from search.calibration.kept import Kept
from search.calibration.options import DEVICES, PARTS, Bench, Options, parsed
from search.calibration.reference import reference
from search.calibration.verdict import Row
from search.progress import WIDTH
from search.terminal import DEFAULT_STORAGE, Storage


def calibrate(
    parts: Annotated[list[str] | None, typer.Argument(help=f"Of {', '.join(PARTS)}; left out: all.")] = None,
    device: Annotated[str, typer.Option(help=f"One of {', '.join(DEVICES)}.")] = "auto",
    seeds: Annotated[int | None, typer.Option(help="Seeds, for a short look.")] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps, for a short look.")] = None,
    batch: Annotated[int | None, typer.Option(help="Examples a step, for a short look.")] = None,
    examples: Annotated[int | None, typer.Option(help="Held-out examples, for a short look.")] = None,
    only: Annotated[str, typer.Option(help="Only cells with this in their name, as in 'mamba2 16'.")] = "",
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Trains mqar otherwise, as in 'mixer=mamba2:state=16'."),
    ] = None,
    text: Annotated[str | None, typer.Option(help="Tiny Shakespeare, one file.")] = None,
    storage: Storage = DEFAULT_STORAGE,
    name: Annotated[str | None, typer.Option(help="A finished search with the study's designs.")] = None,
    protocol: Annotated[str | None, typer.Option(help="Trains the study's designs under this protocol.")] = None,
    depth: Annotated[int, typer.Option(help="Layers of the study's designs, with --protocol.")] = 24,
    out: Annotated[Path, typer.Option(help="Where finished cells are kept.")] = Path("calibration.json"),
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output, all else on the other.")] = False,
) -> None:
    """Trains what others have published and compares; finished cells are kept and not trained again."""
    chosen = tuple(dict.fromkeys(parts or PARTS))
    for part in chosen:
        if part not in PARTS:
            raise ValueError(f"part = {part!r}: must be one of {', '.join(PARTS)}")
    if sets and chosen != ("mqar",):
        raise ValueError(f"set = {sets[0]!r}: changes mqar, which must be the only part")
    options = Options(
        device=device, seeds=seeds, steps=steps, batch=batch, examples=examples, only=only, text=text, storage=storage,
        name=name, protocol=protocol, depth=depth, sets=parsed(sets or ()),
    )  # fmt: skip
    kept = Kept(out)
    console = Console(width=WIDTH, stderr=as_json, highlight=False, markup=False, soft_wrap=False)
    rows, interrupted = _rows(chosen, options, kept, console)
    if rows:
        console.print(table(rows))
    for part in dict.fromkeys(row.part for row in rows):
        data = reference(part)
        console.print(f"\n{part}: {data['source']} ({data['mark']})")
        for choice in data["choices"]:
            console.print(f"- {choice}")
    if as_json:
        sys.stdout.write(json.dumps(report(rows, finished=not interrupted), indent=1) + "\n")
    if interrupted:
        console.print(f"\nStopped; {len(kept.cells)} cells are kept in {out}; the same command goes on.")
        raise typer.Exit(130)
    if any(row.failed for row in rows):
        raise typer.Exit(1)


def _rows(chosen: tuple[str, ...], options: Options, kept: Kept, console: Console) -> tuple[list[Row], bool]:
    """The rows of the chosen parts, and whether they were interrupted on the way."""
    from search.calibration import mqar, study, text
    from search.calibration.training import device_of

    if options.text is not None:
        text.read(options.text)
    started = time.monotonic()
    bench = Bench(options, kept, device_of(options.device), lambda words: console.print(words))
    where = {"cuda": "the GPU", "cpu": "the CPU"}[bench.device.type]
    console.print(f"On {where}; Ctrl-C loses only the cell in flight.")
    rows: list[Row] = []
    try:
        for part in chosen:
            rows.extend({"mqar": mqar.rows, "text": text.rows, "study": study.rows}[part](bench))
    except KeyboardInterrupt:
        return rows, True
    if not rows:
        raise ValueError(f"only = {options.only!r}: no cell of {', '.join(chosen)} has this in its name")
    console.print(f"Done in {time.monotonic() - started:.0f} s.\n")
    return rows, False


def table(rows: list[Row]) -> Table:
    """The rows in WIDTH columns."""
    made = Table(box=None, pad_edge=False, width=WIDTH)
    for heading, ratio in (("what", 5), ("theirs", 3), ("ours", 4), ("verdict", 5)):
        made.add_column(heading, ratio=ratio, overflow="fold")
    for row in rows:
        made.add_row(row.name, row.theirs, row.ours, row.verdict)
    return made


def report(rows: list[Row], *, finished: bool) -> dict[str, Any]:
    """All of it as plain data."""
    parts = dict.fromkeys(row.part for row in rows)
    return {
        "plait": version(),
        "finished": finished,
        "rows": [row.to_dict() for row in rows],
        "reference": {part: {key: reference(part)[key] for key in ("source", "mark", "choices")} for part in parts},
    }
