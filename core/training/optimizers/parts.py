"""Parameters that the papers' code keeps as several tensors: each part of them has a trust ratio of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from torch import Tensor

from edgefront.core.graph.parameters import clusters
from edgefront.core.nn.blocks.attention import AttentionBlock
from edgefront.core.nn.model import LanguageModel
from edgefront.core.training.optimizers.norms import rows_before

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
