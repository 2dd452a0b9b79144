"""The data folder of the embedded service, where local clients find the URL and key of the running server.

<home>/server.json   {"url", "pid", "version"} while `edgefront up` runs
<home>/key           the admin key, created at the first start, mode 0600
<home>/lock          held by the running service
<home>/agent/        credential, spool and caches of the embedded agent
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from platformdirs import user_data_dir

from edgefront.core.common.errors import Unavailable
from edgefront.core.common.files import write_private

HOW_TO_START = (
    "start one with `edgefront up`, name its folder with EDGEFRONT_HOME, or a server with --url (EDGEFRONT_URL)"
)

STARTING_S = 45.0
"""Maximum seconds in which the agent of an embedded service enrols; usually about ten seconds."""


def default_home() -> Path:
    """Returns `EDGEFRONT_HOME`, or the user's data folder."""
    return Path(os.environ.get("EDGEFRONT_HOME") or user_data_dir("edgefront"))


@dataclass(frozen=True)
class LocalServer:
    """The content of server.json: URL, process id and version of the running embedded service."""

    url: str
    pid: int
    version: str

    @classmethod
    def find(cls, home: Path) -> LocalServer:
        """Returns the running server of `home`. If none runs, raises `Unavailable` with the command that starts one."""
        try:
            server = cls(**json.loads((home / "server.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            raise Unavailable(f"no edgefront service runs on this machine: {HOW_TO_START}") from None
        if not is_alive(server.pid):
            raise Unavailable(f"the edgefront server of {home} has ended (process {server.pid}): {HOW_TO_START}")
        return server

    def announce(self, home: Path) -> None:
        """Writes this object to `home`/server.json atomically."""
        write_private(home / "server.json", json.dumps(asdict(self)) + "\n")

    @staticmethod
    def withdraw(home: Path) -> None:
        with suppress(FileNotFoundError):
            (home / "server.json").unlink()


def is_starting(url: str, home: Path) -> bool:
    """Whether `url` is the embedded service of `home` and has just started. Its agent may not have enrolled yet."""
    try:
        server = LocalServer.find(home)
        age_s = time.time() - (home / "server.json").stat().st_mtime
    except (OSError, Unavailable):
        return False
    return server.url.rstrip("/") == url.rstrip("/") and age_s < STARTING_S


def read_key(home: Path) -> str | None:
    """Returns the admin key of the embedded service; None if this user cannot read it."""
    try:
        return (home / "key").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def is_alive(pid: int) -> bool:
    """Whether a process with this id exists, whichever user owns the process."""
    if sys.platform == "win32":
        return True  # os.kill would kill the process; a dead server is noticed when it does not respond
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
