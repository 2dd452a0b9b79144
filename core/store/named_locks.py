"""Locks on a name until the transaction ends. SQLite has one writer at a time, which holds them all."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.orm import Session

_LOCK = text("SELECT pg_advisory_xact_lock(hashtext(:kind), hashtext(:name))")
_TRY = text("SELECT pg_try_advisory_xact_lock(hashtext(:kind), hashtext(:name))")


def lock(session: Session, kind: str, name: str) -> None:
    """Waits until no other transaction has the name locked, and locks it. What it then counts stays true."""
    if session.get_bind().dialect.name != "sqlite":
        session.execute(_LOCK, {"kind": f"edgefront/{kind}", "name": name})


def try_lock(session: Session, kind: str, name: str) -> bool:
    """Locks the name, unless another transaction has: False."""
    if session.get_bind().dialect.name == "sqlite":
        return True
    return bool(session.scalar(_TRY, {"kind": f"edgefront/{kind}", "name": name}))
