"""Where attention and feed-forward blocks have their norm: on what they read, or on what they leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefront.core.spaces.architecture import Architecture

if TYPE_CHECKING:
    from edgefront.core.graph.writer import GraphWriter


def normed(graph: GraphWriter, architecture: Architecture, prefix: str, hidden: str) -> str:
    """What the block reads: norm(x) under norm pre, else x itself."""
    return graph.norm(hidden, f"{prefix}.norm") if architecture.norm == "pre" else hidden


def added(graph: GraphWriter, architecture: Architecture, prefix: str, hidden: str, update: str) -> str:
    """What the block leaves: x + update under norm pre, else norm(x + update)."""
    total = graph.op("Add", hidden, update)
    return total if architecture.norm == "pre" else graph.norm(total, f"{prefix}.norm")
