"""The blocks of a model, one file a kind: its parameters and its part of the ONNX graph.

A new kind is a new file here, its twin in `core/nn/blocks`, and one line in each of the two tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from edgefront.core.graph.blocks import attention, feed_forward, identity, short_conv, sru, srupp
from edgefront.core.graph.parameter import ParameterSpec
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, Block, FeedForward, Identity, ShortConv, Sru, Srupp

if TYPE_CHECKING:
    from edgefront.core.graph.context import GraphContext


class BlockGraph(Protocol):
    """What a block's module offers to the builders."""

    @staticmethod
    def parameters(block: Any, architecture: Architecture) -> Iterator[ParameterSpec]:
        """Names (without the `blocks.{i}.` prefix), shapes and fills, in the order of the computation."""

    @staticmethod
    def write(context: GraphContext, block: Any, prefix: str, hidden: str) -> str:
        """Add the block's nodes; takes and returns the name of the residual stream, [batch·sequence, d_model]."""


_KINDS: dict[type, Any] = {
    Attention: attention,
    FeedForward: feed_forward,
    Sru: sru,
    Srupp: srupp,
    Identity: identity,
    ShortConv: short_conv,
}


def block_graph(block: Block) -> BlockGraph:
    """The module that knows this kind of block."""
    kind: BlockGraph = _KINDS[type(block)]
    return kind
