"""What one owner may have at once and how often its turn comes: as an admin has set it, else as the settings say."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select, union, update
from sqlalchemy.orm import Session

from edgefront.core.services.access.keys import Principal
from edgefront.core.services.settings import OwnerSettings
from edgefront.core.states import LIVE_JOBS, KeyRole
from edgefront.core.store.tables import ApiKey, Job, OwnerBounds
from edgefront.core.wire.owners import OwnerRequest

BOUNDS = ("running_jobs", "waiting_launches", "trainings", "stored_bytes")
_FIELDS = ("weight", *BOUNDS)

_EVERY = union(
    select(ApiKey.owner).where(ApiKey.device_id.is_(None)), select(Job.owner), select(OwnerBounds.owner)
).subquery()

_log = logging.getLogger(__name__)


def bounds_of(session: Session, owner: str, settings: OwnerSettings) -> OwnerSettings:
    """The settings as they hold for this owner."""
    rows = history(session, owner, 1)
    if not rows:
        return settings
    own = {name: value for name in BOUNDS if (value := getattr(rows[0], name)) is not None}
    if rows[0].weight is not None:
        own["weights"] = {**settings.weights, owner: rows[0].weight}
    return settings.model_copy(update=own)


def set_bounds(
    session: Session, admin: Principal, owner: str, request: OwnerRequest, settings: OwnerSettings, now: datetime
) -> None:
    """Sets what the request gives, and keeps what was set before as history.

    A weight counts for the launches that the owner's live jobs ask for from now on. Nothing that is under way ends.
    Raises `Forbidden` for others than admins.
    """
    admin.require(KeyRole.ADMIN)
    former = history(session, owner, 1)
    values = {name: getattr(former[0], name) if former else None for name in _FIELDS}
    values |= request.model_dump(include=request.model_fields_set)
    session.add(OwnerBounds(owner=owner, set_at=now, set_by=admin.name, **values))
    session.flush()
    weight = bounds_of(session, owner, settings).weights.get(owner, 1.0)
    session.execute(update(Job).where(Job.owner == owner, Job.state.in_(LIVE_JOBS)).values(weight=weight))
    _log.info("bounds of %r set by %s: %s", owner, admin.name, values)


def history(session: Session, owner: str, most: int) -> Sequence[OwnerBounds]:
    """What was set for the owner, the newest first."""
    query = select(OwnerBounds).where(OwnerBounds.owner == owner)
    return session.scalars(query.order_by(OwnerBounds.set_at.desc(), OwnerBounds.id.desc()).limit(most)).all()


def known_owners(session: Session, after: str | None, most: int) -> list[str]:
    """Owners that have a key, a job or bounds of their own, by name, from the one after `after`."""
    query = select(_EVERY.c.owner).order_by(_EVERY.c.owner).limit(most)
    return list(session.scalars(query if after is None else query.where(_EVERY.c.owner > after)))


def is_known(session: Session, owner: str) -> bool:
    """Whether it has a key, a job or bounds of its own."""
    return session.scalar(select(_EVERY.c.owner).where(_EVERY.c.owner == owner)) is not None
