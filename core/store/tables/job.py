"""Jobs, their targets, the generations of each target, and the work that workers claim."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from edgefront.core.common.states import JobEventKind, JobState, TargetState, WorkKind
from edgefront.core.store.tables.base import AutoId, Base, BigInt, Json, UtcDateTime, new_id, state_type


class Job(Base):
    __tablename__ = "job"
    __table_args__ = (UniqueConstraint("owner", "idempotency_key"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("job"))
    name: Mapped[str] = mapped_column(String(100))
    owner: Mapped[str] = mapped_column(String(100), index=True)
    request: Mapped[dict[str, Any]] = mapped_column(Json)  # read by core.services.stored
    request_digest: Mapped[str] = mapped_column(String(64))
    idempotency_key: Mapped[str | None] = mapped_column(String(200))
    state: Mapped[JobState] = mapped_column(state_type(JobState, 10), index=True)
    reason: Mapped[str | None] = mapped_column(Text)
    law: Mapped[str | None] = mapped_column(Text, deferred=True)  # the owner's scaling law at the start of the search
    last_event: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class Target(Base):
    """One search of a job, on one device (or device class) by one protocol, with generations and a frontier."""

    __tablename__ = "target"
    __table_args__ = (UniqueConstraint("job_id", "position"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("tgt"))
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"), index=True)
    position: Mapped[int]
    name: Mapped[str] = mapped_column(String(200))
    device_key: Mapped[str] = mapped_column(String(120), index=True)  # core.services.fleet.device_keys
    protocol: Mapped[dict[str, Any]] = mapped_column(Json)  # read by core.services.stored
    protocol_digest: Mapped[str] = mapped_column(String(64))
    limits: Mapped[dict[str, Any]] = mapped_column(Json)  # read by core.services.stored
    seed: Mapped[int] = mapped_column(BigInt)
    proxy: Mapped[str] = mapped_column(String(32))  # proxy of the job's request
    state: Mapped[TargetState] = mapped_column(state_type(TargetState, 10), index=True)
    note: Mapped[str] = mapped_column(Text, default="")
    generation: Mapped[int] = mapped_column(default=-1)  # number of the latest one requested; -1: only baselines
    reference: Mapped[dict[str, float] | None] = mapped_column(Json)  # proxy, latency_ms, memory_bytes, proxy_scale
    hypervolume: Mapped[float] = mapped_column(default=0.0)
    frontier_size: Mapped[int] = mapped_column(default=0)
    candidates: Mapped[int] = mapped_column(default=0)
    settled: Mapped[int] = mapped_column(default=0)
    launches_done: Mapped[int] = mapped_column(default=0)
    refinements: Mapped[int] = mapped_column(default=0)  # refinement launches that were requested
    busy_s: Mapped[float] = mapped_column(default=0.0)
    measuring_s: Mapped[float] = mapped_column(default=0.0)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class Generation(Base):
    """The input of a generation: the same snapshot and seed propose the same candidates."""

    __tablename__ = "generation"
    __table_args__ = (UniqueConstraint("target_id", "number"),)

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("gen"))
    target_id: Mapped[str] = mapped_column(ForeignKey("target.id", ondelete="CASCADE"), index=True)
    number: Mapped[int]
    snapshot: Mapped[list[Any]] = mapped_column(Json)  # changes since the previous one: core.services.search.snapshots
    device_data: Mapped[dict[str, Any] | None] = mapped_column(Json)  # other data of the device: snapshots
    proposals: Mapped[int | None]  # number of proposals; None until the first are stored
    stored: Mapped[int] = mapped_column(default=0, server_default="0")  # number of proposals stored as candidates
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Event(Base):
    __tablename__ = "event"
    __table_args__ = (UniqueConstraint("job_id", "number"),)

    id: Mapped[int] = mapped_column(AutoId, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id", ondelete="CASCADE"))
    number: Mapped[int]
    kind: Mapped[JobEventKind] = mapped_column(state_type(JobEventKind, 20, "kind"))
    target_id: Mapped[str | None] = mapped_column(String(40))
    data: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ServedQueue(Base):
    """The latest time at which a worker took a message from a queue of the broker."""

    __tablename__ = "served_queue"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)  # as in `core.services.work.Queue`
    served_at: Mapped[datetime] = mapped_column(UtcDateTime)


class WorkItem(Base):
    """Work for background workers on a subject. The row exists from the request until the work is done."""

    __tablename__ = "work_item"
    __table_args__ = (Index("ix_work_item_turn", "kind", "turn"), Index("ix_work_item_owner", "owner", "kind"))

    kind: Mapped[WorkKind] = mapped_column(state_type(WorkKind, 10, "kind"), primary_key=True)
    subject: Mapped[str] = mapped_column(String(120), primary_key=True)  # id of a target, or kind of training and owner
    owner: Mapped[str] = mapped_column(String(100))  # empty without an owner
    turn: Mapped[float]  # lowest first
    requeue_requested: Mapped[bool] = mapped_column(default=False)  # requested during the present claim
    holder: Mapped[str | None] = mapped_column(String(120))  # worker with the claim
    fence: Mapped[int] = mapped_column(default=0)  # fencing token: number of claims so far
    attempts: Mapped[int] = mapped_column(
        default=0
    )  # number of expired claims without an answer of the worker, plus the present claim
    claimed_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    requested_at: Mapped[datetime] = mapped_column(UtcDateTime)
