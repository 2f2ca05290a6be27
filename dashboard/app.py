"""The dashboard: `streamlit run dashboard/app.py -- --storage URL`, or the URL in PLAIT_STORAGE."""

import argparse
import os
import sys

import streamlit as st

from dashboard.pages import front

DEFAULT_STORAGE = os.environ.get("PLAIT_STORAGE") or "sqlite:///plait.db"


def storage_url(arguments: list[str]) -> str:
    """The database named after streamlit's `--`."""
    parser = argparse.ArgumentParser(prog="streamlit run dashboard/app.py --", description="plait's dashboard")
    parser.add_argument("--storage", default=DEFAULT_STORAGE, help="SQLAlchemy URL of the database to look at")
    return parser.parse_args(arguments).storage


STYLE = """
<style>
.block-container { padding-top: 2.2rem; max-width: 1280px; }
h1 { font-size: 1.8rem !important; padding-top: 0 !important; }
[data-testid="stMetricValue"] { font-size: 1.5rem; font-variant-numeric: tabular-nums; }
[data-testid="stDecoration"], [data-testid="stAppDeployButton"], footer { display: none; }
</style>
"""


def main() -> None:
    st.set_page_config(page_title="plait", layout="wide")
    st.html(STYLE)
    url = storage_url(sys.argv[1:])
    pages = [st.Page(lambda: front.show(url), title="Front", url_path="front", default=True)]
    st.navigation(pages, position="hidden").run()


main()
