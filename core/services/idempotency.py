"""Header Idempotency-Key: a repeated request with the same key returns what the first request created."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from edgefront.core.common.errors import Conflict, InvalidInput
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Base

MAX_KEY = 200

Former = TypeVar("Former")


def request_digest(stored: Document) -> str:
    """Returns the SHA-256 of a request, to detect a key that is reused for a different request."""
    return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()


def check_key(key: str) -> None:
    """Raises `InvalidInput` unless the key is 1 to `MAX_KEY` printable ASCII characters."""
    if not 1 <= len(key) <= MAX_KEY or not key.isascii() or not key.isprintable():
        raise InvalidInput(
            f"Idempotency-Key must be 1 to {MAX_KEY} printable ASCII characters",
            field="Idempotency-Key",
            value=key[:80],
            allowed="for example a UUID",
        )


def check_same(former_digest: str, digest: str, former: str) -> None:
    """Raises `Conflict` if the key was used before for a different request, which created `former`."""
    if former_digest != digest:
        raise Conflict(f"this Idempotency-Key was used for another request, which created {former}")


def add_once(session: Session, rows: Sequence[Base], former: Callable[[], Former]) -> Former | None:
    """Adds rows with a unique key, and returns None. If a concurrent request added them first, returns `former()`."""
    try:
        with session.begin_nested():
            session.add_all(rows)
            session.flush()
    except IntegrityError:
        earlier = former()
        if not earlier:
            raise
        return earlier
    return None
