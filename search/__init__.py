"""Proposing designs, running their evaluations, recording and exporting them."""

import importlib.metadata


def version() -> str:
    """The version of plait that is installed."""
    try:
        return importlib.metadata.version("plait")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
