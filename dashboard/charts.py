"""Figures: pure functions from data frames to plotly figures.

A row is one evaluation: design, strip, family, num_full, recall, recall_low, recall_high, memory_bytes, probability
(of being on the front), state and on_front. Only complete ones with a finite recall and memory are drawn: scores of
smaller budgets do not compare.
"""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

MEBIBYTE = 1 << 20
LOG_RANGE = 8  # memory that spans more than this factor is drawn on a log axis
INK, MUTED, GRID = "#22262B", "#6B7280", "#E8EAED"

# Okabe-Ito's colours and two of Tol's, which colour-blind readers tell apart, with a marker shape as a second cue.
FAMILIES: dict[str, tuple[str, str]] = {
    "gated_deltanet": ("#0072B2", "circle"),
    "deltanet": ("#56B4E9", "square"),
    "gla": ("#009E73", "diamond"),
    "hgrn2": ("#E69F00", "triangle-up"),
    "hgrn": ("#D55E00", "triangle-down"),
    "retnet": ("#CC79A7", "pentagon"),
    "mamba2": ("#332288", "star"),
    "kda": ("#882255", "cross"),
    "mixture": ("#8A7A2E", "hexagon"),
    "attention": ("#22262B", "x"),
}


def drawable(evaluations: pd.DataFrame) -> pd.DataFrame:
    """The rows that have a place in the figure, with `memory` in MiB, by growing memory."""
    if evaluations.empty:
        return evaluations.assign(memory=pd.Series(dtype=float))
    rows = evaluations.assign(memory=evaluations["memory_bytes"].astype(float) / MEBIBYTE)
    finite = np.isfinite(rows[["recall", "memory"]].astype(float)).all(axis=1)
    return rows[finite & (rows["state"] == "complete")].sort_values(["memory", "recall"], kind="stable")


def front_figure(evaluations: pd.DataFrame) -> go.Figure:
    """Recall against memory: a point an evaluation, coloured by backbone, as large as its number of full layers.

    The line is the front: the best recall that a memory budget buys.
    """
    rows = drawable(evaluations)
    figure = go.Figure(layout=_layout())
    if rows.empty:
        figure.add_annotation(text="No finished evaluation yet", showarrow=False, font={"size": 16, "color": MUTED})
        return figure.update_xaxes(visible=False).update_yaxes(visible=False)
    front = rows[rows["on_front"].astype(bool)]
    front = front[front["recall"] >= front["recall"].cummax()]
    figure.add_scatter(
        x=front["memory"], y=front["recall"], name="front", mode="lines", hoverinfo="skip",
        line={"shape": "hv", "width": 2, "color": MUTED, "dash": "dot"},
    )  # fmt: skip
    for family, (color, symbol) in FAMILIES.items():
        points = rows[rows["family"] == family]
        if not points.empty:
            figure.add_trace(_points(points, family, color, symbol))
    low, high = rows["memory"].min(), rows["memory"].max()
    if low > 0 and high > LOG_RANGE * low:
        steps = (1,) if high > 100 * low else (1, 2, 5)
        ticks = [step * 10.0**power for power in range(-6, 10) for step in steps]
        figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{tick:,.6g}" for tick in ticks])
    return figure


def _points(points: pd.DataFrame, family: str, color: str, symbol: str) -> go.Scatter:
    on_front = points["on_front"].astype(bool)
    interval = [_interval(low, high) for low, high in zip(points["recall_low"], points["recall_high"], strict=True)]
    probability = [f"{value:.2f}" for value in points["probability"]]
    return go.Scatter(
        x=points["memory"],
        y=points["recall"],
        name=family,
        mode="markers",
        marker={
            "color": color,
            "symbol": symbol,
            "size": 9 + 3 * np.sqrt(points["num_full"].astype(float)),
            "opacity": np.where(on_front, 1.0, 0.5),
            "line": {"color": np.where(on_front, INK, "white"), "width": np.where(on_front, 1.5, 1)},
        },
        error_y={
            "type": "data",
            "symmetric": False,
            "array": (points["recall_high"] - points["recall"]).astype(float).fillna(0).clip(lower=0),
            "arrayminus": (points["recall"] - points["recall_low"]).astype(float).fillna(0).clip(lower=0),
            "thickness": 1,
            "width": 3,
            "color": _faded(color),
        },
        customdata=np.column_stack([points["design"], points["strip"], points["num_full"], interval, probability]),
        hovertemplate=(
            "<b>%{customdata[0]}</b><br><span style='font-family:monospace'>%{customdata[1]}</span><br>"
            "recall %{y:.3f} %{customdata[3]}<br>%{x:,.1f} MiB, full layers: %{customdata[2]}<br>"
            "on the front with probability %{customdata[4]}"
            f"<extra>{family}</extra>"
        ),
    )


def _interval(low: float, high: float) -> str:
    return f"({low:.3f} to {high:.3f})" if np.isfinite(low) and np.isfinite(high) else ""


def _faded(color: str) -> str:
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.45)"


def _layout() -> go.Layout:
    axis = {"gridcolor": GRID, "linecolor": MUTED, "zeroline": False, "ticks": "outside", "tickcolor": MUTED}
    return go.Layout(
        template="none",
        height=520,
        margin={"l": 64, "r": 24, "t": 40, "b": 56},
        font={"family": "system-ui, sans-serif", "size": 13, "color": INK},
        xaxis={**axis, "title": "memory while generating, MiB"},
        yaxis={**axis, "title": "recall"},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "itemsizing": "constant"},
        hoverlabel={"bgcolor": "white", "bordercolor": GRID, "font": {"color": INK}},
        uirevision="keep",  # zoom and hidden families outlive a redraw
    )
