"""Messages about owners: what each may have at once, and how often its turn comes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, StrictInt

from edgefront.core.wire.messages import Request, View

MAX_INT = 2**31 - 1
Number = Annotated[StrictInt, Field(ge=1, le=MAX_INT)]


class OwnerRequest(Request):
    """What is given is set; null goes back to the settings of the service; what is left out stays."""

    weight: Annotated[float, Field(strict=True, ge=0.01, le=100, allow_inf_nan=False)] | None = None
    """Of two owners with weights 2 and 1 the first gets two of three turns of a device."""
    running_jobs: Number | None = None
    """Running and paused jobs."""
    waiting_launches: Number | None = None
    """Launches that wait for devices."""
    trainings: Number | None = None
    """Trainings that wait, run or are paused."""
    stored_bytes: Annotated[StrictInt, Field(ge=1)] | None = None
    """Bytes of the files of trainings, when further ones are submitted."""


class BoundView(View):
    used: int | None
    """Null in lists, where it would take long to count."""
    most: int | None
    """Null: unbounded."""
    set_for_owner: bool
    """False: the settings of the service say so for everybody."""


class OwnerChange(View):
    """What an admin set; null: that of the settings."""

    set_at: datetime
    set_by: str
    weight: float | None
    running_jobs: int | None
    waiting_launches: int | None
    trainings: int | None
    stored_bytes: int | None


class OwnerView(View):
    owner: str
    weight: float
    running_jobs: BoundView
    waiting_launches: BoundView
    trainings: BoundView
    stored_bytes: BoundView
    changes: tuple[OwnerChange, ...] = ()
    """The latest 50, the newest first; empty in lists."""
