"""What every command of `plait` shares: bad input is one line, the database is opened for reading, output fits."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console

from search.config import BUILT_IN

DEFAULT_STORAGE = BUILT_IN["quick"].storage
STORAGE_VARIABLE = "PLAIT_STORAGE"
Storage = Annotated[str, typer.Option(help="Database URL.", envvar=STORAGE_VARIABLE)]


@contextmanager
def one_line() -> Iterator[None]:
    """Bad input ends the command with one line and exit code 2."""
    try:
        yield
    except ValueError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


@contextmanager
def reading(storage: str) -> Iterator[Any]:
    """A session that cannot write."""
    from sqlalchemy.orm import Session

    from search.store import reader

    with Session(reader(storage)) as session:
        yield session


def console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 200, soft_wrap=not sys.stdout.isatty())
