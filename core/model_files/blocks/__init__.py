"""The blocks of a model: the parameters of each kind, and its part of the ONNX graph.

A new kind is two functions here, its twin in `core/nn/blocks`, and one line in each of the two tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, Block, FeedForward, Identity, ShortConv, Sru, Srupp
from edgefront.core.model_files.blocks import attention, feed_forward, recurrent, short_conv
from edgefront.core.model_files.parameter import ParameterSpec

if TYPE_CHECKING:
    from edgefront.core.model_files.context import GraphContext

_KINDS: dict[type, tuple[Callable[..., Iterator[ParameterSpec]], Callable[..., str]]] = {
    Attention: (attention.parameters, attention.write),
    FeedForward: (feed_forward.parameters, feed_forward.write),
    Sru: (recurrent.sru_parameters, recurrent.write_sru),
    Srupp: (recurrent.srupp_parameters, recurrent.write_srupp),
    ShortConv: (short_conv.parameters, short_conv.write),
    Identity: (lambda *_: iter(()), lambda _context, _block, _prefix, hidden: hidden),
}


def block_parameters(block: Block, architecture: Architecture) -> Iterator[ParameterSpec]:
    """Names (without the `blocks.{i}.` prefix), shapes and fills, in the order of the computation."""
    return _KINDS[type(block)][0](block, architecture)


def write_block(context: GraphContext, block: Any, prefix: str, hidden: str) -> str:
    """Adds the block's nodes; takes and returns the name of the residual stream, [batch·sequence, d_model]."""
    return _KINDS[type(block)][1](context, block, prefix, hidden)
