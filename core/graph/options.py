"""What a graph of an architecture is built for."""

from __future__ import annotations

from dataclasses import dataclass

from edgefront.core.graph.state import Logits, Mode
from edgefront.core.graph.writer import Dtype
from edgefront.core.number_formats import BLOCK_SIZE, Quantisation


@dataclass(frozen=True)
class GraphOptions:
    """Mode, outputs and number formats of a graph."""

    mode: Mode = "forward"
    logits: Logits = "all"
    dtype: Dtype = "float32"
    quantisation: Quantisation = "full"
    """int8 and int4 quantise linear layers (`core.graph.formats`), given weights too; with dtype float32."""
    block_size: int = BLOCK_SIZE
    """Weights of int4 that share a scale."""
    window: int | None = None
    """Each token sees at most this number of keys, itself included (Transformer-XL's same-length evaluation)."""
    in_place: bool = False
    """A decode graph takes keys and values in buffers with room for what it writes, where that can be
    (`core.graph.state.writes_in_place`), and puts them out at the same length: with one buffer bound as both, ONNX
    Runtime copies none of them. What lies beyond the tokens so far has to be finite."""
    fused: int | None = None
    """Attention that writes in place is one operator of ONNX Runtime's own (com.microsoft), where it has one for it
    (`core.graph.blocks.fused_attention`), for sequences of at most so many tokens."""
