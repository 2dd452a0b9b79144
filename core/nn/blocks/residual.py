"""Norms of attention and feed-forward blocks: of what a block reads, of what it adds, or of what it leaves."""

from __future__ import annotations

from torch import Tensor, nn

from edgefront.core.nn.context import Context
from edgefront.core.nn.layers import make_norm
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Identity


class Residual(nn.Module):
    """y = x + f(norm(x)) under norm pre, norm(x + f(x)) under post, x + norm(f(x)) under branch, and under both
    x + after_norm(f(norm(x))); what is added is multiplied with the residual multiplier. Its subclasses are the f.

    `has_norm`: False where f reads what another block has normed.
    """

    def __init__(self, architecture: Architecture, has_norm: bool = True) -> None:
        super().__init__()
        self.place = architecture.norm
        self.multiplier = float(architecture.residual_multiplier)
        self.norm = make_norm(architecture, architecture.d_model) if has_norm else None
        self.after_norm = make_norm(architecture, architecture.d_model) if self.place == "both" else None

    def normed(self, x: Tensor) -> Tensor:
        """What f reads."""
        return self.norm(x) if self.place in ("pre", "both") and self.norm is not None else x

    def added(self, x: Tensor, update: Tensor) -> Tensor:
        """What the block leaves, `update` being f of what it read."""
        norm = {"branch": self.norm, "both": self.after_norm}.get(self.place)
        if norm is not None:
            update = norm(update)
        if self.multiplier != 1:
            update = update * self.multiplier
        total = x + update
        return self.norm(total) if self.place == "post" and self.norm is not None else total


class IdentityBlock(nn.Module):
    """y = x."""

    def __init__(self, block: Identity, architecture: Architecture) -> None:
        super().__init__()

    def forward(self, x: Tensor, name: str, context: Context) -> Tensor:
        """[batch, sequence, d_model] → the same."""
        return x
