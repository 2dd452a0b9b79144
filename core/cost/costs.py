"""The exact costs of an architecture, without running it: parameters, FLOPs, bytes of weights and of state.

Closed formulas over the description: `core.cost.parameters` defines the groups of parameters, `core.cost.flops` the
matrix products that are counted. FLOPs are two for each multiply-accumulate. Weight bytes are those of all parameters
in one number type, or with weights "int8" or "int4" those of `core.graph.formats`: of the blocks' linear layers one
byte for each weight and a float32 scale for each layer, or half a byte and a float32 scale for each block of weights;
float32 for all others. "q8_0" and "q4_0" are of all matrices but positions, of architectures that GGUF expresses. State
bytes are those of the cache after all tokens of the pass (`core.cost.state`), in `dtype` unless `kv_cache` says else.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from edgefront.core.cost.flops import Logits, Mode, Pass, products
from edgefront.core.cost.parameters import count, int4_bytes, linear_maps
from edgefront.core.cost.state import kept, kept_bytes
from edgefront.core.errors import InvalidInput
from edgefront.core.number_formats import (
    BLOCK_SIZE,
    GGUF_BLOCK,
    GGUF_BLOCK_BYTES,
    GGUF_QUANTISED,
    KvCache,
    Quantisation,
)
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import MAX_LENGTH
from edgefront.core.spaces.gguf import check_gguf
from edgefront.core.validation import one_of

__all__ = ["Costs", "Dtype", "Logits", "Mode", "costs"]

Dtype = Literal["float64", "float32", "bfloat16", "float16"]

BYTES: dict[Dtype, int] = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of one weight."""
MAX_BATCH = 1 << 16
DEFAULT_LENGTH = 192
"""Tokens of a pass, in decode of those before it."""


@dataclass(frozen=True)
class Costs:
    """Exact costs of an architecture; the fields are those of `core.wire.service.Costs`."""

    digest: str
    decoder_parameters: int
    position_parameters: int
    embedding_parameters: int
    total_parameters: int
    flops: int
    weight_bytes: int
    state_bytes: int
    sequence_length: int
    batch: int
    dtype: str
    mode: str
    memory_length: int
    logits: str
    weights: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def costs(
    architecture: Architecture,
    *,
    sequence_length: int | None = None,
    batch: int = 1,
    dtype: str = "float32",
    logits: str = "all",
    mode: str = "forward",
    memory_length: int | None = None,
    weights: str = "full",
    block_size: int = BLOCK_SIZE,
    kv_cache: KvCache | None = None,
) -> Costs:
    """The costs of one pass over `batch` sequences of `sequence_length` tokens (192; 1 in decode).

    forward: all at once, after `memory_length` others (0) as a segment memory, which is projected again. prefill: all
    at once, keys and values kept. decode: after `memory_length` others (192), whose keys and values are given. The
    source of a translation model is as long as the sequence, in decode as the memory. `block_size` is of weights int4,
    `kv_cache` of llama.cpp, whose keys and values have a format of their own.

    Raises `InvalidInput` that names the option, also where the positions do not reach so far, and for a mode or memory
    that the architecture does not have.
    """
    run = _pass(architecture, sequence_length, batch, logits, mode, memory_length)
    found = count(architecture)
    return Costs(
        digest=architecture.digest,
        decoder_parameters=found.decoder,
        position_parameters=found.position,
        embedding_parameters=found.embedding,
        total_parameters=found.total,
        flops=2 * products(architecture, run),
        weight_bytes=_weight_bytes(architecture, found.total, dtype, weights, block_size),
        state_bytes=kept_bytes(
            kept(architecture, batch, run.memory + run.tokens, run.source), BYTES[_dtype(dtype)], kv_cache
        ),
        sequence_length=run.tokens,
        batch=batch,
        dtype=dtype,
        mode=mode,
        memory_length=run.memory,
        logits=logits,
        weights=weights,
    )


def _weight_bytes(architecture: Architecture, parameters: int, dtype: str, weights: str, block_size: int) -> int:
    width = BYTES[_dtype(dtype)]
    kind: Quantisation = one_of("weights", weights, get_args(Quantisation))
    if kind == "full":
        return parameters * width
    if dtype != "float32" and kind not in GGUF_QUANTISED:
        raise InvalidInput(
            f"weights {kind} needs dtype float32, not {dtype}",
            field="weights",
            value=weights,
            allowed="full, or dtype float32",
        )
    quantised = linear_maps(architecture)
    if kind in GGUF_QUANTISED:
        check_gguf(architecture, kind)
        matrices = quantised.weights + count(architecture).embedding
        return (parameters - matrices) * 4 + matrices // GGUF_BLOCK * GGUF_BLOCK_BYTES[kind]
    if kind == "int4":
        return (parameters - quantised.weights) * width + int4_bytes(architecture, block_size)
    return (parameters - quantised.weights + quantised.maps) * width + quantised.weights


def _dtype(dtype: str) -> Dtype:
    known: Dtype = one_of("dtype", dtype, get_args(Dtype))
    return known


def _pass(
    architecture: Architecture, sequence_length: int | None, batch: int, logits: str, mode: str, memory: int | None
) -> Pass:
    known: Mode = one_of("mode", mode, get_args(Mode))
    decode = known == "decode"
    tokens = (1 if decode else DEFAULT_LENGTH) if sequence_length is None else sequence_length
    memory = (DEFAULT_LENGTH if decode else 0) if memory is None else memory
    least = 1 if decode else 0
    reach, rows = _reach(architecture)
    _between("batch", batch, 1, MAX_BATCH)
    _between("sequence_length", tokens, 1, reach - least, rows)
    whole = "" if architecture.causal else "a model with causal false sees all tokens at once"
    if mode != "forward" and whole:
        raise InvalidInput(f"mode must be forward ({whole}), not {mode}", field="mode", value=mode, allowed="forward")
    none = whole or _without_memory(architecture, mode)
    _between("memory_length", memory, least, 0 if none else reach - tokens, none or (rows and f"{rows} for all tokens"))
    source = 0
    if architecture.source is not None:
        source = memory if decode else tokens
        reach, rows = _reach(architecture.source)
        _between("memory_length" if decode else "sequence_length", source, 1, reach, f"the source is as long; {rows}")
    return Pass(batch, tokens, memory, source, known, one_of("logits", logits, get_args(Logits)))


def _reach(architecture: Architecture) -> tuple[int, str]:
    """Most tokens of a sequence, past and present, and why."""
    if architecture.max_length is None:
        return MAX_LENGTH, ""
    return architecture.max_length, f"it has {architecture.max_length} learned positions"


def _without_memory(architecture: Architecture, mode: str) -> str:
    """Why a pass of this mode has no tokens before it; empty where it may have."""
    if mode == "prefill":
        return "prefill starts without memory"
    if mode == "forward" and architecture.source is not None:
        return "a model with a source is run whole"
    return ""


def _between(name: str, value: int, least: int, most: int, reason: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        allowed = f"{least} to {most}" if most > least else str(least)
        why = f" ({reason})" if reason else ""
        raise InvalidInput(f"{name} must be {allowed}{why}, not {value!r}", field=name, value=value, allowed=allowed)
