"""Simple Recurrent Unit with highway output (Lei et al. 2018; Lei 2021, §2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgefront.core.graph.parameter import ParameterSpec
from edgefront.core.graph.recurrence import recurrence_parameters, write_recurrence
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Sru

if TYPE_CHECKING:
    from edgefront.core.graph.context import GraphContext


def parameters(block: Sru, architecture: Architecture) -> Iterator[ParameterSpec]:
    """3d² + 4d parameters for d = d_model, or 4·d·p + 4d with p = d_proj; candidate, forget and reset are one linear
    layer.
    """
    d, width = architecture.d_model, block.d_proj or architecture.d_model
    if block.d_proj is not None:
        yield ParameterSpec("down.weight", (width, d))
    yield ParameterSpec("up.weight", (3 * d, width))
    yield from recurrence_parameters(d)


def write(context: GraphContext, block: Sru, prefix: str, hidden: str) -> str:
    """The recurrence over U = W·x (W of two factors with d_proj); input and result are [batch·sequence, d_model]."""
    inner = hidden if block.d_proj is None else context.graph.linear(hidden, f"{prefix}.down", bias=False)
    return write_recurrence(context, prefix, inner, hidden)
