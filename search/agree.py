"""How far the scores of a search can be trusted: `plait agree`.

Of one search, how well the order at every rung is that of the end: how early a design can be stopped. Of two searches
of the same designs, how well one orders them as the other does: with other seeds, that is test and retest.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import typer
from rich.table import Table
from sqlalchemy.orm import Session

from proxies.scoring import Interval, bootstrap
from search.rank import kept, spearman
from search.store import queries
from search.store.tables import COMPLETE
from search.terminal import DEFAULT_STORAGE, Storage, console, one_line, reading

METRICS = {"recall": 1, "lm_bits_per_byte": -1}
"""What is compared, with 1 where larger is better and -1 where smaller is."""
FEWEST = 4
DRAWS = 1000
_PART, _BEST = 0.5, 0.25  # stopping leaves the better half; what it may lose is the best quarter


class Pair(NamedTuple):
    """Two scores of one design, larger is better."""

    one: float
    other: float


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How well two scores of the same designs agree.

    `correlation` is Spearman's with a 95 % interval, designs drawn again. `kept` is the share of the best quarter by
    the other score that is in the better half by the first.
    """

    metric: str
    budget: float
    designs: int
    correlation: Interval
    kept: float


def rungs(session: Session, name: str) -> list[Agreement]:
    """The order at each rung but the last against the order at the end, over the complete evaluations of a search."""
    rows = {row.id: row for row in queries.evaluations(session, name, (COMPLETE,))}
    found: dict[str, dict[float, list[Pair]]] = {metric: {} for metric in METRICS}
    for rung in queries.rungs(session, name):
        end = rows[rung.evaluation].metrics if rung.evaluation in rows else {}
        for metric, sign in METRICS.items():
            last = end.get(metric)
            if rung.budget < 1 and rung.metrics.get(metric) is not None and last is not None:
                pair = Pair(sign * rung.metrics[metric], sign * last)
                found[metric].setdefault(rung.budget, []).append(pair)
    return [
        _agreement(metric, budget, pairs)
        for metric, by_rung in found.items()
        for budget, pairs in sorted(by_rung.items())
    ]


def searches(session: Session, one: str, other: str) -> list[Agreement]:
    """The scores of one search against the other's, over the designs that both have trained to the end."""
    first, second = (
        {row.digest: row.metrics for row in queries.evaluations(session, name, (COMPLETE,))} for name in (one, other)
    )
    found = []
    for metric, sign in METRICS.items():
        both = [digest for digest in first if metric in first[digest] and metric in second.get(digest, {})]
        if both:
            pairs = [Pair(sign * first[digest][metric], sign * second[digest][metric]) for digest in both]
            found.append(_agreement(metric, 1.0, pairs))
    return found


def differences(one: Mapping[str, Any], other: Mapping[str, Any], where: str = "") -> list[str]:
    """The fields in which two protocols differ, the name left out."""
    found = []
    for key in one.keys() | other.keys():
        mine, theirs = one.get(key), other.get(key)
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            found += differences(mine, theirs, f"{where}{key}.")
        elif mine != theirs and where + key != "name":
            found.append(where + key)
    return sorted(found)


def _agreement(metric: str, budget: float, pairs: Sequence[Pair]) -> Agreement:
    def correlation(sample: Sequence[Pair]) -> float:
        value = spearman([pair.one for pair in sample], [pair.other for pair in sample])
        return 0.0 if math.isnan(value) else value  # scores that are all the same order nothing

    return Agreement(
        metric=metric,
        budget=budget,
        designs=len(pairs),
        correlation=bootstrap(pairs, correlation, draws=DRAWS),
        kept=kept([pair.one for pair in pairs], [pair.other for pair in pairs], _PART, _BEST),
    )


def agree(
    name: str,
    other: Annotated[str, typer.Argument(help="A search of the same designs. Left out: the rungs of one search.")] = "",
    storage: Storage = DEFAULT_STORAGE,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Says how early a search knows its order, or how well two agree."""
    with one_line(), reading(storage) as session:
        ones = queries.search_summary(session, name)
        found = searches(session, name, other) if other else rungs(session, name)
        differing = differences(ones.protocol, queries.search_summary(session, other).protocol) if other else []
        designs = max((row.designs for row in found), default=0)
        if designs < FEWEST:
            where = f"both {name} and {other}" if other else f"{name} with a rung before the end"
            raise ValueError(f"designs = {designs}: must be {FEWEST} or more that are complete in {where}")
    if as_json:
        rows = [{**row.__dict__, "correlation": row.correlation.__dict__} for row in found]
        typer.echo(json.dumps({"search": name, "other": other or None, "differs": differing, "rows": rows}, indent=1))
        return
    screen = console()
    title = f"{name} against {other}" if other else f"The rungs of {name} against its end"
    screen.print(f"{title}: {designs} designs", highlight=False)
    if other:
        screen.print(f"Protocols differ in: {', '.join(differing) or 'nothing'}", highlight=False)
    screen.print(_printed(found, with_budget=not other))
    screen.print(f"kept: of the best {_BEST:.0%}, what is among the first {_PART:.0%} by the earlier order"
                 if not other else f"kept: of the best {_BEST:.0%} of {other}, what is in the better half of {name}",
                 highlight=False)  # fmt: skip


def _printed(found: Sequence[Agreement], *, with_budget: bool) -> Table:
    table = Table(box=None, pad_edge=False)
    columns: dict[str, Callable[[Agreement], str]] = {"metric": lambda row: row.metric}
    if with_budget:
        columns["budget"] = lambda row: f"{row.budget:.0%}"
    columns["Spearman [95 %]"] = lambda row: (
        f"{row.correlation.mean:.2f} [{row.correlation.low:.2f}, {row.correlation.high:.2f}]"
    )
    columns["kept"] = lambda row: f"{row.kept:.0%}"
    for heading in columns:
        table.add_column(heading, justify="left" if heading == "metric" else "right", no_wrap=True)
    for row in found:
        table.add_row(*(column(row) for column in columns.values()))
    return table
