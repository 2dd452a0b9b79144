"""The tensors of a GGUF file: which rows of our parameters each of llama.cpp's is, and in which order."""

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
from edgefront.core.architectures.block import Attention, FeedForward, ShortConv
from edgefront.core.architectures.embeddings_and_head import LearnedPositions, RotaryPositions
from edgefront.core.architectures.gguf import GgufForm
from edgefront.core.architectures.gguf_mixtures import Part, format_of_rows, formats_of, is_raised
from edgefront.core.architectures.parameters import ParameterSpec, parameters
from edgefront.core.common.number_formats import GGUF_BLOCK, GGUF_QUANTISED, GgufFormat, GgufQuantisation
from edgefront.core.model_files.formats import OF_DTYPE, Format, bytes_of
from edgefront.core.model_files.positions import rotary_frequencies

PADDED_INNER = GGUF_BLOCK
"""Inner width of a feed_forward of zeros: `deci` leaves out a layer's attention where it has no feed_forward."""
PADDED_HEADS = 1
"""Heads of an attention of zeros: `deci` takes the width of all heads from its first layer only if that has some."""

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
"""Their names of our parameters, by the kind of the block and the part; several of them are its rows, in this order."""
_OF_KIND: Mapping[str, Mapping[str, tuple[gguf.MODEL_TENSOR, ...]]] = {
    "gpt2": {"attention.qkv": (_T.ATTN_QKV,), "feed_forward.up": (_T.FFN_UP,)},
    "gptneox": {"attention.qkv": (_T.ATTN_QKV,), "feed_forward.up": (_T.FFN_UP,)},
    "phi2": {"attention.qkv": (_T.ATTN_QKV,), "feed_forward.up": (_T.FFN_UP,)},
    "olmo2": {"attention.norm": (_T.ATTN_POST_NORM,), "feed_forward.norm": (_T.FFN_POST_NORM,)},
    "gemma3": {"attention.after_norm": (_T.ATTN_POST_NORM,), "feed_forward.after_norm": (_T.FFN_POST_NORM,)},
    "lfm2": {"final_norm": (_T.TOKEN_EMBD_NORM,)},
}
_NEIGHBOURS = ("llama", "smollm3", "granite", "deci")
"""Where neighbouring features of a head turn together, instead of a feature of the first half and one of the second."""
_OF_LAYER = re.compile(r"blk\.(\d+)\.(attn_v|attn_qkv|ffn_down)\.weight")
"""Matrices whose formats in a mixture depend on their layer: values of an attention, and ways down."""


@dataclass(frozen=True)
class GgufTensor:
    """One tensor, in numpy's order of axes.

    Its values are rows of one of our parameters, turned round (axes reversed) if `transposed`, or without a parameter
    `constant`. `kind` is the format that it has in every file; None: that of the file's matrices.
    """

    name: str
    shape: tuple[int, ...]
    spec: ParameterSpec | None
    rows: slice | NDArray[np.intp] | None = None
    """None: all."""
    transposed: bool = False
    kind: Format | None = None
    constant: NDArray[np.float32] | None = None
    room: int = 0
    """Rows of zeros after them."""

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """This tensor from the parameter's values in this tensor's format, of any shape."""
        assert self.spec is not None
        whole = values.reshape(self.spec.shape[0], -1)
        part = whole if self.rows is None else whole[self.rows]
        if self.room:
            part = np.concatenate([part, np.zeros((self.room, *part.shape[1:]), part.dtype)])
        return np.ascontiguousarray(part.T if self.transposed else part)

    def bytes_within(self, kind: Format) -> range | None:
        """Where its values stand in the bytes of the parameter's in this format, if they do as they are."""
        if self.spec is None or self.transposed or self.room or isinstance(self.rows, np.ndarray):
            return None
        start, stop, _ = (self.rows or slice(None)).indices(self.spec.shape[0])
        row = bytes_of(self.spec.size, kind) // self.spec.shape[0]
        return range(start * row, stop * row)

    def bytes_in(self, kind: Format) -> int:
        """Bytes of its values in this format."""
        return bytes_of(math.prod(self.shape), kind)


def tensors(
    architecture: Architecture, form: GgufForm, numbers: GgufFormat, room: int = 0
) -> list[tuple[GgufTensor, Format]]:
    """All tensors of a file, each with its format, those of one parameter of a block one after the other. `room`:
    learned positions more, of zeros.
    """
    every = list(_tensors(architecture, form, room))
    if numbers not in GGUF_QUANTISED:
        return [(tensor, tensor.kind or OF_DTYPE[numbers]) for tensor in every]
    formats = _quantised(architecture, form, every, cast(GgufQuantisation, numbers))
    return [(tensor, tensor.kind or format_) for tensor, format_ in zip(every, formats, strict=True)]


def _quantised(
    architecture: Architecture, form: GgufForm, every: list[GgufTensor], numbers: GgufQuantisation
) -> Iterator[Format]:
    """The format of each as a matrix of a quantised file."""
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
            place = sum(layer < int(match[1]) for layer in layers[part])
            raised = is_raised(numbers, part, place, len(layers[part]), group)
        yield format_of_rows(formats_of(numbers, part, raised), tensor.shape[-1])


