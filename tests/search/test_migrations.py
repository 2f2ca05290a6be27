"""A database of an older plait is brought up to date when it is opened for writing, and nothing in it is lost."""

import json
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from search.config import SearchConfig
from search.store import queries, reader, writer
from search.store.recorder import Recorder
from search.store.session import MIGRATIONS
from tests.search.driving import definition, drive

CONFIG = SearchConfig(name="old", trials=2)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A search of the first schema, one evaluation complete and one running."""
    url = f"sqlite:///{tmp_path}/old.db"
    engine = create_engine(url)
    schema = Config()
    schema.set_main_option("script_location", str(MIGRATIONS))
    asked = definition(CONFIG)
    config = CONFIG.to_dict()
    del config["halving"], config["deployment"]["parameter_limit"], config["deployment"]["flops_limit"]
    with engine.begin() as connection:
        schema.attributes["connection"] = connection
        command.upgrade(schema, "0001")
        connection.execute(
            text(
                "INSERT INTO searches (id, name, space, space_digest, protocol, protocol_digest, config, created, "
                "plait_version) VALUES (1, 'old', :space, :space_digest, :protocol, :digest, :config, 1, '0')"
            ),
            {
                "space": json.dumps(asked.space.to_dict()), "space_digest": asked.space.digest,
                "protocol": json.dumps(asked.protocol), "digest": asked.protocol_digest, "config": json.dumps(config),
            },
        )  # fmt: skip
        for number, (design, state) in enumerate((("4xfull", "complete"), ("4xgla", "running"))):
            connection.execute(
                text(
                    "INSERT INTO evaluations (search_id, number, design, design_digest, protocol_digest, state, "
                    "attempts, origin, created, recall, memory_bytes, metrics, details) VALUES (1, :number, :design, "
                    ":design, :digest, :state, 1, 'anchor', 1, 0.9, 8, :metrics, '{}')"
                ),
                {"number": number, "design": design, "digest": asked.protocol_digest, "state": state,
                 "metrics": json.dumps({"recall": 0.9, "memory_bytes": 8})},
            )  # fmt: skip
    engine.dispose()
    return url


def test_an_old_database_goes_on_with_what_it_holds(url: str) -> None:
    engine: Engine = writer(url)
    with Session(engine) as session:
        (row,) = queries.front(session, "old")
        summary = queries.search_summary(session, "old")
    assert (row.design, row.audit_rung) == ("4xfull", None)
    assert summary.config["deployment"] == CONFIG.to_dict()["deployment"]
    assert summary.config["halving"] == {"reduction": 2.0, "grace": 0.3, "rivals": 4, "audit": 0.0}
    Recorder.open(engine, definition(CONFIG)).close()
    assert drive(CONFIG, engine).finished == 2
    with Session(engine) as session:
        assert [row.state for row in queries.evaluations(session, "old")] == ["complete", "complete"]


def test_reading_an_old_database_says_how_to_bring_it_up_to_date(url: str) -> None:
    with pytest.raises(ValueError, match="was made by an older plait: `plait doctor --storage`"):
        reader(url)
    writer(url)
    reader(url)
