"""Starts supervisors of trainings as detached processes, and starts the training processes (runs).

A supervisor locks a file in `<home>/supervisors/<host>` while it runs. The system releases the lock even if the
supervisor is killed, so that the files show which supervisors run on this machine. (Containers that share a data folder
may use the same process ids, but each container has its own host name.)

Each run has a separate process group, and is killed when the supervisor ends.
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
from edgefront.core.services.trainings.folder import training_folder
from edgefront.core.training.run_folder import LOG as RUN_LOG

FOLDER = "supervisors"
LOG = "supervisor.log"
_POLL_S = 0.05


def launch(settings: Settings, claim: TrainingClaim) -> None:
    """Starts the supervisor of a claimed training and returns; the supervisor outlives this process.

    Raises OSError or `subprocess.CalledProcessError` if the supervisor cannot be started.
    """
    folder = training_folder(settings, claim.training_id)
    folder.mkdir(parents=True, exist_ok=True)
    settings.home.mkdir(parents=True, exist_ok=True)
    command = python("edgefront.workers.training.supervise", claim.training_id, str(claim.fence))
    with (folder / LOG).open("ab") as log:
        # The process forks at once and exits, so that no parent has to wait for the supervisor.
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
    """Context manager: registers this process as the supervisor of the claim, by a locked file."""
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
    """Returns the running supervisors of this data folder: file name → process id."""
    pids: dict[str, int] = {}
    try:
        paths = sorted(_folder(home).iterdir())
    except OSError:
        return {}
    for path in paths:
        with suppress(OSError, ValueError), path.open("r+b") as file:
            if lock_descriptor(file.fileno(), blocking=False):
                path.unlink()  # the supervisor of this file was killed
            else:
                pids[path.name] = int(file.read() or b"0")
    return pids


def stop_all(home: Path, timeout_s: float, *, kill: bool = False) -> bool:
    """Stops all supervisors and waits until they have ended; the supervised trainings return to the queue.

    Returns whether all supervisors have ended in time; remaining supervisors end later, or are killed with their runs.
    """
    signalled: set[tuple[str, signal.Signals]] = set()
    end = time.monotonic() + timeout_s
    while alive := running(home):
        number = signal.SIGKILL if time.monotonic() > end else signal.SIGTERM
        if number == signal.SIGKILL and not kill:
            return False
        for name, pid in alive.items():
            if (name, number) not in signalled and pid > 0:
                signalled.add((name, number))
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        time.sleep(_POLL_S)
    return True


def _folder(home: Path) -> Path:
    return home / FOLDER / socket.gethostname()


LOCK = "run.lock"
_PRIVATE = ("EDGEFRONT_DATABASE", "EDGEFRONT_BROKER", "EDGEFRONT_ARTIFACTS", "EDGEFRONT_KEY")


class FolderLocked(Exception):
    """Another run still writes into the folder, and this process cannot kill that run."""


class FolderLock:
    """Lock for exclusive write access to a training's folder.

    The run inherits the open, locked file. The lock becomes free when both supervisor and run have ended. Therefore two
    runs on a machine never write into the same folder, even if a supervisor was killed before its run.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._file: IO[bytes] | None = None

    @property
    def descriptor(self) -> int:
        assert self._file is not None
        return self._file.fileno()

    def take(self, meanwhile: Callable[[], object], timeout_s: float) -> None:
        """Takes the lock. First kills a run on this machine that has lost its supervisor but still holds the lock.

        Calls `meanwhile` repeatedly while waiting for the lock. Raises `FolderLocked` after `timeout_s`.
        """
        file = self._path.open("a+b")
        end = time.monotonic() + timeout_s
        try:
            while not lock_descriptor(file.fileno(), blocking=False):
                if time.monotonic() > end:
                    raise FolderLocked(f"another run writes into {self._path.parent}")
                _kill_orphan(self._path)
                meanwhile()
                time.sleep(_POLL_S)
        except BaseException:
            file.close()
            raise
        file.truncate(0)  # the run in this file has ended, and the system may reuse its process id
        self._file = file

    def belongs_to(self, group: int) -> None:
        """Writes the run's process group into the lock file, so that the next supervisor can kill an orphaned run."""
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
    """Process of a training command on a folder. The process is killed at the end of the `with` block.

    The process is also killed when the supervisor's process ends.
    """

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
                # This process limits linear algebra to one thread; a training uses all threads of the machine.
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

    def __enter__(self) -> RunProcess:
        return self

    def __exit__(self, *error: object) -> None:
        """Kills the process and the remaining processes of its group."""
        if self.poll() is None:
            self.kill()
        self._signal(signal.SIGKILL)

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """Returns the exit code of the run, negative for a signal; None while the run continues."""
        return self._process.poll()

    def stop(self) -> None:
        """Asks the run to write a checkpoint and exit."""
        if self.stopping_since is not None:
            return
        self.stopping_since = time.monotonic()
        # torchrun would kill its ranks after half a minute. Signalled directly, the ranks stop, and torchrun exits.
        ranks = _children(self._process.pid) if self._ranks > 1 else []
        for pid in ranks:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        if not ranks:
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kills the run and its whole process group at once."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def command_for(custom: Sequence[str] | None, folder: Path, ranks: int) -> list[str]:
    """Returns the command that trains in `folder`: `custom`, or the built-in training, with torchrun if ranks > 1."""
    if custom is not None:
        return [*custom, str(folder)]
    module = "edgefront.core.training.run"
    if ranks == 1:
        return python(module, str(folder))
    torchrun = python("torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
    return [*torchrun, "--module", "edgefront.workers.training.rank", module, str(folder)]


def _kill_orphan(lock: Path) -> None:
    """Kills the process group named in the lock file if the group belongs to this machine."""
    try:
        holder = json.loads(lock.read_bytes())
        if holder["host"] == socket.gethostname() and int(holder["group"]) > 1:
            os.killpg(int(holder["group"]), signal.SIGKILL)
    except (OSError, ValueError, KeyError, TypeError):
        return


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (OSError, ValueError):
        return []
