"""The store as data frames. The database is opened read-only."""

from functools import lru_cache

import pandas as pd
import streamlit as st
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from search.store import queries, reader
from space.design import Design

NUMBERS = ["recall", "recall_low", "recall_high", "lm_bits_per_byte", "memory_bytes", "parameters"]
COLUMNS = ["number", "design", "digest", "strip", "family", "num_full", *NUMBERS, "state", "reason", "on_front"]


@st.cache_resource
def open_store(url: str) -> Engine:
    """The database at `url`. Raises ValueError, with the reason, when there is none."""
    return reader(url)


def search_names(engine: Engine) -> list[str]:
    with Session(engine) as session:
        return queries.search_names(session)


def control_warnings(engine: Engine, name: str) -> list[str]:
    """Why the scores of the search `name` may mean nothing."""
    with Session(engine) as session:
        return queries.control_warnings(session, name)


def evaluations(engine: Engine, name: str) -> pd.DataFrame:
    """COLUMNS of every evaluation of the search `name`; what has not been measured is NaN."""
    with Session(engine) as session:
        rows = queries.evaluations(session, name)
        on_front = {row.id for row in queries.front(session, name)}
    frame = pd.DataFrame(
        [
            {column: getattr(row, column, None) for column in COLUMNS}
            | dict(zip(("strip", "family", "num_full"), _described(row.design), strict=True))
            | {"on_front": row.id in on_front}
            for row in rows
        ],
        columns=COLUMNS,
    )
    return frame.astype(dict.fromkeys(NUMBERS, float) | {"on_front": bool})


@lru_cache(maxsize=1 << 15)
def _described(text: str) -> tuple[str, str, int]:
    design = Design.parse(text)
    return design.strip, design.family, design.num_full
