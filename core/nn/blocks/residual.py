"""Norms of attention and feed-forward blocks: they apply to what a block reads, or to what it leaves."""

from __future__ import annotations

from torch import Tensor, nn

from edgefront.core.nn.layers import make_norm
from edgefront.core.spaces.architecture import Architecture


class Residual(nn.Module):
    """y = x + f(norm(x)) under norm pre, y = norm(x + f(x)) under norm post. Its subclasses are the f.

    `has_norm`: False where f reads what another block has normed.
    """

    def __init__(self, architecture: Architecture, has_norm: bool = True) -> None:
        super().__init__()
        self.is_pre = architecture.norm == "pre"
        self.norm = make_norm(architecture, architecture.d_model) if has_norm else None

    def normed(self, x: Tensor) -> Tensor:
        """What f reads."""
        return self.norm(x) if self.is_pre and self.norm is not None else x

    def added(self, x: Tensor, update: Tensor) -> Tensor:
        """What the block leaves, `update` being f of what it read."""
        total = x + update
        return total if self.is_pre or self.norm is None else self.norm(total)
