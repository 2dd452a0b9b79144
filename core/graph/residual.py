"""Norms of attention and feed-forward blocks: of what a block reads, of what it adds, or of what it leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgefront.core.graph.parameter import ParameterSpec, norm
from edgefront.core.spaces.architecture import Architecture

if TYPE_CHECKING:
    from edgefront.core.graph.writer import GraphWriter


def norms(architecture: Architecture, *, shares: bool = False) -> Iterator[ParameterSpec]:
    """The norms of a block; `shares`: it reads what another block has normed."""
    d = architecture.d_model
    if not shares:
        yield from norm("norm", d, architecture.norm_kind)
    if architecture.norm == "both":
        yield from norm("after_norm", d, architecture.norm_kind)


def normed(graph: GraphWriter, architecture: Architecture, prefix: str, hidden: str) -> str:
    """Input of the block: norm(x) under norm pre and both, else x itself."""
    return graph.norm(hidden, f"{prefix}.norm") if architecture.norms_input else hidden


def added(graph: GraphWriter, architecture: Architecture, prefix: str, hidden: str, update: str) -> str:
    """Output of the block: x + update, norm(x + update) under norm post, x + norm(update) under branch and both;
    what is added is multiplied with the residual multiplier.
    """
    if architecture.norms_update:
        update = graph.norm(update, f"{prefix}.{'norm' if architecture.norm == 'branch' else 'after_norm'}")
    if float(architecture.residual_multiplier) != 1:
        update = graph.op("Mul", update, graph.number(float(architecture.residual_multiplier)))
    total = graph.op("Add", hidden, update)
    return graph.norm(total, f"{prefix}.norm") if architecture.norm == "post" else total
