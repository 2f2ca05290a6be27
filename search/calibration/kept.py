"""Finished cells in a JSON file, written whole or not at all, so that a calibration that was stopped can go on."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from search.store.recorder import finite

VERSION = 1


class Kept:
    """The cells in `path`, by their name and a digest of the settings that made them.

    Raises ValueError when the file is there but is not one of ours, or its folder is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells: dict[str, dict[str, Any]] = {}
        if not path.parent.is_dir():
            raise ValueError(f"out = {path}: must be in a folder that exists")
        if not path.exists():
            return
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"out = {path}: cannot be read: {str(error).splitlines()[0]}") from None
        if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("cells"), dict):
            raise ValueError(f"out = {path}: must be a calibration of version {VERSION}, or a new file")
        self.cells = data["cells"]

    def get(self, name: str, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """The cell `name` as it was made with `settings`, if it was."""
        return self.cells.get(_key(name, settings))

    def put(self, name: str, settings: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
        """Keeps a finished cell and gives it back as it is kept."""
        cell: dict[str, Any] = finite({"name": name, "settings": settings, **figures})
        self.cells[_key(name, settings)] = cell
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            with partial.open("w", encoding="utf-8") as file:
                json.dump({"version": VERSION, "cells": self.cells}, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self.path)
        except OSError as error:
            raise ValueError(f"out = {self.path}: cannot be written: {error.strerror}") from None
        finally:
            partial.unlink(missing_ok=True)
        return cell


def _key(name: str, settings: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
    return f"{name} {digest}"
