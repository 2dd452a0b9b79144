"""What the agent needs of the system, tried: JSON of what works, for `arm.py`, which runs it natively and emulated.

python benchmarks/arm_checks.py
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from edgefront.agents.device.cores import keep_to
from edgefront.agents.device.linux import mapped_bytes, reset_high_water, resident, strict_malloc
from edgefront.agents.device.processor import processor
from edgefront.core.processes.child import die_with_parent

_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
"""Numbers of the system call."""
_SIZE = 64 << 20


def main() -> None:
    checks: dict[str, Callable[[], object]] = {
        "the processor has a name": lambda: "ARM 0x" not in processor()[0],
        "a process is kept to one core": _kept_to_a_core,
        "the memory high-water mark is reset (clear_refs)": _high_water_falls,
        "memory is limited (RLIMIT_DATA)": lambda: _child(_limited) == 0,
        "mapped files are seen (maps)": lambda: mapped_bytes((Path(sys.executable).resolve(),), {}) > 0,
        "malloc returns memory at once (mallopt)": strict_malloc,
        "a child ends with its parent (prctl)": _ends_with_parent,
        "performance counters (perf_event_open)": _counts,
        "anonymous memory of an idle interpreter, MB": lambda: round(resident().anonymous / 1e6),
    }
    answers: dict[str, object] = {}
    for name, check in checks.items():
        try:
            answers[name] = check()
        except OSError as error:
            answers[name] = f"no: {error.strerror}"
    print(json.dumps(answers))


def _kept_to_a_core() -> bool:
    core = max(os.sched_getaffinity(0))

    def only_there() -> int:
        keep_to([core])
        return 0 if os.sched_getaffinity(0) == {core} else 1

    return _child(only_there) == 0


def _high_water_falls() -> bool:
    held = bytearray(b"1") * _SIZE
    before = resident().high_water
    del held
    return reset_high_water() and resident().high_water < before - _SIZE // 2


def _limited() -> int:
    limit = resident().anonymous + 4 * _SIZE
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with suppress(MemoryError):
        _ = bytearray(8 * _SIZE)
        return 1
    return 0


def _ends_with_parent() -> bool:
    """Whether a process that has called `die_with_parent` ends with its parent."""
    reading, writing = os.pipe()

    def parent() -> int:
        this = os.getpid()
        grandchild = os.fork()
        if grandchild == 0:
            die_with_parent(this)
            signal.pause()
        os.write(writing, str(grandchild).encode())
        time.sleep(0.5)
        return 0

    _child(parent)
    grandchild = int(os.read(reading, 20))
    for _ in range(50):
        time.sleep(0.1)
        try:
            os.kill(grandchild, 0)
        except ProcessLookupError:
            return True
        if "Z" in Path(f"/proc/{grandchild}/stat").read_text().split(")")[1][:3]:
            return True
    os.kill(grandchild, signal.SIGKILL)
    return False


def _counts() -> bool:
    """Whether the kernel opens a counter of instructions of this process."""
    attributes = (ctypes.c_uint64 * 16)(128 << 32, 1)  # 128 bytes; of hardware: instructions
    libc = ctypes.CDLL(None, use_errno=True)
    file = libc.syscall(_PERF_EVENT_OPEN[os.uname().machine], attributes, 0, -1, -1, 0)
    if file < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.close(file)
    return True


def _child(work: Callable[[], int]) -> int:
    """Exit code of a fork that does so."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    main()
