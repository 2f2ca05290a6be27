"""What every command of `plait` shares: bad input is one line, the database is opened for reading, output fits."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer
from rich.console import Console

from search.apart import Abandoned, Interrupted, interruptible, leave
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
def stoppable() -> Iterator[None]:
    """A signal ends the command at once, and it says how to go on. What it left behind ends with it."""
    try:
        with interruptible():
            yield
    except Interrupted as stop:
        from search.store import shown

        again = shlex.join(["plait", *map(shown, sys.argv[1:])])
        with suppress(OSError):  # the terminal may be closed
            typer.echo(f"Stopped {stop.how_far}; go on with: {again}")
        leave(128 + stop.number)
    except Abandoned as error:
        with suppress(OSError):
            typer.echo(f"error: {error}", err=True)
        leave(2)


@contextmanager
def reading(storage: str) -> Iterator[Any]:
    """A session that cannot write."""
    from sqlalchemy.orm import Session

    from search.store import reader

    with Session(reader(storage)) as session:
        yield session


class Lasting(Console):
    """A console whose reader may go away, as in `plait run | head`: then nothing more is written."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


def console() -> Console:
    return Lasting(width=None if sys.stdout.isatty() else 200, soft_wrap=not sys.stdout.isatty())
