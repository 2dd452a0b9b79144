"""Norms of attention and feed-forward blocks: before the block (pre-norm) or after the residual sum (post-norm)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefront.core.spaces.architecture import Architecture

if TYPE_CHECKING:
    from edgefront.core.graph.writer import GraphWriter


def normed(graph: GraphWriter, architecture: Architecture, prefix: str, hidden: str) -> str:
    """Input of the block: norm(x) under pre-norm, else x itself."""
    return graph.norm(hidden, f"{prefix}.norm") if architecture.norm == "pre" else hidden


def added(graph: GraphWriter, architecture: Architecture, prefix: str, hidden: str, update: str) -> str:
    """Output of the block: x + update under pre-norm, else norm(x + update)."""
    total = graph.op("Add", hidden, update)
    return total if architecture.norm == "pre" else graph.norm(total, f"{prefix}.norm")
