"""Measurements, their launches, and the leases that devices hold on launches."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Double, ForeignKey, Index, String, Text, UniqueConstraint, literal_column, text
from sqlalchemy.orm import Mapped, mapped_column

from edgefront.core.common.states import LaunchState, MeasurementState, Purpose
from edgefront.core.measurement.figures import MEASURED, is_whole
from edgefront.core.measurement.statistics import LogLaunches
from edgefront.core.store.tables.base import Base, BigInt, Json, UtcDateTime, new_id, state_type


class FigureColumns:
    """A column for each figure in `MEASURED`. The annotations serve type checks; the loop below creates the columns."""

    if TYPE_CHECKING:
        latency_ms: Mapped[float | None]
        memory_bytes: Mapped[int | None]
        first_token_ms: Mapped[float | None]
        token_ms: Mapped[float | None]
        total_ms: Mapped[float | None]
        waited_share: Mapped[float | None]


for _name in MEASURED:
    setattr(FigureColumns, _name, mapped_column(BigInt if is_whole(_name) else Double(), nullable=True))


class Measurement(FigureColumns, Base):
    """Result of an architecture on a device (or device class) by a protocol, aggregated over the measurement's
    launches.
    """

    __tablename__ = "measurement"
    __table_args__ = (
        UniqueConstraint("digest", "device_key", "protocol_digest", "seed"),
        # Ends with the id, so that the first rows by id are read without reading all rows.
        Index("ix_measurement_device", "device_key", "protocol_digest", "state", "id"),
        # Launch variance is pooled over the measurements that have at least two launches.
        Index(
            "ix_measurement_pooled",
            "device_key",
            "protocol_digest",
            "id",
            postgresql_where=text("launches > 1"),
            sqlite_where=text("launches > 1"),
        ),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("mea"))
    digest: Mapped[str] = mapped_column(String(64))
    device_key: Mapped[str] = mapped_column(String(120))
    protocol_digest: Mapped[str] = mapped_column(String(64))
    protocol: Mapped[dict[str, Any]] = mapped_column(Json)
    architecture: Mapped[dict[str, Any]] = mapped_column(Json)
    seed: Mapped[int] = mapped_column(BigInt)
    state: Mapped[MeasurementState] = mapped_column(state_type(MeasurementState, 12))
    reason: Mapped[str | None] = mapped_column(Text)  # reason why the result is missing or not confirmed
    launches: Mapped[int] = mapped_column(default=0)  # number of done launches
    log_m2: Mapped[float | None]  # squared deviations of the launches' log medians, pooled over the device
    measured_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    @property
    def log_launches(self) -> LogLaunches:
        """Scatter of the log medians of the done launches."""
        return LogLaunches(self.launches, self.log_m2 or 0.0, self.waited_share or 0.0)


# Literals for queries, because a prepared statement's plan cannot use a partial index for a parameter.
WANTED: ColumnElement[str] = literal_column("'wanted'")
LEASED: ColumnElement[str] = literal_column("'leased'")
REPORTED: ColumnElement[str] = literal_column("'reported'")
IMPLAUSIBLE: ColumnElement[str] = literal_column("'implausible'")
_WANTED = text("state = 'wanted'")
_REPORTED = text("state = 'reported'")
_HELD = text("lease_id IS NOT NULL")
_LEASED = text("state = 'leased'")
_IMPLAUSIBLE = text("state = 'implausible'")


class Launch(Base):
    """One child process that builds and measures one architecture once."""

    __tablename__ = "launch"
    __table_args__ = (
        # Partial, so that they contain a launch only while it waits: each change of state writes one entry less.
        Index("ix_launch_wanted", "device_key", "turn", "id", postgresql_where=_WANTED, sqlite_where=_WANTED),
        Index("ix_launch_reported", "finished_at", postgresql_where=_REPORTED, sqlite_where=_REPORTED),
        # Launches are written often, so the indexes leave out done launches, which have no lease and no device.
        Index("ix_launch_lease", "lease_id", postgresql_where=_HELD, sqlite_where=_HELD),
        Index("ix_launch_device", "device_id", postgresql_where=_LEASED, sqlite_where=_LEASED),
        Index(
            "ix_launch_implausible",
            "device_id",
            "finished_at",
            postgresql_where=_IMPLAUSIBLE,
            sqlite_where=_IMPLAUSIBLE,
        ),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("lau"))
    measurement_id: Mapped[str] = mapped_column(ForeignKey("measurement.id", ondelete="CASCADE"), index=True)
    target_id: Mapped[str | None] = mapped_column(ForeignKey("target.id", ondelete="SET NULL"), index=True)
    device_key: Mapped[str] = mapped_column(String(120))
    state: Mapped[LaunchState] = mapped_column(state_type(LaunchState, 12))
    purpose: Mapped[Purpose] = mapped_column(state_type(Purpose, 10, "purpose"))
    turn: Mapped[float] = mapped_column(default=0.0, server_default="0")  # lowest first: services.turns
    attempts: Mapped[int] = mapped_column(default=0)  # deaths of the child process, or of the agent after the start
    fence: Mapped[int] = mapped_column(default=0)  # fencing token: rises with every claim
    lease_id: Mapped[str | None] = mapped_column(ForeignKey("lease.id"))
    device_id: Mapped[str | None] = mapped_column(ForeignKey("device.id"))  # device with the present or latest lease
    former_device_id: Mapped[str | None] = mapped_column(
        String(40)
    )  # device with the previous lease, whose result counts too
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    result: Mapped[dict[str, Any] | None] = mapped_column(Json)  # core.measurement.record.LaunchResult
    reports: Mapped[list[str]] = mapped_column(Json, default=list)  # digests of the accepted reports
    reason: Mapped[str | None] = mapped_column(Text)
    mark: Mapped[str | None] = mapped_column(Text)  # note on the conditions of the measurement
    busy_s: Mapped[float] = mapped_column(
        default=0.0, server_default="0"
    )  # device time in seconds, until the launch is processed
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class Lease(Base):
    """A timed, exclusive claim of a device on launches; expires by the database's clock."""

    __tablename__ = "lease"

    id: Mapped[str] = mapped_column(String(40), primary_key=True, default=lambda: new_id("lse"))
    device_id: Mapped[str] = mapped_column(ForeignKey("device.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime, index=True)
