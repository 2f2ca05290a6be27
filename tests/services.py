"""What tests need from the machine: skipped with a reason where it is missing, failed where CI promises it."""

import os
import shutil
from typing import NoReturn

import pytest


def chromium() -> str:
    """Path of the browser."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        _missing("Chromium is not installed")
    return path


def postgres_url() -> str:
    """SQLAlchemy URL of a PostgreSQL server that tests may write to."""
    url = os.environ.get("PLAIT_TEST_POSTGRES")
    if not url:
        _missing("PLAIT_TEST_POSTGRES names no PostgreSQL server")
    return url


def _missing(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}, and CI=true says it is there")
    pytest.skip(reason)
