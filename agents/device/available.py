"""Memory available for a launch, from the system and its control groups."""

from __future__ import annotations

import re
from pathlib import Path

import psutil

from edgefront.agents.device.cgroups import groups

_UNLIMITED = 1 << 60  # cgroup v1 means "no limit" by a number near 2^63


def total_memory_bytes() -> int:
    """Memory of the device, or of the container if that is less."""
    limits = [limit for limit, _ in _groups()]
    return min([int(psutil.virtual_memory().total), *limits])


def available_memory_bytes() -> int:
    """Memory that a new process could use without evicting anything."""
    free = [limit - used for limit, used in _groups()]
    return max(0, min([int(psutil.virtual_memory().available), *free]))


def _groups() -> list[tuple[int, int]]:
    """(limit, used without reclaimable) of every control group of this process that has a limit."""
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
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max" is no number
        return None


def _statistic(path: Path, name: str) -> int:
    try:
        match = re.search(rf"^{name} (\d+)", path.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) if match else 0
