"""Opening a search: what makes it the search it is, whether one in the database is the same, and the driver's place."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from search.store.place import LEASE_SECONDS, driver_alive
from search.store.tables import Search
from space.space import SearchSpace


@dataclass(frozen=True, kw_only=True)
class Definition:
    """What makes a search the search it is. `fixed` are the parts of `config` that may not change when it goes on."""

    name: str
    space: SearchSpace
    protocol: Mapping[str, Any]
    protocol_digest: str
    config: Mapping[str, Any]
    version: str
    fixed: tuple[str, ...] = ("objectives", "deployment", "confirms")


def open_search(session: Session, definition: Definition, extend: bool, driver: str) -> int:
    """The id of the search, made or found, with `driver` in its place. Raises ValueError as `Recorder.open` does."""
    search = session.scalar(select(Search).where(Search.name == definition.name).with_for_update())
    if search is None:
        search = Search(
            name=definition.name,
            space=definition.space.to_dict(),
            space_digest=definition.space.digest,
            protocol=dict(definition.protocol),
            protocol_digest=definition.protocol_digest,
            created=time.time(),
            plait_version=definition.version,
        )
        session.add(search)
    else:
        _same_search(search, definition, extend)
        search.space, search.space_digest = definition.space.to_dict(), definition.space.digest
    search.config = dict(definition.config)
    session.flush()
    now = time.time()
    old = search.driver
    free = [Search.driver.is_(None), Search.driver_expires < now]
    if old and not driver_alive(old):
        free.append(Search.driver == old)
    taken = session.execute(
        update(Search)
        .where(Search.id == search.id, or_(*free))
        .values(driver=driver, driver_expires=now + LEASE_SECONDS)
    )
    if not taken.rowcount:  # type: ignore[attr-defined]
        raise ValueError(f"search {definition.name!r}: another plait run drives it ({old}): stop that one first")
    return search.id


def _same_search(search: Search, definition: Definition, extend: bool) -> None:
    differences = []
    if search.protocol_digest != definition.protocol_digest:
        differences += _differences("protocol", search.protocol, definition.protocol)
    for part in definition.fixed:
        differences += _differences(part, search.config.get(part), definition.config.get(part))
    if search.space_digest != definition.space.digest:
        if not definition.space.includes(SearchSpace.from_dict(search.space)):
            differences += _differences("space", search.space, definition.space.to_dict())
        elif not extend:
            raise ValueError(
                f"search {definition.name!r}: its space is smaller than the one asked for: "
                "add --resume to go on in the larger one, or choose another --name"
            )
    if differences:
        raise ValueError(
            f"search {definition.name!r} exists and differs: {'; '.join(differences)}: choose another --name"
        )


def _differences(where: str, old: Any, new: Any) -> list[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = [*old, *(key for key in new if key not in old)]
        return [line for key in keys for line in _differences(f"{where}.{key}", old.get(key), new.get(key))]
    old, new = (list(value) if isinstance(value, tuple) else value for value in (old, new))
    return [] if old == new else [f"{where} is {old} there and {new} here"]
