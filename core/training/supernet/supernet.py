"""Supernet: a model whose layers mix attention, feed-forward and identity by probabilities (PAR §2.1, figure 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgefront.core.nn.context import Context
from edgefront.core.nn.model import LanguageModel
from edgefront.core.search.supernet_settings import BLOCK_TYPES, LETTERS, BlockType, LatencyTerm, SupernetSettings


class Mixture(nn.Module):
    """Architecture parameters: `logits` [layers, 3] of the blocks `BLOCK_TYPES`, initially equal (PAR §2.2).

    Mixture is a separate module from the supernet, because weights and architecture have separate optimisers.
    """

    def __init__(self, layers: int, choices: Sequence[BlockType] = BLOCK_TYPES) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(layers, len(BLOCK_TYPES)))
        closed = torch.tensor([choice not in choices for choice in BLOCK_TYPES])
        self.register_buffer("_closed", closed, persistent=False)

    def probabilities(self) -> Tensor:
        """Probability that a draw is nearest to each block, float32 [layers, 3]; equal at all temperatures."""
        return F.softmax(self._open(), -1)

    def draw(self, temperature: float, generator: torch.Generator, *, hard: bool = False) -> Tensor:
        """Draws a mixture m for each layer, [layers, 3], rows of sum 1 (PAR eq. 5; Jang et al. 2017, eq. 2).

        m = softmax((logits + g) / temperature) with Gumbel noise g, drawn on the CPU so that all devices draw equally.
        With `hard` the result is one-hot, one block per layer, with the gradient of m (straight-through).
        """
        uniform = torch.rand(self.logits.shape, generator=generator, dtype=torch.float64)
        noise = -torch.log(-torch.log(uniform.clamp(1e-12, 1 - 1e-12)))
        soft = F.softmax((self._open() + noise.to(self.logits)) / temperature, -1)
        if not hard:
            return soft
        chosen = F.one_hot(soft.argmax(-1), len(BLOCK_TYPES)).to(soft)
        return chosen + (soft - soft.detach())

    def letters(self) -> str:
        """Most likely block of each layer, as a string with a letter per layer."""
        return "".join(LETTERS[index] for index in self._open().argmax(-1).tolist())

    def expected_ms(self, term: LatencyTerm) -> Tensor:
        """Expected latency in ms, a scalar: Σ over layers and blocks of probability times latency."""
        return (self.probabilities() @ self.logits.new_tensor(term.block_ms)).sum()

    def penalty(self, term: LatencyTerm) -> Tensor:
        """Latency term of the loss (`LatencyTerm`), a scalar in nats."""
        expected = self.expected_ms(term)
        if term.target_ms is not None:
            return term.weight * F.relu(expected / term.target_ms - 1)
        open_ms = [ms for ms, closed in zip(term.block_ms, self._closed.tolist(), strict=True) if not closed]
        even = self.logits.shape[0] * sum(open_ms) / len(open_ms)
        return term.weight * expected / even if even else expected * 0.0

    def _open(self) -> Tensor:
        return self.logits.masked_fill(self._closed, -torch.inf)


class Supernet(LanguageModel):
    """Language model whose layer l mixes blocks i of `BLOCK_TYPES`: X_l = Σ m_l,i · F_i(X_l-1) (PAR eq. 6).

    The supernet is the language model of `(sf)x{layers}` with mixed instead of stacked blocks. Layer l has the blocks
    2l (attention) and 2l + 1 (feed-forward). Parameters, initialisation, embedding, output, dropout and cache are the
    same as in this language model. The attention of every layer runs in each forward pass, so the cache has the input
    of every layer.

    A forward pass requires a mixture: `with supernet.mixed(m): supernet(…)`.
    """

    def __init__(self, settings: SupernetSettings, vocab_size: int) -> None:
        super().__init__(settings.architecture("sf" * settings.layers, vocab_size))
        self.settings = settings
        self._mixture: tuple[Tensor, ...] | None = None

    @contextmanager
    def mixed(self, mixture: Tensor) -> Iterator[None]:
        """Context manager in which forward passes use `mixture`, [layers, 3]; gradients flow into the mixture."""
        before, self._mixture = self._mixture, mixture.unbind(0)
        try:
            yield
        finally:
            self._mixture = before

    def _through_blocks(self, hidden: Tensor, context: Context, first: int = 0) -> Tensor:
        assert self._mixture is not None, "a pass needs `with supernet.mixed(m): …`"
        for layer, weights in enumerate(self._mixture):
            attention, feed_forward, identity = weights.unbind(0)
            attended = self.blocks[2 * layer](hidden, f"blocks.{2 * layer}", context)
            fed = self.blocks[2 * layer + 1](hidden, f"blocks.{2 * layer + 1}", context)
            hidden = attention * attended + feed_forward * fed + identity * hidden
        return hidden
