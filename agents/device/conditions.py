"""Conditions on this device under which a measurement says less: battery, power saving, other load, throttling."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil

_SYSTEM = Path("/sys/devices/system/cpu")
_MANAGED_DRIVERS = frozenset({"intel_pstate", "amd-pstate-epp"})
_SAMPLES, _APART_S = 3, 0.005


class Conditions:
    """What is bad on this device now.

    Args:
        cores: of the device that this process may use. system: the folder that describes its processors.
        running: how many threads of the system run or wait to run; None where that is not known.
    """

    def __init__(self, cores: int, system: Path = _SYSTEM, running: Callable[[], int | None] | None = None) -> None:
        self._cores = cores
        self._system = system
        self._running = running or _running
        self._throttled = self._throttle_count()

    def bad(self, threads: int) -> tuple[str, ...]:
        """Each bad condition for a measurement with so many threads, in words; empty if there is none. Throttling is
        of the time since it was last asked.
        """
        found = (self._battery(), self._governor(), self._load(threads), self._throttling())
        return tuple(text for text in found if text)

    def _battery(self) -> str:
        battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
        if battery is None or battery.power_plugged is not False:
            return ""
        return f"on battery ({battery.percent:.0f} %)"

    def _governor(self) -> str:
        folder = self._system / "cpu0" / "cpufreq"
        if _text(folder / "scaling_governor") != "powersave":
            return ""
        # These drivers call their ordinary mode powersave, and say by another file whether they save power.
        if _text(folder / "scaling_driver") in _MANAGED_DRIVERS:
            preference = _text(folder / "energy_performance_preference")
            return f"energy preference {preference}" if preference.endswith("power") else ""
        return "power-saving governor"

    def _load(self, threads: int) -> str:
        """Other threads that want more cores than the measurement leaves them."""
        counts = []
        for _ in range(_SAMPLES):
            count = self._running()
            if count is None:
                return ""
            counts.append(count - 1)  # this one
            time.sleep(_APART_S)
        others = sorted(counts)[_SAMPLES // 2]
        return f"other load ({others} threads run)" if others > max(0, self._cores - threads) else ""

    def _throttling(self) -> str:
        before, self._throttled = self._throttled, self._throttle_count()
        return "throttled by heat" if self._throttled > before else ""

    def _throttle_count(self) -> int:
        counts = (_text(file) for file in self._system.glob("cpu*/thermal_throttle/*_throttle_count"))
        return sum(int(count) for count in counts if count.isdigit())


def _running() -> int | None:
    """Of Linux, of the whole system."""
    for line in _text(Path("/proc/stat")).splitlines():
        if line.startswith("procs_running "):
            return int(line.split()[1])
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
