"""What disturbed the passes of a launch: other processes on its cores, and quotas of processor time.

Linux counts for each thread how long it was ready to run and had no core (`schedstat`: the waits of
`/proc/pressure/cpu`, but of this process alone). Waiting for an accelerator, a lock or a disk is none of it, so the
figure means the same for every runtime, provider and number of threads. Elsewhere the time of one thread on the
processor, against the clock, says the same of a launch with one thread that computes on the processor.
"""

from __future__ import annotations

import resource
import time
from contextlib import suppress
from pathlib import Path

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.provider import Provider
from edgefront.core.measurement.record import Fact
from edgefront.core.processes.limits import throttled_s

MAX_WAITED_SHARE = 0.1
"""Passes that waited for more than this share of their time are disturbed."""
MIN_WAITED_S = 0.001
"""Shorter waits are the system's own. Another process that computes takes a core for milliseconds at a time."""
_TASKS = Path("/proc/self/task")


class Disturbance:
    """Disturbances of this process between the creation of this object and `facts`.

    Args:
        protocol: of the passes in between. tasks: the folder in which the system describes this process's threads.
    """

    def __init__(self, protocol: MeasurementProtocol, tasks: Path = _TASKS) -> None:
        self._protocol, self._tasks = protocol, tasks
        self._counts = _counts()
        self._throttled_s = throttled_s()
        self._waited_s = self._waited()
        self._began = time.perf_counter()

    def facts(self) -> dict[str, Fact]:
        """Involuntary context switches, page faults, the share of the time for which the threads together waited for a
        core (where it is known), and bad conditions in words, if there were any.
        """
        wall_s = time.perf_counter() - self._began
        waited_s = self._waited()
        if waited_s is not None and self._waited_s is not None:
            waited_s = max(0.0, waited_s - self._waited_s)
        facts: dict[str, Fact] = {name: value - self._counts[name] for name, value in _counts().items()}
        if waited_s is not None:
            facts["waited_share"] = round(waited_s / wall_s, 4)
        if said := conditions(wall_s, waited_s or 0.0, throttled_s() - self._throttled_s):
            facts["conditions"] = said
        return facts

    def _waited(self) -> float | None:
        """Seconds for which this process's threads waited for a core, since some beginning; None if unknown."""
        waited = _run_queue_s(self._tasks)
        if waited is None and self._protocol.threads == 1 and Provider(self._protocol.provider).on_processor:
            waited = time.perf_counter() - time.process_time()
        return waited


def conditions(wall_s: float, waited_s: float, throttled_s: float) -> str:
    """What is bad about passes that took `wall_s`, while their threads waited so long for a core, of that
    `throttled_s` because of a quota.
    """
    said = [
        f"{what} {100 * seconds / wall_s:.0f} % of their time)"
        for what, seconds in (
            ("CPU quota (it stopped the passes for", throttled_s),
            ("other load (the passes waited for a core for", waited_s - throttled_s),
        )
        if seconds > max(MAX_WAITED_SHARE * wall_s, MIN_WAITED_S)
    ]
    return "; ".join(said)


def _run_queue_s(tasks: Path) -> float | None:
    """Seconds that all threads together waited for a core; None without the counters, which a kernel may lack."""
    ran_ns = waited_ns = 0
    for thread in tasks.glob("*/schedstat"):
        with suppress(OSError):  # the thread has ended
            ran, waited, _ = thread.read_text().split()
            ran_ns, waited_ns = ran_ns + int(ran), waited_ns + int(waited)
    return waited_ns / 1e9 if ran_ns else None


def _counts() -> dict[str, int]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"involuntary_switches": usage.ru_nivcsw, "minor_faults": usage.ru_minflt, "major_faults": usage.ru_majflt}
