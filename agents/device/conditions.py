"""Conditions under which a measurement on this device says less: battery, power saving, quota, other load, throttling.

Other load while the passes of a launch are timed is judged by the process that runs them (`measuring.disturbance`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from edgefront.agents.device.cores import SYSTEM, CorePlan
from edgefront.core.measurement.protocol import BUSY_WAIT_S

_MANAGED_DRIVERS = frozenset({"intel_pstate", "amd-pstate-epp"})
_THERMAL = Path("/sys/class/thermal")
_WINDOW_S = 0.2
_LITTLE_LOAD = 0.25
"""Cores' worth of other processes beside which a launch need not wait: what every system does now and then."""


class Conditions:
    """What is bad on this device.

    Args:
        plan: the cores. system: the folder that describes the processors. others: `load_of_others`. thermal: the folder
        of zones and cooling devices.
    """

    def __init__(
        self,
        plan: CorePlan,
        system: Path = SYSTEM,
        others: Callable[[tuple[int, ...]], float] | None = None,
        thermal: Path = _THERMAL,
    ) -> None:
        self._plan = plan
        self._system = system
        self._thermal = thermal
        self._others = others or load_of_others
        self._throttled = self._throttle_count()

    def before(self, threads: int) -> tuple[str, ...]:
        """Each bad condition now, for a launch with so many threads, in words: `after`, and other load. Takes a moment
        to look.
        """
        return (*self.after(threads), *filter(None, [self._load(threads)]))

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

    def _load(self, threads: int) -> str:
        """Other processes that want more cores than the measurement leaves them."""
        numbers = tuple(core.number for core in self._plan.cores)
        others = self._others(numbers)
        too_much = others > len(numbers) - threads + _LITTLE_LOAD
        return f"other load ({others:.1f} of {len(numbers)} cores)" if too_much else ""

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


def load_of_others(cores: tuple[int, ...]) -> float:
    """How many of these cores other processes keep busy now. This process, those that it started and the one that
    started it (the embedded service) are no others.
    """
    busy, own, began = _busy_s(cores), _own_s(), time.monotonic()
    time.sleep(_WINDOW_S)
    busy_s = _busy_s(cores) - busy
    own_s = sum(seconds - own.get(process, seconds) for process, seconds in _own_s().items())
    return max(0.0, busy_s - own_s) / (time.monotonic() - began)


def _busy_s(cores: tuple[int, ...]) -> float:
    times = psutil.cpu_times(percpu=True)
    idle = ("idle", "iowait", "guest", "guest_nice")  # guests' time is part of the user's
    return sum(
        sum(times[number]) - sum(getattr(times[number], name, 0.0) for name in idle)
        for number in cores
        if number < len(times)
    )


def _own_s() -> dict[int, float]:
    """Processor time of each process, by its id."""
    this = psutil.Process()
    seconds = {}
    for process in filter(None, (this, this.parent(), *this.children(recursive=True))):
        with suppress(psutil.Error):  # it has ended
            seconds[process.pid] = sum(process.cpu_times()[:2])
    return seconds


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


_log = logging.getLogger(__name__)

REST_S = 1800.0
"""Seconds after a wait in vain during which launches are measured, and marked, without waiting again."""


class BusyBackoff:
    """One budget of waiting for the whole device, so that a battery or a governor that stays holds up nobody for long.

    A launch that waited `wait_s` in vain ends the waiting of all for `rest_s`, or until conditions were good once for a
    launch with at least as many threads.
    """

    def __init__(
        self, wait_s: float = BUSY_WAIT_S, rest_s: float = REST_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rest_s = rest_s
        self._wait_s = wait_s
        self._clock = clock
        self._waiting: tuple[str, float] | None = None  # the launch that waits, and since when
        self._gave_up: tuple[int, float] | None = None  # threads of the launch that waited in vain, and when

    def conditions_were_good(self, threads: int) -> None:
        """Conditions are good for a launch with so many threads."""
        self._waiting = None
        if self._gave_up is not None and threads >= self._gave_up[0]:
            self._gave_up = None

    def should_wait(self, launch_id: str, threads: int, bad: str) -> bool:
        """Whether this launch, which asks for better conditions than these, should wait for them (any longer)."""
        now = self._clock()
        if self._gave_up is not None and now - self._gave_up[1] < self._rest_s:
            return False
        if self._waiting is None or self._waiting[0] != launch_id:
            self._waiting = launch_id, now
            _log.info("waiting to measure: %s", bad)
        if now - self._waiting[1] < self._wait_s:
            return True
        self._waiting, self._gave_up = None, (threads, now)
        _log.warning(
            "waited in vain: %s. For the next %.0f minutes launches are measured and marked, or until this has passed",
            *(bad, self._rest_s / 60),
        )
        return False
