"""The probabilities of a search: one row of logits a layer, and the Gumbel-softmax that draws mixtures of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgefront.core.supernet.settings import CHOICES, LETTERS, Choice, LatencyTerm


class Mixture(nn.Module):
    """`logits` [layers, 3] over `CHOICES`, even at the start (PAR §2.2).

    They are no parameters of the supernet: weights and architecture have optimisers of their own.
    """

    def __init__(self, layers: int, choices: Sequence[Choice] = CHOICES) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(layers, len(CHOICES)))
        closed = torch.tensor([choice not in choices for choice in CHOICES])
        self.register_buffer("_closed", closed, persistent=False)

    def probabilities(self) -> Tensor:
        """float32 [layers, 3]: the odds that a draw is nearest to each block, whatever the temperature."""
        return F.softmax(self._open(), -1)

    def draw(self, temperature: float, generator: torch.Generator, *, hard: bool = False) -> Tensor:
        """One mixture m of each layer, [layers, 3], rows of sum 1 (PAR eq. 5; Jang et al. 2017, eq. 2).

        m = softmax((logits + g) / temperature) with Gumbel noise g, drawn on the CPU so that devices agree. Hard: one
        block a layer, with the gradient of m (straight-through).
        """
        uniform = torch.rand(self.logits.shape, generator=generator, dtype=torch.float64)
        noise = -torch.log(-torch.log(uniform.clamp(1e-12, 1 - 1e-12)))
        soft = F.softmax((self._open() + noise.to(self.logits)) / temperature, -1)
        if not hard:
            return soft
        chosen = F.one_hot(soft.argmax(-1), len(CHOICES)).to(soft)
        return chosen + (soft - soft.detach())

    def letters(self) -> str:
        """The likeliest block of each layer, as letters of a pattern."""
        return "".join(LETTERS[index] for index in self._open().argmax(-1).tolist())

    def expected_ms(self, term: LatencyTerm) -> Tensor:
        """E = Σ over layers and blocks of probability · latency, a scalar."""
        return (self.probabilities() @ self.logits.new_tensor(term.block_ms)).sum()

    def penalty(self, term: LatencyTerm) -> Tensor:
        """What the latency adds to the loss (see `LatencyTerm`), a scalar in nats."""
        expected = self.expected_ms(term)
        if term.target_ms is not None:
            return term.weight * F.relu(expected / term.target_ms - 1)
        open_ms = [ms for ms, closed in zip(term.block_ms, self._closed.tolist(), strict=True) if not closed]
        even = self.logits.shape[0] * sum(open_ms) / len(open_ms)
        return term.weight * expected / even if even else expected * 0.0

    def _open(self) -> Tensor:
        return self.logits.masked_fill(self._closed, -torch.inf)
