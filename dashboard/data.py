"""The store as data frames. The database is opened read-only."""

from collections.abc import Mapping
from functools import lru_cache

import pandas as pd
import streamlit as st
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from search.store import controls, queries, reader
from space.design import Design

NUMBERS = ["recall", "recall_low", "recall_high", "lm_bits_per_byte", "memory_bytes", "parameters", "probability"]
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
        return controls.warnings(session, name)


def provenance(engine: Engine, name: str) -> str:
    """Which scores the search `name` has: its protocol, whose front it trains again, and which searches do so to it."""
    with Session(engine) as session:
        summary = queries.search_summary(session, name)
        again = queries.confirmations(session, name)
    words = [f"Protocol {summary.protocol.get('name', '')}, {summary.protocol_digest}."]
    if summary.confirms:
        words.append(f"Trains the front of {summary.confirms} again.")
    if again:
        words.append(f"Its front was trained again in {', '.join(again)}.")
    return " ".join(words)


def evaluations(engine: Engine, name: str) -> pd.DataFrame:
    """COLUMNS of every evaluation of the search `name`; what has not been measured is NaN."""
    with Session(engine) as session:
        rows = queries.evaluations(session, name)
        on_front = {row.id for row in queries.front(session, name)}
    probability = _probabilities(engine, name, sum(row.state == queries.COMPLETE for row in rows))
    frame = pd.DataFrame(
        [
            {column: getattr(row, column, None) for column in COLUMNS}
            | dict(zip(("strip", "family", "num_full"), _described(row.design), strict=True))
            | {"on_front": row.id in on_front, "probability": probability.get(row.id)}
            for row in rows
        ],
        columns=COLUMNS,
    )
    return frame.astype(dict.fromkeys(NUMBERS, float) | {"on_front": bool})


@lru_cache(maxsize=16)
def _probabilities(engine: Engine, name: str, num_complete: int) -> Mapping[int, float]:
    """How probable it is that each evaluation is on the front. They change only when one more is complete."""
    with Session(engine) as session:
        return queries.probabilities(session, name)


@lru_cache(maxsize=1 << 15)
def _described(text: str) -> tuple[str, str, int]:
    design = Design.parse(text)
    return design.strip, design.family, design.num_full
