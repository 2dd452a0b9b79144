"""The embedded service as an object that starts API, worker and agent, and stops them without orphaned processes."""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from edgefront import __version__
from edgefront.agents.device.cores import CorePlan, keep_to, parse_cores
from edgefront.client.local import LocalServer, read_key
from edgefront.core.common.addresses import LOOPBACK, LOOPBACK_V6
from edgefront.core.common.errors import Conflict, EdgefrontError, InvalidInput
from edgefront.core.common.files import only_holder, write_private
from edgefront.core.common.processes.child import python
from edgefront.core.common.states import KeyRole
from edgefront.embedded.agent import AgentProcess, update_server_url

if TYPE_CHECKING:
    from edgefront.core.services.access.keys import Principal
    from edgefront.core.services.settings import Settings
    from edgefront.core.store.database import Database


_log = logging.getLogger(__name__)

DEVICE = "local"
"""Name of the embedded agent's device."""
_START_S = 30.0
_STOP_S = 5
_DRAIN_S = 20.0
_TRAININGS_S = 30.0
"""Seconds for trainings to write a checkpoint at the service's end; a slower training is killed, and resumes later."""


@contextmanager
def locked_home(home: Path) -> Iterator[None]:
    """Creates the folder and locks it within the block. Raises `Conflict` if another process holds the lock."""
    home.mkdir(parents=True, exist_ok=True)
    busy = Conflict(f"an edgefront service already runs in {home}: use it, stop it, or give another folder by --home")
    with only_holder(home / "lock", busy):
        yield


class EmbeddedService:
    """The embedded service. A context manager; `url` and `key` are set when it is entered.

    Args:
        home: data folder, for one service at a time.
        host, port: where to listen; None: EDGEFRONT_HTTP__HOST and EDGEFRONT_HTTP__PORT. The default port is 8090 or
        the next free port; 0 selects any free port.
        agent: also run an agent.
        cores: measuring cores, as in `2,4-6`; None: all, with one launch at a time and the service on the last core.
        on_bound: called with the URL once the port is bound, seconds before the service responds.
        isolated: ignore environment variables that select another database (for the demo).

    Raises:
        Conflict: a service runs in this folder, or the port is in use.
        InvalidInput: the host is not this machine's, or is not loopback without `EDGEFRONT_HTTP__INSECURE=true`.
    """

    def __init__(
        self,
        home: Path,
        *,
        host: str | None = None,
        port: int | None = None,
        agent: bool = True,
        cores: str | None = None,
        on_bound: Callable[[str], None] | None = None,
        isolated: bool = False,
    ) -> None:
        self.home = home
        self.agent_log = home / "agent.log"
        self.wanted_port = port
        self._host = host
        self._with_agent = agent
        self._cores = cores
        self._plan = CorePlan.of_device(parse_cores(cores) if cores else None)
        self._on_bound = on_bound
        self._isolated = isolated
        self._resources = ExitStack()
        self.agent: AgentProcess | None = None
        self.url = ""
        self.key = ""

    def __enter__(self) -> EmbeddedService:
        with ExitStack() as started:
            self._start(started)
            self._resources = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def _start(self, started: ExitStack) -> None:
        settings = self._settings()
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        started.enter_context(locked_home(self.home))
        listening = started.enter_context(closing(bind(settings.http.host, self.wanted_port)))
        secure = settings.http.certificate is not None
        # A certificate is valid for a host name, so that this machine must use the same name.
        certified_url = settings.http.url if secure else None
        self.url = (certified_url or address(listening, secure=secure)).rstrip("/")
        if self._on_bound is not None:
            self._on_bound(self.url)
        if self._with_agent:
            keep_to(self._plan.home())

        from edgefront.core.services.dispatch import sender
        from edgefront.core.store.database import Database
        from edgefront.workers.app import EmbeddedWorker
        from edgefront.workers.training.launch import stop_all

        database = Database(settings.database_url, send=sender(settings), pool_size=settings.database.pool_size)
        started.callback(database.dispose)
        database.migrate()
        principal = self._admin(database)
        started.enter_context(_serving(settings, database, listening))
        LocalServer(url=self.url, pid=os.getpid(), version=__version__).announce(self.home)
        started.callback(LocalServer.withdraw, self.home)
        started.callback(stop_all, settings.home, _TRAININGS_S, kill=True)
        started.enter_context(EmbeddedWorker(settings, database))
        if self._with_agent:
            self.agent = self._agent(database, principal)
            self.agent.start()
            started.callback(self.agent.stop, _DRAIN_S)

    def _settings(self) -> Settings:
        from edgefront.core.services.settings import BrokerSettings, DatabaseSettings, LeaseSettings, Settings

        # kombu warns of a URL without a host.
        settings = Settings(home=self.home, broker=BrokerSettings(url="memory://localhost/"))
        if "leases" not in settings.model_fields_set:
            # Agent and server share a machine, so leases may expire soon after a crash.
            settings.leases = LeaseSettings(ttl_s=20, heartbeat_s=5, sweep_s=2)
        if self._isolated:
            settings.database = DatabaseSettings()
            settings.artifacts = None
        if self._host is not None:
            settings.http.host = self._host
        if self.wanted_port is None and "port" in settings.http.model_fields_set:
            self.wanted_port = settings.http.port
        settings.check_bind()
        return settings

    def _admin(self, database: Database) -> Principal:
        """Returns the principal of the admin key in the data folder. Creates a key if the folder has no valid key."""
        from edgefront.core.services.access.keys import authenticate, create_key

        key = read_key(self.home)
        with database.write() as session:
            now = database.now(session)
            if key is not None:
                with suppress(EdgefrontError):
                    principal = authenticate(session, key, now)
                    self.key = key
                    return principal
            _, self.key = create_key(session, name="embedded", owner="local", role=KeyRole.ADMIN, now=now)
            principal = authenticate(session, self.key, now)
        write_private(self.home / "key", self.key + "\n")
        return principal

    def _agent(self, database: Database, principal: Principal) -> AgentProcess:
        from edgefront.agents.main import BUSY, FINAL_CODES

        folder = self.home / "agent"
        folder.mkdir(exist_ok=True, mode=0o700)
        token_file = folder / "enrolment-token"

        def prepare() -> None:
            update_server_url(folder, self.url)
            self._enrolment_token(database, principal, token_file)

        command = python(
            *("edgefront", "agent"),
            *("--server", self.url),
            *("--token-file", str(token_file)),
            *("--data-dir", str(folder)),
            *("--name", DEVICE),
            *(("--cores", self._cores) if self._cores else ()),
            "--end-with-parent",
        )
        return AgentProcess(command, self.agent_log, before_start=prepare, final_codes=FINAL_CODES - {BUSY})

    @staticmethod
    def _enrolment_token(database: Database, principal: Principal, path: Path) -> None:
        """Writes a new single-use enrolment token to `path`, bound to the embedded device if that device exists."""
        from edgefront.core.common.errors import NotFound
        from edgefront.core.schemas.service import EnrolmentTokenRequest, ReenrolRequest
        from edgefront.core.services.fleet.devices import create_enrolment_token, reenrolment_token

        with database.write() as session:
            now = database.now(session)
            try:
                _, secret = reenrolment_token(session, principal, DEVICE, ReenrolRequest(minutes=10), now)
            except NotFound:
                request = EnrolmentTokenRequest(name="embedded agent", minutes=10, uses=1)
                _, secret = create_enrolment_token(session, principal, request, now)
        write_private(path, secret + "\n")


