"""Proposing designs, running their evaluations, recording and exporting them."""

import importlib.metadata


def version(package: str = "plait") -> str:
    """The version of a package that is installed, or that it is not."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
