"""The one model: an architecture as a torch module."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from core.errors import InvalidInput
from core.nn.blocks import make_block
from core.nn.embedding import TokenEmbedding
from core.nn.layers import LayerNorm, Table
from core.nn.output import OutputLayer
from core.spaces.architecture import Architecture, Positions

Logits = Literal["all", "last", "none"]


class LearnedPositions(Table):
    """One row of d_model a place, the first place reading row `offset` (2 in OPT)."""

    def __init__(self, positions: Positions, d_model: int) -> None:
        super().__init__(positions.length + positions.offset, d_model)
        self.offset = positions.offset
        self.length = positions.length

    def forward(self, tokens: Tensor) -> Tensor:
        """[batch, sequence] → [sequence, d_model]."""
        sequence = tokens.shape[1]
        if sequence > self.length:
            raise InvalidInput(
                f"a sequence of {sequence} tokens is longer than the model's {self.length} positions",
                field="tokens",
                value=sequence,
                allowed=f"at most {self.length} tokens",
            )
        return self.weight[self.offset : self.offset + sequence]


class LanguageModel(nn.Module):
    """A language model in evaluation and training alike; its parameters are those of `core.graph.parameters`.

    Built without values: fill it (`core.nn.weights.fill`) or load it (`core.nn.load`).
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        self.embedding = TokenEmbedding(architecture)
        self.positions = LearnedPositions(architecture.positions, architecture.d_model)
        self.blocks = nn.ModuleList(make_block(block, architecture) for block in architecture.blocks)
        self.final_norm = LayerNorm(architecture.d_model)
        self.output = OutputLayer(architecture)

    def forward(self, tokens: Tensor, logits: Logits = "all") -> Tensor:
        """Tokens, int64 [batch, sequence], to what `logits` asks for.

        "all": [batch, sequence, vocab_size]; "last": [batch, vocab_size], of the last position alone; "none": the
        hidden states after the final norm, [batch, sequence, d_model]. Logits are log-probabilities where the
        embedding is adaptive, and in any case numbers whose softmax is the distribution, in token order.

        Raises `InvalidInput` for more tokens than positions, IndexError for a token outside the vocabulary.
        """
        hidden = self.embedding(tokens) + self.positions(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        if logits == "last":
            hidden = hidden[:, -1]
        hidden = self.final_norm(hidden)
        if logits == "none":
            return hidden
        scores: Tensor = self.output(hidden, self.embedding)
        return scores
