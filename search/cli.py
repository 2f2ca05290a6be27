"""The `plait` command. Heavy libraries are imported by the commands that need them, so that looking is quick."""

import csv
import io
import json
import os
import re
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from proxies.protocol import PROTOCOLS
from search import offline, version
from search.agree import agree
from search.calibration.command import calibrate
from search.config import BUILT_IN, SearchConfig, template
from search.progress import bytes_text, print_front, serving_table
from search.terminal import DEFAULT_STORAGE, STORAGE_VARIABLE, Storage, one_line, reading, stoppable
from search.terminal import console as new_console
from space.cost import DTYPE_BYTES, MATCHES, cost, layer_shapes, matched
from space.design import Design
from space.scale import SCALES, Scale

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Searches for hybrid attention / linear-attention designs.",
)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"plait {version()}")
        raise typer.Exit()


@app.callback()
def _plait(
    say_version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Says the version, no more.")
    ] = False,
) -> None: ...


@app.command()
def run(
    config: Annotated[Path | None, typer.Option(help="A search.toml; left out: the built-in quick search.")] = None,
    storage: Annotated[str | None, typer.Option(help="Database URL.", envvar=STORAGE_VARIABLE)] = None,
    name: Annotated[str | None, typer.Option(help="The search's name.")] = None,
    trials: Annotated[int | None, typer.Option(help="How many designs to finish in all.")] = None,
    text: Annotated[str | None, typer.Option(help="File or folder of text for language modelling.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on in a larger space than the search began with.")] = False,
    workers: Annotated[int | None, typer.Option(help="Trainings at the same time.")] = None,
    cpus_per_trial: Annotated[int | None, typer.Option(help="CPU cores each training uses.")] = None,
    gpus_per_trial: Annotated[
        float | None,
        typer.Option(
            help="Share of a GPU each training uses, as in 1 or 0.5; 0: the CPU. Left out: 1 if there are GPUs."
        ),
    ] = None,
    address: Annotated[str | None, typer.Option(help="A running Ray cluster.")] = None,
) -> None:
    """Runs a search, or goes on with it."""
    with one_line(), stoppable():
        settings = (SearchConfig.read(config) if config else BUILT_IN["quick"]).with_options(
            storage=storage, name=name, trials=trials, text=text, workers=workers, cpus_per_trial=cpus_per_trial,
            gpus_per_trial=gpus_per_trial,
        )  # fmt: skip
        if text == "":
            raise ValueError("text = '': must be a file or a folder")
        from search.running import carry_out, carry_out_confirmation

        carry_out(settings, extend=resume, address=address)
        if settings.confirm.after_run:
            carry_out_confirmation(settings, address=address)


@app.command()
def confirm(
    name: str,
    storage: Storage = DEFAULT_STORAGE,
    to: Annotated[str, typer.Option("--name", help="What the new search is called. Left out: NAME-confirm.")] = "",
    protocol: Annotated[
        str | None, typer.Option(help=f"{', '.join(PROTOCOLS)}. Left out: as the search's configuration says.")
    ] = None,
    probability: Annotated[
        float | None, typer.Option(help="Least probability of being on the front. Left out: as configured.")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="How many designs at most, the most probable first.")] = None,
    workers: Annotated[int | None, typer.Option(help="Trainings at the same time.")] = None,
    cpus_per_trial: Annotated[int | None, typer.Option(help="CPU cores each training uses.")] = None,
    gpus_per_trial: Annotated[float | None, typer.Option(help="Share of a GPU each training uses; 0: the CPU.")] = None,
    address: Annotated[str | None, typer.Option(help="A running Ray cluster.")] = None,
) -> None:
    """Trains the front of a search again, and what is near it: fresh seeds, longer."""
    with one_line(), stoppable():
        with reading(storage) as session:
            from search.store import queries

            stored = SearchConfig.from_dict(queries.search_summary(session, name).config)
        asked = stored.confirm
        if protocol is not None:
            asked = replace(asked, protocol={"name": protocol})
        if probability is not None:
            asked = replace(asked, probability=probability)
        settings = stored.with_options(
            storage=storage, confirm=asked, workers=workers, cpus_per_trial=cpus_per_trial,
            gpus_per_trial=gpus_per_trial,
        )  # fmt: skip
        from search.running import carry_out_confirmation

        carry_out_confirmation(settings, to, trials=trials, address=address)


