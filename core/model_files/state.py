"""Options of an ONNX graph, and the state that a model carries from one forward pass to the next.

State is a flat set of named tensors with declared axes.

The names are the same in torch and in ONNX. Two types of cache represent the same past tokens:

- "cache": projected keys and values, for generating one token at a time;
- "memory": each attention's layer inputs, projected again in every forward pass: the segment memory of Transformer-XL
  (Dai et al. 2019, §3.2) and SRU++, through whose projections gradients flow.

Both types of cache also have each recurrence's cell, the latest inputs of each short convolution, and the number of
tokens seen if positions need the number: absolute positions, and rotary positions with the type "cache", whose keys are
already rotated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attends, Attention, ShortConv, Sru, Srupp
from edgefront.core.architectures.cost.passes import Logits
from edgefront.core.architectures.embeddings_and_head import (
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
)
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.number_formats import BLOCK_SIZE, Quantisation

CacheType = Literal["memory", "cache"]
Mode = Literal["forward", "segment", "prefill", "decode"]
"""Modes of a graph. forward: no state; segment: memory in and out; prefill: cache out; decode: cache in and out."""

Dtype = Literal["float32", "float64", "float16", "bfloat16"]
"""Floating-point type of a graph."""

CAPACITY = "capacity"
"""Name of the growing axis of an entry that a graph writes in place; its size is the buffer's size in tokens."""
AXIS_OF = {"self": "past", "both": "context", "source": "source"}
"""Contents of a state entry's growing axis: past tokens, the source before past tokens, or only the source."""


@dataclass(frozen=True)
class StateSpec:
    """Specification of one state entry. `axes` are sizes, or names of free axes: batch, and one of `axis_of`."""

    name: str
    axes: tuple[str | int, ...]
    integer: bool = False
    most: int | None = None
    """Maximum number of past tokens, because no later token sees past tokens before the window."""

    @property
    def growing(self) -> int | None:
        """Index of the axis that grows with each token; None for a recurrent cell or a token count."""
        return next((index for index, axis in enumerate(self.axes) if isinstance(axis, str) and axis != "batch"), None)

    @property
    def holds_source(self) -> bool:
        """Whether the growing axis contains the tokens of the encoder (the source)."""
        return self.growing is not None and self.axes[self.growing] in (AXIS_OF["both"], AXIS_OF["source"])

    def sizes(self, batch: int, past: int, source: int = 0) -> tuple[int, ...]:
        """Size of every axis of the entry after `past` tokens and a source of `source` tokens."""
        past = past if self.most is None else min(past, self.most)
        free = {"batch": batch, AXIS_OF["both"]: source + past, AXIS_OF["source"]: source}
        return tuple(axis if isinstance(axis, int) else free.get(axis, past) for axis in self.axes)


def axis_of(attends: Attends, window: int | None = None) -> str:
    """Name of the growing axis of an attention's state entries; `window` includes the token itself."""
    return AXIS_OF[attends] + ("" if window is None else str(window - 1))


def state_specs(architecture: Architecture, cache_type: CacheType) -> tuple[StateSpec, ...]:
    """Specifications of every entry of this architecture's state, in the order of the blocks."""
    specs = []
    if counts_tokens(architecture, cache_type):
        specs.append(StateSpec("position", (), integer=True))
    for index, block in enumerate(architecture.blocks):
        name = f"blocks.{index}"
        if isinstance(block, Attention | Srupp) and block.attends != "none":
            window = block.window if isinstance(block, Attention) else None
            axis, most = axis_of(block.attends, window), None if window is None else window - 1
            if cache_type == "memory":
                specs.append(StateSpec(f"{name}.memory", ("batch", axis, architecture.d_model), most=most))
            else:
                heads = block.kv_heads if isinstance(block, Attention) else block.n_head
                width = architecture.d_head(block) if isinstance(block, Attention) else block.d_attn // block.n_head
                axes = ("batch", heads, axis, width)
                specs += [StateSpec(f"{name}.{part}", axes, most=most) for part in ("keys", "values")]
        if isinstance(block, Sru | Srupp):
            specs.append(StateSpec(f"{name}.cell", ("batch", architecture.d_model)))
        if isinstance(block, ShortConv):
            specs.append(StateSpec(f"{name}.inputs", ("batch", block.kernel - 1, architecture.d_model)))
    return tuple(specs)


