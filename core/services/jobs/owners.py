"""Owners as an admin sees them: their bounds, and how much of each is used."""

from __future__ import annotations

from sqlalchemy.orm import Session

from edgefront.core.errors import NotFound
from edgefront.core.services.access import owners
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.jobs import quotas
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.files.sizes import stored_bytes
from edgefront.core.services.trainings.queries import trainings
from edgefront.core.states import KeyRole
from edgefront.core.store.database import Database
from edgefront.core.wire.owners import BoundView, OwnerChange, OwnerRequest, OwnerView

SHOWN_CHANGES = 50


def list_owners(
    session: Session, principal: Principal, settings: Settings, *, after: str | None = None, limit: int = 100
) -> list[OwnerView]:
    """Owners by name, from the one after `after`; for admins."""
    principal.require(KeyRole.ADMIN)
    return [_view(session, known_owner, settings, None) for known_owner in owners.known_owners(session, after, limit)]


def get_owner(database: Database, principal: Principal, owner: str, settings: Settings) -> OwnerView:
    """One owner, for itself or an admin. NotFound if nothing is known of it. Looks at files, in no transaction."""
    principal.require(KeyRole.USER)
    with database.read() as session:
        if not principal.may_see(owner) or not (owner == principal.owner or owners.is_known(session, owner)):
            raise NotFound(f"no owner {owner}")
        ids = trainings.ids_of(session, owner)
    used = stored_bytes(settings, ids)
    with database.read() as session:
        return _view(session, owner, settings, used, changes=SHOWN_CHANGES)


def set_bounds(
    database: Database, principal: Principal, owner: str, request: OwnerRequest, settings: Settings
) -> OwnerView:
    """Sets what the request gives (`access.owners.set_bounds`); returns the owner as it is then."""
    with database.write() as session:
        owners.set_bounds(session, principal, owner, request, settings.owners, database.now(session))
    return get_owner(database, principal, owner, settings)


def _view(session: Session, owner: str, settings: Settings, used_bytes: int | None, changes: int = 0) -> OwnerView:
    held = owners.bounds_of(session, owner, settings.owners)
    rows = owners.history(session, owner, max(1, changes))
    used = {
        "running_jobs": quotas.running_jobs(session, owner),
        "waiting_launches": quotas.waiting_launches(session, owner),
        "trainings": trainings.unfinished(session, owner),
        "stored_bytes": used_bytes,
    }
    views = {
        name: BoundView(
            used=count, most=getattr(held, name), set_for_owner=bool(rows) and getattr(rows[0], name) is not None
        )
        for name, count in used.items()
    }
    return OwnerView(
        owner=owner,
        weight=held.weights.get(owner, 1.0),
        changes=tuple(
            OwnerChange(**{name: getattr(row, name) for name in OwnerChange.model_fields}) for row in rows[:changes]
        ),
        **views,
    )
