"""Norms of attention and feed-forward blocks: of what a block reads, of what it adds, or of what it leaves."""

from __future__ import annotations

from torch import Tensor, nn

from edgefront.core.nn.layers import make_norm
from edgefront.core.spaces.architecture import Architecture


class Residual(nn.Module):
    """y = x + f(norm(x)) under norm pre, norm(x + f(x)) under post, x + norm(f(x)) under branch, and under both
    x + after_norm(f(norm(x))). Its subclasses are the f.

    `has_norm`: False where f reads what another block has normed.
    """

    def __init__(self, architecture: Architecture, has_norm: bool = True) -> None:
        super().__init__()
        self.place = architecture.norm
        self.norm = make_norm(architecture, architecture.d_model) if has_norm else None
        self.after_norm = make_norm(architecture, architecture.d_model) if self.place == "both" else None

    def normed(self, x: Tensor) -> Tensor:
        """What f reads."""
        return self.norm(x) if self.place in ("pre", "both") and self.norm is not None else x

    def added(self, x: Tensor, update: Tensor) -> Tensor:
        """What the block leaves, `update` being f of what it read."""
        if self.place == "post" and self.norm is not None:
            return self.norm(x + update)
        norm = self.norm if self.place == "branch" else self.after_norm
        return x + (update if norm is None else norm(update))
