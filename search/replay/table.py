"""A table of evaluations: every design of it trained to the end under one protocol, with what it measured and when.

The file is JSON; or CSV, a row a rung, whose first line is `# ` and the JSON without its entries. Both say which space
and protocol they are of, so that tables are not mixed up.
"""

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from search.config import METRICS
from search.store import queries
from search.store.tables import COMPLETE, FAILED
from space.design import Design
from space.space import SearchSpace

FORMAT = "plait table 1"
_HEAD = ("format", "search", "protocol", "protocol_digest", "space", "space_digest", "objectives", "deployment")
_ROW = ("design", "state", "total_seconds", "budget", "seconds")


@dataclass(frozen=True, kw_only=True)
class Reached:
    """A rung: the share of the training done, seconds since the start, and every metric, computed ones included."""

    budget: float
    seconds: float
    metrics: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A design and how its evaluation went: complete, or failed after the rungs it reached."""

    design: str
    state: str
    seconds: float
    rungs: tuple[Reached, ...]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Entries by the digests of their designs, and what their scores mean."""

    search: str
    protocol: Mapping[str, Any]
    protocol_digest: str
    space: SearchSpace
    objectives: Mapping[str, str]
    deployment: Mapping[str, Any]
    entries: Mapping[str, Entry] = field(repr=False)

    @property
    def coverage(self) -> float:
        """The share of its space that the table holds."""
        return len(self.entries) / self.space.size

    @classmethod
    def of(cls, session: Session, name: str) -> "Table":
        """The evaluations of a search that are complete or failed; those that were stopped have no end to replay."""
        summary = queries.search_summary(session, name)
        rungs: dict[int, list[queries.RungRow]] = {}
        for item in queries.rungs(session, name):
            rungs.setdefault(item.evaluation, []).append(item)
        space = SearchSpace.from_dict(dict(summary.space))
        entries = {}
        for row in queries.evaluations(session, name, (COMPLETE, FAILED)):
            if not space.contains(Design.parse(row.design)):
                continue
            costs = {key: row.metrics[key] for key in METRICS if key in row.metrics and row.metrics[key] is not None}
            reached = tuple(
                Reached(
                    budget=item.budget,
                    seconds=max(0.0, item.recorded - (row.started or item.recorded)),
                    metrics={**costs, **{key: value for key, value in item.metrics.items() if value is not None}},
                )
                for item in rungs.get(row.id, [])
            )
            end = max([row.seconds or 0.0, *(item.seconds for item in reached)])
            entries[row.digest] = Entry(design=row.design, state=row.state, seconds=end, rungs=reached)
        if not any(entry.state == COMPLETE for entry in entries.values()):
            raise ValueError(f"search = {name!r}: has no complete evaluation to write")
        return cls(
            search=name, protocol=summary.protocol, protocol_digest=summary.protocol_digest, space=space,
            objectives=summary.objectives, deployment=summary.config["deployment"], entries=entries,
        )  # fmt: skip

    def head(self) -> dict[str, Any]:
        """Everything but the entries."""
        return {
            "format": FORMAT, "search": self.search, "protocol": dict(self.protocol),
            "protocol_digest": self.protocol_digest, "space": self.space.to_dict(), "space_digest": self.space.digest,
            "objectives": dict(self.objectives), "deployment": dict(self.deployment),
        }  # fmt: skip

    def write(self, path: Path) -> None:
        """JSON, or CSV when the name ends so. Raises ValueError when the file cannot be written."""
        if path.suffix == ".csv":
            text = self._csv()
        else:
            entries = [asdict(entry) for entry in self.entries.values()]
            text = json.dumps({**self.head(), "entries": entries}, indent=1)
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ValueError(f"out = {path}: cannot be written: {error.strerror}") from None

    def _csv(self) -> str:
        names = dict.fromkeys(name for entry in self.entries.values() for item in entry.rungs for name in item.metrics)
        text = io.StringIO()
        text.write(f"# {json.dumps(self.head())}\n")
        rows = csv.DictWriter(text, [*_ROW, *names], lineterminator="\n")
        rows.writeheader()
        for entry in self.entries.values():
            whole = {"design": entry.design, "state": entry.state, "total_seconds": entry.seconds}
            for item in entry.rungs:
                rows.writerow({**whole, "budget": item.budget, "seconds": item.seconds, **item.metrics})
            if not entry.rungs:
                rows.writerow(whole)
        return text.getvalue()

    @classmethod
    def read(cls, path: Path) -> "Table":
        """The table in a file. Raises ValueError naming the file and what is wrong in it."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"table = {path}: cannot be read: {error}") from None
        try:
            data = _from_csv(text) if text.startswith("# ") else json.loads(text)
            return cls._from_dict(data)
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"table = {path}: is not a table of plait: {type(error).__name__}: {error}") from None
        except ValueError as error:
            raise ValueError(f"table = {path}: {error}") from None

    @classmethod
    def _from_dict(cls, data: Mapping[str, Any]) -> "Table":
        if data["format"] != FORMAT:
            raise ValueError(f"format = {data['format']!r}: must be {FORMAT!r}")
        space = SearchSpace.from_dict(data["space"])
        if space.digest != data["space_digest"]:
            raise ValueError(f"space_digest = {data['space_digest']!r}: must be {space.digest!r}, that of its space")
        budgets = list(data["protocol"]["rungs"])
        entries: dict[str, Entry] = {}
        for row in data["entries"]:
            design = Design.parse(row["design"])
            reached = tuple(Reached(**item) for item in row["rungs"])
            if design.digest in entries:
                raise ValueError(f"design {design}: is there twice")
            if not space.contains(design):
                raise ValueError(f"design {design}: must be in the table's space")
            if row["state"] not in (COMPLETE, FAILED):
                raise ValueError(f"design {design}: state = {row['state']!r}: must be one of {COMPLETE}, {FAILED}")
            found = [item.budget for item in reached]
            if found != (budgets if row["state"] == COMPLETE else budgets[: len(found)]):
                raise ValueError(f"design {design}: rungs at {found}: must be those of the protocol, {budgets}")
            for item in reached:
                for name in data["objectives"]:
                    if name not in item.metrics:
                        raise ValueError(f"design {design}: metrics at {item.budget}: must have {name}")
            entries[design.digest] = Entry(
                design=str(design), state=row["state"], seconds=row["seconds"], rungs=reached
            )
        if not any(entry.state == COMPLETE for entry in entries.values()):
            raise ValueError("entries: must have one that is complete")
        kept = {name: data[name] for name in _HEAD if name not in ("format", "space", "space_digest")}
        return cls(**kept, space=space, entries=entries)


def _from_csv(text: str) -> dict[str, Any]:
    first, _, rest = text.partition("\n")
    data: dict[str, Any] = json.loads(first[2:])
    entries: dict[str, dict[str, Any]] = {}
    for row in csv.DictReader(io.StringIO(rest)):
        entry = entries.setdefault(
            row["design"],
            {"design": row["design"], "state": row["state"], "seconds": float(row["total_seconds"]), "rungs": []},
        )
        if row["budget"]:
            metrics = {name: float(value) for name, value in row.items() if name not in _ROW and value}
            entry["rungs"].append(
                {"budget": float(row["budget"]), "seconds": float(row["seconds"]), "metrics": metrics}
            )
    return {**data, "entries": list(entries.values())}
