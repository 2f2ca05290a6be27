"""What a search does next, and what it makes of each result. Knows the store and the proposer, nothing of Ray."""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from search.config import MEASURED, SearchConfig
from search.confirm import candidates
from search.proposer import Past, Proposal, Proposer
from search.stopping import Decision, Rungs
from search.store import queries
from search.store.recorder import Lease, Recorder
from search.store.tables import COMPLETE, STOPPED
from space.cost import cost, matched
from space.design import Design
from space.scale import SCALES

MOST_LOSSES = 6  # workers lost in a row, and twice the slots, after which the machine, not the design, is to blame
REQUIRED = ("recall", "recall_low", "recall_high", "lm_bits_per_byte")


class Next(Enum):
    """No design now: WAIT for one that is running, or FINISHED."""

    WAIT = "wait"
    FINISHED = "finished"


class Watcher(Protocol):
    """Told what a run works with, about trials as they start and end, and what else a person should notice."""

    def began(self, where: str) -> None: ...

    def works_with(self, gpu: str, serving: Mapping[str, str]) -> None: ...

    def started(self, lease: Lease) -> None: ...

    def ended(self, lease: Lease, state: str, metrics: Mapping[str, float], reason: str, seconds: float) -> None: ...

    def noticed(self, words: str) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """What a worker hands back at a rung: figures, or a failure with its one-line reason.

    Before its first design a worker on a GPU says which that is, and what serves each mixer there (`serving`); its
    failure then is that of the machine. One that is `dying` cannot be used again: it ends when it is asked for more.
    """

    rung: int = 0
    budget: float = 0.0
    final: bool = False
    metrics: Mapping[str, float] | None = None
    details: Mapping[str, Any] | None = None
    failure: str = ""
    traceback: str = ""
    worker: str = ""
    dying: bool = False
    gpu: str = ""
    serving: Mapping[str, str] | None = None

    @property
    def done(self) -> bool:
        return self.final or (bool(self.failure) and not self.dying)

    def to_json(self) -> str:
        return json.dumps(self.__dict__)

    @classmethod
    def from_json(cls, text: str) -> "Outcome":
        return cls(**json.loads(text))


def design_costs(config: SearchConfig, design: Design) -> dict[str, float]:
    """The metrics that need no training, at the deployment scale."""
    deployment = config.deployment
    scale = matched(design, SCALES[deployment.scale], config.proxy.match)
    found = cost(design, scale, context=deployment.context, dtype=deployment.dtype)
    return {
        "memory_bytes": found.memory_bytes,
        "parameters": found.parameters,
        "flops_per_token": found.flops_per_token,
    }


