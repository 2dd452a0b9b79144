"""Nothing: the residual stream passes (the third choice of PAR's search, Mandava et al. 2020, §2.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgefront.core.graph.parameter import ParameterSpec
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Identity

if TYPE_CHECKING:
    from edgefront.core.graph.context import GraphContext


def parameters(_block: Identity, _architecture: Architecture) -> Iterator[ParameterSpec]:
    """None."""
    return iter(())


def write(_context: GraphContext, _block: Identity, _prefix: str, hidden: str) -> str:
    """x; no node."""
    return hidden
