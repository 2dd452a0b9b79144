"""What a step of a training and a step of a supernet's search have in common."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_RAISES = 2  # torch's number of that mode; in 1 it warns
_NO_MEMORY = ("DefaultCPUAllocator", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")


def seed_of(seed: int, step: int, rank: int) -> int:
    """The seed of all that is random in one step on one rank: neighbours are unrelated."""
    key = hashlib.sha256(f"edgefront/training/{seed}/{step}/{rank}".encode("ascii")).digest()
    return int.from_bytes(key[:8], "big") >> 1


def seed_device(device: torch.device, seed: int) -> None:
    """Seeds the CPU's generator and that of `device`.

    `torch.manual_seed` seeds those of every kind of device: each that was never used keeps the call, with its stack.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def is_out_of_memory(error: BaseException) -> bool:
    """Of a device or of the host. Allocations on a CPU and those of CUDA's libraries fail as plain RuntimeErrors."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(text in str(error) for text in _NO_MEMORY)


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Within it a GPU gives the same results each time, as a CPU does: attention's gradients, for one, would be added
    up in any order. An operator that cannot raises an error (`is_not_deterministic`).
    """
    before = torch.get_deterministic_debug_mode(), torch.utils.deterministic.fill_uninitialized_memory
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else matrix products raise an error
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # which is for finding faults
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        torch.utils.deterministic.fill_uninitialized_memory = before[1]


def is_not_deterministic(error: BaseException) -> bool:
    """Whether an operator has no form that `deterministic` permits."""
    return torch.get_deterministic_debug_mode() == _RAISES and "use_deterministic_algorithms" in str(error)
