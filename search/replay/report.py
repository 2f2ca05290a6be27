"""What replays say side by side: figures for a table, for JSON, and a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from search.replay.simulate import Curve

GOAL = 0.95
_DRAWS = 2000  # of the seeds, for an interval
_NEVER = (float("inf"), float("inf"))
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The lower quartile, the median and the upper quartile; infinite values count as larger than all."""
    ordered = np.sort(np.array(values, dtype=float))
    low, high = (float(np.quantile(ordered, share, method="nearest")) for share in (0.25, 0.75))
    return low, float(np.median(ordered)), high


def summary(curves: Sequence[Curve], trials: int) -> list[dict[str, Any]]:
    """A row a sampler: hypervolume at a quarter, half and all of the trainings, and what GOAL of it takes, also as a
    share of what random search takes (`of_random`, where that was replayed)."""
    rows, by_chance = [], [(curve.reaching(GOAL) or _NEVER)[0] for curve in curves if curve.sampler == "random"]
    for sampler in dict.fromkeys(curve.sampler for curve in curves):
        own = [curve for curve in curves if curve.sampler == sampler]
        row: dict[str, Any] = {"sampler": sampler, "seeds": len(own)}
        for name, count in (("quarter", trials // 4), ("half", trials // 2), ("all", trials)):
            row[f"hypervolume_{name}"] = quartiles([curve.at(count) for curve in own])
        reaching = [curve.reaching(GOAL) or _NEVER for curve in own]
        row["reached"] = sum(bool(np.isfinite(count)) for count, _ in reaching)
        row["trainings_to_goal"] = quartiles([count for count, _ in reaching])
        if by_chance and sampler != "random":
            row["of_random"] = ratio_of_medians([count for count, _ in reaching], by_chance)
        row["seconds_to_goal"] = quartiles([seconds for _, seconds in reaching])
        row["seconds"] = quartiles([curve.seconds[-1] if curve.seconds else 0.0 for curve in own])
        row["stopped"] = float(np.mean([curve.stopped for curve in own]))
        rows.append(row)
    return rows


def ratio_of_medians(values: Sequence[float], others: Sequence[float]) -> tuple[float, float, float] | None:
    """The median of `values` over that of `others` between the ends of its 95 % interval, seeds drawn again; None where
    the others' is infinite, drawn again or not."""
    generator = np.random.default_rng(0)
    mine, theirs = (
        np.concatenate([[np.median(x)], np.median(generator.choice(x, (_DRAWS, len(x))), axis=1)])
        for x in (np.array(values, dtype=float), np.array(others, dtype=float))
    )
    if not np.isfinite(theirs).all():
        return None
    ratios = mine / theirs
    low, high = (float(np.quantile(ratios[1:], share, method="nearest")) for share in (0.025, 0.975))
    return low, float(ratios[0]), high


def draw(curves: Sequence[Curve], path: Path) -> None:
    """Medians with quartiles against trainings and against seconds, as .html, or .svg or .png where kaleido is there.

    Raises ValueError when the file cannot be written.
    """
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=1, cols=2, shared_yaxes=True, x_title="", horizontal_spacing=0.05)
    for index, sampler in enumerate(dict.fromkeys(curve.sampler for curve in curves)):
        own = [curve for curve in curves if curve.sampler == sampler and curve.seconds]
        colour = _COLOURS[index % len(_COLOURS)]
        ends = max((curve.seconds[-1] for curve in own), default=1.0)
        grids = (np.arange(1, 1 + max((len(c.seconds) for c in own), default=1)), np.linspace(0, ends, 200))
        for column, grid in enumerate(grids, start=1):
            values = np.array(
                [
                    [c.at(int(x) if column == 1 else int(np.searchsorted(c.seconds, x, side="right"))) for x in grid]
                    for c in own
                ]
            )
            low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
            band = go.Scatter(
                x=[*grid, *grid[::-1]], y=[*high, *low[::-1]], fill="toself", fillcolor=colour, opacity=0.15,
                line={"width": 0}, hoverinfo="skip", showlegend=False,
            )  # fmt: skip
            line = go.Scatter(x=grid, y=middle, name=sampler, line={"color": colour}, showlegend=column == 1)
            for trace in (band, line):
                figure.add_trace(trace, row=1, col=column)
    figure.update_xaxes(title_text="trainings", row=1, col=1)
    figure.update_xaxes(title_text="seconds", row=1, col=2)
    figure.update_yaxes(title_text="share of the table's hypervolume", row=1, col=1)
    figure.update_layout(template="plotly_white", width=1000, height=420, legend={"orientation": "h", "y": 1.12})
    try:
        if path.suffix == ".html":
            figure.write_html(path)
        elif path.suffix in (".svg", ".png"):
            figure.write_image(path)
        else:
            raise ValueError(f"picture = {path}: must end in .html, .svg or .png")
    except OSError as error:
        raise ValueError(f"picture = {path}: cannot be written: {error.strerror}") from None
    except (ImportError, RuntimeError):
        raise ValueError(f"picture = {path}: {path.suffix} needs kaleido and a browser; .html needs neither") from None
