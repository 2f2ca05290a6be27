"""Opening the database: once for writing, where the schema is made or brought up to date under a lock, or read-only.

SQLite runs in write-ahead mode, so readers never wait for the writer. PostgreSQL URLs use psycopg:
`postgresql+psycopg://user:password@host/name`. A password may stay out of the URL: it is read from the file that
PLAIT_PASSWORD_FILE names, or libpq finds it. No message shows one.
"""

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from filelock import FileLock
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from search.store.tables import Base

BUSY_SECONDS = 10
PASSWORD_FILE = "PLAIT_PASSWORD_FILE"
_SCHEMA_LOCK = 0x706C616974  # 'plait', the key of PostgreSQL's advisory lock
MIGRATIONS = Path(__file__).parent / "migrations"


def writer(url: str) -> Engine:
    """The database at `url`, made when it is new and migrated when it is old.

    Raises ValueError naming the URL and the reason when it cannot be opened for writing.
    """
    place = _parse(url)
    with _explained(place):
        engine = _engine(place, begin="BEGIN IMMEDIATE")
        with _schema_lock(place, engine) as connection:
            _migrate(connection)
    return engine


def reader(url: str) -> Engine:
    """The database at `url`, which must exist, opened so that nothing can be written to it.

    Raises ValueError naming the URL and the reason when there is none.
    """
    place = opened = _parse(url)
    if _is_sqlite(place):
        path = Path(place.database or "").absolute()
        if not path.is_file():
            raise _refused(place, "no such file")
        opened = place.set(database=f"file:{quote(str(path))}", query={"mode": "ro", "uri": "true"})
    with _explained(place):
        engine = _engine(opened, begin="BEGIN")
        if not _is_sqlite(place):
            engine = engine.execution_options(postgresql_readonly=True)
        with engine.connect() as connection:
            if not inspect(connection).has_table("searches"):
                raise _refused(place, "holds no searches")
            for table in Base.metadata.tables.values():
                there = {column["name"] for column in inspect(connection).get_columns(table.name)}
                if not there >= set(table.columns.keys()):
                    raise _refused(place, "was made by an older plait: `plait doctor --storage` brings it up to date")
    return engine


def shown(url: str) -> str:
    """A database URL as it may be printed and kept: *** in place of passwords, also where it is not a valid URL."""
    without = re.sub(r"((?://|^)[^:/@]*:)(?!//).*@", r"\1***@", url, flags=re.DOTALL)
    return re.sub(r"([?&]\w*password=)[^&]*", r"\1***", without)


def _parse(url: str) -> URL:
    try:
        place = make_url(url)
    except (ArgumentError, ValueError):
        raise ValueError(f"storage = {shown(url)!r}: must be a database URL such as sqlite:///plait.db") from None
    if place.get_backend_name() not in ("sqlite", "postgresql"):
        raise ValueError(f"storage = {shown(url)!r}: must start with sqlite:/// or postgresql+psycopg://")
    if place.drivername == "postgresql":
        place = place.set(drivername="postgresql+psycopg")
    if _is_sqlite(place):
        if place.database in (None, "", ":memory:"):
            raise ValueError(f"storage = {url!r}: must name a file, such as sqlite:///plait.db")
        return place
    if "@" in (place.host or ""):
        raise ValueError(f"storage = {shown(url)!r}: @ in a password must be written %40")
    file = os.environ.get(PASSWORD_FILE)
    if file and place.password is None:
        try:
            place = place.set(password=Path(file).read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{PASSWORD_FILE} = {file!r}: cannot be read: {error}") from None
    return place


def _is_sqlite(place: URL) -> bool:
    return place.get_backend_name() == "sqlite"


def _refused(place: URL, reason: str) -> ValueError:
    return ValueError(f"storage = {shown(place.render_as_string(hide_password=True))!r}: {reason}")


@contextmanager
def _explained(place: URL) -> Iterator[None]:
    try:
        yield
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise _refused(place, f"its driver is not installed: {error} (pip install 'plait[postgres]')") from None
    except sqlite3.Error as error:
        raise _refused(place, f"cannot be opened: {error}") from None
    except DBAPIError as error:
        raise _refused(place, f"cannot be opened: {str(error.orig).strip().splitlines()[0]}") from None
    except OSError as error:
        raise _refused(place, f"cannot be opened: {error.strerror or error}") from None


def _engine(place: URL, begin: str) -> Engine:
    if not _is_sqlite(place):
        return create_engine(place, pool_pre_ping=True)
    engine = create_engine(place, connect_args={"timeout": BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # transactions begin when SQLAlchemy says so, tables included
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA synchronous=NORMAL")

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


@contextmanager
def _schema_lock(place: URL, engine: Engine) -> Iterator[Connection]:
    """A transaction that one process has at a time."""
    if _is_sqlite(place):
        path = Path(place.database or "").absolute()
        if not path.parent.is_dir():
            raise _refused(place, f"no such folder: {path.parent}")
        with FileLock(path.with_name(path.name + ".lock")):
            with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as plain:
                plain.execute("PRAGMA journal_mode=WAL")
            with engine.begin() as connection:
                yield connection
    else:
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK})
            yield connection


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    current = MigrationContext.configure(connection).get_current_revision()
    if current != ScriptDirectory.from_config(config).get_current_head():
        command.upgrade(config, "head")
