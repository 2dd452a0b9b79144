"""Runs the API: `python -m edgefront.api`, and the embedded service."""

from __future__ import annotations

import logging
import resource
import socket
import ssl
import threading
from typing import Any

import uvicorn
from fastapi import FastAPI

from edgefront.api.app import create_app
from edgefront.api.context import Context
from edgefront.api.web import pages
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.logs import log_to_stderr
from edgefront.core.common.processes.program import collect_seldom, switch_often
from edgefront.core.services.settings import Settings
from edgefront.core.store.database import Database

GRACE_S = 10
"""Seconds that requests in progress get at shutdown."""
FILES = 256
"""Open files beyond connections: the database, files that are sent, libraries."""
BACKLOG = 128
"""Length of the system's queue of new connections. Further clients retry after a second. A longer queue would delay
everybody in a flood of connections.
"""
KEEP_ALIVE_S = 75
"""Keep-alive time in seconds. Longer than the interval between an agent's requests, so that connections (and TLS) are
reused, and longer than the timeout of a proxy (nginx: 60).
"""
HEAD_BYTES = 64 << 10
"""Maximum bytes of a request's head, and of the unparsed rest of a chunked body."""

_log = logging.getLogger("edgefront.api")


class Server(uvicorn.Server):
    """Uvicorn server that prepares the pages after startup, and ends long polls and event streams before shutdown."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        threading.Thread(target=pages.warm_up, name="warm-up", daemon=True).start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        application = self.config.app
        context: Context | None = getattr(getattr(application, "state", None), "context", None)
        if context is not None:
            context.stop()
        await super().shutdown(sockets)


def make_server(settings: Settings, app: FastAPI | None = None, **options: Any) -> Server:
    """Returns a server for `app`, by default the application of the settings. `options` extend uvicorn's configuration.

    Raises `InvalidInput` for an unusable certificate.
    """
    settings.check_bind()
    http = settings.http
    if http.certificate is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(http.certificate, http.certificate_key)
        except OSError as error:  # includes ssl.SSLError
            raise InvalidInput(
                f"http.certificate {http.certificate} with the key {http.certificate_key} cannot be used: "
                f"{error.strerror or error}",
                field="http.certificate",
                value=str(http.certificate),
                allowed="the paths of two PEM files, a chain and its key",
            ) from None
    configuration: dict[str, Any] = {
        "host": http.host,
        "port": http.port,
        "ssl_certfile": http.certificate,
        "ssl_keyfile": http.certificate_key,
        "proxy_headers": False,  # the application handles these headers
        "timeout_graceful_shutdown": GRACE_S,
        "timeout_keep_alive": KEEP_ALIVE_S,
        "server_header": False,
        "access_log": False,
        "log_level": "info",
        "ws": "none",
        "backlog": BACKLOG,
        "http": "h11",  # httptools is faster, but does not limit heads: one client could fill the memory
        "h11_max_incomplete_event_size": HEAD_BYTES,
        "limit_concurrency": allow_connections(settings),
        **options,
    }
    return Server(uvicorn.Config(app or create_app(settings), **configuration))


def serve(settings: Settings) -> None:
    """Serves until SIGTERM. Raises `InvalidInput` for unusable settings, `Conflict` for another release's database."""
    log_to_stderr(settings.log)
    settings.check_artifacts()
    switch_often()
    server = make_server(settings, log_config=None)
    database = Database(settings.database_url, pool_size=1)
    if settings.embedded:
        database.migrate()
        _log.warning("EDGEFRONT_BROKER__URL is not set: workers find new work only by their regular sweeps")
    else:
        database.refuse_other_release()
    database.dispose()
    collect_seldom()
    if not settings.http.share_port:
        server.run()
        return
    family = socket.AF_INET6 if ":" in settings.http.host else socket.AF_INET
    # With a protocol number asyncio sets TCP_NODELAY; otherwise a response in two writes waits 40 ms for an ACK.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((settings.http.host, settings.http.port))
        server.run(sockets=[listening])


def allow_connections(settings: Settings) -> int:
    """Raises this process's limit of open files for `http.connections`, as far as the system permits. Returns the
    number of connections that it allows.
    """
    connections = settings.http.connections
    files = connections + FILES + BACKLOG
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= files:
        return connections
    granted = files if hard == resource.RLIM_INFINITY else min(files, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
    possible = min(connections, max(8, granted - FILES - BACKLOG))
    if possible < connections:
        _log.warning(
            "the system allows this process %d open files: it keeps at most %d connections, not %d (http.connections)",
            granted,
            possible,
            connections,
        )
    return possible
