"""The pictures of `scores.md`: plotly figures from the kept trainings, written as SVG by Chromium."""

import math
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from dashboard.charts import FAMILIES, GRID, INK, MUTED
from docs.measurements import Measurement, expected_best, few_seed_intervals
from proxies.scoring import mean

HERE = Path(__file__).parent
WIDTH, HEIGHT = 760, 320
BLUE, ORANGE, GREEN = FAMILIES["gated_deltanet"][0], FAMILIES["hgrn"][0], FAMILIES["gla"][0]
AXIS = {
    "gridcolor": GRID, "linecolor": MUTED, "zeroline": False, "ticks": "outside", "tickcolor": MUTED,
    "title": {"font": {"size": 13}},
}  # fmt: skip
SPREAD = 0.618  # of points side by side: the golden ratio keeps neighbours apart


def figures(found: Mapping[str, Measurement]) -> dict[str, go.Figure]:
    """Every picture by the name of its file."""
    seeds = found["seeds"]["end"]
    return {
        "plateau": plateau(found["plateau"]),
        "seeds": seed_intervals(seeds),
        "best": best_of_many(seeds),
        "ladder": ladder(found["ladder"]),
    }


def plateau(curves: Measurement) -> go.Figure:
    """Loss and accuracy of every seed against steps."""
    figure = _panels("training loss, nats", "accuracy, validation")
    for column, name in enumerate(("loss", "accuracy"), start=1):
        for curve in curves[name]:
            line = {"color": BLUE, "width": 1.3}
            figure.add_scatter(x=curves["steps"], y=curve, mode="lines", line=line, opacity=0.6, row=1, col=column)
    _level(figure, 1, math.log(16), "any of the 16 values: ln 16", ORANGE, "top right")
    _level(figure, 2, (1 / 4 + 1 / 8) / 2, "any of the values in the context", ORANGE, "bottom right")
    figure.update_xaxes(title_text="training steps", range=[0, curves["steps"][-1]])
    figure.update_yaxes(range=[0, 3.9], col=1)
    return figure.update_yaxes(range=[0, 1.04], col=2)


def seed_intervals(seeds: list[float]) -> go.Figure:
    """The scores of all seeds, and the intervals that three or six of them give."""
    figure = _panels("accuracy", "", widths=[0.3, 0.7])
    figure.add_scatter(
        x=[index * SPREAD % 1 for index in range(len(seeds))], y=seeds, mode="markers",
        marker={"color": BLUE, "size": 8, "opacity": 0.65, "line": {"color": "white", "width": 1}}, row=1, col=1,
    )  # fmt: skip
    left, words = 1.0, {}
    for number, colour, text in ((3, ORANGE, "intervals of 3 seeds each"), (6, GREEN, "of 6 each")):
        middles, lows, highs = zip(*few_seed_intervals(seeds, number), strict=True)
        figure.add_scatter(
            x=[left + index for index in range(len(middles))], y=middles, mode="markers",
            marker={"color": colour, "size": 8},
            error_y={"type": "data", "symmetric": False, "color": colour, "thickness": 1.6, "width": 4,
                     "array": [high - middle for high, middle in zip(highs, middles, strict=True)],
                     "arrayminus": [middle - low for low, middle in zip(lows, middles, strict=True)]},
            row=1, col=2,
        )  # fmt: skip
        words[left + (len(middles) - 1) / 2] = text
        left += len(middles) + 1.5
    figure.add_hline(y=mean(seeds), line={"color": MUTED, "dash": "dot", "width": 1.5})
    figure.update_xaxes(ticks="", showgrid=False, tickfont={"size": 13})
    figure.update_xaxes(range=[-0.3, 1.3], tickvals=[0.5], ticktext=[f"{len(seeds)} seeds of one design"], col=1)
    figure.update_xaxes(range=[0, left - 1.5], tickvals=list(words), ticktext=list(words.values()), col=2)
    return figure.update_yaxes(range=[-0.03, 1.04])


