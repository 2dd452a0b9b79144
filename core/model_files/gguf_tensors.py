"""Maps the tensors of a GGUF file to rows of edgefront's parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import gguf
import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention
from edgefront.core.architectures.embeddings_and_head import LearnedPositions, RotaryPositions
from edgefront.core.architectures.gguf import GgufForm
from edgefront.core.architectures.gguf_mixtures import Part, format_of_rows, formats_of, is_raised
from edgefront.core.architectures.parameters import ParameterSpec, parameters
from edgefront.core.common.number_formats import GGUF_BLOCK, GGUF_QUANTISED, GgufFormat, GgufQuantisation
from edgefront.core.model_files.formats import OF_DTYPE, Format, bytes_of
from edgefront.core.model_files.positions import rotary_frequencies
from edgefront.core.model_files.tensor_view import TensorView, fused_rows, owner_of

PADDED_INNER = GGUF_BLOCK
"""Inner width of a feed-forward of zeros, needed because `deci` skips the attention of a layer without feed-forward."""
PADDED_HEADS = 1
"""Heads of an attention of zeros in the first layer, from which `deci` reads the width of all heads."""

_T = gguf.MODEL_TENSOR
_PARTS: Mapping[str, tuple[gguf.MODEL_TENSOR, ...]] = {
    "attention.norm": (_T.ATTN_NORM,),
    "attention.qkv": (_T.ATTN_Q, _T.ATTN_K, _T.ATTN_V),
    "attention.q_norm": (_T.ATTN_Q_NORM,),
    "attention.k_norm": (_T.ATTN_K_NORM,),
    "attention.out": (_T.ATTN_OUT,),
    "short_conv.norm": (_T.ATTN_NORM,),
    "short_conv.up": (_T.SHORTCONV_INPROJ,),
    "short_conv.conv": (_T.SHORTCONV_CONV,),
    "short_conv.out": (_T.SHORTCONV_OUTPROJ,),
    "feed_forward.norm": (_T.FFN_NORM,),
    "feed_forward.up": (_T.FFN_GATE, _T.FFN_UP),
    "feed_forward.down": (_T.FFN_DOWN,),
    "embedding.tables": (_T.TOKEN_EMBD,),
    "positions": (_T.POS_EMBD,),
    "final_norm": (_T.OUTPUT_NORM,),
    "output.tables": (_T.OUTPUT,),
}
"""Tensors of llama.cpp for each module of edgefront; several tensors are rows of one parameter, in this order."""
_OF_KIND: Mapping[str, Mapping[str, tuple[gguf.MODEL_TENSOR, ...]]] = {
    "gpt2": {"attention.qkv": (_T.ATTN_QKV,), "feed_forward.up": (_T.FFN_UP,)},
    "gptneox": {"attention.qkv": (_T.ATTN_QKV,), "feed_forward.up": (_T.FFN_UP,)},
    "phi2": {"attention.qkv": (_T.ATTN_QKV,), "feed_forward.up": (_T.FFN_UP,)},
    "olmo2": {"attention.norm": (_T.ATTN_POST_NORM,), "feed_forward.norm": (_T.FFN_POST_NORM,)},
    "gemma3": {"attention.after_norm": (_T.ATTN_POST_NORM,), "feed_forward.after_norm": (_T.FFN_POST_NORM,)},
    "lfm2": {"final_norm": (_T.TOKEN_EMBD_NORM,)},
}
_NEIGHBOURS = ("llama", "smollm3", "granite", "deci")
"""Architectures whose rotary positions pair neighbouring features, instead of the two halves of a head."""
_OF_LAYER = re.compile(r"blk\.(\d+)\.(attn_v|attn_qkv|ffn_down)\.weight")
"""Matrices whose formats in a mixture depend on their layer: attention values and down projections."""


@dataclass(frozen=True)
class GgufTensor(TensorView):
    """One tensor of a GGUF file, with axes in numpy's order: a view of a parameter, or a `constant`."""

    kind: Format | None = None
    """Number format in every file; None for the format of the file's matrices."""
    constant: NDArray[np.float32] | None = None
    zero_rows: int = 0
    """Number of rows of zeros at the end."""

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        part = super().of(values)
        return (
            np.concatenate([part, np.zeros((self.zero_rows, *part.shape[1:]), part.dtype)]) if self.zero_rows else part
        )

    def bytes_in(self, kind: Format) -> int:
        """Number of bytes of the tensor in this format."""
        return bytes_of(math.prod(self.shape), kind)


def tensors(
    architecture: Architecture, form: GgufForm, numbers: GgufFormat, zero_positions: int = 0
) -> list[tuple[GgufTensor, Format]]:
    """Yields all tensors of a file, each with its number format; the tensors of one parameter are consecutive.

    `zero_positions` rows of zeros follow learned positions.
    """
    every = list(_tensors(architecture, form, zero_positions))
    if numbers not in GGUF_QUANTISED:
        return [(tensor, tensor.kind or OF_DTYPE[numbers]) for tensor in every]
    formats = _quantised(architecture, form, every, cast(GgufQuantisation, numbers))
    return [(tensor, tensor.kind or format_) for tensor, format_ in zip(every, formats, strict=True)]