@contextmanager
def _serving(settings: Settings, database: Database, listening: socket.socket) -> Iterator[None]:
    """Serves the API on a bound socket in a separate thread."""
    from edgefront.api.app import create_app
    from edgefront.api.serve import make_server

    app = create_app(settings, database=database)
    server = make_server(settings, app, log_config=None, timeout_graceful_shutdown=_STOP_S)
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            server.run(sockets=[listening])
        except (Exception, SystemExit) as error:
            failures.append(error)
            _log.exception("the API has ended")

    thread = threading.Thread(target=serve, name="edgefront-api", daemon=True)
    thread.start()
    end = time.monotonic() + _START_S
    while not server.started:
        if not thread.is_alive() or time.monotonic() > end:
            raise EdgefrontError(f"the API did not start: {failures[0] if failures else 'see the log'}")
        time.sleep(0.02)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(_STOP_S + 10)


DEFAULT_PORT = 8090
_MAX_PORTS = 50


def bind(host: str, port: int | None) -> socket.socket:
    """Returns a bound socket. `port` None selects the default port or the next free port, 0 any free port.

    Raises `Conflict` if the requested port is in use, `InvalidInput` if the host is not one of this machine's.
    """
    if port is not None:
        return _bound(host, port)
    for candidate in range(DEFAULT_PORT, DEFAULT_PORT + _MAX_PORTS):
        with suppress(Conflict):
            return _bound(host, candidate)
    raise Conflict(
        f"ports {DEFAULT_PORT} to {DEFAULT_PORT + _MAX_PORTS - 1} of {host} are all in use: choose one with --port"
    )


def address(bound: socket.socket, *, secure: bool = False) -> str:
    """Returns the URL at which this machine reaches the socket."""
    scheme = "https" if secure else "http"
    host, port = bound.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = LOOPBACK if bound.family == socket.AF_INET else LOOPBACK_V6
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, socket_address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise _bad_host(host, error.strerror or str(error)) from None
    bound = socket.socket(family, kind, protocol)
    try:
        # A port with connections in TIME_WAIT may be reused at once.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(socket_address)
        bound.listen(128)
        bound.set_inheritable(False)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"port {port} of {host} is in use: choose another with --port (EDGEFRONT_HTTP__PORT), or 0 for any "
                "free one"
            ) from None
        if error.errno == errno.EACCES:
            raise Conflict(f"port {port} of {host} needs more privileges: choose one above 1023") from None
        raise _bad_host(host, error.strerror or str(error)) from None
    return bound


def _bad_host(host: str, reason: str) -> InvalidInput:
    allowed = "an address of this machine, such as 127.0.0.1"
    return InvalidInput(f"cannot listen on {host!r}: {reason}", field="host", value=host, allowed=allowed)
