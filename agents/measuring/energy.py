"""Energy that this machine used, where it lets it be read: the processor's by RAPL, an NVIDIA GPU's by NVML.

Both count for everything that runs there, so a figure is of this launch only as far as nothing else computes. RAPL is
read from /sys/class/powercap, by default by root alone (Linux 5.10, CVE-2020-8694).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from edgefront.agents.device.nvml import Gpu
from edgefront.core.errors import MeasurementError
from edgefront.core.measurement.provider import Provider

POWERCAP = Path("/sys/class/powercap")


class Energy(NamedTuple):
    """What was used, and of what; or None, and why it is not known."""

    joules: float | None
    source: str


class EnergyMeter:
    """Counts within its `with` blocks, all together."""

    def __init__(self, provider: str, powercap: Path = POWERCAP) -> None:
        self._on_nvidia = Provider(provider).on_nvidia
        self._gpu = _gpu(Provider(provider).number) if self._on_nvidia else None
        self._packages = [] if self._on_nvidia else _packages(powercap)
        self._readable = any(_number(package / "energy_uj") is not None for package in self._packages)
        self._start: list[float | None] = []
        self._used: list[float | None] = []

    def __enter__(self) -> None:
        self._start = self._counters()

    def __exit__(self, *_: object) -> None:
        self._used += map(_used, self._start, self._counters(), self._most())

    def read(self) -> Energy:
        """What was used within the blocks. Never raises: what cannot be read is reported as absent."""
        readings = [joules for joules in self._used if joules is not None]
        if readings and len(readings) == len(self._used) and sum(readings) > 0:
            what = "the GPU, counted by NVML" if self._on_nvidia else "the processor's packages, counted by RAPL"
            return Energy(sum(readings), f"energy of {what}")
        return Energy(None, self._why())

    def _counters(self) -> list[float | None]:
        """Joules since some beginning."""
        if self._on_nvidia:
            return [None if self._gpu is None else self._gpu.energy_joules()]
        return [_joules(package / "energy_uj") for package in self._packages]

    def _most(self) -> list[float | None]:
        """Joules at which each counter begins again."""
        if self._on_nvidia:
            return [None]
        return [_joules(package / "max_energy_range_uj") for package in self._packages]

    def _why(self) -> str:
        if self._on_nvidia:
            return "no energy: this GPU or its driver does not count it"
        if not self._packages:
            return "no energy: this system has no RAPL counters"
        if not self._readable:
            return "no energy: the RAPL counters of this system may not be read by this user"
        return "no energy: the RAPL counters did not move"


def _used(before: float | None, after: float | None, most: float | None) -> float | None:
    if before is None or after is None:
        return None
    if after >= before:
        return after - before
    return None if most is None else after + most - before


def _packages(powercap: Path) -> list[Path]:
    """The zones of whole processors: `intel-rapl:0`, also of AMD's; parts of one are `intel-rapl:0:1`."""
    try:
        zones = sorted(powercap.glob("intel-rapl:*"))
    except OSError:
        return []
    return [zone for zone in zones if zone.name.count(":") == 1 and _name(zone).startswith("package")]


def _name(zone: Path) -> str:
    try:
        return (zone / "name").read_text().strip()
    except OSError:
        return ""


def _joules(path: Path) -> float | None:
    microjoules = _number(path)
    return None if microjoules is None else microjoules / 1e6


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _gpu(number: int) -> Gpu | None:
    try:
        return Gpu.visible(number)
    except MeasurementError:
        return None
