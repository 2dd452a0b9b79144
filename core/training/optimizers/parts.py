"""Parameters that the papers' code keeps as several tensors, each with a trust ratio of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from edgefront.core.nn.blocks.attention import AttentionBlock
from edgefront.core.nn.model import LanguageModel

Parts = Mapping[Tensor, Sequence[int]]
"""Of a parameter that has parts, the rows of each, in order."""


def cluster_parts(model: LanguageModel) -> Parts:
    """The output's bias by cluster: NVIDIA's Transformer-XL has one bias a cluster where `div` is above 1."""
    if model.output.bias is None or model.architecture.embedding.div == 1:
        return {}
    return {model.output.bias: [cluster.size for cluster in model.architecture.clusters]}


def projection_parts(model: LanguageModel) -> Parts:
    """Queries, keys and values of each attention: NVIDIA's BERT has a linear layer for each."""
    return {
        parameter: (block.width, *[(parameter.shape[0] - block.width) // 2] * 2)
        for block in model.modules()
        if isinstance(block, AttentionBlock)
        for parameter in block.qkv.parameters()
    }


def by_part(values: Sequence[Tensor], owners: Sequence[Tensor], parts: Parts) -> list[Tensor]:
    """Views of the parts of each of `values`, which have the shapes of `owners`."""
    return [
        part
        for value, owner in zip(values, owners, strict=True)
        for part in (value.split(list(parts[owner])) if owner in parts else [value])
    ]


def norms(values: Sequence[Tensor]) -> Tensor:
    """The 2-norm of each tensor, [n]."""
    return torch.stack(torch._foreach_norm(list(values)))
