"""The process that trains a folder: started in a group of its own, and never outliving its supervisor."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from filelock import lock_descriptor

from edgefront.core.processes.child import die_with_parent, first_for_the_oom_killer
from edgefront.core.training.run_folder import LOG

LOCK = "run.lock"
_PRIVATE = ("EDGEFRONT_DATABASE", "EDGEFRONT_BROKER", "EDGEFRONT_ARTIFACTS", "EDGEFRONT_KEY")
_LOOK_S = 0.05


class FolderHeld(Exception):
    """Another run still writes into the folder, and cannot be ended from here."""


class FolderLock:
    """The right to write into a training's folder.

    The run inherits the open file and with it the lock: it is free once both supervisor and run have ended. So no two
    runs of a machine ever write into one folder, even if a supervisor was killed and its run lives on for a moment.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._file: IO[bytes] | None = None

    @property
    def descriptor(self) -> int:
        assert self._file is not None
        return self._file.fileno()

    def take(self, meanwhile: Callable[[], object], timeout_s: float) -> None:
        """Takes the lock; a run that was left behind on this machine is killed for it.

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
        file.truncate(0)  # of a run that has ended, and whose number may be another process's by now
        self._file = file

    def belongs_to(self, group: int) -> None:
        """Notes the run's process group, for whoever comes after a crash."""
        assert self._file is not None
        self._file.truncate(0)
        self._file.write(json.dumps({"host": socket.gethostname(), "group": group}).encode())
        self._file.flush()

    def free(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def is_held(folder: Path) -> bool:
    """Whether a supervisor or a run has the folder's lock."""
    try:
        with (folder / LOCK).open("rb") as file:
            return not lock_descriptor(file.fileno(), blocking=False)
    except FileNotFoundError:
        return False


class RunProcess:
    """One start of the command on a folder. Ends with this process, however this ends."""

    def __init__(
        self, command: Sequence[str], folder: Path, *, environment: Mapping[str, str], lock: FolderLock, ranks: int = 1
    ) -> None:
        self._ranks = ranks
        parent = os.getpid()

        def prepare() -> None:
            die_with_parent(parent)
            first_for_the_oom_killer()
            with suppress(OSError):
                os.nice(5)  # the service beside it stays responsive

        with (folder / LOG).open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={name: value for name, value in environment.items() if not name.startswith(_PRIVATE)},
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
        """Asks it to write a checkpoint and end."""
        if self.stopping_since is not None:
            return
        self.stopping_since = time.monotonic()
        # torchrun would give its ranks half a minute: they are asked themselves, and it ends with them.
        ranks = _children(self._process.pid) if self._ranks > 1 else []
        for pid in ranks:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        if not ranks:
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once, with all that it has started in its group."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """Leaves nothing of its group behind."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def command_for(own: Sequence[str] | None, folder: Path, ranks: int) -> list[str]:
    """What trains the folder: `own`, or else the training process, under torchrun if it has several ranks."""
    if own is not None:
        return [*own, str(folder)]
    module = "edgefront.core.run"
    if ranks == 1:
        return [sys.executable, "-m", module, str(folder)]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
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
