"""The store: one schema, one writer, nothing lost."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer

import pytest
from sqlalchemy import Engine, event, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session

from proxies.text import Corpus
from search.config import SearchConfig
from search.runner import definition as kept_of
from search.store import queries, reader, shown, writer
from search.store.opening import Definition
from search.store.place import driver_token
from search.store.recorder import MAX_ATTEMPTS, Recorder
from search.store.transaction import transaction
from space import Design, SearchSpace
from tests.services import Postgres

SPACE = SearchSpace(depth=(4,), linear=("gla", "retnet"))
CONFIG = {"objectives": {"recall": "max", "memory_bytes": "min"}, "trials": 4}
ROOT = Path(__file__).parents[2]


def definition(**changes: object) -> Definition:
    fields = {"name": "s", "space": SPACE, "protocol": {"steps": 1}, "protocol_digest": "p", "config": CONFIG}
    return Definition(**{**fields, "version": "0", **changes})  # type: ignore[arg-type]


class StoreContract:
    """What holds for every kind of database."""

    def test_nothing_finished_is_repeated_and_what_ran_is_leased_again(self, engine: Engine) -> None:
        recorder = Recorder.open(engine, definition())
        done, torn = (recorder.lease(Design.parse(t), "anchor", {"memory_bytes": 1.0}) for t in ("4xgla", "4xretnet"))
        assert done and torn
        recorder.finish(done.evaluation, "complete", {"recall": 0.5}, {"nan": float("nan")}, 1.0)
        with Session(engine) as session:
            session.execute(text("UPDATE searches SET driver = 'elsewhere:1:1', driver_expires = 0"))
            session.commit()
        again = Recorder.open(engine, definition())
        lease = again.lease_queued()
        assert lease is not None and lease.design == torn.design
        assert again.lease_queued() is None
        assert again.lease(Design.parse("4xgla"), "sampler", {}) is None
        for _ in range(MAX_ATTEMPTS - 2):
            assert again.lose(lease.evaluation)
            assert again.lease_queued()
        assert not again.lose(lease.evaluation)
        with Session(engine) as session:
            assert [row.design for row in queries.front(session, "s")] == ["4xgla"]
            assert queries.search_summary(session, "s").counts["lost"] == 1

    def test_a_lease_whose_commit_was_made_and_whose_answer_got_lost_is_the_same_lease(self, engine: Engine) -> None:
        recorder, lost = Recorder.open(engine, definition()), []

        def lose(session: Session) -> None:
            if not lost:
                lost.append(session)
                raise OperationalError("COMMIT", {}, Exception("deadlock detected"))

        event.listen(Session, "after_commit", lose)
        try:
            first = recorder.lease(Design.parse("4xgla"), "anchor", {})
            assert lost and first is not None and recorder.lose(first.evaluation)
            lost.clear()
            again = recorder.lease_queued()
            assert lost and again == first
        finally:
            event.remove(Session, "after_commit", lose)
        assert recorder.lease_queued() is None
        with Session(engine) as session:
            (row,) = queries.evaluations(session, "s")
        assert (row.state, row.attempts) == ("running", 2)

    def test_a_driver_that_lost_its_place_writes_nothing_more(self, engine: Engine) -> None:
        slept = Recorder.open(engine, definition())
        lease = slept.lease(Design.parse("4xgla"), "anchor", {})
        assert lease is not None
        with engine.begin() as connection:  # another host took over: there the process cannot be looked up
            connection.execute(text("UPDATE searches SET driver = 'elsewhere:1:1'"))
        for write in (slept.heartbeat, lambda: slept.finish(lease.evaluation, "complete", {}, {}, 1.0)):
            with pytest.raises(ValueError, match=r"search 's': another plait run took it over \(elsewhere:1:1\)"):
                write()
        slept.close()
        with Session(engine) as session:
            assert queries.search_summary(session, "s").driver == "elsewhere:1:1"
            assert queries.search_summary(session, "s").counts["running"] == 1

    def test_a_second_live_driver_is_refused(self, engine: Engine) -> None:
        Recorder.open(engine, definition())
        with pytest.raises(ValueError, match=f"another plait run drives it .{driver_token()}"):
            Recorder.open(engine, definition())

    def test_two_runs_with_one_name_and_different_configs_do_not_merge(self, engine: Engine) -> None:
        Recorder.open(engine, definition()).close()
        with pytest.raises(ValueError, match=r"protocol\.steps is 1 there and 2 here"):
            Recorder.open(engine, definition(protocol={"steps": 2}, protocol_digest="q"))
        larger = SearchSpace(depth=(4,), linear=("gla", "retnet", "hgrn2"))
        with pytest.raises(ValueError, match="--resume"):
            Recorder.open(engine, definition(space=larger))
        Recorder.open(engine, definition(space=larger), extend=True).close()


class TestSQLite(StoreContract):
    @pytest.fixture
    def engine(self, tmp_path: Path) -> Engine:
        return writer(f"sqlite:///{tmp_path}/a.db")

    def test_a_reader_cannot_write(self, engine: Engine, tmp_path: Path) -> None:
        with Session(reader(f"sqlite:///{tmp_path}/a.db")) as session, pytest.raises(DBAPIError):
            session.execute(text("DELETE FROM searches"))


@pytest.mark.skipif("PLAIT_TEST_POSTGRES" not in os.environ, reason="PLAIT_TEST_POSTGRES names no database")
class TestPostgreSQL(StoreContract):
    @pytest.fixture
    def engine(self) -> Engine:
        engine = writer(os.environ["PLAIT_TEST_POSTGRES"])
        with engine.begin() as connection:
            connection.execute(text("TRUNCATE searches CASCADE"))
        return engine


def test_a_database_that_is_away_is_waited_for_only_so_long_and_told_once() -> None:
    database, heard = Postgres(), []
    try:
        engine = writer(database.url)
        assert transaction(engine, lambda session: session.scalar(text("SELECT 1"))) == 1
        database.stop()
        began = time.monotonic()
        with pytest.raises(OperationalError):
            transaction(engine, lambda session: session.scalar(text("SELECT 1")), 1.5, heard.append)
        assert 0.5 < time.monotonic() - began < 5 and len(heard) == 1
        Timer(1.0, database.start).start()
        assert transaction(engine, lambda session: session.scalar(text("SELECT 2")), 30) == 2
    finally:
        database.remove()


def test_eight_processes_open_a_new_file_and_all_succeed(tmp_path: Path) -> None:
    script = f"from search.store import writer; writer('sqlite:///{tmp_path}/new.db')"
    started = [subprocess.Popen([sys.executable, "-c", script], cwd=ROOT) for _ in range(8)]
    assert [process.wait(60) for process in started] == [0] * 8


@pytest.mark.parametrize("url", ["nonsense", "mysql://x/y", "sqlite://", "sqlite:////no/such/folder/a.db"])
def test_a_storage_that_cannot_be_opened_is_named(url: str) -> None:
    with pytest.raises(ValueError, match="storage = "):
        writer(url)


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("postgresql://me:geheim@host/plait", "postgresql://me:***@host/plait"),
        ("postgresql://me:geh:ei/m@host/plait", "postgresql://me:***@host/plait"),
        ("postgresql://me:ge@heim@host/plait", "postgresql://me:***@host/plait"),
        ("postgresql://:geheim@host/plait", "postgresql://:***@host/plait"),
        ("postgresql://me@host/plait?password=geheim&port=1", "postgresql://me@host/plait?password=***&port=1"),
        ("postgresql://me@host/plait?port=1&sslpassword=geheim", "postgresql://me@host/plait?port=1&sslpassword=***"),
        ("me:geheim@host/plait", "me:***@host/plait"),
        ("postgresql://me@host/plait", "postgresql://me@host/plait"),
        ("sqlite:///folder/a@b.db", "sqlite:///folder/a@b.db"),
    ],
)
def test_a_printed_url_has_no_password_and_is_otherwise_the_same(url: str, printed: str) -> None:
    assert shown(url) == printed


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:geheim@127.0.0.1/plait",
        "postgresql://me:geheim@127.0.0.1:port/plait",
        "postgresql://me:geheim@127.0.0.1:1/plait",
        "postgresql://me@127.0.0.1:1/plait?password=geheim",
        "postgresql://me:not%20ge@heim@127.0.0.1:1/plait",
        "postgresql+nodriver://me:geheim@127.0.0.1/plait",
        "me:geheim@127.0.0.1/plait",
    ],
)
def test_no_error_prints_a_password(url: str) -> None:
    for opened in (writer, reader):
        with pytest.raises(ValueError, match=r"^storage = .*\*\*\*") as refused:
            opened(url)
        assert "heim" not in str(refused.value)


def test_what_is_kept_of_a_search_has_no_password(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("abc " * 20_000)
    config = SearchConfig(storage="postgresql://me:geheim@host/plait")
    kept = kept_of(config, Corpus.load(str(tmp_path / "text"))).config
    assert kept["storage"] == "postgresql://me:***@host/plait" and "geheim" not in str(kept)


class TestThePasswordFile:
    @pytest.fixture
    def file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        path = tmp_path / "password"
        path.write_text("ge:h@im\n")
        monkeypatch.setenv("PLAIT_PASSWORD_FILE", str(path))
        return path

    @pytest.mark.skipif("PLAIT_TEST_POSTGRES" not in os.environ, reason="PLAIT_TEST_POSTGRES names no database")
    def test_it_opens_a_database_whose_url_has_no_password(self, file: Path) -> None:
        url = make_url(os.environ["PLAIT_TEST_POSTGRES"])
        password = str(url.password or "ge:h@im")  # asked for where the server of the tests asks for one
        file.write_text(password + "\n")
        engine = writer(url._replace(password=None).render_as_string())
        assert engine.url.password == password and password not in repr(engine)

    def test_a_password_in_the_url_comes_first(self, file: Path) -> None:
        file.unlink()
        with pytest.raises(ValueError, match="cannot be opened: connection"):
            writer("postgresql://me:other@127.0.0.1:1/plait")

    def test_a_missing_one_is_named(self, file: Path) -> None:
        file.unlink()
        with pytest.raises(ValueError, match=f"^PLAIT_PASSWORD_FILE = {re.escape(repr(str(file)))}: cannot be read"):
            writer("postgresql://me@127.0.0.1:1/plait")

    def test_sqlite_needs_none(self, file: Path, tmp_path: Path) -> None:
        file.unlink()
        writer(f"sqlite:///{tmp_path}/a.db").dispose()


def test_slots_that_were_there_before_their_number_changed_are_counted(tmp_path: Path) -> None:
    engine = writer(f"sqlite:///{tmp_path}/plait.db")
    recorder = Recorder.open(engine, definition())
    for number in (20, 10):
        recorder.has_slots(number)
        time.sleep(0.2)
    recorder.heartbeat()
    recorder.heartbeat()
    with Session(engine) as session:
        assert 6 <= session.execute(text("SELECT slot_seconds FROM searches")).scalar_one() < 12
