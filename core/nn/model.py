"""The language model as a torch module, for every architecture."""

from __future__ import annotations

from torch import Tensor, nn

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.passes import Logits
from edgefront.core.model_files.state import CacheType, check_pass
from edgefront.core.nn.blocks import make_block
from edgefront.core.nn.context import Cache, Context
from edgefront.core.nn.dropout import NO_DROPOUT, Dropout
from edgefront.core.nn.embedding import (
    LearnedPositionEmbedding,
    SinusoidalEmbedding,
    TokenEmbedding,
    make_positions,
)
from edgefront.core.nn.layers import drop, make_norm
from edgefront.core.nn.output import OutputLayer, select_positions


class LanguageModel(nn.Module):
    """A language model for evaluation and training, with the parameters that `core.architectures.parameters` lists.

    The parameters are uninitialised until `core.nn.weights.fill` or `core.nn.weights.load` sets them.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        self._dropout = NO_DROPOUT
        self.source = None if architecture.source is None else LanguageModel(architecture.source)
        self.embedding = TokenEmbedding(architecture)
        self.positions = make_positions(architecture)
        self.blocks = nn.ModuleList(make_block(block, architecture) for block in architecture.blocks)
        self.final_norm = None
        if architecture.has_final_norm:
            self.final_norm = make_norm(architecture, architecture.d_model)
        self.output = OutputLayer(architecture)

    @property
    def dropout(self) -> Dropout:
        """Dropout rates of this model and its encoder in train mode; eval mode has no dropout."""
        return self._dropout

    @dropout.setter
    def dropout(self, dropout: Dropout) -> None:
        self._dropout = dropout
        if self.source is not None:
            self.source.dropout = dropout

    def forward(
        self,
        tokens: Tensor,
        logits: Logits = "all",
        *,
        cache: Cache | None = None,
        segments: Tensor | None = None,
        mask: Tensor | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        window: int | None = None,
    ) -> Tensor | tuple[Tensor, Cache]:
        """Output for tokens, int64 [batch, sequence], as `logits` chooses; with a cache the pair (output, next cache).

        "all": [batch, sequence, vocab_size]; "last": [batch, vocab_size], of the final position alone; "none": the
        hidden states after the final norm, [batch, sequence, d_model]. The softmax of the logits is the distribution
        over the vocabulary, in token order. With an adaptive embedding the logits are log-probabilities.

        Args:
            cache: cache of the preceding tokens, from `init_cache` or an earlier forward pass; not changed. Gradients
                flow into the cache unless it is detached (`Cache.detach`). The next cache is longer unless truncated
                (`Cache.keep`).
            segments: segment type of each token, int64 [batch, sequence]; all 0 if absent. Only without a cache.
            mask: bool [batch, sequence], False where the batch is padded. Only without a cache.
            source: tokens of the encoder, int64 [batch, source]; with a cache only on the first forward pass.
            source_mask: bool [batch, source], False where the source is padded; needed on every forward pass.
            window: maximum number of keys that a token sees, itself included (Transformer-XL's same-length mask).

        Raises `InvalidInput` for more tokens than positions, and for a cache or window that the architecture does not
        have; IndexError for a token below 0 or outside the vocabulary. Shapes and types are not checked.
        """
        check_pass(self.architecture, "forward" if cache is None else "decode", window=window)
        context = self._context(tokens, cache, source, source_mask, window, mask)
        scores = self._run(tokens, context, logits, segments)
        return scores if context.next_cache is None else (scores, context.next_cache)

    def init_cache(self, batch: int, cache_type: CacheType = "cache") -> Cache:
        """Cache of `batch` sequences before the first token."""
        check_pass(self.architecture, "decode")
        return Cache.empty(self.architecture, cache_type, batch, next(self.parameters()))

    def token_losses(self, hidden: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Negative log likelihood of each target, in nats: float32 (float64 in a float64 model), shaped like `targets`.

        `hidden` [batch, sequence, d_model] is the result of `forward` for "none". `targets`, int64, are tokens [batch,
        sequence]; for a model of classes one class per row, [batch]; for spans first and final position, [batch, 2],
        whose mean is the row's loss [batch]. Where the target is -100 the loss is 0 and has no gradient. Label
        smoothing ε weights the target's loss by 1 - ε and the mean loss over all possible targets by ε (Szegedy et al.
        2016, §7).

        Raises IndexError for a target below 0 or too large.
        """
        picked = select_positions(hidden, self.architecture, "all")
        rates = self.dropout if self.training else NO_DROPOUT
        losses: Tensor = self.output.losses(picked, self.embedding, targets, label_smoothing, rates)
        return losses

    def token_scores(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary, from which `token_losses` computes losses: […, d_model] → […, vocab_size].

        `hidden` is the result of `forward` for "none", at any number of positions.
        """
        rates = self.dropout if self.training else NO_DROPOUT
        scores: Tensor = self.output.scores(hidden, self.embedding, rates)
        return scores

    def _run(self, tokens: Tensor, context: Context, logits: Logits, segments: Tensor | None = None) -> Tensor:
        rates = context.dropout
        hidden = self.embedding(tokens, segments, self._positions(tokens, context), rates.narrow)
        hidden = drop(hidden, rates.embedding)
        hidden = self._through_blocks(hidden, context)
        hidden = select_positions(hidden, self.architecture, logits)
        if self.final_norm is not None:
            hidden = self.final_norm(hidden)
        if self.architecture.output.kind == "none":
            return hidden
        if self.output.pooler is None:  # otherwise dropout applies to the pooled vector later
            hidden = drop(hidden, rates.output)
        if logits == "none":
            return hidden
        scores: Tensor = self.output(hidden, self.embedding, rates)
        return scores

    def run_from(self, first: int, hidden: Tensor) -> Tensor:
        """Runs the blocks from `first` on and the final norm; returns hidden states like `forward` for "none".

        Input and result are [batch, sequence, d_model]. Only for models without absolute positions, encoder and
        parallel blocks.
        """
        context = Context(
            self.architecture,
            hidden.shape[1],
            device=hidden.device,
            positions=self.positions,
            dropout=self.dropout if self.training else NO_DROPOUT,
        )
        hidden = self._through_blocks(hidden, context, first)
        return hidden if self.final_norm is None else self.final_norm(hidden)

    def _through_blocks(self, hidden: Tensor, context: Context, first: int = 0) -> Tensor:
        """Applies the blocks from `first` on to `hidden` [batch, sequence, d_model]. A supernet mixes the blocks."""
        for index in range(first, len(self.blocks)):
            hidden = self.blocks[index](hidden, f"blocks.{index}", context)
        return hidden

    def _positions(self, tokens: Tensor, context: Context) -> Tensor | None:
        """Absolute positions to add to the embedding, [sequence, d_model]; None for other kinds of positions."""
        if isinstance(self.positions, LearnedPositionEmbedding):
            return self.positions(context.start, tokens.shape[1])
        if isinstance(self.positions, SinusoidalEmbedding):
            return self.positions(context.start, tokens.shape[1], self.embedding.tables[0])
        return None

    def _context(
        self,
        tokens: Tensor,
        cache: Cache | None,
        source: Tensor | None,
        source_mask: Tensor | None,
        window: int | None,
        mask: Tensor | None = None,
    ) -> Context:
        encoder = None
        if self.source is not None and source is not None:
            encoder = self.source(source, "none", mask=source_mask)
        return Context(
            self.architecture,
            tokens.shape[1],
            device=tokens.device,
            cache=cache,
            encoder=encoder,
            mask=mask,
            source_mask=source_mask,
            window=window,
            positions=self.positions,
            dropout=self.dropout if self.training else NO_DROPOUT,
        )
