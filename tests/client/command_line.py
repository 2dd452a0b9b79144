"""Runs the `edgefront` command as a user's shell does."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


def edgefront(
    *arguments: str,
    home: Path | None = None,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    code: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Exit code, standard output and standard error of one run, in a process forked from `warm_command`. It must end
    with this `code`, where one is given. The first of the arguments may be several, with spaces between.
    """
    arguments = (*arguments[0].split(), *arguments[1:])
    request = {"arguments": arguments, "env": environment(home) | (env or {}), "cwd": str(cwd or Path.cwd())}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        control = _warm()
        socket.send_fds(control, [json.dumps(request).encode()], [out.fileno(), err.fileno()])
        ended = control.recv(20)
        assert ended, "the process that runs commands has ended"
        said = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in (out, err)]
    assert code in (None, int(ended)), f"exit code {int(ended)}\n{said[0]}\n{said[1]}"
    return subprocess.CompletedProcess(["edgefront", *arguments], int(ended), *said)


@lru_cache(maxsize=1)
def _warm() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(240)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("warm_command.py")), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            },
        )
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def environment(home: Path | None) -> dict[str, str]:
    """This process's, without what would point the command to another service."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EDGEFRONT_")}
    return kept | {"COLUMNS": "200", "NO_COLOR": "1"} | ({"EDGEFRONT_HOME": str(home)} if home else {})
