"""Commands that try samplers on evaluations already made: `plait table` writes them, `plait replay` replays them."""

import json
from dataclasses import asdict
from dataclasses import replace as changed
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as Printed

from search.config import SAMPLERS, Halving, SearchConfig
from search.terminal import DEFAULT_STORAGE, Storage, console, one_line, reading

QUICK = ("nsga2", "tpe", "random", "model")
BROUGHT = Path(__file__).parent / "replay" / "placement.csv"


def table(
    name: str,
    out: Annotated[Path, typer.Option(help="A file ending in .json or .csv.")],
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """Writes the evaluations of a search as a table for `plait replay`."""
    with one_line():
        if out.suffix not in (".json", ".csv"):
            raise ValueError(f"out = {out}: must end in .json or .csv")
        from search.replay import Table

        with reading(storage) as session:
            found = Table.of(session, name)
        found.write(out)
    typer.echo(f"Wrote {len(found.entries)} designs, {found.coverage:.1%} of the space, to {out}")


def replay(
    table: Annotated[
        Path | None, typer.Argument(help="What `plait table` wrote. Left out: the table that plait brings.")
    ] = None,
    samplers: Annotated[str, typer.Option(help=f"Some of {','.join(SAMPLERS)}.")] = ",".join(QUICK),
    seeds: Annotated[int, typer.Option(help="Searches of each sampler.")] = 20,
    trials: Annotated[int, typer.Option(help="Evaluations of each search; 0: half of the table.")] = 0,
    workers: Annotated[int, typer.Option(help="Trainings at the same time.")] = 1,
    stopping: Annotated[str, typer.Option(help="Early stopping: none, pareto, or an objective.")] = "none",
    reduction: Annotated[float, typer.Option(help="One in this many goes on at each rung.")] = Halving().reduction,
    objectives: Annotated[
        str, typer.Option(help="As in recall:max,lm_bits_per_byte:min. Left out: the table's own.")
    ] = "",
    out: Annotated[Path | None, typer.Option(help="JSON of every curve.")] = None,
    picture: Annotated[Path | None, typer.Option(help="A file ending in .html; .svg or .png need kaleido.")] = None,
) -> None:
    """Replays searches against a table, on a virtual clock: hypervolume against trainings and seconds."""
    with one_line():
        from search.replay import Table
        from search.replay import replay as run
        from search.replay.report import GOAL, draw, summary

        names = [name.strip() for name in samplers.split(",")]
        for name in names:
            if name not in SAMPLERS:
                raise ValueError(f"samplers = {name!r}: must be some of {', '.join(SAMPLERS)}")
        for field, value, low, high in (("seeds", seeds, 1, 10**4), ("workers", workers, 1, 10**4)):
            if not low <= value <= high:
                raise ValueError(f"{field} = {value}: must be a whole number in {low}..{high}")
        found = Table.read(table or BROUGHT)
        if objectives:
            found = changed(found, objectives=_objectives(objectives))
        if not 0 <= trials <= len(found.entries):
            raise ValueError(f"trials = {trials}: must be a whole number in 0..{len(found.entries)}, the table's size")
        trials = trials or max(1, len(found.entries) // 2)
        rule = Halving(reduction=reduction)
        protocol = dict(found.protocol)
        SearchConfig(
            objectives=dict(found.objectives), stopping=stopping, halving=rule, space=found.space,
            protocol={"name": protocol["name"], "rungs": protocol["rungs"]},
        )  # fmt: skip
        curves = []
        for name in names:
            for seed in range(seeds):
                curves.append(run(found, name, seed, trials=trials, workers=workers, stopping=stopping, rule=rule))
        rows = summary(curves, trials)
        if out is not None:
            asked = {"trials": trials, "workers": workers, "stopping": stopping, "halving": asdict(rule), "goal": GOAL}
            data = {**found.head(), "asked": asked, "summary": rows, "curves": [asdict(curve) for curve in curves]}
            try:
                out.write_text(json.dumps(_finite(data), indent=1), encoding="utf-8")
            except OSError as error:
                raise ValueError(f"out = {out}: cannot be written: {error.strerror}") from None
        if picture is not None:
            draw(curves, picture)
    screen = console()
    screen.print(
        f"{len(found.entries)} designs of {found.space.size} under protocol {protocol['name']} "
        f"({found.protocol_digest});\n"
        f"{trials} evaluations, {workers} workers, {seeds} seeds; share of its hypervolume; median [quartiles]",
        highlight=False,
        markup=False,
    )
    if found.coverage < 1:
        screen.print(
            f"The table holds {found.coverage:.1%} of its space: samplers see only that, and are\nflattered by it.",
            highlight=False,
        )
    screen.print(_printed(rows, trials, GOAL))
    shares = [f"{row['sampler']} {_range(row['of_random'], '.2f')}" for row in rows if row.get("of_random")]
    if shares:
        screen.print(
            f"Of the trainings that random search needs, with 95 % intervals:\n{', '.join(shares)}",
            highlight=False,
            markup=False,
        )


def _objectives(text: str) -> dict[str, str]:
    """`metric:direction`, with commas between; the names are checked with the rest of the search."""
    pairs = [part.split(":") for part in text.replace(" ", "").split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"objectives = {text!r}: must be as in recall:max,memory_bytes:min")
    return {metric: direction for metric, direction in pairs}


def _finite(data: Any) -> Any:
    from search.store.recorder import finite

    return finite(data)


def _printed(rows: list[dict[str, Any]], trials: int, goal: float) -> Printed:
    shown = Printed(box=None, pad_edge=False)
    headings = ("sampler", *(f"after\n{count}" for count in (trials // 4, trials // 2, trials)))
    for heading in (*headings, f"trainings\nto {goal:.0%}", f"seconds\nto {goal:.0%}", "reached", "stopped"):
        shown.add_column(heading, justify="left" if heading == "sampler" else "right", no_wrap=True)
    for row in rows:
        volumes = [format(row[f"hypervolume_{part}"][1], ".3f") for part in ("quarter", "half", "all")]
        shown.add_row(
            row["sampler"], *volumes, _range(row["trainings_to_goal"], "g"),
            _range(row["seconds_to_goal"], ".0f"), f"{row['reached']}/{row['seeds']}", f"{row['stopped']:.0f}",
        )  # fmt: skip
    return shown


def _range(values: tuple[float, float, float], kind: str) -> str:
    low, middle, high = ("-" if value == float("inf") else format(value, kind) for value in values)
    return f"{middle} [{low}, {high}]"
