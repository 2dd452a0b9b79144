"""Causal multi-head self-attention, pre-norm (Vaswani et al. 2017, eq. 1; GPT-2)."""

from __future__ import annotations

from collections.abc import Iterator

from core.graph.parameter import ParameterSpec, linear, norm
from core.spaces.architecture import Architecture, Attention


def parameters(_block: Attention, architecture: Architecture) -> Iterator[ParameterSpec]:
    """4d² + 6d parameters for d = d_model; queries, keys and values are one map of 3d rows, in this order."""
    d = architecture.d_model
    yield from norm("norm", d)
    yield from linear("qkv", d, 3 * d)
    yield from linear("out", d, d)
