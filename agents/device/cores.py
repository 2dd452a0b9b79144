"""Assigns cores to measurements and to all other processes.

The measured child process has its cores to itself: the agent, the agent's fork server and other processes of this
project on the device use the remaining cores, if any. Measuring uses the fastest cores first (big before little, one
hardware thread per physical core), and among equal cores those with the highest numbers, since systems tend to handle
interrupts on cores with low numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.processes.limits import Quota, allowed_cores, cpu_quota, whole_cores

SYSTEM = Path("/sys/devices/system/cpu")
"""Folder in which Linux describes the processors."""


@dataclass(frozen=True)
class Core:
    """One hardware thread: number, speed relative to other hardware threads, hardware threads of the same physical
    core, and highest clock. Speed and clock are 0 if the system does not report them.
    """

    number: int
    speed: int = 0
    siblings: frozenset[int] = frozenset()
    max_mhz: int = 0


@dataclass(frozen=True)
class CorePlan:
    """The cores for measurements on a device, in their order of use, and all cores that this process may use."""

    order: tuple[int, ...]
    cores: tuple[Core, ...]
    quota: Quota | None = None
    """CPU quota of the process's control groups. Measurements are marked if the quota is less than one core."""

    @classmethod
    def of_device(cls, pool: Iterable[int] | None = None, system: Path = SYSTEM) -> CorePlan:
        """Returns a plan for the core numbers `pool` (default: all cores of the affinity mask), limited by the control
        groups' CPU quota. `system` is the folder that describes the processors.

        Raises `InvalidInput` if `pool` contains a core that this process may not use.
        """
        own, quota = available_cores(system), cpu_quota()
        if pool is None:
            return cls(within(ranked(own), quota), own, quota)
        requested, possible = set(pool), _possible()
        if not requested or requested - possible:
            allowed = ", ".join(str(number) for number in sorted(possible))
            raise InvalidInput(
                f"cores {sorted(requested)} cannot measure: this process may use {allowed}",
                field="cores",
                value=sorted(requested),
                allowed=f"some of {allowed}",
            )
        named = described(requested, system)
        cores = tuple({core.number: core for core in (*own, *named)}.values())
        return cls(within(ranked(named), quota), cores, quota)

    @property
    def max_mhz(self) -> int:
        """Highest clock among the measuring cores, MHz; 0 if the system reports no clocks."""
        return max((core.max_mhz for core in self.cores if core.number in self.order), default=0)

    @property
    def count(self) -> int:
        """Maximum number of threads of a measured model."""
        return len(self.order)

    def measuring(self, threads: int) -> tuple[int, ...]:
        """Returns the cores to which a measured process with this number of threads is pinned."""
        return tuple(sorted(self.order[:threads]))

    def pinned(self, threads: int) -> tuple[int, ...]:
        """Returns the same cores as `measuring`; empty if the system does not support pinning."""
        return self.measuring(threads) if hasattr(os, "sched_setaffinity") else ()

    def others(self, threads: int) -> tuple[int, ...]:
        """Returns the cores that a measurement with this number of threads leaves to other processes; empty if the
        measurement uses all cores. Excludes hardware threads that share a physical core with a measuring thread, unless
        only such hardware threads remain.
        """
        taken = set(self.order[:threads])
        rest = [core for core in self.cores if core.number not in taken]
        apart = [core.number for core in rest if not core.siblings & taken]
        return tuple(sorted(apart or (core.number for core in rest)))

    def home(self) -> tuple[int, ...]:
        """Returns the cores of the agent and its fork servers: the cores that no measurement uses or, if measurements
        use all cores, the core that only a measurement with the maximum number of threads uses.
        """
        return self.others(self.count) or self.others(self.count - 1) or tuple(core.number for core in self.cores)


def parse_cores(text: str) -> tuple[int, ...]:
    """Parses a list of core numbers such as `2,4-6`. Raises `InvalidInput` for any other text."""
    cores = numbers(text)
    if not cores:
        raise InvalidInput(
            f"cores: {text!r} is not a list of cores", field="cores", value=text, allowed="numbers and ranges: 2,4-6"
        )
    return tuple(cores)


def available_cores(system: Path = SYSTEM) -> tuple[Core, ...]:
    """Returns a description of each hardware thread that this process may use, read from the folder `system`."""
    return described(_ALLOWED, system)


def ranked(cores: Iterable[Core]) -> tuple[int, ...]:
    """Returns the numbers of the cores in the order in which measurements use the cores."""
    first: list[int] = []
    second: list[int] = []
    used: set[int] = set()
    for core in sorted(cores, key=lambda core: (-core.speed, -core.number)):
        (second if core.number in used else first).append(core.number)
        used |= core.siblings
    return (*first, *second)


def keep_to(cores: Iterable[int]) -> None:
    """Pins the calling thread and its later child threads to these cores, if the system supports pinning."""
    allowed = set(cores)
    if allowed and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, allowed)


# Determined once, before this process pins anything.
_ALLOWED = allowed_cores()


def _possible() -> frozenset[int]:
    """Returns all cores to which this process can be pinned, also those outside of the inherited affinity."""
    before = allowed_cores()
    if not hasattr(os, "sched_setaffinity"):
        return before
    try:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        return allowed_cores()
    finally:
        os.sched_setaffinity(0, before)


