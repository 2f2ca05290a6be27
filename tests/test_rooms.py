"""Imports go one way: space <- proxies <- search <- dashboard. Rooms are read, not imported."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {"torch", "fla", "triton", "ray", "optuna", "sqlalchemy", "alembic", "streamlit", "plotly"}
FORBIDDEN = {
    "space": {"proxies", "search", "dashboard", *HEAVY},
    "proxies": {"search", "dashboard", "ray", "optuna", "sqlalchemy", "alembic", "streamlit", "plotly"},
    "search": {"dashboard", "fla", "triton", "streamlit", "plotly"},
    "dashboard": {"proxies", "ray", "optuna", "torch", "fla", "triton", "alembic"},
}


def imports(node: ast.AST) -> Iterator[str]:
    """The modules imported anywhere below `node`."""
    for child in ast.walk(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert not child.level, f"relative import of {child.module}: rooms import by full name"
            yield child.module or ""


def modules(room: str) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / room).rglob("*.py")):
        yield path.relative_to(ROOT), ast.parse(path.read_text())


ALLOWED = {("search/replay/report.py", "plotly")}  # the picture of a replay, drawn from JSON, not from the store


@pytest.mark.parametrize("room", FORBIDDEN)
def test_a_room_imports_nothing_from_above(room: str) -> None:
    found = {
        f"{path} imports {name}"
        for path, module in modules(room)
        for name in imports(module)
        if name.split(".")[0] in FORBIDDEN[room] and (str(path), name.split(".")[0]) not in ALLOWED
    }
    assert not found


def test_the_dashboard_sees_only_space_and_the_store_of_search() -> None:
    found = {
        f"{path} imports {name}"
        for path, module in modules("dashboard")
        for name in imports(module)
        if name.split(".")[0] == "search" and not name.startswith("search.store")
    }
    assert not found


def test_kernels_are_imported_only_when_they_are_called() -> None:
    found = {
        f"{path} imports {name} at import time"
        for path, module in modules("proxies")
        if path.parent.name != "fused"  # Triton kernels of our own, themselves imported only when they are called
        for statement in module.body
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef)
        for name in imports(statement)
        if name.split(".")[0] in {"fla", "triton"} or name.startswith("proxies.fused")
    }
    assert not found


@pytest.mark.parametrize(("module", "absent"), [("search.cli", {"torch", "ray"}), ("space", HEAVY)])
def test_importing_it_stays_light(module: str, absent: set[str]) -> None:
    script = f"import sys, {module}; print(sorted({absent!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
