"""Linux calls that Python does not wrap, and the memory counters of /proc.

If a call is missing (musl has no mallopt, old kernels have no clear_refs), the function's return value shows that.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes, libc.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
    return libc


def strict_malloc() -> bool:
    """Makes malloc give freed memory back to the system at once: every block of 64 KiB or more is its own mapping, and
    each free trims the heap.

    The resident set then equals the memory in use, and is the same in every launch. Strict malloc causes page faults at
    every allocation (14 % of the time of a PyTorch forward pass), so timed forward passes run with `ordinary_malloc`.
    """
    return _mallopt(64 << 10, 0)


def ordinary_malloc() -> bool:
    """Resets malloc to glibc's usual behaviour: the mmap threshold is at its maximum, the heap keeps freed memory."""
    return _mallopt(32 << 20, 64 << 20)


def _mallopt(mmap_threshold: int, trim_threshold: int) -> bool:
    mallopt = getattr(_libc(), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, mmap_threshold) and mallopt(_M_TRIM_THRESHOLD, trim_threshold))


def grow_heap(size: int) -> None:
    """Grows the heap to `size` bytes of touched pages, as after a forward pass that allocated `size` bytes."""
    libc = _libc()
    block = 8 << 20
    blocks = [libc.malloc(block) for _ in range(max(1, -(-size // block)))]
    for address in blocks:
        if address:
            ctypes.memset(address, 0, block)
    for address in blocks:
        libc.free(address)


@dataclass(frozen=True)
class Resident:
    """Resident memory of this process by kind, and the high-water mark since the latest reset, in bytes."""

    anonymous: int
    file: int
    swapped: int
    high_water: int

    @property
    def total(self) -> int:
        return self.anonymous + self.file


def resident() -> Resident:
    """Reads the resident memory from /proc/self/status. Anonymous memory includes shared memory without a file."""
    kib = {key: int(value) for key, value in re.findall(r"^(\w+):\s+(\d+) kB$", _status(), re.MULTILINE)}
    return Resident(
        anonymous=1024 * (kib["RssAnon"] + kib.get("RssShmem", 0)),
        file=1024 * kib["RssFile"],
        swapped=1024 * kib.get("VmSwap", 0),
        high_water=1024 * kib["VmHWM"],
    )


def _status() -> str:
    return Path("/proc/self/status").read_text()


def reset_high_water() -> bool:
    """Resets the resident high-water mark to the current value."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def private_data_bytes() -> int:
    """Private writable memory of this process in bytes, including untouched pages; RLIMIT_DATA limits this value."""
    match = re.search(r"^VmData:\s+(\d+) kB", _status(), re.MULTILINE)
    return 1024 * int(match[1]) if match else 0


def mapped_bytes(places: tuple[Path, ...], starts: Mapping[str, int]) -> int:
    """Returns the number of bytes that this process maps from files in the folders `places` or below. A range that is
    mapped twice counts once. `starts` maps real paths to bytes: of these files, at most that many bytes from the start
    of the file count.
    """
    names = {str(place.resolve()) for place in places}  # the kernel reports real paths
    prefixes = tuple(f"{name}/" for name in names)
    spans: dict[str, list[tuple[int, int]]] = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and (fields[5] in names or fields[5].startswith(prefixes)):
            low, high = (int(part, 16) for part in fields[0].split("-"))
            offset = int(fields[2], 16)
            spans.setdefault(fields[5], []).append((offset, offset + high - low))
    return sum(_covered(path, ranges, starts.get(path)) for path, ranges in spans.items())


def _covered(path: str, ranges: list[tuple[int, int]], most: int | None) -> int:
    try:
        size = os.stat(path).st_size
    except OSError:  # deleted while mapped
        size = 1 << 62
    size = size if most is None else min(size, most)
    total, reached = 0, 0
    for low, high in sorted(ranges):
        start, stop = max(low, reached), min(high, size)
        total += max(0, stop - start)
        reached = max(reached, stop)
    return total


def oom_kills() -> int:
    """Number of OOM kills on this host and in its control groups."""
    try:
        match = re.search(r"^oom_kill (\d+)", Path("/proc/vmstat").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) if match else 0
