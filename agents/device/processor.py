"""Model name and features of the processor, on x86 and on ARM boards."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

# Part numbers of `CPU part`, by `CPU implementer` (Arm's and others' technical reference manuals, MIDR_EL1).
_ARM_CORES = {
    "0x41": {
        "0xd03": "Cortex-A53",
        "0xd04": "Cortex-A35",
        "0xd05": "Cortex-A55",
        "0xd07": "Cortex-A57",
        "0xd08": "Cortex-A72",
        "0xd09": "Cortex-A73",
        "0xd0a": "Cortex-A75",
        "0xd0b": "Cortex-A76",
        "0xd0c": "Neoverse-N1",
        "0xd0d": "Cortex-A77",
        "0xd40": "Neoverse-V1",
        "0xd41": "Cortex-A78",
        "0xd42": "Cortex-A78AE",
        "0xd44": "Cortex-X1",
        "0xd46": "Cortex-A510",
        "0xd47": "Cortex-A710",
        "0xd48": "Cortex-X2",
        "0xd49": "Neoverse-N2",
        "0xd4b": "Cortex-A78C",
        "0xd4d": "Cortex-A715",
        "0xd4e": "Cortex-X3",
        "0xd4f": "Neoverse-V2",
        "0xd80": "Cortex-A520",
        "0xd81": "Cortex-A720",
        "0xd82": "Cortex-X4",
        "0xc07": "Cortex-A7",
        "0xc0f": "Cortex-A15",
    },
    "0x4e": {"0x003": "Denver 2", "0x004": "Carmel"},
    "0x51": {"0x800": "Kryo 260 Gold", "0x801": "Kryo 260 Silver", "0x802": "Kryo 385 Gold", "0x804": "Kryo 485 Gold"},
    "0x61": {
        "0x022": "Apple Icestorm",
        "0x023": "Apple Firestorm",
        "0x032": "Apple Blizzard",
        "0x033": "Apple Avalanche",
    },
    "0xc0": {"0xac3": "Ampere-1", "0xac4": "Ampere-1a"},
}


def processor(cpuinfo: str | None = None, board: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Model name and sorted features of this processor.

    Args:
        cpuinfo: text of /proc/cpuinfo; read if absent.
        board: the board's name (device tree), shown with ARM cores, whose cpuinfo does not contain it.
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
    cores = _arm_cores(fields)
    if cores:
        return f"{board} ({cores})" if board else cores
    for key in ("model name", "Model", "cpu model", "uarch", "Hardware", "Processor"):
        if fields.get(key):
            return _tidy(fields[key][0])
    return board or platform.processor() or platform.machine() or "unknown"


def _arm_cores(fields: dict[str, list[str]]) -> str:
    """Such as `4x Cortex-A72`, or `4x Cortex-A55 + 4x Cortex-A76` where there are two kinds."""
    kinds = list(zip(fields.get("CPU implementer", []), fields.get("CPU part", []), strict=False))
    names = [_ARM_CORES.get(maker, {}).get(part, f"ARM {maker}/{part}") for maker, part in kinds]
    return " + ".join(f"{names.count(name)}x {name}" for name in dict.fromkeys(names))


def _fields(cpuinfo: str) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for line in cpuinfo.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), []).append(value.strip())
    return fields


def _tidy(name: str) -> str:
    name = re.sub(r"\((R|TM)\)|\bCPU\b|\bProcessor\b|@.*$", " ", name, flags=re.IGNORECASE)
    return " ".join(name.split())


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
