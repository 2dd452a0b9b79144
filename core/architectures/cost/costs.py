"""Exact costs of an architecture, without running it: parameters, FLOPs, bytes of weights and of state.

The costs are closed formulas over `core.architectures.cost.shapes.Shapes`, a batch of one, in integers of any size.
`core.architectures.parameters` defines the groups of parameters. `core.architectures.cost.flops` defines which matrix
products are counted; one multiply-accumulate is two FLOPs. Weight bytes are the bytes of all parameters in one number
type, or, with weights "int8" or "int4", in the formats of `core.model_files.formats`; "q8_0" and "q4_0" need an
architecture that GGUF can express. State bytes are the size of the cache after all tokens of the forward pass, in
`dtype` unless `kv_cache` is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, get_args

from pydantic import BaseModel, ConfigDict

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import MAX_LENGTH
from edgefront.core.architectures.cost.passes import Logits, Mode, Pass
from edgefront.core.architectures.gguf import gguf_form
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.number_formats import BLOCK_SIZE, GGUF_QUANTISED, KvCache, Quantisation
from edgefront.core.common.validation import one_of

if TYPE_CHECKING:
    from edgefront.core.architectures.cost.shapes import Shapes

Dtype = Literal["float64", "float32", "bfloat16", "float16"]

BYTES: dict[Dtype, int] = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes per weight, by number type."""
MAX_BATCH = 1 << 16
DEFAULT_LENGTH = 192
"""Default number of new tokens of a forward pass, or, in mode decode, of past tokens."""


class Costs(BaseModel):
    """Exact costs of an architecture, as `edgefront describe` prints them."""

    model_config = ConfigDict(frozen=True)

    digest: str
    decoder_parameters: int
    position_parameters: int
    embedding_parameters: int
    total_parameters: int
    flops: int
    """FLOPs of one forward pass, two per multiply-accumulate. The fields after `state_bytes` describe this pass."""
    weight_bytes: int
    state_bytes: int
    """Size of the cache after the forward pass, bytes: keys, values and recurrent states."""
    sequence_length: int
    batch: int
    dtype: str
    mode: str
    memory_length: int
    logits: str
    weights: str


@dataclass(frozen=True)
class CostOptions:
    """Options of `costs`: the forward pass to count, and the number formats of weights and cache."""

    sequence_length: int | None = None
    """Number of new tokens; None: 192, in decode 1."""
    batch: int = 1
    dtype: str = "float32"
    logits: str = "all"
    mode: str = "forward"
    memory_length: int | None = None
    """Number of past tokens; None: 0, in decode 192."""
    weights: str = "full"
    block_size: int = BLOCK_SIZE
    """Number of weights per block of the format int4."""
    kv_cache: KvCache | None = None
    """Format of keys and values in llama.cpp's cache; None for a cache of numbers of the type `dtype`."""


def costs(architecture: Architecture, options: CostOptions = CostOptions()) -> Costs:
    """Costs of one forward pass over `batch` sequences of `sequence_length` tokens.

    Mode "forward": a forward pass after a segment memory of `memory_length` tokens, whose keys and values are computed
    again. "prefill": a forward pass that caches keys and values. "decode": a forward pass after `memory_length` cached
    tokens. The source of a translation model is as long as the sequence, in decode as long as the memory.

    Raises `InvalidInput` that names the invalid option: a wrong value, more tokens than the model has positions, or a
    mode or memory that the architecture does not support.
    """
    # Imported here, so that importing a type from this module does not load numpy.
    from edgefront.core.architectures.cost.flops import cache_bytes, cache_size, macs
    from edgefront.core.architectures.cost.weight_bytes import weight_bytes

    run = _pass(architecture, options)
    width, quantisation = (
        BYTES[one_of("dtype", options.dtype, get_args(Dtype))],
        _quantisation(architecture, options.dtype, options.weights),
    )
    shapes = _shapes(architecture)
    state = cache_size(shapes, options.batch, run.memory + run.tokens, run.encoder_tokens)
    return Costs(
        digest=architecture.digest,
        decoder_parameters=int(shapes.decoder_parameters[0]),
        position_parameters=int(shapes.position_parameters[0]),
        embedding_parameters=int(shapes.embedding_parameters[0]),
        total_parameters=int(shapes.total_parameters[0]),
        flops=2 * int(macs(shapes, run)[0]),
        weight_bytes=int(weight_bytes(shapes, width, quantisation, options.block_size)[0]),
        state_bytes=int(cache_bytes(state, width, options.kv_cache)[0]),
        sequence_length=run.tokens,
        batch=options.batch,
        dtype=options.dtype,
        mode=options.mode,
        memory_length=run.memory,
        logits=options.logits,
        weights=options.weights,
    )


@lru_cache(maxsize=16)
def _shapes(architecture: Architecture) -> Shapes:
    """Shapes of one architecture; cached, because one architecture's costs are counted for several forward passes."""
    from edgefront.core.architectures.cost.shapes import Shapes

    return Shapes.of([architecture], dtype=object)


def _quantisation(architecture: Architecture, dtype: str, weights: str) -> Quantisation:
    kind: Quantisation = one_of("weights", weights, get_args(Quantisation))
    if kind in GGUF_QUANTISED:
        gguf_form(architecture, kind)
    elif kind != "full" and dtype != "float32":
        raise InvalidInput(
            f"weights {kind} needs dtype float32, not {dtype}",
            field="weights",
            value=weights,
            allowed="full, or dtype float32",
        )
    return kind


def _pass(architecture: Architecture, options: CostOptions) -> Pass:
    mode: Mode = one_of("mode", options.mode, get_args(Mode))
    decode, batch = mode == "decode", options.batch
    tokens = (1 if decode else DEFAULT_LENGTH) if options.sequence_length is None else options.sequence_length
    memory = (DEFAULT_LENGTH if decode else 0) if options.memory_length is None else options.memory_length
    least = 1 if decode else 0
    reach, rows = _reach(architecture)
    _between("batch", batch, 1, MAX_BATCH)
    _between("sequence_length", tokens, 1, reach - least, rows)
    whole = "" if architecture.causal else "a model with causal false sees all tokens at once"
    if mode != "forward" and whole:
        raise InvalidInput(f"mode must be forward ({whole}), not {mode}", field="mode", value=mode, allowed="forward")
    none = whole or ("prefill starts without memory" if mode == "prefill" else "")
    if mode == "forward" and architecture.source is not None:
        none = none or "a model with a source is run whole"
    _between("memory_length", memory, least, 0 if none else reach - tokens, none or (rows and f"{rows} for all tokens"))
    encoder_tokens = 0
    if architecture.source is not None:
        encoder_tokens = memory if decode else tokens
        reach, rows = _reach(architecture.source)
        _between(
            "memory_length" if decode else "sequence_length", encoder_tokens, 1, reach, f"the source is as long; {rows}"
        )
    return Pass(batch, tokens, memory, encoder_tokens, mode, one_of("logits", options.logits, get_args(Logits)))


def _reach(architecture: Architecture) -> tuple[int, str]:
    """Returns a pair: the maximum of past and new tokens of a sequence, and the reason for the maximum."""
    if architecture.max_length is None:
        return MAX_LENGTH, ""
    return architecture.max_length, f"it has {architecture.max_length} learned positions"


def _between(name: str, value: int, least: int, most: int, reason: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        allowed = f"{least} to {most}" if most > least else str(least)
        why = f" ({reason})" if reason else ""
        raise InvalidInput(f"{name} must be {allowed}{why}, not {value!r}", field=name, value=value, allowed=allowed)
