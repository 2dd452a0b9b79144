"""The blocks of a model in torch, one file a kind: [batch, sequence, d_model] in and out, residual included.

A new kind is a new file here, its twin in `core/model_files/blocks`, and one line in each of the two tables.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, Block, FeedForward, Identity, ShortConv, Sru, Srupp
from edgefront.core.nn.blocks.attention import AttentionBlock
from edgefront.core.nn.blocks.feed_forward import FeedForwardBlock
from edgefront.core.nn.blocks.short_conv import ShortConvBlock
from edgefront.core.nn.blocks.srupp import SruBlock, SruppBlock
from edgefront.core.nn.context import Context


class IdentityBlock(nn.Module):
    """y = x."""

    def __init__(self, block: Identity, architecture: Architecture) -> None:
        super().__init__()

    def forward(self, x: Tensor, name: str, context: Context) -> Tensor:
        """[batch, sequence, d_model] → the same."""
        return x


_KINDS: dict[type, Any] = {
    Attention: AttentionBlock,
    FeedForward: FeedForwardBlock,
    Sru: SruBlock,
    Srupp: SruppBlock,
    Identity: IdentityBlock,
    ShortConv: ShortConvBlock,
}


def make_block(block: Block, architecture: Architecture) -> nn.Module:
    """The module for one block of the description, its parameters not yet filled."""
    module: nn.Module = _KINDS[type(block)](block, architecture)
    return module
