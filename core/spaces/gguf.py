"""What the GGUF format, and so llama.cpp, can express of an architecture: GPT-2 with the same layer throughout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgefront.core.errors import InvalidInput
from edgefront.core.number_formats import GGUF_BLOCK, GGUF_QUANTISED
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, FeedForward
from edgefront.core.spaces.ends import LearnedPositions

_GPT2 = "attention and feed_forward in turns, norm pre, learned positions, gelu_tanh; the named models gpt2-*"
_KNOWN = {"version", "d_model", "positions", "norm_eps", "embedding", "blocks", "output"}
"""Fields of a canonical description that GPT-2 may set: all others have to be at their defaults."""
_KNOWN_PARTS = {
    "positions": {"kind", "length", "offset"},
    "embedding": {"vocab_size"},
    "output": {"kind", "tied"},
    "blocks": {"kind", "n_head", "d_inner"},
}


def check_gguf(architecture: Architecture, numbers: str = "float32") -> None:
    """Raises `InvalidInput` that names the first field which GGUF cannot express, with the reason.

    `numbers` is the format of the weights: the quantised ones need rows of whole blocks.
    """
    fault = gguf_fault(architecture, numbers)
    if fault is not None:
        raise InvalidInput(fault, field="architecture", value=architecture.digest, allowed=_GPT2)


def gguf_fault(architecture: Architecture, numbers: str = "float32") -> str | None:
    """The first field that GGUF cannot express, with the reason; None if it can express all."""
    found = next(_faults(architecture, numbers), None)
    return None if found is None else "GGUF cannot express {} {}: {}".format(*found)


def _faults(architecture: Architecture, numbers: str) -> Iterator[tuple[str, Any, str]]:
    """Field, value and reason of everything that cannot be expressed."""
    if not isinstance(architecture.positions, LearnedPositions):
        yield "positions.kind", architecture.positions.kind, "its GPT-2 has learned positions, and no segment memory"
    for index, block in enumerate(architecture.blocks):
        wanted = (Attention, FeedForward)[index % 2]
        if not isinstance(block, wanted):
            yield f"blocks.{index}.kind", block.kind, "its GPT-2 has attention and feed_forward in turns"
            continue
        first = architecture.blocks[index % 2]
        if block != first:
            yield f"blocks.{index}", block.kind, f"its GPT-2 repeats one layer, and blocks.{index % 2} differs"
    if len(architecture.blocks) % 2:
        yield "blocks", len(architecture.blocks), "its GPT-2 has an even number: attention and feed_forward in turns"
    canonical = architecture.canonical
    for name in sorted(canonical.keys() - _KNOWN):
        yield name, canonical[name], "its GPT-2 has the default"
    for name, known in _KNOWN_PARTS.items():
        parts = canonical.get(name, {})
        for part in parts if isinstance(parts, list) else [parts]:
            for field in sorted(part.keys() - known):
                yield f"{name}.{field}", part[field], "its GPT-2 has the default"
    if architecture.output.kind != "tokens":
        yield "output.kind", architecture.output.kind, "its GPT-2 scores tokens"
    if numbers in GGUF_QUANTISED:
        inner = [block.d_inner for block in architecture.blocks if isinstance(block, FeedForward)]
        for field, width in (("d_model", architecture.d_model), ("d_inner", inner[0] if inner else 0)):
            if width % GGUF_BLOCK:
                yield field, width, f"{numbers} keeps blocks of {GGUF_BLOCK} weights, so that it must be a multiple"