def best_of_many(seeds: list[float]) -> go.Figure:
    """What the best of some trainings is expected to score, against how many were tried."""
    tries = list(range(1, len(seeds) + 1))
    best = [expected_best(seeds, number) for number in tries]
    figure = _styled(go.Figure())
    figure.add_scatter(x=tries, y=best, mode="lines+markers", line={"color": ORANGE, "width": 2}, marker={"size": 5})
    figure.add_hline(y=mean(seeds), line={"color": BLUE, "dash": "dot", "width": 2})
    for y, text, colour in ((best[-1], "the best of them", ORANGE), (mean(seeds), "the mean of all", BLUE)):
        figure.add_annotation(
            x=tries[-1], y=y, text=text, font={"color": colour, "size": 13}, showarrow=False, xanchor="right",
            yanchor="top", yshift=-4,
        )  # fmt: skip
    figure.update_xaxes(title_text="trainings of the one design tried", range=[0.4, tries[-1] + 0.6], dtick=4, tick0=0)
    return figure.update_yaxes(title_text="accuracy", range=[0, 1.04])


def ladder(found: Measurement) -> go.Figure:
    """Accuracy by load, and recall in longer examples, of every design."""
    figure = _panels("accuracy, test", "recall: area above chance")
    loads, times = found["loads"], [1, 2, 4]
    for design, metrics in found["metrics"].items():
        family = design.split("x")[1]
        colour, symbol = FAMILIES["attention" if family == "full" else family]
        by_load = [metrics[f"recall_pairs_{load}"] for load in loads]
        by_length = [metrics["recall"], *(metrics[f"recall_x{longer}"] for longer in times[1:])]
        for column, (x, y) in enumerate(((loads, by_load), (times, by_length)), start=1):
            figure.add_scatter(
                x=x, y=y, name=design, mode="lines+markers", line={"color": colour, "width": 2},
                marker={"symbol": symbol, "size": 9}, showlegend=column == 1, row=1, col=column,
            )  # fmt: skip
    _level(figure, 1, 0.9, "0.9: capacity", MUTED, "top right")
    _level(figure, 1, 1 / 16, "chance", MUTED, "top left")
    figure.update_xaxes(type="log", tickvals=loads, title_text="load: pairs in the context", col=1)
    figure.update_xaxes(type="log", tickvals=times, title_text="times the length trained on", col=2)
    figure.update_yaxes(range=[0, 1.04])
    return figure.update_layout(showlegend=True, legend={"orientation": "h", "y": 1.03, "yanchor": "bottom", "x": 0})


def write(drawn: Mapping[str, go.Figure]) -> list[Path]:
    """Writes each figure as SVG. Raises ValueError where there is no Chromium."""
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser_path is None:
        raise ValueError("pictures: Chromium is not installed; it turns the figures into SVG")
    paths = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.set_content("<body></body>")
        page.add_script_tag(content=get_plotlyjs())
        for name, figure in drawn.items():
            size = {"format": "svg", "width": WIDTH, "height": HEIGHT}
            address = page.evaluate(
                "async ([figure, size]) => await Plotly.toImage(JSON.parse(figure), size)", [figure.to_json(), size]
            )
            text = unquote(address.partition(",")[2])
            for mark in set(re.findall(r'<defs id="defs-(\w+)"', text)):
                text = text.replace(mark, name)  # plotly draws it at random; the same figure is the same file
            text = re.sub(r"(trace scatter) trace\w+", r"\1", text)  # this too
            paths.append(HERE / f"{name}.svg")
            paths[-1].write_text(text + "\n")
        browser.close()
    return paths


def _panels(left: str, right: str, widths: list[float] | None = None) -> go.Figure:
    """Two panels side by side, and what their heights mean."""
    figure = _styled(make_subplots(rows=1, cols=2, column_widths=widths, horizontal_spacing=0.12))
    return figure.update_yaxes(title_text=left, col=1).update_yaxes(title_text=right, col=2)


def _styled(figure: go.Figure) -> go.Figure:
    figure.update_layout(
        template="none", showlegend=False, paper_bgcolor="white", plot_bgcolor="white",
        margin={"l": 60, "r": 20, "t": 36, "b": 52}, font={"family": "system-ui, sans-serif", "size": 13, "color": INK},
    )  # fmt: skip
    return figure.update_xaxes(AXIS).update_yaxes(AXIS)


def _level(figure: go.Figure, column: int, y: float, text: str, colour: str, place: str) -> None:
    """A dotted line across a panel, with its words at a `place` such as `top right`."""
    figure.add_hline(
        y=y, line={"color": colour, "dash": "dot", "width": 1.5}, row=1, col=column, annotation_text=text,
        annotation_position=place,
        annotation_font={"color": colour, "size": 12},
    )  # fmt: skip
