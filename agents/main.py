"""The agent as a program: `edgefront agent`, or `python -m edgefront.agents`.

Exit codes: 0 drained; 2 wrong settings, or no runtime; 4 the server does not accept this device; 7 it was revoked; 8
the protocol versions of agent and server are incompatible; 9 another agent uses the data folder, or it is a copy of
another agent's; 1 anything else.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from platformdirs import user_data_dir

from edgefront.agents.config import AgentConfig
from edgefront.agents.datafolder import DataFolderBusy, own_folder
from edgefront.agents.device.cores import parse_cores
from edgefront.agents.loop import Agent
from edgefront.agents.server.client import CopiedDataFolder, ProtocolMismatch, check_url
from edgefront.core.errors import (
    EdgefrontError,
    Forbidden,
    Gone,
    InvalidInput,
    Unauthenticated,
)
from edgefront.core.units import MB

OK, ERROR, USAGE, NO_ACCESS, REVOKED, PROTOCOL, BUSY = 0, 1, 2, 4, 7, 8, 9
FINAL_CODES = frozenset({USAGE, NO_ACCESS, REVOKED, PROTOCOL, BUSY})
"""Exit codes after which a restart with the same settings would fail in the same way."""

_CODES: tuple[tuple[type[EdgefrontError], int], ...] = (
    (InvalidInput, USAGE),
    (Unauthenticated, NO_ACCESS),
    (Forbidden, NO_ACCESS),
    (Gone, REVOKED),
    (ProtocolMismatch, PROTOCOL),
    (DataFolderBusy, BUSY),
    (CopiedDataFolder, BUSY),
)
_log = logging.getLogger("edgefront.agents")


def main(
    server: str,
    token_file: Path | str | None = None,
    data_dir: Path | str | None = None,
    name: str | None = None,
    device_class: str | None = None,
    cores: str | Sequence[int] | None = None,
    *,
    memory_limit_bytes: int | None = None,
    insecure: bool = False,
    batch: int = 8,
    probe_again: bool = False,
    json_logs: bool = False,
    verbose: bool = False,
) -> int:
    """Run an agent until it is drained (SIGTERM, SIGINT), and return its exit code.

    Args:
        server: URL of the service. token_file: enrolment token; needed while the data folder has no credential for this
        server. data_dir: folder of the credential, unsent results and the weight cache; the user's data folder by
        default. name: name of the device; its host name by default. device_class: interchangeable devices share one;
        processor, cores and architecture by default. cores: cores that measure, such as `2,4-6`; by default all that
        this process may use. memory_limit_bytes: models that need more are infeasible. insecure: allow plain HTTP
        beyond this machine. batch: maximum number of launches in one lease. probe_again: test the runtimes even if an
        earlier start has. json_logs: log one JSON object per line. verbose: also log debug messages.
    """
    set_up_logging(json_logs=json_logs, verbose=verbose)
    folder = Path(data_dir) if data_dir is not None else Path(user_data_dir("edgefront")) / "agent"
    try:
        config = AgentConfig(
            server=check_url(server, insecure=insecure),
            data_dir=folder.absolute(),
            token_file=Path(token_file) if token_file is not None else None,
            name=name,
            device_class=device_class,
            cores=parse_cores(cores) if isinstance(cores, str) else (None if cores is None else tuple(cores)),
            memory_limit_bytes=memory_limit_bytes,
            insecure=insecure,
            batch=batch,
            probe_again=probe_again,
        )
        with ExitStack() as stack:
            stack.enter_context(own_folder(config.data_dir))
            Agent(config).run()
    except EdgefrontError as error:
        _log.error("%s", error)
        return next((code for kind, code in _CODES if isinstance(error, kind)), ERROR)
    except OSError as error:
        _log.error("%s", error)
        return ERROR
    _log.info("drained")
    return OK


def set_up_logging(*, json_logs: bool, verbose: bool) -> None:
    """Logs to standard error, one line per message."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(_JsonLines() if json_logs else plain)
    logger = logging.getLogger("edgefront.agents")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


def run(arguments: Sequence[str] | None = None) -> int:
    """Parses a command line and runs the agent, as `edgefront agent` does."""
    parser = argparse.ArgumentParser(prog="python -m edgefront.agents", description="The measuring agent of a device.")
    parser.add_argument("--server", required=True, help="URL of the service")
    parser.add_argument(
        "--token-file",
        type=Path,
        help="file with an enrolment token, or - for standard input; for the first start",
    )
    parser.add_argument("--data-dir", type=Path, help="folder of the credential, unsent results and the weight cache")
    parser.add_argument("--name", help="name of this device (default: its host name)")
    parser.add_argument("--device-class", help="devices of one class are interchangeable")
    parser.add_argument("--cores", help="cores that measure, as in 2,4-6")
    parser.add_argument("--memory-limit-mb", type=int, help="models that need more MB (10^6 bytes) are infeasible")
    parser.add_argument("--insecure", action="store_true", help="allow plain HTTP beyond this machine")
    parser.add_argument("--batch", type=int, default=8, help="maximum number of launches in one lease")
    parser.add_argument("--probe-again", action="store_true", help="test the runtimes even if an earlier start has")
    parser.add_argument("--json", action="store_true", help="log JSON lines")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args(arguments)
    limit = given.memory_limit_mb
    return main(
        given.server,
        given.token_file,
        given.data_dir,
        given.name,
        given.device_class,
        given.cores,
        memory_limit_bytes=None if limit is None else limit * MB,
        insecure=given.insecure,
        batch=given.batch,
        probe_again=given.probe_again,
        json_logs=given.json,
        verbose=given.verbose,
    )