def described(cores: Iterable[int], system: Path) -> tuple[Core, ...]:
    """Returns a description of each core, by rising number. All speeds have the same unit and can be compared:
    capacities (work per second, reported by ARM kernels) if the system reports a capacity for every core, else highest
    clocks.
    """
    folders = {number: system / f"cpu{number}" for number in sorted(cores)}
    capacities = {number: _number(folder / "cpu_capacity") for number, folder in folders.items()}
    clocks = {number: _number(folder / "cpufreq" / "cpuinfo_max_freq") for number, folder in folders.items()}
    speeds = next((speeds for speeds in (capacities, clocks) if all(speeds.values())), {})
    return tuple(
        Core(number, speeds.get(number, 0), _siblings(number, folder), round(clocks[number] / 1000))
        for number, folder in folders.items()
    )


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def numbers(text: str) -> list[int]:
    """Parses a list of numbers such as `0,4-6`; returns an empty list for any other text."""
    try:
        spans = [(part.split("-")[0], part.split("-")[-1]) for part in text.strip().split(",")]
        return [number for low, high in spans for number in range(int(low), int(high) + 1)]
    except ValueError:
        return []


def _siblings(number: int, folder: Path) -> frozenset[int]:
    try:
        text = (folder / "topology" / "thread_siblings_list").read_text()
    except OSError:
        text = ""
    return frozenset(numbers(text)) | {number}


def within(order: tuple[int, ...], quota: Quota | None) -> tuple[int, ...]:
    """Returns the first cores of `order`: as many as the CPU quota can keep busy all the time, but at least one."""
    return order[: whole_cores(len(order), quota)]


_MANAGED_DRIVERS = frozenset({"intel_pstate", "amd-pstate-epp"})
_THERMAL = Path("/sys/class/thermal")
_WINDOW_S = 0.2
_LITTLE_LOAD = 0.5
"""Number of busy cores that is ignored as background load of this agent and the system."""


class Conditions:
    """Detects conditions on this device that distort measurements.

    Args:
        plan: the cores. system: the folder that describes the processors. thermal: the folder of thermal zones and
        cooling devices.
    """

    def __init__(self, plan: CorePlan, system: Path = SYSTEM, thermal: Path = _THERMAL) -> None:
        self._plan = plan
        self._system = system
        self._thermal = thermal
        self._throttled = self._throttle_count()

    def before(self, threads: int) -> tuple[str, ...]:
        """Returns descriptions of the bad conditions before a launch (one run of a model in a fresh process) with this
        many threads: the conditions of `after`, and load by other processes. Takes 0.2 s.
        """
        import psutil

        busy = psutil.cpu_percent(_WINDOW_S, percpu=True)
        cores = [core.number for core in self._plan.cores if core.number < len(busy)]
        others = sum(busy[number] for number in cores) / 100
        load = (
            f"other load ({others:.1f} of {len(cores)} cores)" if others > len(cores) - threads + _LITTLE_LOAD else ""
        )
        return (*self.after(threads), *filter(None, [load]))

    def after(self, threads: int) -> tuple[str, ...]:
        """Returns descriptions of the bad conditions of a launch with this many threads, as far as the measuring
        process cannot detect them. Throttling is counted since the previous call.
        """
        # Reads the governor of each measuring core: the clusters of an ARM processor may differ.
        governor = next(filter(None, map(self._saving, self._plan.measuring(threads))), "")
        quota = self._plan.quota
        too_few = str(quota) if quota is not None and quota.cores < threads else ""
        before, self._throttled = self._throttled, self._throttle_count()
        heat = "throttled by heat" if self._throttled > before or self._is_cooled() else ""
        return tuple(filter(None, [self._battery(), governor, too_few, heat]))

    def _battery(self) -> str:
        import psutil  # imported late because measuring processes import this module

        battery = None
        with suppress(OSError):  # boards and containers may list no power supplies
            battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
        if battery is None or battery.power_plugged is not False:
            return ""
        return f"on battery ({battery.percent:.0f} %)"

    def _saving(self, core: int) -> str:
        folder = self._system / f"cpu{core}" / "cpufreq"
        if _text(folder / "scaling_governor") != "powersave":
            return ""
        # These drivers call their normal mode powersave; another file contains whether they save power.
        if _text(folder / "scaling_driver") in _MANAGED_DRIVERS:
            preference = _text(folder / "energy_performance_preference")
            return f"energy preference {preference}" if preference.endswith("power") else ""
        return "power-saving governor"

    def _is_cooled(self) -> bool:
        """Whether the kernel lowers clock rates to cool the processor. On ARM this replaces `_throttle_count`."""
        devices = self._thermal.glob("cooling_device*")
        return any(
            _text(device / "cur_state") not in ("", "0") for device in devices if "cpufreq" in _text(device / "type")
        )

    def _throttle_count(self) -> int:
        """Number of thermal throttling events of the cores; only x86 counts them."""
        counts = (_text(file) for file in self._system.glob("cpu*/thermal_throttle/*_throttle_count"))
        return sum(int(count) for count in counts if count.isdigit())


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