class Driver:
    """One run of a search: hands out evaluations until the budget is met, and records what comes back."""

    def __init__(
        self, config: SearchConfig, engine: Engine, recorder: Recorder, watcher: Watcher, num_slots: int
    ) -> None:
        self.config, self.recorder, self.watcher = config, recorder, watcher
        self.num_slots = self._most_slots = num_slots
        self.exhausted = False
        self.losses_in_a_row, self.last_loss = 0, ""
        self._dying: dict[int, Outcome] = {}
        self._works_with: list[tuple[str, Mapping[str, str]]] = []
        self.running: dict[int, tuple[Lease, float]] = {}
        with Session(engine) as session:
            self.finished = queries.search_summary(session, config.name).finished
            self._made_on = queries.devices(session, config.name)
            rows = queries.histories(session, config.name, config.objectives)
            names = [] if config.stopping == "none" else list(config.objectives)
            measured = queries.rung_values(session, config.name, names) if names else []
            least, confirms = config.confirm.probability, config.confirms
            listed = candidates(session, confirms, least) if confirms is not None else None
        self._rungs = Rungs(config.stopping, config.objectives, config.halving)
        known = {row.id: row for row in rows}
        for evaluation, rung, values in measured:
            row = known[evaluation]
            filled = (own if own is not None else other for own, other in zip(values, row.values, strict=True))
            self._rungs.note(row.digest, rung, dict(zip(names, filled, strict=True)))
        for row in rows:
            if row.audit_rung is not None:
                self._rungs.note_audit(row.digest, row.audit_rung)
        self._costs: dict[int, Mapping[str, float]] = {}
        self._anchors = {row.id for row in rows if row.origin == "anchor"}
        history = [Past(Design.parse(row.design), self._scored(row), row.digest) for row in rows]
        self._proposer = Proposer(
            config.space, config.objectives, config.sampler, config.seed, history, listed=listed,
            costs=self._modelled_costs, infeasible=self._infeasible, on_infeasible=self._record_infeasible,
        )  # fmt: skip

    def has_slots(self, number: int) -> None:
        """From now on as many trainings can run at once; with 0 the search waits."""
        if number == self.num_slots:
            return
        if self._most_slots:
            self.watcher.noticed(f"The cluster has changed: {number} at a time now.")
        self.num_slots, self._most_slots = number, max(number, self._most_slots)
        self.recorder.has_slots(number)

    def trains_on(self, kind: str) -> None:
        """Raises ValueError when the search has scores made on another kind of device than `kind`, cpu or cuda: they
        come from other data, and in lower precision on a GPU."""
        words = {"cpu": "a CPU, go on with --gpus-per-trial 0", "cuda": "a GPU, go on where there is one"}
        for other in self._made_on - {kind}:
            raise ValueError(
                f"gpus_per_trial: this would train on a {'GPU' if kind == 'cuda' else 'CPU'}, and the scores of search "
                f"{self.config.name!r} were made on {words[other]}; or choose another --name"
            )

    @property
    def too_many_losses(self) -> bool:
        """Whether so many workers died in a row that going on makes no sense. A node takes all its workers along."""
        return self.losses_in_a_row >= max(MOST_LOSSES, 2 * self._most_slots)

    def next(self) -> Lease | Next:
        """The next evaluation to run."""
        if self.too_many_losses:
            return Next.WAIT if self.running else Next.FINISHED
        if self.finished + len(self.running) >= self.config.trials:
            return Next.WAIT if self.running else Next.FINISHED
        if len(self.running) >= self.num_slots:
            return Next.WAIT
        lease = self.recorder.lease_queued()
        while lease is None:
            proposal = self._proposer.ask()
            if proposal is None:
                self.exhausted = True
                return Next.WAIT if self.running else Next.FINISHED
            lease = self.recorder.lease(proposal.design, proposal.origin, design_costs(self.config, proposal.design))
            if lease is not None:
                self._anchors |= {lease.evaluation} if proposal.origin == "anchor" else set()
        self._costs[lease.evaluation] = design_costs(self.config, lease.design)
        self.running[lease.evaluation] = (lease, time.monotonic())
        self.watcher.started(lease)
        return lease

    def measured(self, evaluation: int, outcome: Outcome) -> bool:
        """Records a rung; returns whether the trial goes on. Raises ValueError when the worker cannot use its GPU."""
        if evaluation not in self.running:
            return False
        if outcome.serving is not None:
            self._introduced(outcome.gpu, outcome.serving, outcome.failure)
            return True
        if outcome.dying:
            self._dying[evaluation] = outcome
            return True  # to its end, which is that of a lost worker
        lease, started = self.running[evaluation]
        reason = outcome.failure or self._what_is_wrong(outcome.metrics or {})
        if reason:
            self.recorder.fail(evaluation, reason, outcome.traceback, time.monotonic() - started)
            self._end(lease, "failed", {}, reason, started)
            return False
        metrics = {**self._costs[evaluation], **(outcome.metrics or {})}
        self.recorder.rung(evaluation, outcome.rung, outcome.budget, outcome.metrics or {}, outcome.worker)
        self._rungs.note(lease.design.digest, outcome.rung, metrics)
        if outcome.final:
            state = COMPLETE
        elif self._goes_on(lease, outcome):
            return True
        else:
            state = STOPPED
        self.recorder.finish(evaluation, state, metrics, outcome.details or {}, time.monotonic() - started)
        self._end(lease, state, metrics, "", started)
        return False

    def _introduced(self, gpu: str, serving: Mapping[str, str], failure: str) -> None:
        """Passes on what a worker works with, once for all that are alike."""
        if failure:
            raise ValueError(failure)
        if (gpu, serving) not in self._works_with:
            self._works_with.append((gpu, serving))
            self.watcher.works_with(gpu, serving)

    def lost(self, evaluation: int) -> None:
        """The worker of an evaluation died: it is queued again, a few times."""
        if evaluation in self.running:
            self.losses_in_a_row += 1
            lease, started = self.running.pop(evaluation)
            del self._costs[evaluation]
            last = self._dying.pop(evaluation, Outcome())
            self.last_loss = last.failure or "worker died"
            again = self.recorder.lose(evaluation, self.last_loss, last.traceback)
            reason = self.last_loss + (", will run again" if again else ", given up")
            self.watcher.ended(lease, "lost", {}, reason, time.monotonic() - started)

    def _end(self, lease: Lease, state: str, metrics: Mapping[str, float], reason: str, started: float) -> None:
        del self.running[lease.evaluation], self._costs[lease.evaluation]
        self.finished += 1
        self.losses_in_a_row = 0
        self._proposer.tell(lease.design, self._values(metrics, state))
        self.watcher.ended(lease, state, metrics, reason, time.monotonic() - started)

    def _scored(self, row: queries.History) -> tuple[float, ...] | None:
        if row.state != COMPLETE or None in row.values:
            return None
        return tuple(value for value in row.values if value is not None)

    def _values(self, metrics: Mapping[str, Any], state: str) -> tuple[float, ...] | None:
        if state != COMPLETE or any(metrics.get(name) is None for name in self.config.objectives):
            return None
        return tuple(float(metrics[name]) for name in self.config.objectives)

    def _what_is_wrong(self, metrics: Mapping[str, float]) -> str:
        required = dict.fromkeys((*(name for name in self.config.objectives if name in MEASURED), *REQUIRED))
        for name in required:
            if metrics.get(name) is None:
                return f"missing_metric: {name}"
        for name in (*required, *metrics):
            if not math.isfinite(metrics[name]):
                return f"non_finite: {name}"
        return ""

    def _goes_on(self, lease: Lease, outcome: Outcome) -> bool:
        if lease.evaluation in self._anchors:
            return True  # controls are read at their full budget
        decision = self._rungs.decide(lease.design.digest, outcome.rung, outcome.budget)
        if decision is Decision.AUDIT:
            self.recorder.audit(lease.evaluation, outcome.rung)
        return decision is not Decision.STOP

    def _modelled_costs(self, design: Design) -> dict[str, float]:
        """The objectives among the costs."""
        costs = design_costs(self.config, design)
        return {name: costs[name] for name in self.config.objectives if name in costs}

    def _infeasible(self, design: Design) -> str | None:
        limits = self.config.deployment.limits
        costs = design_costs(self.config, design) if limits else {}
        for name, limit in limits.items():
            if costs[name] > limit:
                return f"{name} = {costs[name]:.0f}: must be at most {limit}"
        return None

    def _record_infeasible(self, proposal: Proposal, reason: str) -> None:
        costs = design_costs(self.config, proposal.design)
        self.recorder.infeasible(proposal.design, proposal.origin, costs, reason)
