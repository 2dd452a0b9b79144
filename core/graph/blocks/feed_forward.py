"""Position-wise feed-forward block, pre-norm: d_model → d_inner → d_model (Vaswani et al. 2017, eq. 2)."""

from __future__ import annotations

from collections.abc import Iterator

from core.graph.parameter import ParameterSpec, linear, norm
from core.spaces.architecture import Architecture, FeedForward


def parameters(block: FeedForward, architecture: Architecture) -> Iterator[ParameterSpec]:
    """2·d·f + f + 3d parameters for d = d_model and f = d_inner."""
    d = architecture.d_model
    yield from norm("norm", d)
    yield from linear("up", d, block.d_inner)
    yield from linear("down", block.d_inner, d)
