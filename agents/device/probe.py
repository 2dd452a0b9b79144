"""Determines hardware, system and runtimes of this device without loading a runtime into the agent's process."""

from __future__ import annotations

import json
import logging
import os
import platform
import re
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import get_args

from edgefront.agents.device.cores import CorePlan
from edgefront.agents.device.environment import child_environment
from edgefront.agents.device.kernel import kernel_facts
from edgefront.core.common.processes.child import python
from edgefront.core.common.processes.folders import work_folder
from edgefront.core.common.processes.gpus import listed_gpus
from edgefront.core.common.processes.limits import total_memory_bytes
from edgefront.core.measurement.protocol import Mode, Runtime
from edgefront.core.measurement.provider import Provider
from edgefront.core.measurement.record import Fact
from edgefront.core.measurement.runtimes import not_installed
from edgefront.core.schemas.agent import DeviceFacts, RuntimeFacts

_log = logging.getLogger(__name__)

_TIMEOUT_S = 120.0
_POLL_S = 0.25


def probe(plan: CorePlan | None = None, ending: threading.Event | None = None) -> DeviceFacts:
    """Returns the hardware and system of this device, and its working runtimes with versions and providers.

    Args:
        plan: the cores that may measure; by default all that the process may use.
        ending: an event that aborts the running tests of runtimes once it is set.
    """
    return _facts(plan, gpus(), runtimes(ending))


def hardware() -> DeviceFacts:
    """Returns the hardware and system of this device, without its runtimes, because testing runtimes takes seconds."""
    return _facts(None, gpus(), ())


def _facts(plan: CorePlan | None, listed: tuple[dict[str, Fact], ...], tested: tuple[RuntimeFacts, ...]) -> DeviceFacts:
    cpu, features = processor()
    plan = plan or CorePlan.of_device()
    return DeviceFacts(
        hostname=socket.gethostname()[:255] or "localhost",
        system=f"{platform.system()} {platform.release()}"[:100],
        architecture=platform.machine()[:40] or "unknown",
        cpu=cpu,
        cpu_features=features,
        cores=plan.count,
        memory_bytes=total_memory_bytes(),
        gpus=listed,
        runtimes=tested,
        modes=get_args(Mode),
        extra={
            "python": platform.python_version(),
            "libc": " ".join(platform.libc_ver()).strip() or None,
            **kernel_facts(plan, gpu=any(Provider(name).on_nvidia for facts in tested for name in facts.providers)),
        },
    )


def default_class(facts: DeviceFacts) -> str:
    """Returns the default name of the device class, such as `AMD EPYC 7B13, 2 cores, x86_64`, which is equal for
    interchangeable devices. The name includes the GPU if there is one.
    """
    makes = class_facts(facts)
    gpu = f", {makes['GPU']}" if facts.gpus else ""
    cores = f"{makes['cores']} core{'s' if makes['cores'] != 1 else ''}"
    return as_name(f"{makes['processor']}{gpu}, {cores}, {makes['architecture']}")


def class_facts(facts: DeviceFacts) -> dict[str, Fact]:
    """Returns the facts about hardware and system that interchangeable devices have in common."""
    return {
        "processor": facts.cpu,
        "GPU": facts.gpus[0].get("name") if facts.gpus else None,
        "cores": facts.cores,
        "architecture": facts.architecture,
    }


def as_name(text: str) -> str:
    """Returns `text` without the characters that `core.schemas.agent.Name` forbids."""
    return " ".join(re.sub(r"[^\w .:@()+,/\-]", " ", text).split())[:100] or "device"


def runtimes(ending: threading.Event | None = None) -> tuple[RuntimeFacts, ...]:
    """Tests each runtime in a separate process and returns the runtimes that work on this device."""
    names: list[Runtime] = [name for name in get_args(Runtime) if not_installed(name) is None]
    with ThreadPoolExecutor(len(get_args(Runtime)), thread_name_prefix="probe") as threads:
        tested = threads.map(lambda name: try_runtime(name, ending), names)
        return tuple(facts for facts in tested if facts is not None)


