"""Output layer: scores over the vocabulary, plain or adaptive, or BERT's heads.

The adaptive softmax is from Grave et al. (2017), in the layout of Transformer-XL (Dai et al. 2019). The head's entries
for the clusters are in the clusters' order, as in Hugging Face's TransfoXL; the paper's own code and NVIDIA's code have
these columns in reverse order.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.passes import Logits
from edgefront.core.architectures.embeddings_and_head import Cluster
from edgefront.core.architectures.parameters import (
    ParameterSpec,
    output_projection_specs,
    output_table_specs,
    own_projection,
)
from edgefront.core.nn.dropout import NO_DROPOUT, Dropout
from edgefront.core.nn.embedding import TokenEmbedding
from edgefront.core.nn.layers import ACTIVATIONS, Linear, drop, make_norm

IGNORED = -100
"""Target value of positions without a loss."""


def select_positions(hidden: Tensor, architecture: Architecture, logits: Logits) -> Tensor:
    """Selects, of hidden states [batch, sequence, d_model], the positions that the output layer reads.

    Returns all states, or [batch, d_model]: the first position for pooled outputs, the final position for "last".
    """
    kind = architecture.output.kind
    if logits == "none" or kind == "none":
        return hidden
    if kind in ("pooled", "classes"):
        return hidden[:, 0]
    return hidden[:, -1] if logits == "last" else hidden


class OutputLayer(nn.Module):
    """Output layer: hidden states → the output of the architecture's `output.kind`.

    tokens: one number per token of the vocabulary, in token order: logits, or with cut-offs log-probabilities, log
    p(token) = log p(token | cluster) + log p(cluster). masked_tokens: the same after BERT's transform. pooled, classes,
    spans: BERT's heads (Devlin et al. 2019, §4). Kind none has no parameters.

    A tied layer uses the embedding's matrices, and its projections if `core.architectures.parameters.own_projection` is
    False.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        d_model, output = architecture.d_model, architecture.output
        self.clusters = architecture.clusters
        self.tables = _uninitialised(output_table_specs(architecture))
        self.projections = _uninitialised(output_projection_specs(architecture))
        self.bias = self.cluster_weight = self.cluster_bias = None
        self.transform = self.transform_norm = self.pooler = self.classes = self.spans = None
        if architecture.output_bias:
            self.bias = nn.Parameter(torch.empty(architecture.embedding.vocab_size))
        if output.kind == "tokens" and architecture.embedding.cutoffs:
            tails = len(architecture.embedding.cutoffs)
            self.cluster_weight = nn.Parameter(torch.empty(tails, architecture.d_embed))
            self.cluster_bias = nn.Parameter(torch.empty(tails))
        if output.kind == "masked_tokens":
            self.transform = Linear(d_model, d_model)
            self.transform_norm = make_norm(architecture, d_model)
        if output.kind in ("pooled", "classes"):
            self.pooler = Linear(d_model, d_model)
        if output.classes is not None:
            self.classes = Linear(d_model, output.classes)
        if output.kind == "spans":
            self.spans = Linear(d_model, 2)

    def forward(self, hidden: Tensor, embedding: TokenEmbedding, dropout: Dropout = NO_DROPOUT) -> Tensor:
        """Scores of states, […, d_model] → […, vocab_size], […, d_model] (pooled), […, classes] or […, 2] (spans).

        `hidden` are the positions that `select_positions` chose. `dropout.output` applies to the pooled vector before
        the classes.
        """
        if self.pooler is not None:
            pooled = torch.tanh(self.pooler(hidden))
            return pooled if self.classes is None else self.classes(drop(pooled, dropout.output))
        if self.spans is not None:
            return self.spans(hidden)
        return self._over_vocabulary(self._transformed(hidden), embedding)

    def scores(self, hidden: Tensor, embedding: TokenEmbedding, dropout: Dropout = NO_DROPOUT) -> Tensor:
        """Computes `LanguageModel.token_scores`; `dropout.narrow` applies after the projection."""
        return self._over_vocabulary(self._transformed(hidden), embedding, dropout.narrow)

    def losses(
        self,
        hidden: Tensor,
        embedding: TokenEmbedding,
        targets: Tensor,
        label_smoothing: float = 0.0,
        dropout: Dropout = NO_DROPOUT,
    ) -> Tensor:
        """Computes `LanguageModel.token_losses` for the hidden states that `select_positions` selected.

        `dropout` applies as in `scores` and `forward`. The adaptive softmax computes the head for all positions and
        each tail for the positions of its targets (Grave et al. 2017, §4). A tail without targets is computed on zero
        rows, so that all parameters have gradients in every step.
        """
        kind = self.architecture.output.kind
        if kind == "classes":
            return _cross_entropy(self(hidden, embedding, dropout), targets, label_smoothing)
        if kind == "spans":
            scores = self(hidden, embedding).transpose(1, 2)
            of_both = _cross_entropy(scores.flatten(0, 1), targets.flatten(), label_smoothing)
            return of_both.unflatten(0, (-1, 2)).mean(1)
        flat, flat_targets = hidden.flatten(0, -2), targets.flatten()
        if kind == "masked_tokens":
            # Few positions have a target, and the vocabulary is most of the work.
            masked = (flat_targets != IGNORED).nonzero().squeeze(1)
            at_masked = self._losses(
                self._transformed(flat[masked]), embedding, flat_targets[masked], label_smoothing, 0.0
            )
            losses = at_masked.new_zeros(flat_targets.shape).index_copy(0, masked, at_masked)
        else:
            losses = self._losses(flat, embedding, flat_targets, label_smoothing, dropout.narrow)
        return losses.view(targets.shape)

    def _losses(
        self, hidden: Tensor, embedding: TokenEmbedding, targets: Tensor, label_smoothing: float, dropout: float
    ) -> Tensor:
        """Losses [n] of the hidden states [n, d_model] and token targets [n]."""
        head, *tails = self.clusters
        if self.cluster_weight is None or label_smoothing:  # label smoothing needs the score of every token
            scores = self._over_vocabulary(hidden, embedding, dropout)
            return _cross_entropy(scores, targets, label_smoothing)
        tables = self._tables(embedding)
        features = self._feature(head, hidden, embedding, dropout)
        matrix, bias = _rows(head, tables), None if self.bias is None else self.bias[: head.stop]
        scores = [F.linear(features, matrix, bias), F.linear(features, self.cluster_weight, self.cluster_bias)]
        cluster_targets = targets
        for tail in tails:
            cluster_targets = torch.where(targets >= tail.start, head.stop + tail.index - 1, cluster_targets)
        losses = _cross_entropy(torch.cat(scores, -1), cluster_targets)
        for tail in tails:
            inside = targets >= tail.start
            if tail is not tails[-1]:  # in the last tail a target outside the vocabulary raises IndexError
                inside = inside & (targets < tail.stop)
            rows = inside.nonzero().squeeze(1)
            features = self._feature(tail, hidden[rows], embedding, dropout)
            bias = None if self.bias is None else self.bias[tail.start : tail.stop]
            scores_inside = F.linear(features, _rows(tail, tables), bias)
            losses = losses.index_add(0, rows, _cross_entropy(scores_inside, targets[rows] - tail.start))
        return losses

    def _transformed(self, hidden: Tensor) -> Tensor:
        """Applies BERT's transform to the states, if the model has the transform."""
        if self.transform is None or self.transform_norm is None:
            return hidden
        inner = ACTIVATIONS[self.architecture.activation](self.transform(hidden))
        transformed: Tensor = self.transform_norm(inner)
        return transformed

    def _over_vocabulary(self, hidden: Tensor, embedding: TokenEmbedding, dropout: float = 0.0) -> Tensor:
        features = self._features(hidden, embedding, dropout)
        head, *tails = self._token_logits(features, embedding)
        if self.cluster_weight is None:
            return head
        entries = F.linear(features[0], self.cluster_weight, self.cluster_bias)
        joint = _log_softmax(torch.cat((head, entries), -1))
        head, *chances = joint.split([head.shape[-1], *[1] * len(tails)], -1)
        return torch.cat([head, *(_log_softmax(tail) + p for tail, p in zip(tails, chances, strict=True))], -1)

    def _features(self, hidden: Tensor, embedding: TokenEmbedding, dropout: float) -> list[Tensor]:
        """Input of each cluster's matrix, […, cluster.width]; the same tensor for clusters with the same projection."""
        made: dict[tuple[int, bool], Tensor] = {}
        features = []
        for cluster in self.clusters:
            key = self._projection(cluster)
            if key not in made:
                made[key] = self._feature(cluster, hidden, embedding, dropout)
            features.append(made[key])
        return features

    def _feature(self, cluster: Cluster, hidden: Tensor, embedding: TokenEmbedding, dropout: float) -> Tensor:
        """Input of the cluster's matrix, […, cluster.width], divided by the logits' scaling."""
        scaling = float(self.architecture.output.logits_scaling)
        if scaling != 1:
            hidden = hidden / scaling
        if not self.architecture.projected:
            return hidden
        index, own = self._projection(cluster)
        return drop(F.linear(hidden, self.projections[index] if own else embedding.projections[index].T), dropout)

    def _projection(self, cluster: Cluster) -> tuple[int, bool]:
        """Returns a pair: index of the cluster's projection, and whether the projection is the output layer's."""
        tables = 1 if self.architecture.embedding.div == 1 else len(self.clusters)
        return min(cluster.index, tables - 1), own_projection(self.architecture, cluster)

    def _tables(self, embedding: TokenEmbedding) -> list[Tensor]:
        return list(embedding.tables if self.architecture.output.tied else self.tables)

    def _token_logits(self, features: list[Tensor], embedding: TokenEmbedding) -> list[Tensor]:
        """Logits of each cluster before any softmax, […, cluster.size] each."""
        tables = self._tables(embedding)
        sizes = [cluster.size for cluster in self.clusters]
        if all(feature is features[0] for feature in features) and len(tables) == 1:
            # All clusters see the same features, so that one product with the whole matrix is split afterwards.
            scores = F.linear(features[0], tables[0], self.bias)
            return [scores] if len(sizes) == 1 else list(scores.split(sizes, -1))  # a split of one copies the gradient
        biases = [None] * len(sizes) if self.bias is None else list(self.bias.split(sizes))
        return [
            F.linear(matrix_input, _rows(cluster, tables), bias)
            for matrix_input, cluster, bias in zip(features, self.clusters, biases, strict=True)
        ]


def _cross_entropy(scores: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of scores [n, kinds] and targets [n] → [n], at least float32; 0 where the target is `IGNORED`."""
    wide = scores if scores.dtype == torch.float64 else scores.float()
    return F.cross_entropy(wide, targets, ignore_index=IGNORED, reduction="none", label_smoothing=label_smoothing)


def _log_softmax(scores: Tensor) -> Tensor:
    """Log-softmax over the last dimension, in the type of `scores`.

    On CPUs PyTorch would sum float16 scores in float16, where a sum over more than 65,504 tokens can overflow.
    """
    if scores.dtype == torch.float16 and scores.device.type == "cpu":
        return F.log_softmax(scores, -1, dtype=torch.float32).to(scores.dtype)
    return F.log_softmax(scores, -1)


def _rows(cluster: Cluster, tables: list[Tensor]) -> Tensor:
    """Matrix (size, width) of the cluster: a separate table, or, if div = 1, the cluster's rows of the only table."""
    return tables[cluster.index] if len(tables) > 1 else tables[0][cluster.start : cluster.stop]


def _uninitialised(specs: tuple[ParameterSpec, ...]) -> nn.ParameterList:
    return nn.ParameterList(nn.Parameter(torch.empty(spec.shape)) for spec in specs)