@app.command()
def status(name: Annotated[str | None, typer.Argument()] = None, storage: Storage = DEFAULT_STORAGE) -> None:
    """How far the searches are, or one of them."""
    with one_line(), reading(storage) as session:
        from search.store import controls, queries

        for each in [name] if name else queries.search_names(session):
            summary = queries.search_summary(session, each)
            states = ", ".join(f"{count} {state}" for state, count in summary.counts.items() if count)
            confirms = f", confirms {summary.confirms}" if summary.confirms else ""
            typer.echo(f"{each}: {summary.finished} of {summary.trials} finished ({states or 'nothing yet'}){confirms}")
            if (busy := queries.busy_share(session, each)) is not None:
                typer.echo(f"  slots busy {busy:.0%}")
            for reason, count in queries.failures(session, each)[:3]:
                typer.echo(f"  {count} × {reason}")
            if (audits := queries.false_prunes(session, each)) is not None:
                wrong, count = audits
                rate = f": {wrong / count:.0%}" if count else ""
                typer.echo(f"  false prunes: {wrong} of {count} audited{rate} ended on the front or in the best share")
            if known := controls.of(session, each):
                typer.echo(f"  controls: {', '.join(control.words for control in known)}")
            for warning in controls.warnings(session, each):
                typer.echo(f"  {warning}")


