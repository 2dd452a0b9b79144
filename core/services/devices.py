"""Devices: enrolment, what they are, drain and revoke.

Devices are shared: every user sees them all and may aim jobs at them; only their owner or an admin may end them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from core.services.keys import Principal
from core.store.tables import Device, EnrolmentToken
from core.wire.agent import DeviceFacts, EnrolRequest, EnrolResponse
from core.wire.service import DevicePage, DeviceView, EnrolmentTokenRequest, EnrolmentTokenView


def check_protocol_version(version: int) -> None:
    """Conflict unless the agent speaks this server's protocol version or the one before."""
    raise NotImplementedError


def create_enrolment_token(
    session: Session, principal: Principal, request: EnrolmentTokenRequest, now: datetime
) -> tuple[EnrolmentToken, str]:
    """A token that enrols devices for the principal's owner, and its secret. Forbidden unless admin."""
    raise NotImplementedError


def list_enrolment_tokens(session: Session, principal: Principal) -> list[EnrolmentTokenView]:
    raise NotImplementedError


def revoke_enrolment_token(session: Session, principal: Principal, token_id: str, now: datetime) -> None:
    raise NotImplementedError


def token_view(token: EnrolmentToken, secret: str | None = None) -> EnrolmentTokenView:
    raise NotImplementedError


def enrol(session: Session, token_secret: str, request: EnrolRequest, now: datetime) -> EnrolResponse:
    """Trades an enrolment token for a device and its credential."""
    raise NotImplementedError


def rotate_credential(session: Session, principal: Principal, device_id: str, now: datetime) -> EnrolResponse:
    """A new credential for the device; the old one ends. The device itself, its owner or an admin may ask."""
    raise NotImplementedError


def list_devices(
    session: Session, principal: Principal, now: datetime, *, cursor: str | None = None, limit: int = 100
) -> DevicePage:
    raise NotImplementedError


def get_device(session: Session, principal: Principal, id_or_name: str) -> Device:
    """NotFound if there is none."""
    raise NotImplementedError


def drain_device(session: Session, principal: Principal, device_id: str, now: datetime) -> Device:
    raise NotImplementedError


def activate_device(session: Session, principal: Principal, device_id: str, now: datetime) -> Device:
    raise NotImplementedError


def revoke_device(session: Session, principal: Principal, device_id: str, now: datetime) -> Device:
    raise NotImplementedError


def update_facts(session: Session, device_id: str, facts: DeviceFacts) -> None:
    raise NotImplementedError


def view(session: Session, device: Device, now: datetime) -> DeviceView:
    raise NotImplementedError


def views(session: Session, devices: Sequence[Device], now: datetime) -> list[DeviceView]:
    """Views of devices, in a fixed number of queries."""
    raise NotImplementedError
