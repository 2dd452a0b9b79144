"""Supervisors of trainings as detached processes: starts them, finds running ones, and stops them.

A supervisor holds the lock of a file in `<home>/supervisors/<host>` for as long as it lives. The system releases the
lock however its holder ends, so the files show reliably which supervisors run on this machine. (Containers may share a
data folder, and have other processes under the same ids: each has its own host name.)

The process of a run: started in its own process group, and never outliving its supervisor.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from filelock import lock_descriptor

from edgefront.core.common.processes.child import die_with_parent, first_for_the_oom_killer, python
from edgefront.core.common.processes.program import BLAS_THREADS
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.claims import TrainingClaim
from edgefront.core.services.trainings.files.folder import training_folder
from edgefront.core.training.run_folder import LOG as RUN_LOG

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


LOCK = "run.lock"
_PRIVATE = ("EDGEFRONT_DATABASE", "EDGEFRONT_BROKER", "EDGEFRONT_ARTIFACTS", "EDGEFRONT_KEY")


class FolderHeld(Exception):
    """Another run still writes into the folder, and cannot be killed from here."""


class FolderLock:
    """The right to write into a training's folder.

    The run inherits the open file and with it the lock: it is free once both supervisor and run have ended. So two runs
    of a machine never write into one folder at the same time, even if a supervisor was killed and its run lives a
    moment longer.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._file: IO[bytes] | None = None

    @property
    def descriptor(self) -> int:
        assert self._file is not None
        return self._file.fileno()

    def take(self, meanwhile: Callable[[], object], timeout_s: float) -> None:
        """Takes the lock; an orphaned run on this machine is killed first.

        `meanwhile` is called while it waits. Raises `FolderHeld` after `timeout_s`.
        """
        file = self._path.open("a+b")
        end = time.monotonic() + timeout_s
        try:
            while not lock_descriptor(file.fileno(), blocking=False):
                if time.monotonic() > end:
                    raise FolderHeld(f"another run writes into {self._path.parent}")
                _kill_left_behind(self._path)
                meanwhile()
                time.sleep(_LOOK_S)
        except BaseException:
            file.close()
            raise
        file.truncate(0)  # its run has ended, and another process may have the id now
        self._file = file

    def belongs_to(self, group: int) -> None:
        """Records the run's process group, for the next supervisor after a crash."""
        assert self._file is not None
        self._file.truncate(0)
        self._file.write(json.dumps({"host": socket.gethostname(), "group": group}).encode())
        self._file.flush()

    def free(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def is_held(folder: Path) -> bool:
    """Whether a supervisor or a run holds the folder's lock."""
    try:
        with (folder / LOCK).open("rb") as file:
            return not lock_descriptor(file.fileno(), blocking=False)
    except FileNotFoundError:
        return False


class RunProcess:
    """One start of the training command on a folder. It ends with this process, however this one ends."""

    def __init__(
        self, command: Sequence[str], folder: Path, *, environment: Mapping[str, str], lock: FolderLock, ranks: int = 1
    ) -> None:
        self._ranks = ranks
        parent = os.getpid()

        def prepare() -> None:
            die_with_parent(parent)
            first_for_the_oom_killer()
            with suppress(OSError):
                os.nice(5)  # so that the service on the same machine stays responsive

        with (folder / RUN_LOG).open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                # A training uses the threads of its machine: one for linear algebra is meant for this process.
                env={
                    name: value
                    for name, value in environment.items()
                    if not name.startswith(_PRIVATE) and name != BLAS_THREADS
                },
                start_new_session=True,
                pass_fds=(lock.descriptor,),
                preexec_fn=prepare,
            )
        lock.belongs_to(self._process.pid)
        self.stopping_since: float | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code once it has ended; negative for a signal."""
        return self._process.poll()

    def stop(self) -> None:
        """Asks the run to write a checkpoint and exit."""
        if self.stopping_since is not None:
            return
        self.stopping_since = time.monotonic()
        # torchrun would kill its ranks after half a minute: so they get the signal directly, and it exits after them.
        ranks = _children(self._process.pid) if self._ranks > 1 else []
        for pid in ranks:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        if not ranks:
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kills it at once, with its whole process group."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """Kills remaining processes of its group."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def command_for(own: Sequence[str] | None, folder: Path, ranks: int) -> list[str]:
    """The command that trains the folder: `own`, or else the training process, under torchrun if it has several
    ranks.
    """
    if own is not None:
        return [*own, str(folder)]
    module = "edgefront.core.training.run"
    if ranks == 1:
        return python(module, str(folder))
    torchrun = python("torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
    return [*torchrun, "--module", "edgefront.workers.training.rank", module, str(folder)]


def _kill_left_behind(lock: Path) -> None:
    """Kills the group that the lock file names, if it is of this machine."""
    try:
        noted = json.loads(lock.read_bytes())
        if noted["host"] == socket.gethostname() and int(noted["group"]) > 1:
            os.killpg(int(noted["group"]), signal.SIGKILL)
    except (OSError, ValueError, KeyError, TypeError):
        return


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (OSError, ValueError):
        return []
