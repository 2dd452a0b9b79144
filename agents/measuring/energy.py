"""Reads the energy that this machine used: the processor's energy from RAPL, an NVIDIA GPU's energy from NVML.

RAPL and NVML count all processes, so a figure is exact only if no other process computes. RAPL is read from
/sys/class/powercap, which by default only root may read (since Linux 5.10, CVE-2020-8694).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from edgefront.agents.device.nvml import Gpu
from edgefront.core.common.errors import MeasurementError
from edgefront.core.measurement.provider import Provider

POWERCAP = Path("/sys/class/powercap")


class EnergyMeter:
    """Adds up the energy that this machine uses within the `with` blocks of this object."""

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
        # A processor's counter starts at 0 again beyond its range.
        ranges = [None] if self._on_nvidia else [_joules(zone / "max_energy_range_uj") for zone in self._packages]
        self._used += map(_used, self._start, self._counters(), ranges)

    def read(self) -> tuple[float | None, str]:
        """Returns a pair: the energy used within the blocks, J, and its source; or None, and the reason why the energy
        is unknown. Never raises.
        """
        readings = [joules for joules in self._used if joules is not None]
        if readings and len(readings) == len(self._used) and sum(readings) > 0:
            what = "the GPU, counted by NVML" if self._on_nvidia else "the processor's packages, counted by RAPL"
            return sum(readings), f"energy of {what}"
        return None, self._why()

    def _counters(self) -> list[float | None]:
        """Returns the values of the energy counters, in joules since a fixed start."""
        if self._on_nvidia:
            return [None if self._gpu is None else self._gpu.energy_joules()]
        return [_joules(package / "energy_uj") for package in self._packages]

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
    """Folders of the RAPL zones of whole processors (also AMD): `intel-rapl:0`, but not subzones (`intel-rapl:0:1`)."""
    zones = sorted(powercap.glob("intel-rapl:*"))
    return [zone for zone in zones if zone.name.count(":") == 1 and _is_package(zone)]


def _is_package(zone: Path) -> bool:
    with suppress(OSError):
        return (zone / "name").read_text().startswith("package")
    return False


def _joules(path: Path) -> float | None:
    microjoules = _number(path)
    return None if microjoules is None else microjoules / 1e6


def _number(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _gpu(number: int) -> Gpu | None:
    with suppress(MeasurementError):
        return Gpu.visible(number)
    return None
