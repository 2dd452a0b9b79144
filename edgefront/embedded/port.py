"""The port that the embedded service listens on, bound before anything else is started."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket

from edgefront.core.addresses import LOOPBACK, LOOPBACK_V6
from edgefront.core.errors import Conflict, InvalidInput

DEFAULT_PORT = 8090
_TRIED = 50


def bind(host: str, port: int | None) -> socket.socket:
    """A bound socket. `port` None: the default, or the next free one above it; 0: any free one.

    Raises `Conflict` if the requested port is in use, `InvalidInput` if the host is not one of this machine's.
    """
    if port is not None:
        return _bound(host, port)
    for tried in range(DEFAULT_PORT, DEFAULT_PORT + _TRIED):
        try:
            return _bound(host, tried)
        except Conflict:
            continue
    raise Conflict(
        f"ports {DEFAULT_PORT} to {DEFAULT_PORT + _TRIED - 1} of {host} are all in use: choose one with --port"
    )


def address(bound: socket.socket, *, secure: bool = False) -> str:
    """The URL under which this machine reaches the socket."""
    scheme = "https" if secure else "http"
    host, port = bound.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = LOOPBACK if bound.family == socket.AF_INET else LOOPBACK_V6
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise _bad_host(host, error.strerror or str(error)) from None
    made = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            # A port with connections in TIME_WAIT may be reused at once.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(128)
        made.set_inheritable(False)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"port {port} of {host} is in use: choose another with --port (EDGEFRONT_HTTP__PORT), or 0 for any "
                "free one"
            ) from None
        if error.errno == errno.EACCES:
            raise Conflict(f"port {port} of {host} needs more privileges: choose one above 1023") from None
        raise _bad_host(host, error.strerror or str(error)) from None
    return made


def _bad_host(host: str, reason: str) -> InvalidInput:
    allowed = "an address of this machine, such as 127.0.0.1"
    return InvalidInput(f"cannot listen on {host!r}: {reason}", field="host", value=host, allowed=allowed)
