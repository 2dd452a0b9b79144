"""Functions that start child processes, end child processes with the parent, and expose a process to the OOM killer."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def python(module: str, *arguments: str) -> list[str]:
    """Returns the command that runs a module in a child process. In Python 3.11+ local files do not shadow modules."""
    safe = ("-P",) if sys.version_info >= (3, 11) else ()
    return [sys.executable, *safe, "-m", module, *arguments]


def die_with_parent(parent: int) -> None:
    """Makes the kernel kill this process when the forking thread ends. Exits at once if `parent` has ended.

    Does nothing on systems other than Linux.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def end_with_input(grace_s: float | None = None) -> None:
    """Starts a thread that ends this process when standard input closes (the parent has ended). Works on every system.

    If `grace_s` is given, the process gets SIGTERM first and has this many seconds to clean up.
    """

    def wait() -> None:
        with suppress(OSError):
            while os.read(sys.stdin.fileno(), 1 << 10):
                pass
        if grace_s is not None:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(grace_s)
        os._exit(1)

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()


def first_for_the_oom_killer() -> None:
    """Makes this process the first victim when the system runs out of memory."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    except OSError:  # the system is not Linux, or a container forbids the change
        return