@app.command()
def front(
    name: str,
    format: Annotated[str, typer.Option(help="table, json or csv.")] = "table",
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """The designs of a search that no other beats."""
    with one_line():
        if format not in ("table", "json", "csv"):
            raise ValueError(f"format = {format!r}: must be one of table, json, csv")
        with reading(storage) as session:
            from search.store import queries

            summary, rows = queries.search_summary(session, name), queries.front(session, name)
            probability = queries.probabilities(session, name)
            again = queries.confirmations(session, name)
    fields = (
        "design",
        "digest",
        "recall",
        "recall_low",
        "recall_high",
        "lm_bits_per_byte",
        "memory_bytes",
        "parameters",
    )
    data = [
        {field: getattr(row, field) for field in fields}
        | {"front_probability": probability[row.id], "strip": Design.parse(row.design).strip}
        for row in rows
    ]
    if format == "table":
        print_front(new_console(), summary, rows, probability)
        for other in again:
            typer.echo(f"Trained again with fresh seeds: plait front {other}")
    elif format == "json":
        typer.echo(json.dumps(data, indent=2))
    else:
        text = io.StringIO()
        table = csv.DictWriter(text, [*fields, "front_probability", "strip"], lineterminator="\n")
        table.writeheader()
        table.writerows(data)
        typer.echo(text.getvalue(), nl=False)


def _design(text: str, storage: str, search: str | None = None) -> Design:
    """The design written as `text`, or the one in the database whose digest starts so."""
    if not re.fullmatch(r"[0-9a-f]+", text):
        return Design.parse(text)
    with reading(storage) as session:
        from search.store import queries

        return queries.find_design(session, text, search)


def _scale(name: str) -> Scale:
    if name not in SCALES:
        raise ValueError(f"scale = {name!r}: must be one of {', '.join(SCALES)}")
    return SCALES[name]


def _print_cost(design: Design, scale: Scale, context: int, batch: int, dtype: str) -> None:
    found = cost(design, scale, context=context, batch=batch, dtype=dtype)
    typer.echo(f"At {scale.name}, context {context}, batch {batch}, {dtype}:")
    typer.echo(f"  parameters {found.parameters / 1e6:.1f} M, {found.flops_per_token / 1e9:.3f} GFLOPs a token")
    typer.echo(
        f"  memory {bytes_text(found.memory_bytes)} = "
        f"KV cache {bytes_text(found.kv_bytes)} + state {bytes_text(found.state_bytes)}"
    )


@app.command("cost")
def cost_command(
    design: str,
    scale: Annotated[str, typer.Option(help=f"One of {', '.join(SCALES)}.")] = "340m",
    context: int = 4096,
    batch: int = 1,
    dtype: Annotated[str, typer.Option(help=f"One of {', '.join(DTYPE_BYTES)}.")] = "bfloat16",
    match: Annotated[str, typer.Option(help=f"What designs share: {', '.join(MATCHES)}.")] = "width",
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """What a design costs when deployed."""
    with one_line():
        found = _design(design, storage)
        _print_cost(found, matched(found, _scale(scale), match), context, batch, dtype)


@app.command()
def show(design: str, storage: Storage = DEFAULT_STORAGE) -> None:
    """A design: its layers, cost and results. DESIGN is its text or the start of its digest."""
    with one_line():
        found = _design(design, storage)
        typer.echo(f"{found}\ndigest {found.digest}\nlayers {found.strip}")
        for index, layer in enumerate(found.layers):
            typer.echo(f"  {index:3}  {layer}")
        _print_cost(found, SCALES["340m"], 4096, 1, "bfloat16")
        try:
            with reading(storage) as session:
                from search.store import queries

                results = queries.results(session, found)
        except ValueError:
            results = []  # no database, so no results
    for name, row in results:
        figures = row.reason or ""
        if row.recall is not None:
            figures = (
                f"recall {row.recall:.3f} [{row.recall_low:.3f}, {row.recall_high:.3f}], "
                f"{row.lm_bits_per_byte:.3f} bits a byte"
            )
        typer.echo(f"search {name}: {row.state} {figures}")


@app.command()
def score(design: str, protocol: str = "quick", text: str | None = None) -> None:
    """Trains and scores one design, without a search."""
    with one_line():
        from proxies.protocol import named
        from proxies.text import Corpus

        chosen, parsed = named(protocol), Design.parse(design)
        layer_shapes(parsed, chosen.scale)
        if text == "":
            raise ValueError("text = '': must be a file or a folder")
        corpus = Corpus.load(text)
        from proxies.evaluate import rungs

        for report in rungs(parsed, chosen, corpus):
            figures = ", ".join(f"{key} {value:.4f}" for key, value in report.metrics.items())
            typer.echo(f"{report.budget:.0%} of the training: {figures}")


@app.command()
def export(
    name: str,
    design: str,
    out: Annotated[Path, typer.Option(help="A new or empty folder.")],
    scale: Annotated[str, typer.Option(help=f"One of {', '.join(SCALES)}.")] = "340m",
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """Writes a design of a search as a model folder of flash-linear-attention."""
    with one_line():
        from search.export import fla
        from search.store import queries

        found = _design(design, storage, name)
        with reading(storage) as session:
            summary = queries.search_summary(session, name)
            rows = [row for search, row in queries.results(session, found) if search == name]
        if not rows:
            raise ValueError(f"design = {design!r}: search {name!r} has not evaluated it")
        provenance = {
            "search": name,
            "protocol": f"{summary.protocol['name']} ({summary.protocol_digest})",
            "state of its evaluation": rows[0].state,
            "proposed as": rows[0].origin,
            "evaluated": datetime.fromtimestamp(rows[0].finished).isoformat(" ", "seconds") if rows[0].finished else "",
            "plait": version(),
        }
        computed = ("memory_bytes", "parameters", "flops_per_token")
        scores = {key: value for key, value in rows[0].metrics.items() if value is not None and key not in computed}
        built = matched(found, _scale(scale), summary.protocol.get("match", "width"))
        for path in fla.export(found, built, out, provenance=provenance, scores=scores):
            typer.echo(path)


@app.command()
def study(
    name: str,
    to: Annotated[str, typer.Option(help="URL of a database of Optuna's, as in sqlite:///study.db.")],
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """Writes a search as an Optuna study; again, it adds what ended since."""
    with one_line():
        from search.store import shown
        from search.study import write

        with reading(storage) as session:
            done = write(session, name, to)
    left = f"; {done.left} have not ended" if done.left else ""
    typer.echo(f"Study {name}: {done.added} added to {done.known}{left}. Look at it with: optuna-dashboard {shown(to)}")


app.command()(one_line()(calibrate))
app.command()(agree)
app.command()(offline.table)
app.command()(offline.replay)


@app.command()
def dashboard(
    storage: Storage = DEFAULT_STORAGE,
    port: int = 8501,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 lets other machines look.")] = "127.0.0.1",
) -> None:
    """Opens the dashboard on this machine."""
    page = Path(__file__).parents[1] / "dashboard" / "app.py"
    printed = "localhost" if host in ("0.0.0.0", "::") else host  # left out, Streamlit asks the internet where it is
    options = ["--server.port", str(port), "--server.address", host, "--server.headless", "true"]
    options += ["--browser.serverAddress", printed]
    environment = os.environ | {STORAGE_VARIABLE: storage}  # a URL may have a password, arguments are for all to see
    os.execve(sys.executable, [sys.executable, "-m", "streamlit", "run", str(page), *options], environment)


@app.command()
def doctor(storage: Storage = DEFAULT_STORAGE) -> None:
    """What this machine offers a search."""
    import platform

    import torch

    from proxies.mixers import MIXERS, serving
    from proxies.ops.kernels import require
    from search.resources import this_machine
    from search.store import shown, writer

    here = this_machine()
    typer.echo(f"plait     {version()}")
    typer.echo(f"python    {platform.python_version()}\ncpus      {here.cores}")
    typer.echo(f"torch     {torch.__version__}, {torch.get_num_threads()} threads")
    device = torch.device("cuda" if here.gpus else "cpu")
    try:
        require(device)
        found = f"{here.gpus} × {torch.cuda.get_device_name()}" if here.gpus else "none; searches train on the CPU"
    except RuntimeError as error:
        device, found = torch.device("cpu"), f"{here.gpus}, but {error}; until then use --gpus-per-trial 0"
    typer.echo(f"gpu       {found}")
    new_console().print(serving_table(serving(MIXERS, device)))
    for package in ("flash-linear-attention", "triton", "ray", "optuna"):
        typer.echo(f"{package.replace('flash-linear-attention', 'fla'):9} {version(package)}")
    with one_line():
        writer(storage).dispose()
        typer.echo(f"database  {shown(storage)} is writable")


@app.command()
def init(path: Annotated[Path, typer.Argument()] = Path("search.toml")) -> None:
    """Writes a commented search.toml."""
    with one_line():
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(template())
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from None
    typer.echo(f"Wrote {path}. Run it with: plait run --config {path}")


if __name__ == "__main__":
    app()
