"""The fork server: a process that has imported a runtime but executed no operator, and that forks a child process for
every launch (one run of a model).

The server has one thread and runs no operator, so a fork is safe and a child starts in milliseconds with everything
imported. The server exchanges JSON lines with its agent over a socket, one launch at a time. When the socket closes,
the server exits together with the current child. A child that crashes, hangs or runs out of memory affects only that
child's launch.

`ForkServer` is the agent's side: it starts the process, sends launches, and detects the death of the server.

Agents on one physical host run launches in turn, never at the same time. Agents in containers take turns only if the
containers share the folder of the lock file: mount that folder, or name a shared file in EDGEFRONT_MEASURE_LOCK.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from edgefront.agents.device import linux
from edgefront.agents.device.cores import keep_to
from edgefront.agents.device.environment import child_environment
from edgefront.agents.measuring import child, runtimes
from edgefront.agents.measuring.failures import MAX_TAIL_BYTES, failure, of_child
from edgefront.agents.measuring.runtimes import LaunchRequest
from edgefront.core.common.errors import MeasurementError
from edgefront.core.common.processes.child import die_with_parent, first_for_the_oom_killer, python
from edgefront.core.common.validation import one_of
from edgefront.core.measurement.protocol import Runtime
from edgefront.core.measurement.record import LaunchResult

_STOP_TIMEOUT_S = 5.0


class ForkServer:
    """The agent's side of the fork server of one runtime. The fork server is a separate process with temporary files in
    the folder `temporary`. Raises `MeasurementError` if the fork server cannot start.
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

    def launch(self, request: LaunchRequest, begun: Callable[[], None]) -> LaunchResult:
        """Runs one launch and returns its result. Calls `begun` when no other measurement runs on this host. If the
        fork server dies meanwhile, the launch counts as crashed.
        """
        try:
            self._socket.sendall(request.model_dump_json().encode() + b"\n")
            self._reader.readline()
            begun()
            line = self._reader.readline()
        except OSError:
            line = b""
        if line:
            return LaunchResult.model_validate(json.loads(line)["result"])
        status = self._process.wait()
        self.close()
        return failure("crashed", f"the fork server ended with status {status} during the launch")

    def kill(self) -> None:
        """Kills the fork server and its current child at once."""
        self._process.kill()

    def close(self) -> None:
        """Stops the fork server and waits for its end."""
        self._reader.close()
        self._socket.close()  # the server then kills its child and exits
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def lock_path() -> Path:
    """Path of the lock file that all agents on this host share."""
    named = os.environ.get("EDGEFRONT_MEASURE_LOCK")
    return Path(named) if named else Path(tempfile.gettempdir()) / "edgefront-measure.lock"


@contextmanager
def only_measurement(path: Path) -> Iterator[None]:
    """Waits for all other measurements on this host, then holds the lock within the block. A process that is forked
    within the block holds the lock too, so the next measurement waits until both processes have ended.
    """
    descriptor = _open(path)
    try:
        # A blocking call is fair; with polling, an agent that launches without pauses would always win.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)  # the lock is released with the last copy of the descriptor


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        # Opened without creating first: in a sticky folder a file of another user may not be opened for creation.
        return os.open(path, flags)
    except FileNotFoundError:
        descriptor = os.open(path, flags | os.O_CREAT, 0o666)
        os.chmod(path, 0o666)  # noqa: S103 - every user's agent takes turns, whatever this one's umask
        return descriptor


class AgentGone(Exception):
    """Raised in the fork server when the agent has closed the agent's end of the socket."""


def serve(control: socket.socket, lock: Path) -> None:
    """Runs the launches that the agent requests over the socket, until the socket closes."""
    reader = control.makefile("r", encoding="utf-8")
    _send(control, {"ready": True})
    for line in reader:
        request = LaunchRequest.model_validate_json(line)
        with only_measurement(lock):
            _send(control, {"begun": True})
            try:
                result = run_child(request, control)
            except AgentGone:
                return
        _send(control, {"result": result.model_dump(mode="json")})


def run_child(request: LaunchRequest, control: socket.socket) -> LaunchResult:
    """Forks a child and returns the child's result. If the agent ends first, kills the child and raises `AgentGone`."""
    reading, writing = os.pipe()
    output_file = os.memfd_create("output")
    oom_kills_before = linux.oom_kills()
    started = time.perf_counter()
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_child(request, server, writing, output_file)
    os.close(writing)
    try:
        try:
            answer = _listen(reading, control, started + request.protocol.time_limit_s)
        except AgentGone:
            _kill(pid)
            raise
        status = _kill(pid) if answer is None else _reap(pid)
        wall_s = time.perf_counter() - started
        size = os.fstat(output_file).st_size
        tail = os.pread(output_file, MAX_TAIL_BYTES, max(0, size - MAX_TAIL_BYTES)).decode(errors="replace").strip()
        killed = linux.oom_kills() - oom_kills_before
        result = of_child(answer, status, tail, killed, request.protocol.time_limit_s)
        return result.model_copy(update={"wall_s": wall_s})
    finally:
        os.close(reading)
        os.close(output_file)


def _be_child(request: LaunchRequest, server: int, writing: int, output_file: int) -> None:
    """Runs the launch in the child process after the fork; never returns."""
    try:
        die_with_parent(server)
        os.setsid()
        first_for_the_oom_killer()
        os.dup2(output_file, 1)
        os.dup2(output_file, 2)
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, signal.SIG_DFL)
        answer = child.launch(request).model_dump_json().encode()
        while answer:
            answer = answer[os.write(writing, answer) :]
        os._exit(0)
    finally:
        os._exit(1)


def _listen(reading: int, control: socket.socket, deadline: float) -> bytes | None:
    """Returns the child's output once the child closes its pipe; None if the deadline passes first."""
    answer = bytearray()
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    poll.register(control, select.POLLIN)
    while True:
        left_ms = (deadline - time.perf_counter()) * 1000
        events = dict(poll.poll(max(0.0, left_ms)))
        if control.fileno() in events:
            raise AgentGone  # the agent sends nothing during a launch, so it has closed the socket
        if reading in events:
            part = os.read(reading, 1 << 16)
            if not part:
                return bytes(answer)
            answer += part
        elif left_ms <= 0:
            return None


def _kill(pid: int) -> int:
    """Kills the child with its process group."""
    for kill in (os.kill, os.killpg):  # by process id too: the child may not have created its group yet
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return _reap(pid)


def _reap(pid: int) -> int:
    """Waits for the child's end. Returns the child's exit code, or minus the number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    control.sendall(json.dumps(message).encode() + b"\n")


def main(arguments: list[str]) -> int:
    """Runs the fork server: `python -m edgefront.agents.measuring.forkserver SOCKET RUNTIME LOCK CORES`."""
    descriptor, runtime, lock, cores = arguments
    keep_to(int(core) for core in cores.split(",") if core)
    # Ctrl-C goes to all processes of the terminal; the agent decides whether to end the launch.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=int(descriptor)) as control:
        checked: Runtime = one_of("runtime", runtime, get_args(Runtime))
        runtimes.library(checked)
        runtimes.prepare_recurrence(checked, "cpu")
        gc.collect()
        gc.freeze()  # a garbage collection in a child would write to every page with objects, and so copy it
        serve(control, Path(lock))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