def counts_tokens(architecture: Architecture, cache_type: CacheType) -> bool:
    """Whether the state of this cache type has a number of tokens seen."""
    if isinstance(architecture.positions, RotaryPositions):
        return cache_type == "cache" and any(isinstance(block, Attention) for block in architecture.blocks)
    return isinstance(architecture.positions, LearnedPositions | SinusoidalPositions)


def writes_in_place(architecture: Architecture, spec: StateSpec) -> bool:
    """Whether a decode graph can write this entry's tokens into a larger buffer.

    This is possible for keys and values without a window, in a model with a token count in its state and with scores
    independent of the buffer's size.
    """
    grows = spec.growing is not None and spec.axes[spec.growing] == AXIS_OF["self"]
    return grows and counts_tokens(architecture, "cache") and not isinstance(architecture.positions, RelativePositions)


def check_in_place(architecture: Architecture) -> None:
    """Raises `InvalidInput` if a decode graph of this model cannot write in place, or if the model has an encoder."""
    specs = state_specs(architecture, "cache")
    if architecture.source is not None:
        reason = "a decode graph does not encode its source"
    elif any(writes_in_place(architecture, spec) for spec in specs):
        return
    elif not any(spec.growing is not None and spec.axes[spec.growing] == AXIS_OF["self"] for spec in specs):
        reason = "writing keys and values in place needs attention without a window"
    else:
        kind = architecture.positions.kind
        reason = f"writing keys and values in place needs absolute or rotary positions, not {kind}"
    raise InvalidInput(
        reason,
        field="architecture",
        allowed="learned, sinusoidal or rotary positions, and attention without a window",
    )


def check_pass(architecture: Architecture, mode: Mode, *, window: int | None = None) -> None:
    """Raises `InvalidInput` for a mode or window that the architecture does not have."""
    if mode != "forward" and not architecture.causal:
        raise InvalidInput(
            f"mode {mode} needs a causal model, because later tokens change the states of this model",
            field="mode",
            value=mode,
            allowed="forward, or a causal architecture",
        )
    if mode == "segment" and architecture.source is not None:
        raise InvalidInput(
            "mode segment needs a model without a source, because a translation is one sequence",
            field="mode",
            value=mode,
            allowed="forward, prefill or decode",
        )
    if window is not None and (window < 1 or not architecture.causal or architecture.source is not None):
        raise InvalidInput(
            f"window must be at least 1, not {window}"
            if window < 1
            else "a window needs a causal model without a source",
            field="window",
            value=window,
            allowed="a number of keys from 1, in a causal model without a source",
        )


@dataclass(frozen=True)
class GraphOptions:
    """Mode, outputs and number formats of an ONNX graph."""

    mode: Mode = "forward"
    logits: Logits = "all"
    dtype: Dtype = "float32"
    quantisation: Quantisation = "full"
    """int8 and int4 quantise linear layers (`core.model_files.formats`); both need dtype float32."""
    block_size: int = BLOCK_SIZE
    """Number of int4 weights that share a scale."""
    window: int | None = None
    """Maximum number of keys that a token sees, itself included (Transformer-XL's same-length evaluation)."""
    in_place: bool = False
    """Whether a decode graph takes keys and values in larger buffers, if possible (`writes_in_place`), and returns them
    at the same size. With one buffer bound to both, ONNX Runtime copies nothing. Unused elements must be finite.
    """
    fused: int | None = None
    """Maximum sequence length of in-place attention as one operator of ONNX Runtime (com.microsoft), used for supported
    blocks (`core.model_files.blocks.attention`); None uses only standard operators.
    """
