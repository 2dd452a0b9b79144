"""What a step of a training and a step of a supernet's search have in common."""

from __future__ import annotations

import hashlib

import torch


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
    """Of a device or of the host. CPU allocations fail as plain RuntimeErrors."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)
