"""State that a model carries from one pass to the next: a flat set of named tensors with declared axes.

The names are the same in torch and in ONNX. There are two forms, which hold the same past:

- "cache": projected keys and values, for generating one token at a time;
- "memory": each attention's layer inputs, projected again in every pass: the segment memory of Transformer-XL
  (Dai et al. 2019, §3.2) and SRU++, through whose projections gradients flow.

Either also has each recurrence's cell, and the number of tokens seen where positions are absolute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from edgefront.core.errors import InvalidInput
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, Sru, Srupp
from edgefront.core.spaces.ends import LearnedPositions, SinusoidalPositions
from edgefront.core.validation import one_of

Form = Literal["memory", "cache"]
Attends = Literal["self", "source", "both", "none"]
"""What an attention sees, by the block's field of this name."""
Logits = Literal["all", "last", "none"]
"""Of which positions a pass puts out scores; "none": the hidden states instead."""
Mode = Literal["forward", "segment", "prefill", "decode"]
"""What a pass does with state: nothing; memory in and out; cache out; cache in and out."""

AXIS_OF = {"self": "past", "both": "context", "source": "source"}
"""What the growing axis of an entry holds: the past, the source and then the past, or the source alone."""


@dataclass(frozen=True)
class StateSpec:
    """One entry. `axes` are sizes, or names of free ones: batch, and one of `AXIS_OF`."""

    name: str
    axes: tuple[str | int, ...]
    integer: bool = False

    @property
    def growing(self) -> int | None:
        """Index of the axis along which tokens come; None for a cell or a count."""
        return next((index for index, axis in enumerate(self.axes) if axis in AXIS_OF.values()), None)


def state_specs(architecture: Architecture, form: Form) -> tuple[StateSpec, ...]:
    """Every entry of this architecture's state, in the order of the blocks."""
    specs = []
    if isinstance(architecture.positions, LearnedPositions | SinusoidalPositions):
        specs.append(StateSpec("position", (), integer=True))
    for index, block in enumerate(architecture.blocks):
        name = f"blocks.{index}"
        if isinstance(block, Attention | Srupp) and block.attends != "none":
            axis = AXIS_OF[block.attends]
            if form == "memory":
                specs.append(StateSpec(f"{name}.memory", ("batch", axis, architecture.d_model)))
            else:
                width = architecture.d_head(block) if isinstance(block, Attention) else block.d_attn // block.n_head
                axes = ("batch", block.n_head, axis, width)
                specs += [StateSpec(f"{name}.keys", axes), StateSpec(f"{name}.values", axes)]
        if isinstance(block, Sru | Srupp):
            specs.append(StateSpec(f"{name}.cell", ("batch", architecture.d_model)))
    return tuple(specs)


def check_pass(
    architecture: Architecture,
    mode: Mode,
    *,
    logits: Logits = "all",
    window: int | None = None,
    padding: bool = False,
) -> None:
    """`InvalidInput` for a mode, window or padding that this architecture does not have, and for unknown words."""
    one_of("mode", mode, get_args(Mode))
    one_of("logits", logits, get_args(Logits))
    if mode != "forward" and not architecture.causal:
        raise InvalidInput(
            f"mode {mode} needs a causal model: the states of this one change with every token that follows",
            field="mode",
            value=mode,
            allowed="forward, or a causal architecture",
        )
    if mode == "segment" and architecture.source is not None:
        raise InvalidInput(
            "mode segment is for models without a source: a translation is one sequence",
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
    if padding and mode != "forward" and architecture.source is None:
        raise InvalidInput(
            f"mode {mode} does not support padding: the state would include padded tokens",
            field="padding",
            value=padding,
            allowed="mode forward, or a model whose source is padded",
        )
