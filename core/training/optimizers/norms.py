"""Norms of tensors that may be shards of larger ones, as FSDP makes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def local(tensors: Sequence[Tensor]) -> list[Tensor]:
    """What this rank holds of each: of a shard its own memory, of an ordinary tensor that tensor. Without gradient."""
    return [tensor.to_local() if _is_distributed(tensor) else tensor for tensor in tensors]


def norms(values: Sequence[Tensor], owners: Sequence[Tensor]) -> Tensor:
    """The 2-norm of each whole tensor, [n]. `values` are `local`, of tensors sharded as `owners` are."""
    found = torch.stack(torch._foreach_norm(list(values)))
    sharded: dict[Any, list[int]] = {}
    for index, owner in enumerate(owners):
        if _is_distributed(owner):
            for group in _groups(owner):
                sharded.setdefault(group, []).append(index)
    for group, indices in sharded.items():
        squares = found[indices].square()
        torch.distributed.all_reduce(squares, group=group)
        found[indices] = squares.sqrt()
    return found


def rows_before(tensor: Any) -> int:
    """How many rows of the whole tensor come before those that this rank holds."""
    if _is_distributed(tensor):
        rows: int = tensor.shape[0]
        for dim, place in enumerate(tensor.placements):
            if place.is_shard(0):  # cut as torch.chunk does
                ranks: int = tensor.device_mesh.size(dim)
                rank: int = tensor.device_mesh.get_local_rank(dim)
                return min(rows, rank * math.ceil(rows / ranks))
    return 0


def _is_distributed(tensor: Tensor) -> bool:
    return hasattr(tensor, "to_local")  # only DTensor has it; importing that takes long


def _groups(tensor: Any) -> list[Any]:
    """The groups of ranks over which it is cut."""
    mesh = tensor.device_mesh
    return [mesh.get_group(dim) for dim, place in enumerate(tensor.placements) if place.is_shard()]
