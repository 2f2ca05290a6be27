"""The front: recall against memory of one search, and the designs behind the points."""

import pandas as pd
import streamlit as st
from sqlalchemy import Engine

from dashboard import data
from dashboard.charts import MEBIBYTE, drawable, front_figure

REFRESH = 10  # seconds between looks at the store
TOOLBAR = {"displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d"]}
COLUMNS = {
    "front": st.column_config.TextColumn("front", width=48),
    "design": st.column_config.TextColumn("design", width="medium"),
    "strip": st.column_config.TextColumn("layers", help="One letter a layer; F is full attention, W a window"),
    "recall": st.column_config.NumberColumn("recall", format="%.3f", width=64),
    "interval": st.column_config.TextColumn("interval", help="95 % interval of recall", width=116),
    "probability": st.column_config.NumberColumn(
        "p", help="How probable it is that the design is on the front, seeds drawn again", format="%.2f", width=52
    ),
    "lm_bits_per_byte": st.column_config.NumberColumn("bits per byte", format="%.3f", width=90),
    "memory": st.column_config.NumberColumn("MiB", help="Memory while generating", format="%.2f", width=64),
    "millions": st.column_config.NumberColumn("M params", help="Parameters, millions", format="%.1f", width=76),
    "state": st.column_config.TextColumn("state", width=80),
    "reason": st.column_config.TextColumn("reason", width="medium"),
}


def show(url: str) -> None:
    """Draws the page for the database at `url`; the search is the one that `?search=` names, or the one picked."""
    try:
        engine = data.open_store(url)
    except ValueError as error:
        st.title("plait")
        st.info(f"{error}. Start a search with `plait run`, or name another database after `-- --storage`.")
        return
    names = data.search_names(engine)
    if not names:
        st.title("plait")
        st.info("This database holds no search yet. Start one with `plait run`.")
        return
    asked = st.query_params.get("search")
    with st.sidebar:
        st.markdown("### plait")
        name = st.selectbox("Search", names, index=names.index(asked) if asked in names else 0, key="search")
    if asked is not None and asked not in names:
        st.warning(f"There is no search named {asked!r} here; showing {name!r}.")
    elif asked != name:
        st.query_params["search"] = name
    _front(engine, name)


@st.fragment(run_every=REFRESH)
def _front(engine: Engine, name: str) -> None:
    rows = data.evaluations(engine, name)
    finished = drawable(rows)
    st.title(name)
    st.caption(data.provenance(engine, name))
    for warning in data.control_warnings(engine, name):
        st.warning(warning)
    counts = rows["state"].value_counts()
    numbers = {
        "finished": len(finished),
        "on the front": int(finished["on_front"].sum()),
        "running": int(counts.get("running", 0)),
        "failed": int(counts.get("failed", 0)),
    }
    for column, (label, value) in zip(st.columns(len(numbers)), numbers.items(), strict=True):
        column.metric(label, value)
    if finished.empty:
        st.info(_why_nothing(rows))
    else:
        st.plotly_chart(front_figure(rows), key=f"front-{name}", theme=None, width="stretch", config=TOOLBAR)
        st.caption(
            "Each point is a design, larger with more full-attention layers; bars are intervals of recall. "
            "Outlined points are on the front: no finished design is better in all objectives."
        )
    if not rows.empty:
        st.dataframe(
            table(rows), key=f"table-{name}", hide_index=True, width="stretch",
            column_config=COLUMNS,
            column_order=[name for name in COLUMNS if name != "reason" or rows["reason"].notna().any()],
        )  # fmt: skip


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows as shown: the front first, then by recall."""
    shown = rows.assign(
        front=rows["on_front"].map({True: "●", False: ""}),
        memory=rows["memory_bytes"].astype(float) / MEBIBYTE,
        millions=rows["parameters"].astype(float) / 1e6,
        interval=[_interval(low, high) for low, high in zip(rows["recall_low"], rows["recall_high"], strict=True)],
    )
    return shown.sort_values(["on_front", "recall"], ascending=False, na_position="last", kind="stable")


def _interval(low: float, high: float) -> str:
    return "" if pd.isna(low) or pd.isna(high) else f"{low:.3f} to {high:.3f}"


def _why_nothing(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "This search has no evaluations yet. Points appear here as designs finish."
    counts = ", ".join(f"{count} {state}" for state, count in rows["state"].value_counts().items())
    if set(rows["state"]) <= {"failed", "infeasible", "lost"}:
        reasons = rows["reason"].dropna().value_counts()
        why = f" The most frequent reason: {reasons.index[0]}." if len(reasons) else ""
        return f"No design has finished: {counts}.{why}"
    return f"No design has finished yet: {counts}. Points appear here as designs finish."
