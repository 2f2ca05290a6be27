"""The tables: a search owns its evaluations, and an evaluation its rungs. Times are seconds since 1970."""

from typing import Any

from sqlalchemy import JSON, Double, ForeignKey, Index, MetaData, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

QUEUED, RUNNING, COMPLETE, STOPPED = "queued", "running", "complete", "stopped"
FAILED, INFEASIBLE, LOST = "failed", "infeasible", "lost"
STATES = (QUEUED, RUNNING, COMPLETE, STOPPED, FAILED, INFEASIBLE, LOST)
FINISHED = (COMPLETE, STOPPED, FAILED)
"""The states that count towards a search's budget."""


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {dict[str, Any]: JSON, float: Double}  # noqa: RUF012


class Search(Base):
    """A named run: what defines it, and which process drives it now (`driver` is host:pid:start time).

    `slot_seconds` is for how long its runs had slots for trainings, times their number; `busy_seconds` is for how long
    evaluations that have ended trained in them.
    """

    __tablename__ = "searches"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    space: Mapped[dict[str, Any]]
    space_digest: Mapped[str]
    protocol: Mapped[dict[str, Any]]
    protocol_digest: Mapped[str]
    config: Mapped[dict[str, Any]]
    created: Mapped[float]
    plait_version: Mapped[str]
    driver: Mapped[str | None]
    driver_expires: Mapped[float | None]
    slot_seconds: Mapped[float] = mapped_column(default=0.0)
    busy_seconds: Mapped[float] = mapped_column(default=0.0)
    evaluations: Mapped[list["Evaluation"]] = relationship(back_populates="search")


class Evaluation(Base):
    """One design under one protocol: its state, and its scores once it has any. `memory_bytes` is at deployment.

    `audit_rung` is the rung at which it would have stopped, had it not been chosen to run on as a check on stopping.
    """

    __tablename__ = "evaluations"
    __table_args__ = (
        UniqueConstraint("search_id", "design_digest", "protocol_digest"),
        Index("ix_evaluations_search_id_state", "search_id", "state"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    search_id: Mapped[int] = mapped_column(ForeignKey("searches.id", ondelete="CASCADE"))
    number: Mapped[int]
    design: Mapped[str]
    design_digest: Mapped[str] = mapped_column(index=True)
    protocol_digest: Mapped[str]
    state: Mapped[str]
    attempts: Mapped[int] = mapped_column(default=0)
    lease_expires: Mapped[float | None]
    origin: Mapped[str]
    created: Mapped[float]
    started: Mapped[float | None]
    finished: Mapped[float | None]
    worker: Mapped[str | None]
    audit_rung: Mapped[int | None]
    reason: Mapped[str | None]
    traceback: Mapped[str | None]
    recall: Mapped[float | None]
    recall_low: Mapped[float | None]
    recall_high: Mapped[float | None]
    lm_bits_per_byte: Mapped[float | None]
    memory_bytes: Mapped[float | None]
    parameters: Mapped[float | None]
    seconds: Mapped[float | None]
    metrics: Mapped[dict[str, Any]] = mapped_column(default=dict)
    details: Mapped[dict[str, Any]] = mapped_column(default=dict)
    search: Mapped[Search] = relationship(back_populates="evaluations")
    rungs: Mapped[list["Rung"]] = relationship(back_populates="evaluation", order_by="Rung.rung")


class Rung(Base):
    """What an evaluation measured at one rung; `budget` is the share of its training done."""

    __tablename__ = "rungs"
    __table_args__ = (UniqueConstraint("evaluation_id", "rung"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    evaluation_id: Mapped[int] = mapped_column(ForeignKey("evaluations.id", ondelete="CASCADE"))
    rung: Mapped[int]
    budget: Mapped[float]
    metrics: Mapped[dict[str, Any]]
    recorded: Mapped[float]
    evaluation: Mapped[Evaluation] = relationship(back_populates="rungs")
