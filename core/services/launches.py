"""Launches that jobs want: made, and moved between wanted, paused and cancelled as their jobs are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session


@dataclass(frozen=True)
class Wish:
    """One more launch of a measurement. Lower `priority` goes first."""

    measurement_id: str
    target_id: str
    device_key: str
    purpose: str  # first, refinement
    priority: int = 0


def want(session: Session, wishes: Sequence[Wish], now: datetime) -> list[str]:
    """Makes one wanted launch for each wish, in one statement; returns their ids. Two wishes make two launches."""
    raise NotImplementedError


def reconcile(session: Session, job_id: str) -> None:
    """After a change of a job's or a target's state: puts the open launches of the job's measurements where they belong.

    A launch that is not leased is *wanted* if an active target (baselines, searching, refining) of any running job
    has a candidate with its measurement, else *paused* if one of a paused job has, else *cancelled*. Leased launches
    stay; their agents hear of it with the next heartbeat. Call it with the job's row locked, after its new state (and
    its targets') is flushed: on pause, resume, cancel, when a target finishes, and before a job is deleted (set the
    job's state to cancelled first).
    """
    raise NotImplementedError
