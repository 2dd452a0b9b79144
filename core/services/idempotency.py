"""Idempotency-Key: the same key with the same request returns what was created the first time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from edgefront.core.errors import InvalidInput

MAX_KEY = 200


def request_digest(stored: Mapping[str, Any]) -> str:
    """SHA-256 of a request, to find out whether a key is used again with the same request."""
    return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()


def check_key(key: str) -> None:
    """InvalidInput unless the key can be stored."""
    if not 1 <= len(key) <= MAX_KEY or not key.isascii() or not key.isprintable():
        raise InvalidInput(
            f"Idempotency-Key: 1 to {MAX_KEY} printable ASCII characters",
            field="Idempotency-Key",
            value=key[:80],
            allowed="such as a UUID",
        )
