"""Running a search from the command line, start to end: what it says before, while it runs, and after."""

import os

from sqlalchemy.orm import Session

from proxies.text import Corpus
from search.apart import Interrupted
from search.config import SearchConfig
from search.confirm import confirmation
from search.progress import Progress, print_front
from search.runner import run
from search.store import controls, queries, reader, shown, writer
from search.terminal import DEFAULT_STORAGE, STORAGE_VARIABLE, console


def carry_out(settings: SearchConfig, *, extend: bool = False, address: str | None = None) -> None:
    """Runs a search, or goes on with it, and shows its front.

    Raises ValueError when it cannot be run as asked, and Interrupted when it was stopped.
    """
    corpus = Corpus.load(settings.text or None)
    engine = writer(settings.storage)
    with Session(engine) as session:
        known = settings.name in queries.search_names(session)
        done = queries.search_summary(session, settings.name).finished if known else 0
    screen, place = console(), shown(settings.storage)
    begun = f"Search {settings.name}: {done} of {settings.trials} finished, in {place}"
    screen.print(begun, highlight=False)
    progress = Progress(screen, done, settings.trials)
    try:
        with progress:
            ending = run(settings, corpus, engine, progress, extend=extend, address=address)
    except Interrupted as stop:
        stop.how_far = f"with {progress.done} of {settings.trials} finished"
        raise
    with Session(engine) as session:
        summary = queries.search_summary(session, settings.name)
        warnings = controls.warnings(session, settings.name)
        rows = queries.front(session, settings.name)
        probability = queries.probabilities(session, settings.name)
        confirmed = [row.digest for row in queries.front(session, settings.confirms)] if settings.confirms else []
    known_without = (DEFAULT_STORAGE, os.environ.get(STORAGE_VARIABLE))
    where = "" if settings.storage in known_without else f" --storage {place}"
    if done >= settings.trials:
        more = "" if settings.confirms else " Ask for more with --trials."
        screen.print(f"The budget is met: {done} evaluations are finished.{more}", highlight=False)
    elif ending.exhausted and not settings.confirms:
        screen.print(f"Space exhausted: all {settings.space.size} designs were proposed.", highlight=False)
    for warning in warnings:
        screen.print(warning, style="bold red", highlight=False)
    if not rows:
        screen.print(f"No design has a score yet: plait status {settings.name}{where} says why.", highlight=False)
        return
    print_front(screen, summary, rows, probability)
    if confirmed:
        kept = len(set(confirmed) & {row.digest for row in rows})
        stayed = f"{kept} of the {len(confirmed)} on the front of {settings.confirms} are on this one."
        screen.print(stayed, highlight=False)
    best = rows[0].digest[:8]
    screen.print("Next:", highlight=False)
    for line in (
        f"plait show {best}{where}",
        f"plait export {settings.name} {best} --scale 340m --out model{where}",
        f"plait dashboard{where}",
    ):
        screen.print(f"  {line}", highlight=False, soft_wrap=True)


def carry_out_confirmation(
    settings: SearchConfig, to: str = "", *, trials: int | None = None, address: str | None = None
) -> None:
    """Confirms the search of `settings`, which there must be. Raises ValueError when its text is not what it was."""
    with Session(reader(settings.storage)) as session:
        known = queries.search_summary(session, settings.name).protocol["language"]["text"]
        asked = confirmation(session, settings, to).with_options(trials=trials)
    corpus = Corpus.load(settings.text or None)
    if corpus.digest != known:
        raise ValueError(f"text {corpus.source} has digest {corpus.digest}: the search was run with {known}")
    carry_out(asked, extend=True, address=address)