def _tensors(architecture: Architecture, form: GgufForm, room: int) -> Iterator[GgufTensor]:
    names = {**_PARTS, **_OF_KIND.get(form.kind, {})}
    places = {index: place for place, layer in enumerate(form.layers) for index in (layer.mixer, layer.feed_forward)}
    for spec in parameters(architecture):
        owner, _, last = spec.name.rpartition(".")
        if not owner.startswith("blocks."):
            if owner.endswith(".tables"):
                last = "weight"
            if spec.name == "output.bias":
                owner = "output.tables"
            name = f"{gguf.TENSOR_NAMES[names[owner][0]]}.{last}"
            positions = architecture.positions
            if isinstance(positions, LearnedPositions) and owner == "positions":  # OPT's begin at a later row
                shape, rows = (positions.length + room, architecture.d_model), slice(positions.offset, None)
                yield GgufTensor(name, shape, spec, rows, kind="f32", room=room)
            else:
                yield GgufTensor(name, spec.shape, spec, kind="f32" if len(spec.shape) == 1 else None)
            continue
        index, part = int(owner.split(".")[1]), owner.split(".")[2]
        block = architecture.blocks[index]
        theirs = [gguf.TENSOR_NAMES[name].format(bid=places[index]) for name in names[f"{block.kind}.{part}"]]
        yield from _split(architecture, spec, [f"{name}.{last}" for name in theirs], index, form.kind in _NEIGHBOURS)
    yield from _made(architecture, form)


def _split(
    architecture: Architecture, spec: ParameterSpec, names: list[str], index: int, neighbours: bool
) -> Iterator[GgufTensor]:
    block = architecture.blocks[index]
    kind: Format | None = "f32" if len(spec.shape) == 1 else None
    if isinstance(block, ShortConv) and spec.name.endswith(".conv.weight"):
        yield GgufTensor(names[0], spec.shape[::-1], spec, transposed=True, kind="f32")
        return
    rows: list[slice | NDArray[np.intp] | None] = [None]
    counts = [spec.shape[0]]
    if len(names) > 1 and isinstance(block, Attention):
        d_head = architecture.d_head(block)
        queries, keys = block.n_head * d_head, block.kv_heads * d_head
        counts = [queries, keys, keys]
        order = [np.arange(count) for count in counts[:2]]
        if neighbours:  # each feature of a head's first half is followed by its pair in the second
            order = [rows.reshape(-1, 2, d_head // 2).swapaxes(1, 2).reshape(-1) for rows in order]
        rows = [order[0], queries + order[1], slice(queries + keys, None)]
    elif len(names) > 1 and isinstance(block, FeedForward):
        counts = [block.d_inner, block.d_inner]
        rows = [slice(block.d_inner), slice(block.d_inner, None)]
    for name, count, part in zip(names, counts, rows, strict=True):
        yield GgufTensor(name, (count, *spec.shape[1:]), spec, part, kind=kind)


def _made(architecture: Architecture, form: GgufForm) -> Iterator[GgufTensor]:
    """Tensors that are none of our parameters: of stretched positions how much slower they turn, and zeros."""
    positions, d_model = architecture.positions, architecture.d_model
    d_head = next(architecture.d_head(block) for block in architecture.blocks if isinstance(block, Attention))
    if isinstance(positions, RotaryPositions) and positions.scaling is not None:
        plain = rotary_frequencies(positions.model_copy(update={"scaling": None}), d_head)
        slower = (plain / rotary_frequencies(positions, d_head)).astype(np.float32)
        name = f"{gguf.TENSOR_NAMES[_T.ROPE_FREQS]}.weight"
        yield GgufTensor(name, slower.shape, None, kind="f32", constant=slower)
    for place, layer in enumerate(form.layers):
        if layer.feed_forward is None:
            yield from _zeros(place, _T.FFN_NORM, (_T.FFN_GATE, _T.FFN_UP), _T.FFN_DOWN, PADDED_INNER, d_model)
    if form.layers[0].mixer is None:
        width = PADDED_HEADS * d_head
        yield from _zeros(0, _T.ATTN_NORM, (_T.ATTN_Q, _T.ATTN_K, _T.ATTN_V), _T.ATTN_OUT, width, d_model)


def _zeros(
    place: int,
    norm: gguf.MODEL_TENSOR,
    ups: tuple[gguf.MODEL_TENSOR, ...],
    down: gguf.MODEL_TENSOR,
    width: int,
    d_model: int,
) -> Iterator[GgufTensor]:
    """A part of a layer that adds nothing."""
    shapes = {norm: (d_model,), **dict.fromkeys(ups, (width, d_model)), down: (d_model, width)}
    for tensor, shape in shapes.items():
        name = f"{gguf.TENSOR_NAMES[tensor].format(bid=place)}.weight"
        yield GgufTensor(name, shape, None, kind="f32", constant=np.zeros(shape, np.float32))
