"""Conditions under which a measurement on this device says less: battery, power saving, quota, other load, throttling.

Other load while the passes of a launch are timed is judged by the process that runs them (`measuring.child`).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

from edgefront.agents.device.cores import SYSTEM, CorePlan

_MANAGED_DRIVERS = frozenset({"intel_pstate", "amd-pstate-epp"})
_THERMAL = Path("/sys/class/thermal")


class Conditions:
    """What is bad on this device.

    Args:
        plan: the cores. system: the folder that describes the processors. thermal: the folder of zones and cooling
        devices.
    """

    def __init__(self, plan: CorePlan, system: Path = SYSTEM, thermal: Path = _THERMAL) -> None:
        self._plan = plan
        self._system = system
        self._thermal = thermal
        self._throttled = self._throttle_count()

    def after(self, threads: int) -> tuple[str, ...]:
        """Each condition that was bad for a launch with so many threads, besides what its own process saw. Throttling
        is of the time since it was last asked.
        """
        return tuple(filter(None, [self._battery(), self._governor(threads), self._quota(threads), self._throttling()]))

    def _battery(self) -> str:
        battery = None
        with suppress(OSError):  # a kernel without power supplies, as boards and containers have
            battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
        if battery is None or battery.power_plugged is not False:
            return ""
        return f"on battery ({battery.percent:.0f} %)"

    def _governor(self, threads: int) -> str:
        """Of the measuring cores: the clusters of an ARM processor may have different ones."""
        return next(filter(None, map(self._saving, self._plan.measuring(threads))), "")

    def _saving(self, core: int) -> str:
        folder = self._system / f"cpu{core}" / "cpufreq"
        if _text(folder / "scaling_governor") != "powersave":
            return ""
        # These drivers call their ordinary mode powersave, and say by another file whether they save power.
        if _text(folder / "scaling_driver") in _MANAGED_DRIVERS:
            preference = _text(folder / "energy_performance_preference")
            return f"energy preference {preference}" if preference.endswith("power") else ""
        return "power-saving governor"

    def _quota(self, threads: int) -> str:
        quota = self._plan.quota
        return str(quota) if quota is not None and quota.cores < threads else ""

    def _throttling(self) -> str:
        before, self._throttled = self._throttled, self._throttle_count()
        return "throttled by heat" if self._throttled > before or self._is_cooled() else ""

    def _is_cooled(self) -> bool:
        """Whether the kernel holds clock rates down: of ARM processors it counts no throttling."""
        devices = self._thermal.glob("cooling_device*")
        return any(
            _text(device / "cur_state") not in ("", "0") for device in devices if "cpufreq" in _text(device / "type")
        )

    def _throttle_count(self) -> int:
        """On x86."""
        counts = (_text(file) for file in self._system.glob("cpu*/thermal_throttle/*_throttle_count"))
        return sum(int(count) for count in counts if count.isdigit())


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
