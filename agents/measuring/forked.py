"""The agent's side of a fork server: starts it, sends it launches, and detects its death; and the lock of a host.

Agents on one physical host take turns around each launch. Containers take turns only if they share the lock's folder:
mount it, or name a file by EDGEFRONT_MEASURE_LOCK.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgefront.agents.measuring.failures import failure
from edgefront.agents.measuring.request import LaunchRequest
from edgefront.core.common.errors import MeasurementError
from edgefront.core.common.processes.child import python
from edgefront.core.measurement.protocol import Runtime
from edgefront.core.measurement.record import LaunchResult

_ROOT = Path(__file__).absolute().parents[3]
"""The folder that contains the package `edgefront`. In a source tree its subpackages are links, so links are not
resolved."""
_STOP_TIMEOUT_S = 5.0


class ForkServer:
    """The fork server (`forkserver`) of one runtime, in a separate process, whose temporary files are in the folder
    `temporary`. Raises `MeasurementError` if it cannot start.
    """

    def __init__(self, runtime: Runtime, lock: Path, cores: tuple[int, ...], temporary: Path) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                python(
                    "edgefront.agents.measuring.forkserver",
                    *(str(theirs.fileno()), runtime, str(lock), ",".join(str(core) for core in cores)),
                ),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=child_environment(temporary),
                start_new_session=True,
            )
        self._socket = ours
        self._reader = ours.makefile("rb")
        if not self._reader.readline():
            status = self._process.wait()
            self.close()
            raise MeasurementError(
                f"the fork server for {runtime} did not start (exit code {status}): is {runtime} installed?",
                reason="unsupported",
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def launch(self, request: LaunchRequest) -> LaunchResult:
        """Runs one launch. If the server dies meanwhile, the launch has crashed."""
        try:
            self._socket.sendall(request.model_dump_json().encode() + b"\n")
            line = self._reader.readline()
        except OSError:
            line = b""
        if line:
            return LaunchResult.model_validate(json.loads(line)["result"])
        status = self._process.wait()
        self.close()
        return failure("crashed", f"the fork server ended with status {status} during the launch")

    def kill(self) -> None:
        """Kills the server and its current child at once."""
        self._process.kill()

    def close(self) -> None:
        """Stops the server and waits for it."""
        self._reader.close()
        self._socket.close()  # the server then kills its child and exits
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def child_environment(temporary: Path) -> dict[str, str]:
    """The environment of measuring processes: this one's, with the project's packages on the path, and a folder of this
    process for temporary files, which a killed one cannot remove.
    """
    settings = {
        "TMPDIR": str(temporary),
        # Libraries must not start threads when they are loaded in a process that forks. A child sets its number of
        # threads through the runtime.
        "OPENBLAS_NUM_THREADS": "1",
        # ONNX Runtime's official builds (1.29 and later) upload telemetry from a thread that starts on import. A device
        # should contact only its server.
        "ORT_DISABLE_TELEMETRY": "1",
        # llama.cpp would start a debugger to print a trace when it aborts.
        "GGML_NO_BACKTRACE": "1",
    }
    # With this CUDA numbers GPUs as NVML does, which reports memory and clock rates.
    settings["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    path = os.pathsep.join(part for part in (str(_ROOT), os.environ.get("PYTHONPATH", "")) if part)
    return {**os.environ, **settings, "PYTHONPATH": path}


def lock_path() -> Path:
    """The lock file of this host."""
    named = os.environ.get("EDGEFRONT_MEASURE_LOCK")
    return Path(named) if named else Path(tempfile.gettempdir()) / "edgefront-measure.lock"


@contextmanager
def only_measurement(path: Path) -> Iterator[None]:
    """Waits for all other measurements on this host, then holds the lock. A process that is forked inside holds it too:
    the next measurement waits until both have ended.
    """
    descriptor = _open(path)
    try:
        # A blocking call is fair; with polling, an agent that launches without pauses would always win.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # the lock is released with the last copy of the descriptor


def _open(path: Path) -> int:
    # Opened without creating first: in a sticky folder a file of another user may not be opened for creation.
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    for attempt in (flags, flags | os.O_CREAT | os.O_EXCL, flags, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)):
        try:
            descriptor = os.open(path, attempt, 0o666)
        except (FileNotFoundError, FileExistsError, PermissionError):
            continue
        if attempt & os.O_CREAT:
            os.chmod(path, 0o666)  # noqa: S103 - every user's agent takes turns, whatever this one's umask
        return descriptor
    raise PermissionError(f"the lock {path} cannot be opened; name another file by EDGEFRONT_MEASURE_LOCK")
