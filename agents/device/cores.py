"""Assigns cores to measuring and to everything else.

The measured child has its cores to itself: the agent, its fork server and other processes of this project on the device
use the others while there are any. Measuring uses the fastest cores first (big before little, one hardware thread per
physical core), and among equal cores those with the highest numbers, since systems tend to handle interrupts on the low
ones.
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
"""Where Linux describes the processors."""


@dataclass(frozen=True)
class Core:
    """One hardware thread: its number, speed relative to the others (0 if the system does not report it), the siblings
    on its core, and its highest clock (0 likewise).
    """

    number: int
    speed: int = 0
    siblings: frozenset[int] = frozenset()
    max_mhz: int = 0


@dataclass(frozen=True)
class CorePlan:
    """The cores of a device in the order in which measuring uses them, and all cores that this process may use."""

    order: tuple[int, ...]
    cores: tuple[Core, ...]
    quota: Quota | None = None
    """Quota of the process's control groups. It may allow less than one core: then launches are marked."""

    @classmethod
    def of_device(cls, pool: Iterable[int] | None = None, system: Path = SYSTEM) -> CorePlan:
        """A plan for the cores `pool`, or for all that the affinity mask permits, as far as the quota of the control
        groups does. `system`: the folder that describes the processors.

        Raises `InvalidInput` for a core that this process may not use.
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
        """The highest clock among the measuring cores; 0 if the system reports none."""
        return max((core.max_mhz for core in self.cores if core.number in self.order), default=0)

    @property
    def count(self) -> int:
        """Maximum number of measuring threads."""
        return len(self.order)

    def measuring(self, threads: int) -> tuple[int, ...]:
        """The cores to which a child with this number of threads is pinned."""
        return tuple(sorted(self.order[:threads]))

    def pinned(self, threads: int) -> tuple[int, ...]:
        """The cores of `measuring`; empty if the system does not support pinning."""
        return self.measuring(threads) if hasattr(os, "sched_setaffinity") else ()

    def others(self, threads: int) -> tuple[int, ...]:
        """The cores that a measurement with this number of threads leaves to everything else; empty if it uses all.
        Hardware threads that share a physical core with a measuring one are left out while there are others.
        """
        taken = set(self.order[:threads])
        rest = [core for core in self.cores if core.number not in taken]
        apart = [core.number for core in rest if not core.siblings & taken]
        return tuple(sorted(apart or (core.number for core in rest)))

    def home(self) -> tuple[int, ...]:
        """The cores of the agent and its fork servers: those that no measurement uses, or only the one with the most
        threads.
        """
        return self.others(self.count) or self.others(self.count - 1) or tuple(core.number for core in self.cores)


def parse_cores(text: str) -> tuple[int, ...]:
    """Core numbers from a list such as `2,4-6`; `InvalidInput` for anything else."""
    cores = numbers(text)
    if not cores:
        raise InvalidInput(
            f"cores: {text!r} is not a list of cores", field="cores", value=text, allowed="numbers and ranges: 2,4-6"
        )
    return tuple(cores)


def available_cores(system: Path = SYSTEM) -> tuple[Core, ...]:
    """The hardware threads that this process may use, as the system describes them."""
    return described(_ALLOWED, system)


def ranked(cores: Iterable[Core]) -> tuple[int, ...]:
    """Numbers of the cores in the order in which measuring uses them."""
    first: list[int] = []
    second: list[int] = []
    used: set[int] = set()
    for core in sorted(cores, key=lambda core: (-core.speed, -core.number)):
        (second if core.number in used else first).append(core.number)
        used |= core.siblings
    return (*first, *second)


def keep_to(cores: Iterable[int]) -> None:
    """Pins the calling thread, and those that it starts later; does nothing if the system does not support it."""
    allowed = set(cores)
    if allowed and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, allowed)


# Determined once, before this process pins anything.
_ALLOWED = allowed_cores()


def _possible() -> frozenset[int]:
    """The cores to which this process could be pinned; its parent may have restricted its affinity."""
    before = allowed_cores()
    if not hasattr(os, "sched_setaffinity"):
        return before
    try:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        return allowed_cores()
    finally:
        os.sched_setaffinity(0, before)


def described(cores: Iterable[int], system: Path) -> tuple[Core, ...]:
    """These cores in order. Speeds are of one kind, or they could not be compared: capacities (work per second, which
    ARM's kernels state) if every core has one, else the highest clocks.
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
    """The numbers of a list such as `0,4-6`; none if it is not one."""
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
    """The first of these cores that a quota lets work all the time: whole ones, and at least one."""
    return order[: whole_cores(len(order), quota)]


_MANAGED_DRIVERS = frozenset({"intel_pstate", "amd-pstate-epp"})
_THERMAL = Path("/sys/class/thermal")
_WINDOW_S = 0.2
_LITTLE_LOAD = 0.5
"""Busy cores beside which a launch need not wait: what this agent and every system do now and then."""


class Conditions:
    """The bad conditions on this device.

    Args:
        plan: the cores. system: the folder that describes the processors. thermal: the folder of zones and cooling
        devices.
    """

    def __init__(self, plan: CorePlan, system: Path = SYSTEM, thermal: Path = _THERMAL) -> None:
        self._plan = plan
        self._system = system
        self._thermal = thermal
        self._throttled = self._throttle_count()

    def before(self, threads: int) -> tuple[str, ...]:
        """The bad conditions for a launch with this many threads now: those of `after`, and other load. Takes 0.2 s."""
        import psutil

        busy = psutil.cpu_percent(_WINDOW_S, percpu=True)
        cores = [core.number for core in self._plan.cores if core.number < len(busy)]
        others = sum(busy[number] for number in cores) / 100
        load = (
            f"other load ({others:.1f} of {len(cores)} cores)" if others > len(cores) - threads + _LITTLE_LOAD else ""
        )
        return (*self.after(threads), *filter(None, [load]))

    def after(self, threads: int) -> tuple[str, ...]:
        """The bad conditions of a launch with this many threads that its own process does not see. Throttling counts
        since the last call.
        """
        # Of each measuring core: the clusters of an ARM processor may have different governors.
        governor = next(filter(None, map(self._saving, self._plan.measuring(threads))), "")
        quota = self._plan.quota
        too_few = str(quota) if quota is not None and quota.cores < threads else ""
        before, self._throttled = self._throttled, self._throttle_count()
        heat = "throttled by heat" if self._throttled > before or self._is_cooled() else ""
        return tuple(filter(None, [self._battery(), governor, too_few, heat]))

    def _battery(self) -> str:
        import psutil  # here, as measuring processes import this module

        battery = None
        with suppress(OSError):  # a kernel without power supplies, as boards and containers have
            battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
        if battery is None or battery.power_plugged is not False:
            return ""
        return f"on battery ({battery.percent:.0f} %)"

    def _saving(self, core: int) -> str:
        folder = self._system / f"cpu{core}" / "cpufreq"
        if _text(folder / "scaling_governor") != "powersave":
            return ""
        # These drivers call their ordinary mode powersave, and say by another file whether they save power.
        if _text(folder / "scaling_driver") in _MANAGED_DRIVERS:
            preference = _text(folder / "energy_performance_preference")
            return f"energy preference {preference}" if preference.endswith("power") else ""
        return "power-saving governor"

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