def _quantised(
    architecture: Architecture, form: GgufForm, every: list[GgufTensor], numbers: GgufQuantisation
) -> Iterator[Format]:
    """Number format of each tensor in a quantised file, as if the tensor were a matrix (vectors stay float32)."""
    first = None if form.layers[0].mixer is None else architecture.blocks[form.layers[0].mixer]
    group = first.n_head // first.kv_heads if isinstance(first, Attention) else 0
    scores = "token_embd.weight" if all(tensor.name != "output.weight" for tensor in every) else "output.weight"
    matches = [_OF_LAYER.fullmatch(tensor.name) for tensor in every]
    layers: dict[Part, list[int]] = {"values": [], "down": []}
    for match in matches:
        if match is not None:
            layers["down" if match[2] == "ffn_down" else "values"].append(int(match[1]))
    for tensor, match in zip(every, matches, strict=True):
        part: Part = "output" if tensor.name == scores else "other"
        raised = False
        if match is not None:
            part = "down" if match[2] == "ffn_down" else "values"
            index = sum(layer < int(match[1]) for layer in layers[part])
            raised = is_raised(numbers, part, index, len(layers[part]), group)
        yield format_of_rows(formats_of(numbers, part, raised), tensor.shape[-1])


def _tensors(architecture: Architecture, form: GgufForm, zero_positions: int) -> Iterator[GgufTensor]:
    names = {**_PARTS, **_OF_KIND.get(form.kind, {})}
    layer_of = {
        index: number for number, layer in enumerate(form.layers) for index in (layer.mixer, layer.feed_forward)
    }
    for spec in parameters(architecture):
        index, module, last = owner_of(spec, architecture)
        kind: Format | None = "f32" if len(spec.shape) == 1 else None
        if spec.name == "output.bias":
            module = "output.tables"
        elif module.endswith(".tables"):
            last = "weight"
        theirs = names[module] if index is not None else names[module][:1]
        full = [f"{gguf.TENSOR_NAMES[name].format(bid=layer_of.get(index))}.{last}" for name in theirs]
        positions, block = architecture.positions, None if index is None else architecture.blocks[index]
        if isinstance(positions, LearnedPositions) and module == "positions":  # OPT's positions begin at a later row
            shape, rows = (positions.length + zero_positions, architecture.d_model), slice(positions.offset, None)
            yield GgufTensor(full[0], shape, spec, rows, kind="f32", zero_rows=zero_positions)
        elif module == "short_conv.conv" and last == "weight":
            yield GgufTensor(full[0], spec.shape[::-1], spec, slice(None), transposed=True, kind="f32")
        else:
            parts = fused_rows(spec, architecture, index, len(full))
            for number, (name, part) in enumerate(zip(full, parts, strict=True)):
                order: slice | NDArray[np.intp] = part
                if isinstance(block, Attention) and len(full) > 1 and number < 2 and form.kind in _NEIGHBOURS:
                    # Each feature of a head's first half is followed by its partner in the second half.
                    halves = np.arange(part.start, part.stop).reshape(-1, 2, architecture.d_head(block) // 2)
                    order = halves.swapaxes(1, 2).reshape(-1)
                yield GgufTensor(name, (part.stop - part.start, *spec.shape[1:]), spec, order, kind=kind)
    yield from _constants(architecture, form)


def _constants(architecture: Architecture, form: GgufForm) -> Iterator[GgufTensor]:
    """Yields tensors without a parameter: divisors of scaled rotary frequencies, zeros for a layer's missing block."""
    positions, d_model = architecture.positions, architecture.d_model
    d_head = next(architecture.d_head(block) for block in architecture.blocks if isinstance(block, Attention))
    if isinstance(positions, RotaryPositions) and positions.scaling is not None:
        plain = rotary_frequencies(positions.model_copy(update={"scaling": None}), d_head)
        slower = (plain / rotary_frequencies(positions, d_head)).astype(np.float32)
        name = f"{gguf.TENSOR_NAMES[_T.ROPE_FREQS]}.weight"
        yield _constant(name, slower)
    for number, layer in enumerate(form.layers):
        if layer.feed_forward is None:
            yield from _zeros(number, _T.FFN_NORM, (_T.FFN_GATE, _T.FFN_UP), _T.FFN_DOWN, PADDED_INNER, d_model)
    if form.layers[0].mixer is None:
        width = PADDED_HEADS * d_head
        yield from _zeros(0, _T.ATTN_NORM, (_T.ATTN_Q, _T.ATTN_K, _T.ATTN_V), _T.ATTN_OUT, width, d_model)


def _zeros(
    layer: int,
    norm: gguf.MODEL_TENSOR,
    ups: tuple[gguf.MODEL_TENSOR, ...],
    down: gguf.MODEL_TENSOR,
    width: int,
    d_model: int,
) -> Iterator[GgufTensor]:
    """Zero tensors for the layer's missing attention or feed-forward block."""
    shapes = {norm: (d_model,), **dict.fromkeys(ups, (width, d_model)), down: (d_model, width)}
    for tensor, shape in shapes.items():
        name = f"{gguf.TENSOR_NAMES[tensor].format(bid=layer)}.weight"
        yield _constant(name, np.zeros(shape, np.float32))


def _constant(name: str, values: NDArray[np.float32]) -> GgufTensor:
    return GgufTensor(name, values.shape, ParameterSpec(name, values.shape), slice(None), kind="f32", constant=values)
