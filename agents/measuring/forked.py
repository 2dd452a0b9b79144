"""The agent's end of a fork server: starts it, asks it for launches, and notices its death."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from edgefront.agents.measuring.failures import failure
from edgefront.agents.measuring.request import LaunchRequest
from edgefront.core.errors import MeasurementError
from edgefront.core.measurement.protocol import Runtime
from edgefront.core.measurement.record import LaunchResult

_ROOT = Path(__file__).absolute().parents[3]
"""The folder that holds the package `edgefront`. A source tree links its parts there, so links are not resolved."""
_END_S = 5.0


class ForkServer:
    """A warm parent for one runtime, in a process of its own. Raises `MeasurementError` if it cannot start."""

    def __init__(self, runtime: Runtime, lock: Path, cores: tuple[int, ...]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "edgefront.agents.measuring.forkserver", str(theirs.fileno())),
                    *(runtime, str(lock), ",".join(str(core) for core in cores)),
                ],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=child_environment(),
                start_new_session=True,
            )
        self._socket = ours
        self._reader = ours.makefile("rb")
        if not self._reader.readline():
            status = self._process.wait()
            self.close()
            raise MeasurementError(
                f"the warm parent for {runtime} did not start (exit code {status}): is {runtime} installed?",
                reason="unsupported",
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def launch(self, request: LaunchRequest) -> LaunchResult:
        """Make one launch. A server that dies meanwhile is a launch that crashed."""
        try:
            self._socket.sendall(request.model_dump_json().encode() + b"\n")
            line = self._reader.readline()
        except OSError:
            line = b""
        if line:
            return LaunchResult.model_validate(json.loads(line)["result"])
        status = self._process.wait()
        self.close()
        return failure("crashed", f"the warm parent ended with status {status} during the launch")

    def kill(self) -> None:
        """End the server and its child of the moment at once."""
        self._process.kill()

    def close(self) -> None:
        """Have the server end, and wait for it."""
        self._reader.close()
        self._socket.close()  # the server ends its child and itself
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def child_environment() -> dict[str, str]:
    """Of the processes that measure: this one's, with the project's packages to be found."""
    settings = {
        # Libraries that start threads when they are loaded must not do so in a process that forks. A child sets its
        # own number of threads by the runtime's call.
        "OPENBLAS_NUM_THREADS": "1",
        # ONNX Runtime's official builds (1.29 and later) upload what they run from a thread that starts on import.
        # A device speaks to its server only.
        "ORT_DISABLE_TELEMETRY": "1",
    }
    # Number 0 is then the same GPU to CUDA and to the driver's library, which tells its memory and clocks.
    settings["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    path = os.pathsep.join(part for part in (str(_ROOT), os.environ.get("PYTHONPATH", "")) if part)
    return {**os.environ, **settings, "PYTHONPATH": path}
