"""Parameters that the papers' code keeps as several tensors, each with a trust ratio of its own, and norms of tensors
that may be shards of larger ones, as FSDP makes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from edgefront.core.graph.parameters import clusters
from edgefront.core.nn.blocks.attention import AttentionBlock
from edgefront.core.nn.model import LanguageModel

Parts = Mapping[Tensor, Sequence[int]]
"""Of a parameter that has parts, the rows of each, in order."""


def cluster_parts(model: LanguageModel) -> Parts:
    """The output's bias by cluster: NVIDIA's Transformer-XL has one bias a cluster where `div` is above 1."""
    if model.output.bias is None or model.architecture.embedding.div == 1:
        return {}
    return {model.output.bias: [cluster.size for cluster in clusters(model.architecture)]}


def projection_parts(model: LanguageModel) -> Parts:
    """Queries, keys and values of each attention: NVIDIA's BERT has a linear layer for each."""
    return {
        parameter: (block.width, *[(parameter.shape[0] - block.width) // 2] * 2)
        for block in model.modules()
        if isinstance(block, AttentionBlock)
        for parameter in block.qkv.parameters()
    }


def by_part(values: Sequence[Tensor], owners: Sequence[Tensor], parts: Parts) -> tuple[list[Tensor], list[Tensor]]:
    """Views of the parts of each of `values`, and which of `owners` each belongs to.

    `values` are `local`, of the owners' shapes; a part of which this rank holds nothing is an empty view.
    """
    views: list[Tensor] = []
    of: list[Tensor] = []
    for value, owner in zip(values, owners, strict=True):
        if owner in parts:
            before = rows_before(owner)
            edges = [min(max(edge - before, 0), len(value)) for edge in accumulate(parts[owner], initial=0)]
            cut = [value[low:high] for low, high in pairwise(edges)]
        else:
            cut = [value]
        views += cut
        of += [owner] * len(cut)
    return views, of


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
