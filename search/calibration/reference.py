"""The published numbers, each with its source and a mark that says how it is known: package data beside this file."""

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def reference(part: str) -> dict[str, Any]:
    """What is published for `part`, one of mqar, text, study, and how we train to compare with it."""
    data: dict[str, Any] = json.loads(files(__package__).joinpath(f"{part}.json").read_text(encoding="utf-8"))
    return data
