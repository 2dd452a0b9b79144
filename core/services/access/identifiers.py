"""Completes identifiers that users abbreviate to the first or last characters, or to `last` for the newest one."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Select, SQLColumnExpression, or_, select
from sqlalchemy.orm import Session

from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.states import KeyRole
from edgefront.core.common.validation import existing, short
from edgefront.core.schemas.service import IdentifiedKind
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import is_storable
from edgefront.core.store.tables import ApiKey, Candidate, Device, EnrolmentToken, Job, Training

LAST = "last"
_LISTED = 5


class _Kind(NamedTuple):
    """Kind of identifier: its database columns, its prefix, and the command that lists the identifiers."""

    id: SQLColumnExpression[str]
    owner: SQLColumnExpression[str] | None
    """Column of the owner; None if all users share the rows."""
    prefix: str
    listing: str
    """Command that lists the identifiers of this kind."""


_KINDS: dict[IdentifiedKind, _Kind] = {
    "job": _Kind(Job.id, Job.owner, "job_", "edgefront job list"),
    "candidate": _Kind(Candidate.id, Job.owner, "cnd_", "edgefront frontier JOB"),
    "training": _Kind(Training.id, Training.owner, "trn_", "edgefront train list"),
    "device": _Kind(Device.id, None, "dev_", "edgefront device list"),
    "token": _Kind(EnrolmentToken.id, None, "enr_", "edgefront token list"),
    "key": _Kind(ApiKey.id, ApiKey.owner, "key_", "edgefront key list"),
}


def find(session: Session, principal: Principal, kind: IdentifiedKind, text: str) -> str:
    """Returns the only identifier that matches the text and that the caller may see.

    Raises `NotFound` if no identifier matches, and `InvalidInput` with a list of the matches if several match.
    """
    listing = _KINDS[kind].listing
    matches = _matches(session, principal, kind, text) if is_storable(text) else []
    if text in matches:
        return text
    if len(matches) == 1:
        return matches[0]
    if not matches:
        hint = f"`{listing}` lists the existing ones"
        if kind == "device":
            hint = existing(text, session.scalars(select(Device.name).order_by(Device.name)), listing)
        raise NotFound(f"no {kind} {short(text)}; {hint}", field=kind, value=text)
    more = " and more" if len(matches) > _LISTED else ""
    listed = ", ".join(matches[:_LISTED])
    raise InvalidInput(
        f"{kind}: {text!r} matches several identifiers: {listed}{more}",
        field=kind,
        value=text,
        allowed="more characters, so that only one identifier matches",
    )


def _matches(session: Session, principal: Principal, kind: IdentifiedKind, text: str) -> list[str]:
    """Returns up to `_LISTED + 1` matching identifiers, newest first."""
    column, prefix = _KINDS[kind].id, _KINDS[kind].prefix
    newest = _visible(principal, kind).order_by(column.desc())
    if kind == "device" and (named := list(session.scalars(select(Device.id).where(Device.name == text)))):
        return named
    part = text.lower()
    if part == LAST:
        return list(session.scalars(newest.limit(1)))
    begins = part if part.startswith(prefix) else prefix + part
    matches = or_(column.startswith(begins, autoescape=True), column.endswith(part, autoescape=True))
    return list(session.scalars(newest.where(matches).limit(_LISTED + 1)))


def _visible(principal: Principal, kind: IdentifiedKind) -> Select[str]:
    """Returns the query for the identifiers of this kind that the caller may see."""
    owner = _KINDS[kind].owner
    query = select(_KINDS[kind].id)
    if kind == "token":
        principal.require(KeyRole.ADMIN)
    if kind == "candidate":
        query = query.join(Job, Job.id == Candidate.job_id)
    if kind == "key":
        query = query.where(ApiKey.device_id.is_(None))
    if owner is None or principal.is_admin or (principal.reads_all and kind != "key"):
        return query
    return query.where(owner == principal.owner)
