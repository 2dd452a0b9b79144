"""`/v1/address`: where devices reach this service, for the command that starts an agent."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import APIRouter, Request

from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer
from edgefront.api.http.auth import Here, Reader
from edgefront.api.http.threads import ThreadRoute
from edgefront.core.addresses import is_local, is_loopback
from edgefront.core.services.settings import HttpSettings
from edgefront.core.wire.service import AddressView

router = APIRouter(prefix="/v1", tags=["devices"], route_class=ThreadRoute)

LOCAL_ONLY = (
    "This service listens on its own machine alone, so other devices do not reach it. Start it on an address of the "
    "network (edgefront up --host, with a TLS certificate or EDGEFRONT_HTTP__INSECURE=true), or put a proxy in front "
    "and set EDGEFRONT_HTTP__URL to its address."
)
BY_ITSELF = "Found by itself. If devices reach the service at another address, change it here."


@router.get(
    "/address",
    summary="The address at which devices reach this service",
    responses=answer(example("address")),
)
def get_address(_person: Reader, request: Request, here: Here) -> AddressView:
    """`EDGEFRONT_HTTP__URL` if it is set; else the address that this request came to, with the path below which a proxy
    serves the service, unless that is a loopback; else this machine's address in its network.
    """
    return reachable(here.settings.http, str(request.base_url).rstrip("/"))


def reachable(http: HttpSettings, asked: str) -> AddressView:
    """Where devices reach the service, which was asked at the address `asked`."""
    if http.url is not None:
        return AddressView(url=http.url.rstrip("/"), local_only=False)
    parts = urlsplit(asked)
    host = parts.hostname or ""
    if not is_loopback(host):
        return AddressView(url=asked, local_only=False)
    if is_local(http.host):
        return AddressView(url=asked, local_only=True, note=LOCAL_ONLY)
    own = _own_address() if _is_any(http.host) else http.host
    if own is None or is_loopback(own):
        return AddressView(url=asked, local_only=True, note=BY_ITSELF)
    shown = f"[{own}]" if ":" in own else own
    port = "" if parts.port is None else f":{parts.port}"
    return AddressView(url=f"{parts.scheme}://{shown}{port}{parts.path}", local_only=False, note=BY_ITSELF)


def _is_any(host: str) -> bool:
    """Whether a server that listens on `host` listens on every address of its machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def _own_address() -> str | None:
    """The address from which this machine reaches others; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # RFC 5737: an address of documentation
        except OSError:
            return None
        address: str = probe.getsockname()[0]
        return address
