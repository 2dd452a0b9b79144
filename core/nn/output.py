"""The output layer, tied to the embedding: plain, or adaptive.

The adaptive softmax is Grave et al.'s (2017), laid out as in Transformer-XL (Dai et al. 2019).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.graph.parameters import Cluster, clusters, projected
from core.nn.embedding import TokenEmbedding
from core.spaces.architecture import Architecture


class OutputLayer(nn.Module):
    """Hidden states to one number a token, in token order.

    Plain embedding: logits = h·tableᵀ, without a bias. With cut-offs: log-probabilities, with one bias a token and,
    in the head's softmax, a row of `cluster_weight` and of `cluster_bias` for each tail. Tables are the embedding's;
    so are the tails' projections, while the head has one of its own wherever the embedding is projected.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        d_embed, tails = architecture.d_embed, len(architecture.embedding.cutoffs)
        self.clusters = clusters(architecture)
        self.head_projection = self.bias = self.cluster_weight = self.cluster_bias = None
        if projected(architecture):
            self.head_projection = nn.Parameter(torch.empty(d_embed, architecture.d_model))
        if tails:
            self.bias = nn.Parameter(torch.empty(architecture.embedding.vocab_size))
            self.cluster_weight = nn.Parameter(torch.empty(tails, d_embed))
            self.cluster_bias = nn.Parameter(torch.empty(tails))

    def forward(self, hidden: Tensor, embedding: TokenEmbedding) -> Tensor:
        """[…, d_model] → […, vocab_size]."""
        at_head = hidden if self.head_projection is None else F.linear(hidden, self.head_projection)
        if self.cluster_weight is None:
            return F.linear(at_head, embedding.tables[0])
        head, *tails = self._token_logits(hidden, at_head, embedding)
        entries = F.linear(at_head, self.cluster_weight, self.cluster_bias)
        joint = F.log_softmax(torch.cat((head, entries), -1), -1)
        head, *chances = joint.split([head.shape[-1], *[1] * len(tails)], -1)
        # log p(token) = log p(token | cluster) + log p(cluster)
        return torch.cat([head, *(F.log_softmax(tail, -1) + p for tail, p in zip(tails, chances, strict=True))], -1)

    def _token_logits(self, hidden: Tensor, at_head: Tensor, embedding: TokenEmbedding) -> list[Tensor]:
        """Before any softmax, one tensor a cluster: […, cluster.size]."""
        assert self.bias is not None
        sizes = [cluster.size for cluster in self.clusters]
        if self.head_projection is None:
            # All clusters see the same features: one product with the whole table, cut afterwards.
            return list(F.linear(hidden, embedding.tables[0], self.bias).split(sizes, -1))
        if len(embedding.tables) == 1:
            # The tails share one projection, and its product.
            at_tails = [hidden @ embedding.projections[0]] * (len(sizes) - 1)
        else:
            at_tails = [hidden @ projection for projection in list(embedding.projections)[1:]]
        return [
            F.linear(features, self._table(cluster, embedding), bias)
            for features, cluster, bias in zip([at_head, *at_tails], self.clusters, self.bias.split(sizes), strict=True)
        ]

    def _table(self, cluster: Cluster, embedding: TokenEmbedding) -> Tensor:
        """The cluster's table (size, width): its own, or with div = 1 its rows of the shared one."""
        if len(embedding.tables) > 1:
            return embedding.tables[cluster.index]
        return embedding.tables[0][cluster.start : cluster.stop]
