"""Devices, and the tokens with which new ones enrol."""

from __future__ import annotations

from collections.abc import Iterator

from edgefront.core.validation import checked
from edgefront.core.wire.service import (
    AddressView,
    AnchorView,
    DeviceLog,
    DevicePage,
    DeviceView,
    DeviceWork,
    EnrolmentTokenRequest,
    EnrolmentTokenView,
    ReenrolRequest,
)
from edgefront.resources.lists import views
from edgefront.transport import Transport, segment


class Devices:
    """`client.devices`. A device is named by its id or its name."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int = 100) -> Iterator[DeviceView]:
        """Devices over all pages."""
        cursor: str | None = None
        while True:
            params = {"limit": limit, "cursor": cursor}
            page = DevicePage.model_validate_json(self._transport.request("GET", "/v1/devices", params=params).content)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def get(self, device: str) -> DeviceView:
        return DeviceView.model_validate_json(self._transport.request("GET", f"/v1/devices/{segment(device)}").content)

    def drain(self, device: str) -> DeviceView:
        """The device finishes its launches and gets no more."""
        return self._steer(device, "drain")

    def activate(self, device: str) -> DeviceView:
        """Ends a drain."""
        return self._steer(device, "activate")

    def trust(self, device: str) -> DeviceView:
        """Ends the device's quarantine, and the mark of its results."""
        return self._steer(device, "trust")

    def anchor(self, device: str) -> AnchorView:
        """The history of the small fixed model that the device measures regularly."""
        answer = self._transport.request("GET", f"/v1/devices/{segment(device)}/anchor")
        return AnchorView.model_validate_json(answer.content)

    def work(self, device: str) -> DeviceWork:
        """What the device does now, and what waits for it."""
        answer = self._transport.request("GET", f"/v1/devices/{segment(device)}/work")
        return DeviceWork.model_validate_json(answer.content)

    def log(self, device: str, *, after: int = 0, limit: int = 500) -> DeviceLog:
        """The last `limit` lines that the device's agent has logged, of those with a number above `after`."""
        params = {"after": after, "limit": limit}
        answer = self._transport.request("GET", f"/v1/devices/{segment(device)}/log", params=params)
        return DeviceLog.model_validate_json(answer.content)

    def revoke(self, device: str) -> DeviceView:
        """Revokes the device's credential permanently; its measurements are kept."""
        return self._steer(device, "revoke")

    def reenrol(self, device: str, *, minutes: int = 60) -> EnrolmentTokenView:
        """A token that enrols this device again, revoked or offline; its secret (`token`) is only in this response."""
        path = f"/v1/devices/{segment(device)}/reenrol"
        response = self._transport.request("POST", path, body=checked(ReenrolRequest, {"minutes": minutes}))
        return EnrolmentTokenView.model_validate_json(response.content)

    def _steer(self, device: str, verb: str) -> DeviceView:
        return DeviceView.model_validate_json(
            self._transport.request("POST", f"/v1/devices/{segment(device)}/{verb}").content
        )


class Tokens:
    """`client.tokens`: enrolment tokens."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, *, name: str = "device", minutes: int = 60, uses: int = 1) -> EnrolmentTokenView:
        """A new token; its secret (`token`) is only in this response."""
        request = checked(EnrolmentTokenRequest, {"name": name, "minutes": minutes, "uses": uses})
        return EnrolmentTokenView.model_validate_json(
            self._transport.request("POST", "/v1/enrolment-tokens", body=request).content
        )

    def get(self, token_id: str) -> EnrolmentTokenView:
        """One token, with the devices that have enrolled with it."""
        answer = self._transport.request("GET", f"/v1/enrolment-tokens/{segment(token_id)}")
        return EnrolmentTokenView.model_validate_json(answer.content)

    def address(self) -> AddressView:
        """Where devices reach the service."""
        return AddressView.model_validate_json(self._transport.request("GET", "/v1/address").content)

    def list(self) -> list[EnrolmentTokenView]:
        return views(EnrolmentTokenView, self._transport.request("GET", "/v1/enrolment-tokens"))

    def revoke(self, token_id: str) -> None:
        self._transport.request("DELETE", f"/v1/enrolment-tokens/{segment(token_id)}")
