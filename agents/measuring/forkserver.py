"""The fork server: a process that has imported a runtime but executed no operator, and forks a child for every launch.

It has one thread and runs no operator, so a fork of it is safe and a child starts in milliseconds with everything
imported. It exchanges JSON lines with its agent over a socket, one launch at a time, and exits when that closes,
together with the current child. A child that crashes, hangs or runs out of memory affects only its own launch.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, get_args

from edgefront.agents.device import linux
from edgefront.agents.device.cores import keep_to
from edgefront.agents.measuring import child, runtimes
from edgefront.agents.measuring.failures import MAX_TAIL_BYTES, of_child
from edgefront.agents.measuring.forked import only_measurement
from edgefront.agents.measuring.request import LaunchRequest
from edgefront.core.common.processes.child import die_with_parent, first_for_the_oom_killer
from edgefront.core.common.validation import one_of
from edgefront.core.measurement.protocol import Runtime
from edgefront.core.measurement.record import LaunchResult


class AgentGone(Exception):
    """The other end of the socket has closed."""


def serve(control: socket.socket, lock: Path) -> None:
    """Handles launch requests until the socket closes."""
    reader = control.makefile("r", encoding="utf-8")
    _send(control, {"ready": True})
    for line in reader:
        request = LaunchRequest.model_validate_json(line)
        with only_measurement(lock):
            try:
                result = run_child(request, control)
            except AgentGone:
                return
        _send(control, {"result": result.model_dump(mode="json")})


def run_child(request: LaunchRequest, control: socket.socket) -> LaunchResult:
    """Forks, waits without polling, and returns the child's result. Raises `AgentGone` after killing the child."""
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
    """The child's side of the fork: never returns."""
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
    """The child's output until it closes its pipe; None if it does not do so in time."""
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
    for kill in (os.kill, os.killpg):  # by its id too: it may not have created its group yet
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return _reap(pid)


def _reap(pid: int) -> int:
    """Waits for the child; returns its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    control.sendall(json.dumps(message).encode() + b"\n")


def main(arguments: list[str]) -> int:
    """`python -m edgefront.agents.measuring.forkserver SOCKET RUNTIME LOCK CORES`."""
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
