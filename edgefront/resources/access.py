"""API keys."""

from __future__ import annotations

from typing import Literal

from edgefront.core.wire.service import KeyRequest, KeyView
from edgefront.resources.lists import views
from edgefront.transport import Transport, segment


class Keys:
    """`client.keys`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self,
        name: str,
        *,
        role: Literal["admin", "user"] = "user",
        owner: str | None = None,
        days: int | None = None,
    ) -> KeyView:
        """A new key; its secret (`key`) is only in this response."""
        request = KeyRequest(name=name, role=role, owner=owner, days=days)
        return KeyView.model_validate_json(self._transport.request("POST", "/v1/keys", body=request).content)

    def list(self) -> list[KeyView]:
        return views(KeyView, self._transport.request("GET", "/v1/keys"))

    def revoke(self, key_id: str) -> None:
        self._transport.request("DELETE", f"/v1/keys/{segment(key_id)}")
