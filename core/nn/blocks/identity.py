"""Nothing: the residual stream passes (the third choice of PAR's search, Mandava et al. 2020, §2.1)."""

from __future__ import annotations

from torch import Tensor, nn

from edgefront.core.nn.context import Context
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Identity


class IdentityBlock(nn.Module):
    """y = x."""

    def __init__(self, block: Identity, architecture: Architecture) -> None:
        super().__init__()

    def forward(self, x: Tensor, name: str, context: Context) -> Tensor:
        """[batch, sequence, d_model] → the same."""
        return x
