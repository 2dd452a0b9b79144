"""Runs the API: `python -m edgefront.api`, and the embedded service."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import uvicorn
from fastapi import FastAPI

from edgefront.api.app import create_app
from edgefront.api.context import Context
from edgefront.core.errors import InvalidInput
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.files.objects import check_store
from edgefront.core.services.trainings.files.removal import finish_deletions

GRACE_S = 10
"""Seconds that requests in progress get when the server is asked to stop."""
KEEP_ALIVE_S = 75
"""Keep-alive seconds: longer than the interval between an agent's requests, so that connections (and TLS) are
reused."""


class Server(uvicorn.Server):
    """Ends long polls and event streams first; otherwise shutdown would wait for them."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        application = self.config.app
        context: Context | None = getattr(getattr(application, "state", None), "context", None)
        if context is not None:
            context.stop()
        await super().shutdown(sockets)


def make_server(settings: Settings, app: FastAPI | None = None, **options: Any) -> Server:
    """A server for `app`, made from the settings if absent; `options` go to uvicorn's configuration."""
    check_bind(settings)
    http = settings.http
    configuration: dict[str, Any] = {
        "host": http.host,
        "port": http.port,
        "ssl_certfile": http.certificate,
        "ssl_keyfile": http.certificate_key,
        # X-Forwarded headers are accepted only from the configured proxies.
        "proxy_headers": bool(http.trusted_proxies),
        "forwarded_allow_ips": http.trusted_proxies or None,
        "timeout_graceful_shutdown": GRACE_S,
        "timeout_keep_alive": KEEP_ALIVE_S,
        "server_header": False,
        "access_log": False,
        "log_level": "info",
        "ws": "none",
        **options,
    }
    return Server(uvicorn.Config(app or create_app(settings), **configuration))


def serve(settings: Settings) -> None:
    """Runs until SIGTERM or Ctrl-C. `InvalidInput` or `Unavailable` for settings that it cannot run with."""
    check_bind(settings)
    check_store(settings.artifact_url)
    finish_deletions(settings)
    server = make_server(settings)
    if not settings.http.share_port:
        server.run()
        return
    family = socket.AF_INET6 if ":" in settings.http.host else socket.AF_INET
    # With the protocol named, asyncio sets TCP_NODELAY: an answer in two writes would else wait 40 ms for an ACK.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((settings.http.host, settings.http.port))
        server.run(sockets=[listening])


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


def is_local(host: str) -> bool:
    """Whether only this machine can reach what listens on `host`."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(item[4][0]).is_loopback for item in found)