def try_runtime(runtime: Runtime, ending: threading.Event | None = None) -> RuntimeFacts | None:
    """Tests an installed runtime in a separate process and returns its facts (version, providers); None if the runtime
    is broken. The process ends early once `ending` is set.
    """
    command = python("edgefront.agents.measuring.runtimes.describe", runtime, str(os.getpid()))
    try:
        with (
            work_folder() as temporary,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=child_environment(temporary)
            ) as process,
        ):
            answer = _answer(process, ending or threading.Event())
        # If a test crashes the process or hangs, the last line contains the facts known before it.
        return RuntimeFacts.model_validate(json.loads(answer.strip().split(b"\n")[-1]))
    except (OSError, ValueError):
        return None


def _answer(process: subprocess.Popen[bytes], ending: threading.Event) -> bytes:
    """Returns the output of the process. Kills the process after `_TIMEOUT_S` or once `ending` is set."""
    end = time.monotonic() + _TIMEOUT_S
    try:
        while True:
            try:
                return process.communicate(timeout=_POLL_S)[0]
            except subprocess.TimeoutExpired as late:
                if ending.is_set() or time.monotonic() > end:
                    answer: bytes = late.stdout or b""
                    return answer
    finally:
        process.kill()


def gpus() -> tuple[dict[str, Fact], ...]:
    """Lists the NVIDIA GPUs of this device with the driver's command-line tool."""
    return tuple(
        {
            "name": gpu.name,
            "uuid": gpu.uuid,
            "memory_bytes": gpu.memory_bytes,
            "driver": gpu.driver,
            "compute_capability": gpu.compute_capability,
        }
        for gpu in listed_gpus()
    )


# Part numbers of `CPU part`, by `CPU implementer` (Arm's and others' technical reference manuals, MIDR_EL1).
_ARM_CORES: dict[str, dict[str, str]] = json.loads(files(__package__).joinpath("arm_cores.json").read_text("utf-8"))


def processor(cpuinfo: str | None = None, board: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Returns a pair: the model name of this processor, and its sorted features.

    Args:
        cpuinfo: text of /proc/cpuinfo; read if absent.
        board: the board's name (from the device tree), added to the names of ARM cores, because their cpuinfo does not
        contain a model.
    """
    if cpuinfo is None:
        if not sys.platform.startswith("linux"):
            return _other_system(), ()
        cpuinfo = _read(Path("/proc/cpuinfo"))
        board = _read(Path("/proc/device-tree/model")).strip("\0 \n") or None
    fields = _fields(cpuinfo)
    features = tuple(sorted(set(" ".join(fields.get("flags", []) + fields.get("Features", [])).split())))[:256]
    return _name(fields, board)[:200], tuple(feature[:40] for feature in features)


def _name(fields: dict[str, list[str]], board: str | None) -> str:
    kinds = list(zip(fields.get("CPU implementer", []), fields.get("CPU part", []), strict=False))
    if kinds:
        # Examples: `4x Cortex-A72`; with two kinds of cores `4x Cortex-A55 + 4x Cortex-A76`.
        names = [_ARM_CORES.get(maker, {}).get(part, f"ARM {maker}/{part}") for maker, part in kinds]
        cores = " + ".join(f"{names.count(name)}x {name}" for name in dict.fromkeys(names))
        return f"{board} ({cores})" if board else cores
    for key in ("model name", "Model", "cpu model", "uarch", "Hardware", "Processor"):
        if fields.get(key):
            noise = r"\((R|TM)\)|\bCPU\b|\bProcessor\b|@.*$"
            return " ".join(re.sub(noise, " ", fields[key][0], flags=re.IGNORECASE).split())
    return board or platform.processor() or platform.machine() or "unknown"


def _fields(cpuinfo: str) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for line in cpuinfo.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), []).append(value.strip())
    return fields


def _other_system() -> str:
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            pass
    return platform.processor() or platform.machine() or "unknown"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
