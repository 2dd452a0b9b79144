"""The agent as a program, `edgefront agent`.

Exit codes: 0 drained; 2 wrong settings, or no runtime; 4 the server does not accept this device; 7 the device was
revoked; 8 the protocol versions of agent and server are incompatible; 9 another agent uses the data folder, or the data
folder is a copy of another agent's folder; 1 any other error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgefront.agents.loop import Agent
from edgefront.agents.options import AgentOptions
from edgefront.agents.server.client import CopiedDataFolder, ProtocolMismatch
from edgefront.core.common.errors import (
    EdgefrontError,
    Forbidden,
    Gone,
    InvalidInput,
    Unauthenticated,
)
from edgefront.core.common.files import only_holder
from edgefront.core.common.logs import log_to_stderr


class DataFolderBusy(EdgefrontError):
    """Raised if another agent runs with this data folder."""

    kind = "data-folder-busy"


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


def main(options: AgentOptions, *, json_logs: bool = False) -> int:
    """Runs an agent until it is drained (SIGTERM, SIGINT), and returns the exit code. `json_logs`: log JSON lines."""
    level = logging.DEBUG if options.verbose else logging.INFO
    log_to_stderr("json" if json_logs else "text", logger="edgefront.agents", level=level)
    try:
        with own_folder(options.folder):
            Agent(options).run()
    except EdgefrontError as error:
        _log.error("%s", error)
        return next((code for kind, code in _CODES if isinstance(error, kind)), ERROR)
    except OSError as error:
        _log.error("%s", error)
        return ERROR
    _log.info("drained")
    return OK


@contextmanager
def own_folder(folder: Path) -> Iterator[None]:
    """Creates the folder for this user only, and locks it. Raises `DataFolderBusy` if another process has the lock."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    busy = DataFolderBusy(f"another agent runs with {folder}: stop it, or choose another data folder")
    with only_holder(folder / "lock", busy):
        yield
