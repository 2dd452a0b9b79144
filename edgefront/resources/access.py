"""API keys and owners."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from edgefront.core.validation import checked
from edgefront.core.wire.owners import OwnerRequest, OwnerView
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


class Owners:
    """`client.owners`: what each may have at once, and how often its turn comes."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Iterator[OwnerView]:
        """All owners by name, for admins."""
        after: str | None = None
        while owners := self._transport.ask(list[OwnerView], "GET", "/v1/owners", params={"after": after}):
            yield from owners
            after = owners[-1].owner

    def get(self, owner: str) -> OwnerView:
        """One owner, with what it uses and what admins have changed."""
        return self._transport.ask(OwnerView, "GET", f"/v1/owners/{segment(owner)}")

    def set(self, owner: str, **bounds: float | None) -> OwnerView:
        """Sets bounds by name (fields of `OwnerRequest`); None goes back to the settings of the service."""
        given = checked(OwnerRequest, bounds).model_dump(mode="json", exclude_unset=True)
        return self._transport.ask(OwnerView, "PATCH", f"/v1/owners/{segment(owner)}", body=given)
