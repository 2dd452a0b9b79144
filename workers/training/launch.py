"""Supervisors of trainings as detached processes: starts them, finds running ones, and stops them.

A supervisor holds the lock of a file in `<home>/supervisors/<host>` for as long as it lives. The system releases the
lock however its holder ends, so the files show reliably which supervisors run on this machine. (Containers may share a
data folder, and have other processes under the same ids: each has its own host name.)
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import lock_descriptor

from edgefront.core.processes.child import python
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.claims import TrainingClaim
from edgefront.core.services.trainings.files.folder import training_folder

FOLDER = "supervisors"
LOG = "supervisor.log"
_LOOK_S = 0.05


def launch(settings: Settings, claim: TrainingClaim) -> None:
    """Starts the supervisor of a claimed training and returns; the supervisor outlives this process.

    Raises OSError or `subprocess.CalledProcessError` if it cannot be started.
    """
    folder = training_folder(settings, claim.training_id)
    folder.mkdir(parents=True, exist_ok=True)
    settings.home.mkdir(parents=True, exist_ok=True)
    command = python("edgefront.workers.training.supervise", claim.training_id, str(claim.fence))
    with (folder / LOG).open("ab") as log:
        # It forks at once and the process started here exits, so that no parent has to wait for the supervisor.
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=settings.home,
            env=settings.environment(),
            start_new_session=True,
            check=True,
        )


@contextmanager
def present(home: Path, claim: TrainingClaim) -> Iterator[None]:
    """Registers this process as the supervisor of the claim while the block runs."""
    folder = _folder(home)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{claim.training_id}.{claim.fence}"
    with path.open("a+b") as file:
        lock_descriptor(file.fileno())
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        file.flush()
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()


def running(home: Path) -> dict[str, int]:
    """File name → process id, for the running supervisors of this data folder."""
    pids: dict[str, int] = {}
    try:
        paths = sorted(_folder(home).iterdir())
    except OSError:
        return {}
    for path in paths:
        with suppress(OSError, ValueError), path.open("r+b") as file:
            if lock_descriptor(file.fileno(), blocking=False):
                path.unlink()  # its holder was killed
            else:
                pids[path.name] = int(file.read() or b"0")
    return pids


def stop_all(home: Path, timeout_s: float) -> bool:
    """Asks the supervisors to stop their trainings, which then wait in the queue, and waits for them.

    Returns whether all have ended in time; the others will end later.
    """
    reported: set[str] = set()
    end = time.monotonic() + timeout_s
    while alive := running(home):
        for name, pid in alive.items():
            if name not in reported and pid > 0:
                reported.add(name)
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGTERM)
        if time.monotonic() > end:
            return False
        time.sleep(_LOOK_S)
    return True


def _folder(home: Path) -> Path:
    return home / FOLDER / socket.gethostname()
