"""Where the API may listen. Loads none of it: `edgefront up` asks before it loads anything."""

from __future__ import annotations

import socket

from edgefront.core.addresses import is_local
from edgefront.core.errors import InvalidInput
from edgefront.core.services.settings import Settings


def check_bind(settings: Settings) -> None:
    """Raises `InvalidInput` for plain HTTP beyond this machine, unless it is explicitly enabled."""
    http = settings.http
    if http.share_port and (settings.embedded or http.port == 0 or not hasattr(socket, "SO_REUSEPORT")):
        raise InvalidInput(
            "http.share_port is for several API processes on one machine: it needs a separate broker, a fixed port, "
            "and a system on which processes can share a port",
            field="http.share_port",
            value=True,
            allowed="false, or true with EDGEFRONT_BROKER__URL=redis://… and EDGEFRONT_HTTP__PORT set",
        )
    if (http.certificate is None) != (http.certificate_key is None):
        raise InvalidInput(
            "http.certificate and http.certificate_key belong together: set both or neither",
            field="http.certificate",
            value=str(http.certificate),
            allowed="the paths of two PEM files",
        )
    if http.certificate is not None or http.insecure or is_local(http.host):
        return
    raise InvalidInput(
        f"http.host {http.host} can be reached from other machines, and plain HTTP would show them every key: give "
        "http.certificate and http.certificate_key, or put a proxy that ends TLS in front and set "
        "EDGEFRONT_HTTP__INSECURE=true",
        field="http.host",
        value=http.host,
        allowed="a loopback address, TLS, or http.insecure",
    )
