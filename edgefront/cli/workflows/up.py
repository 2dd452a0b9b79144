"""`edgefront up`: runs the embedded service until a signal stops it."""

from __future__ import annotations

import logging
import logging.handlers
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefront.cli.session import Session
from edgefront.client.show.output import print_json
from edgefront.core.common.errors import EdgefrontError
from edgefront.core.common.logs import LogLines
from edgefront.embedded.service import DEFAULT_PORT, DEVICE, EmbeddedService

if TYPE_CHECKING:
    from rich.console import Console

    from edgefront.client.client import Client

_LOG_BYTES = 5 << 20
_VERBOSE_LOGGERS = ("celery", "httpx", "alembic.runtime.plugins")
"""Loggers that write a message for every sweep, request or plug-in."""


def run(
    session: Session, home: Path, *, host: str | None, port: int | None, agent: bool, cores: str | None, verbose: bool
) -> None:
    """Starts the embedded service, prints the service's URL, and stops the service on Ctrl-C or SIGTERM."""

    with (
        log_to(home / "service.log", verbose=verbose),
        end_signal() as ending,
        EmbeddedService(
            home,
            host=host,
            port=port,
            agent=agent,
            cores=cores,
            on_bound=lambda url: session.note(f"starting at {url}, with its data in {home} …"),
        ) as service,
    ):
        if session.json:
            result = {"url": service.url, "home": str(service.home), "key_file": str(service.home / "key")}
            print_json(result, line=True)
        else:
            announce(session, service, session.out)
        if agent:
            session.note("its agent starts within about ten seconds; jobs wait for it")
            _report_agent(session, service, ending)
        ending.wait()
        session.note("stopping: the agent finishes its current launch (Ctrl-C again to stop at once) …")
    session.note("stopped")


def announce(session: Session, service: EmbeddedService, out: Console) -> None:
    """Prints the URL of the service."""
    if service.wanted_port is None and not service.url.endswith(f":{DEFAULT_PORT}"):
        session.note(f"port {DEFAULT_PORT} is in use, so another one was chosen")
    out.print(f"[bold]edgefront[/] runs at [bold]{service.url}[/]")
    out.print(f"  page    {login_link(service)}", markup=False, soft_wrap=True)
    out.print(f"  data    {service.home}", markup=False, soft_wrap=True)
    out.print(f"  log     {service.home / 'service.log'}", markup=False, soft_wrap=True)
    out.print("  end it  Ctrl-C")


def _report_agent(session: Session, service: EmbeddedService, ending: threading.Event) -> None:
    from edgefront.client.client import Client  # loads slowly, so only after the URL is printed

    with Client(service.url, service.key) as client:
        try:
            while not agent_is_ready(client, service):
                if ending.wait(0.25):
                    return
        except EdgefrontError as error:
            session.note(f"running without its agent: {error.detail}")
        else:
            session.note(f"this machine measures as device {DEVICE!r}")


def agent_is_ready(client: Client, service: EmbeddedService) -> bool:
    """Whether the embedded agent has enrolled. Raises `EdgefrontError` if the agent has ended permanently."""
    if any(device.name == DEVICE and device.online for device in client.devices.list()):
        return True
    ended = service.agent.final_message if service.agent else "it was not started"
    if ended:
        raise EdgefrontError(f"the agent of this machine has ended: {ended}")
    return False


def login_link(service: EmbeddedService) -> str:
    """Returns the link that signs in to the web page. Browsers never send the text after #, so no log has the key."""
    return f"{service.url}/login#key={service.key}"


@contextmanager
def end_signal() -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C, SIGTERM and SIGHUP set. A second Ctrl-C interrupts as usual."""
    ending = threading.Event()

    def end(number: int, _frame: Any) -> None:
        if ending.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        ending.set()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP"):
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def log_to(path: Path, *, verbose: bool) -> Iterator[None]:
    """Writes the log to a rotating file, and warnings (with `verbose` all messages) also to standard error."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    to_file = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=2, encoding="utf-8")
    to_file.setFormatter(LogLines())
    to_terminal = logging.StreamHandler()
    to_terminal.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    to_terminal.setLevel(logging.INFO if verbose else logging.WARNING)
    # On a full disk, logging errors must not flood the terminal with tracebacks.
    raise_exceptions, logging.raiseExceptions = logging.raiseExceptions, False
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)
    for name in _VERBOSE_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    root.addHandler(to_file)
    root.addHandler(to_terminal)
    try:
        yield
    finally:
        root.removeHandler(to_terminal)
        root.removeHandler(to_file)
        root.setLevel(level)
        logging.raiseExceptions = raise_exceptions
        with suppress(OSError):
            to_file.close()
