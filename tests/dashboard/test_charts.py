import numpy as np
import pandas as pd
import pytest
from plotly import graph_objects as go

from dashboard.charts import FAMILIES, MEBIBYTE, drawable, front_figure
from space import BACKBONES, Design

COLUMNS = ["design", "digest", "strip", "family", "num_full", "recall", "recall_low", "recall_high",
           "lm_bits_per_byte", "memory_bytes", "parameters", "probability", "state", "on_front"]  # fmt: skip


def frame(*rows: tuple[str, float, float, bool]) -> pd.DataFrame:
    """Rows of (design text, recall, memory in MiB, on front)."""
    data = []
    for text, recall, memory, on_front in rows:
        design = Design.parse(text)
        data.append([text, design.digest, design.strip, design.family, design.num_full, recall, recall - 0.02,
                     recall + 0.03, 2.0, memory * MEBIBYTE, 1000, 0.75, "complete", on_front])  # fmt: skip
    return pd.DataFrame(data, columns=COLUMNS)


def points(figure: go.Figure) -> int:
    return sum(len(trace.x) for trace in figure.data if trace.mode == "markers")


@pytest.mark.parametrize("empty", [frame(), frame(("4xgla", np.nan, 8, False)), frame(("4xgla", 0.5, np.nan, False))])
def test_without_a_finished_evaluation_the_figure_says_so(empty: pd.DataFrame) -> None:
    figure = front_figure(empty)
    assert points(figure) == 0
    assert figure.layout.annotations[0].text == "No finished evaluation yet"


def test_one_evaluation_is_one_point() -> None:
    figure = front_figure(frame(("4xgla+full@1", 0.5, 8, True)))
    assert points(figure) == 1
    assert figure.layout.xaxis.type is None
    assert figure.data[1].error_y.array[0] == pytest.approx(0.03)
    assert figure.data[1].error_y.arrayminus[0] == pytest.approx(0.02)


def test_rows_without_a_score_are_left_out_and_the_rest_is_drawn() -> None:
    rows = frame(("4xgla", np.nan, 8, False), ("4xgla+full@1", 0.5, 8, True), ("4xhgrn2", np.inf, 4, False))
    assert list(drawable(rows)["design"]) == ["4xgla+full@1"]
    assert points(front_figure(rows)) == 1


def test_missing_intervals_draw_no_bar() -> None:
    rows = frame(("4xgla", 0.5, 8, True)).assign(recall_low=np.nan, recall_high=np.nan)
    trace = front_figure(rows).data[1]
    assert trace.error_y.array[0] == trace.error_y.arrayminus[0] == 0
    assert trace.customdata[0][3] == ""


def test_the_front_line_is_a_step_through_the_front_by_memory() -> None:
    rows = frame(
        ("4xgla+full@1,2", 0.9, 30, True), ("4xgla", 0.4, 3, True), ("4xgla+full@1", 0.7, 20, True),
        ("4xretnet", 0.3, 25, False),
    )  # fmt: skip
    figure = front_figure(rows)
    line = figure.data[0]
    assert (line.mode, line.line.shape) == ("lines", "hv")
    assert list(line.x) == [3, 20, 30]
    assert list(line.y) == [0.4, 0.7, 0.9]
    assert {trace.name for trace in figure.data} == {"front", "gla", "retnet"}


def test_a_wide_range_of_memory_is_drawn_on_a_log_axis() -> None:
    assert front_figure(frame(("4xgla", 0.4, 1, True), ("4xfull", 0.9, 100, True))).layout.xaxis.type == "log"
    assert front_figure(frame(("4xgla", 0.4, 0, True), ("4xfull", 0.9, 100, True))).layout.xaxis.type is None


def test_more_full_layers_make_a_larger_point() -> None:
    rows = frame(("4xgla", 0.4, 1, True), ("4xgla+full@1", 0.5, 2, True), ("4xgla+full@1,2", 0.6, 3, True))
    figure = front_figure(rows)
    sizes = list(figure.data[1].marker.size)
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 3


def test_every_family_has_its_own_colour_and_shape() -> None:
    assert FAMILIES.keys() == {*BACKBONES, "mixture", "attention"}
    for cue in zip(*FAMILIES.values(), strict=True):
        assert len(set(cue)) == len(FAMILIES)


def test_scores_of_stopped_evaluations_are_not_drawn() -> None:
    rows = frame(("4xgla", 0.5, 8, False), ("4xgla+full@1", 0.6, 16, True)).assign(state=["stopped", "complete"])
    assert list(drawable(rows)["design"]) == ["4xgla+full@1"]


def test_the_front_line_never_falls_when_there_are_other_objectives() -> None:
    rows = frame(("4xgla", 0.5, 8, True), ("4xgla+full@1", 0.4, 16, True), ("4xgla+full@1,2", 0.6, 32, True))
    assert list(front_figure(rows).data[0].y) == [0.5, 0.6]
