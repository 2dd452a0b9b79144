"""Memory and cores that this process may use, within the limits of control groups (v1 and v2)."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil

_UNLIMITED = 1 << 60  # in cgroup v1 a number near 2^63 means "no limit"
_PROC = Path("/proc/self")


def total_memory_bytes() -> int:
    """Memory of the machine in bytes, or the container's memory limit if smaller."""
    limits = [limit for limit, _ in _groups()]
    return min([int(psutil.virtual_memory().total), *limits])


def available_memory_bytes() -> int:
    """Memory in bytes that a new process can use without swapping, within the limits of control groups."""
    free = [limit - used for limit, used in _groups()]
    return max(0, min([int(psutil.virtual_memory().available), *free]))


def allowed_cores() -> frozenset[int]:
    """Cores in the affinity mask of this process; all cores if the system has no affinity masks."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def whole_cores(count: int, quota: Quota | None) -> int:
    """Number of cores, from 1 to `count`, that can work all the time within a CPU quota."""
    return count if quota is None else min(count, max(1, math.floor(quota.cores)))


def usable_cores() -> int:
    """Number of cores, at least one, that this process can keep busy."""
    return whole_cores(len(allowed_cores()), cpu_quota())


def _groups() -> list[tuple[int, int]]:
    """Memory limit and used memory without reclaimable cache, in bytes, of each control group with a limit."""
    return [pair for folder in groups("memory") if (pair := _limit_and_use(folder)) is not None]


def _limit_and_use(folder: Path) -> tuple[int, int] | None:
    for limit_name, used_name, cache in (
        ("memory.max", "memory.current", "file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"),
    ):
        limit, used = _number(folder / limit_name), _number(folder / used_name)
        if limit is not None and used is not None and limit < _UNLIMITED:
            return limit, max(0, used - _statistic(folder / "memory.stat", cache))
    return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None  # "max" means no limit


def _statistic(path: Path, name: str) -> int:
    match = re.search(rf"^{name} (\d+)", _text(path), re.MULTILINE)
    return int(match[1]) if match else 0


def groups(controller: str, proc: Path = _PROC) -> list[Path]:
    """Folders of the control groups that limit this process with this controller: the process's own group first, then
    all ancestors up to the mount's root. Empty on systems other than Linux.
    """
    mounts = [line.split(" - ", 1) for line in _text(proc / "mountinfo").splitlines()]
    folders: list[Path] = []
    for line in _text(proc / "cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        for left, right in mounts:
            root, mount = left.split()[3:5]
            kind, _, options = right.split(" ", 2)
            if kind == "cgroup2" if not names else kind == "cgroup" and controller in options.split(","):
                folders += _upwards(Path(mount), PurePosixPath(root), PurePosixPath(path))
    return list(dict.fromkeys(folders))


def _upwards(mount: Path, root: PurePosixPath, path: PurePosixPath) -> list[Path]:
    """Folders from the control group `path` up to the folder `mount`, which is the group `root`. In a container `path`
    may be the host's; then the result has only `mount`, the container's group.
    """
    inside = path.relative_to(root) if path.is_relative_to(root) and ".." not in path.parts else PurePosixPath()
    own = mount / inside
    return [own, *(folder for folder in own.parents if folder.is_relative_to(mount))]


@dataclass(frozen=True)
class Quota:
    """CPU quota of a control group; `cores` is the permitted CPU time per time (1.5: one and a half cores)."""

    cores: float
    group: Path

    def __str__(self) -> str:
        return f"a CPU quota of {self.cores:.3g} core{'s' if self.cores != 1 else ''} ({self.group})"


def cpu_quota(proc: Path = _PROC) -> Quota | None:
    """The smallest CPU quota of this process's control groups; None if there is no quota."""
    quotas = [Quota(cores, folder) for folder in groups("cpu", proc) if (cores := _quota_cores(folder)) is not None]
    return min(quotas, key=lambda quota: quota.cores, default=None)


def throttled_s(proc: Path = _PROC) -> float:
    """Seconds, summed over cores, for which CPU quotas have throttled this process's control groups."""
    total = 0.0
    for folder in groups("cpu", proc):
        statistics = _text(folder / "cpu.stat")
        for name, unit_s in (("throttled_usec", 1e-6), ("throttled_time", 1e-9)):  # v2, v1
            if (match := re.search(rf"^{name} (\d+)$", statistics, re.MULTILINE)) is not None:
                total += int(match[1]) * unit_s
    return total


def _quota_cores(folder: Path) -> float | None:
    v1 = [_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    limit, _, period = (_text(folder / "cpu.max") or " ".join(v1)).partition(" ")
    return int(limit) / int(period) if limit.isdigit() and period.isdigit() else None  # "max" and -1 mean no quota


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
