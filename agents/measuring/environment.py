"""The environment of a launch: versions, clock rates, load, temperature. Stored with every launch, to explain
outliers.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from edgefront.agents.device.cores import SYSTEM
from edgefront.agents.device.nvml import Gpu
from edgefront.core.errors import MeasurementError
from edgefront.core.measurement.provider import Provider
from edgefront.core.measurement.record import Fact


def host_environment(cores: tuple[int, ...]) -> dict[str, Fact]:
    """Current facts of the system and the measuring cores; unavailable ones are left out."""
    facts: dict[str, Fact | None] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": ",".join(str(core) for core in cores) or None,
        "load_1m": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "clock_mhz": _clock_mhz(cores),
        "governor": _text(SYSTEM / f"cpu{cores[0] if cores else 0}" / "cpufreq" / "scaling_governor"),
        "temperature_c": _temperature_c(),
        "huge_pages": _chosen(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def gpu_environment(provider: str) -> dict[str, Fact]:
    """The current state of the GPU, for a provider on NVIDIA; else empty.

    Read right after the timed passes: clock rates rise under load, and fall soon after.
    """
    if not Provider(provider).on_nvidia:
        return {}
    try:
        return Gpu.visible(Provider(provider).number).facts()
    except MeasurementError:
        return {}


def _clock_mhz(cores: tuple[int, ...]) -> float | None:
    clocks = [_text(SYSTEM / f"cpu{core}" / "cpufreq" / "scaling_cur_freq") for core in cores]
    readable = [int(clock) for clock in clocks if clock and clock.isdigit()]
    return round(sum(readable) / len(readable) / 1000, 1) if readable else None


def _temperature_c() -> float | None:
    readings = [_text(zone / "temp") for zone in Path("/sys/class/thermal").glob("thermal_zone*")]
    readable = [int(reading) for reading in readings if reading and reading.lstrip("-").isdigit()]
    return round(max(readable) / 1000, 1) if readable else None


def _chosen(path: Path) -> str | None:
    text = _text(path) or ""
    return text.partition("[")[2].partition("]")[0] or None


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None
