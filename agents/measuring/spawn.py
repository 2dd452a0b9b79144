"""A launch in a fresh process: for GPUs, whose runtime does not survive a fork, and for systems other than Linux."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from edgefront.agents.device import linux
from edgefront.agents.measuring.failures import of_death, out_of_time
from edgefront.agents.measuring.forked import child_environment
from edgefront.agents.measuring.request import LaunchRequest
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.processes.child import python

_MAX_TAIL_BYTES = 500


def run_spawned(
    request: LaunchRequest, begun: Callable[[subprocess.Popen[bytes]], None], temporary: Path
) -> LaunchResult:
    """Starts a child, waits for it, and returns its result. `begun` gets the process, so that it can be killed early;
    `temporary` is the folder of its temporary files.

    The child reads its request from its standard input, which stays open while it works: it exits when that closes, so
    it does not outlive this process.
    """
    with tempfile.TemporaryFile() as output_file:
        started, oom_kills_before = time.perf_counter(), _oom_kills()
        process = subprocess.Popen(
            python("edgefront.agents.measuring.child"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output_file,
            env=child_environment(temporary),
        )
        with process:
            begun(process)
            answer, in_time = _converse(process, request)
            status = process.wait()
        wall_s = time.perf_counter() - started
        size = output_file.seek(0, 2)
        output_file.seek(max(0, size - _MAX_TAIL_BYTES))
        output_tail = output_file.read().decode(errors="replace").strip()
    if not in_time:
        result = out_of_time(request.protocol.time_limit_s)
    elif status == 0 and answer:
        result = LaunchResult.model_validate_json(answer)
    else:
        result = of_death(status, output_tail, _oom_kills() - oom_kills_before)
    return result.model_copy(update={"wall_s": wall_s})


def _oom_kills() -> int:
    return linux.oom_kills() if sys.platform.startswith("linux") else 0


def _converse(process: subprocess.Popen[bytes], request: LaunchRequest) -> tuple[bytes, bool]:
    """The child's standard output, and whether it finished in time."""
    assert process.stdin is not None
    assert process.stdout is not None
    late = threading.Event()

    def kill_late() -> None:
        late.set()
        process.kill()

    limit = threading.Timer(request.protocol.time_limit_s, kill_late)
    limit.daemon = True
    limit.start()
    try:
        process.stdin.write(request.model_dump_json().encode() + b"\n")
        process.stdin.flush()
        answer = process.stdout.read()
    except BrokenPipeError:  # it died at once; its exit status shows why
        answer = b""
    finally:
        limit.cancel()
        limit.join()
    return answer, not late.is_set()
