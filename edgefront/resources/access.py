"""API keys and owners."""

from __future__ import annotations

from typing import Literal

from edgefront.core.validation import checked
from edgefront.core.wire.service import KeyRequest, KeyView
from edgefront.transport import Transport, segment


class Keys:
    """`client.keys`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        name: str,
        *,
        role: Literal["admin", "user", "viewer"] = "user",
        owner: str | None = None,
        days: int | None = None,
    ) -> KeyView:
        """A new key; its secret (`key`) is only in this response."""
        request = checked(KeyRequest, {"name": name, "role": role, "owner": owner, "days": days})
        return self._transport.ask(KeyView, "POST", "/v1/keys", body=request)

    def list(self) -> list[KeyView]:
        return self._transport.ask(list[KeyView], "GET", "/v1/keys")

    def revoke(self, key_id: str, *, force: bool = False) -> None:
        """Revokes a key; the last one of an admin only with `force` (`Conflict` otherwise)."""
        params = {"force": "true"} if force else None
        self._transport.request("DELETE", f"/v1/keys/{segment(key_id)}", params=params)
