"""Writes a model to one GGUF file, which llama.cpp reads, without torch.

What GGUF can express says `core.spaces.gguf`. Matrices are float32, float16, or blocks of 32 weights with a float16
scale: q8_0 (eight bits a weight) or q4_0 (four). Vectors and positions are always float32, as llama.cpp keeps them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.files import refusing_full_disk, whole_file
from edgefront.core.graph.export import metadata
from edgefront.core.graph.formats import Format, bytes_of, encode
from edgefront.core.graph.parameter import ParameterSpec
from edgefront.core.graph.parameter_values import ParameterValues, SeededValues
from edgefront.core.graph.parameters import parameters
from edgefront.core.graph.weights import WeightCache
from edgefront.core.number_formats import GGUF_QUANTISED, GgufFormat
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, FeedForward
from edgefront.core.spaces.gguf import check_gguf

FOLDER = "gguf"
_ARCHITECTURE = "gpt2"
_FORMATS: Mapping[GgufFormat, Format] = {"float32": "f32", "float16": "f16", "q8_0": "q8_0", "q4_0": "q4_0"}
_FILE_TYPES: Mapping[GgufFormat, str] = {
    "float32": "ALL_F32",
    "float16": "MOSTLY_F16",
    "q8_0": "MOSTLY_Q8_0",
    "q4_0": "MOSTLY_Q4_0",
}
# Names of a layer's parts in GGUF, by the block and the part.
_PARTS = (
    {"norm": "attn_norm", "qkv": "attn_qkv", "out": "attn_output"},
    {"norm": "ffn_norm", "up": "ffn_up", "down": "ffn_down"},
)
_POSITIONS = "positions.weight"
_ENDS = {
    "embedding.tables.0": "token_embd.weight",
    _POSITIONS: "position_embd.weight",
    "final_norm.weight": "output_norm.weight",
    "final_norm.bias": "output_norm.bias",
    "output.tables.0": "output.weight",
}


def write_gguf(
    architecture: Architecture, weights: int | ParameterValues, path: Path | str, numbers: GgufFormat = "float32"
) -> None:
    """One GGUF file with the untrained weights of a seed or given ones, in place only when whole.

    Memory stays bounded by the largest matrix. Raises `InvalidInput` for an architecture that GGUF cannot express,
    `Unavailable` where the disk is full.
    """
    check_gguf(architecture, numbers)
    values = SeededValues(weights) if isinstance(weights, int) else weights

    def array(spec: ParameterSpec, kind: Format) -> NDArray[Any]:
        return np.concatenate([encode(chunk, kind).reshape(-1) for chunk in values.chunks(spec)])

    with whole_file(Path(path)) as file:
        _write(architecture, array, file.name, numbers, metadata(architecture, values))


def cached_gguf(cache: WeightCache, architecture: Architecture, seed: int, numbers: GgufFormat) -> Path:
    """The GGUF file of these untrained weights in the cache's folder, the only one there; written if it is not there.

    Its matrices are copies of the cache's files, which serve every architecture. It has one position more than the
    model: llama.cpp wants room for a next token after a prompt. Errors as in `write_gguf`.
    """
    check_gguf(architecture, numbers)
    folder = cache.folder / FOLDER
    path = folder / f"{architecture.digest}-{seed}-{numbers}.gguf"
    cache.touch(seed)
    if path.exists():
        return path
    folder.mkdir(exist_ok=True)
    for other in folder.iterdir():
        other.unlink(missing_ok=True)
    draft = path.with_suffix(".part")

    def array(spec: ParameterSpec, kind: Format) -> NDArray[Any]:
        return cache.array(spec, seed, kind)

    with refusing_full_disk(path):
        _write(architecture, array, draft, numbers, metadata(architecture, seed), room=1)
        draft.replace(path)
    return path


def gguf_name(parameter: str) -> str:
    """GPT-2's name in GGUF of one of our parameters: a layer there is two blocks here."""
    if parameter in _ENDS:
        return _ENDS[parameter]
    _, index, part, kind = parameter.split(".")
    return f"blk.{int(index) // 2}.{_PARTS[int(index) % 2][part]}.{kind}"


def _write(
    architecture: Architecture,
    array: Callable[[ParameterSpec, Format], NDArray[Any]],
    path: Path | str,
    numbers: GgufFormat,
    about: Mapping[str, str],
    room: int = 0,
) -> None:
    """`array`: the values of a parameter in a format, in its shape or flat. `room`: positions more, of zeros."""
    import gguf

    writer = gguf.GGUFWriter(str(path), _ARCHITECTURE)
    positions = (architecture.max_length or 0) + room
    _describe(writer, architecture, numbers, about, positions)
    tensors = [(spec, "f32" if _stays(spec) else _FORMATS[numbers]) for spec in parameters(architecture)]
    for spec, kind in tensors:
        shape = (positions, architecture.d_model) if spec.name == _POSITIONS else spec.shape
        size = bytes_of(math.prod(shape), kind)
        type_ = getattr(gguf.GGMLQuantizationType, kind.upper())
        if numbers in GGUF_QUANTISED and kind == numbers:  # such shapes are given in bytes
            writer.add_tensor_info(gguf_name(spec.name), (shape[0], size // shape[0]), np.dtype("u1"), size, type_)
        else:
            writer.add_tensor_info(gguf_name(spec.name), shape, np.dtype("f4"), size, type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for spec, kind in tensors:
        values = array(spec, kind)
        if spec.name == _POSITIONS:  # OPT's begin at a later row
            values = values.reshape(spec.shape)[spec.shape[0] - positions + room :]
            values = np.concatenate([values, np.zeros((room, architecture.d_model), values.dtype)])
        writer.write_tensor_data(values)
    writer.close()


def _stays(spec: ParameterSpec) -> bool:
    """Whether a parameter is float32 in every format."""
    return len(spec.shape) == 1 or spec.name == _POSITIONS


def _describe(
    writer: Any, architecture: Architecture, numbers: GgufFormat, about: Mapping[str, str], positions: int
) -> None:
    import gguf

    attention, feed_forward = architecture.blocks[:2]
    assert isinstance(attention, Attention)
    assert isinstance(feed_forward, FeedForward)
    writer.add_name(f"edgefront-{architecture.digest[:12]}")
    writer.add_file_type(getattr(gguf.LlamaFileType, _FILE_TYPES[numbers]))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_block_count(len(architecture.blocks) // 2)
    writer.add_context_length(positions)
    writer.add_embedding_length(architecture.d_model)
    writer.add_feed_forward_length(feed_forward.d_inner)
    writer.add_head_count(attention.n_head)
    writer.add_layer_norm_eps(float(architecture.norm_eps))
    for key, value in about.items():
        writer.add_string(f"edgefront.{key}", value)
    # llama.cpp generates nothing without a tokenizer; of an untrained model the tokens are their numbers.
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"<{token}>" for token in range(architecture.embedding.vocab_size)])
    writer.add_token_merges(["< 0"])
    writer.add_add_bos_token(False)
