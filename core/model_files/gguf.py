"""Writes GGUF files for llama.cpp, without torch.

`core.architectures.gguf` decides which models GGUF can express. Matrices are float32, float16, or quantised in blocks
of one format (q8_0, q4_0) or of a mixture (`core.architectures.gguf_mixtures`). Vectors, positions and convolutions are
always float32, as in llama.cpp.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import MAX_LENGTH, Attention, FeedForward, ShortConv
from edgefront.core.architectures.embeddings_and_head import RotaryPositions
from edgefront.core.architectures.gguf import GgufForm, gguf_form
from edgefront.core.common.files import refusing_full_disk, whole_file
from edgefront.core.common.number_formats import GGUF_BLOCKS, GgufFormat
from edgefront.core.model_files.export import metadata
from edgefront.core.model_files.formats import Format, WeightCache, encode
from edgefront.core.model_files.gguf_vocabulary import GgufVocabulary, numbered, vocabulary_of
from edgefront.core.model_files.parameter_values import ParameterValues, values_of

if TYPE_CHECKING:
    from edgefront.core.model_files.gguf_tensors import GgufTensor

FOLDER = "gguf"
_EMBEDDING = "token_embd.weight"
"""Embedding matrix, which llama.cpp only looks up by row and never repacks."""
_REPACKED_ROWS = 8
"""Number of rows in a group; llama.cpp repacks matrices of whole groups."""
_LAYOUT = 3
"""Version of the file layout; a new version keeps devices from measuring older files."""
_SHARE = 4
"""GGUF files may take up to one part in this number of the cache's `max_bytes`."""
_COPIED_BY_ALL = frozenset({"q4_0", "q4_k", "iq4_nl"})
_COPIED_BY_SOME = frozenset({"q8_0", "q5_k", "q6_k"})
"""Formats that llama.cpp repacks on all processors, and formats that it repacks only on ARM (2026.10)."""
_FILE_TYPES = {"float32": "ALL_F32", "float16": "MOSTLY_F16"}
"""Edgefront's names of number formats → llama.cpp's names; only where the names differ."""


@dataclass(frozen=True)
class _Array:
    """An array whose `tofile` raises an error if the disk is full; numpy's `tofile` ignores a full disk."""

    values: NDArray[Any]

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes)

    def tofile(self, file: Any, /) -> None:
        file.write(np.ascontiguousarray(self.values).data)


def write_gguf(
    architecture: Architecture,
    weights: int | ParameterValues,
    path: Path | str,
    numbers: GgufFormat = "float32",
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Writes one GGUF file, visible only once complete, with the untrained weights of a seed or with given weights.

    `files` hold the tokenizer of a trained model, as in a folder of transformers; without a tokenizer the file has a
    `numbered` vocabulary. Memory is bounded by the largest matrix. Raises `InvalidInput` for an architecture or a
    tokenizer that GGUF cannot express, `Unavailable` if the disk is full.
    """
    form = gguf_form(architecture, numbers)
    vocabulary = vocabulary_of(files or {}, architecture.embedding.vocab_size)
    values = values_of(weights)

    last: tuple[tuple[str, Format], NDArray[Any]] | None = None  # tensors of one parameter are consecutive

    def data(tensor: GgufTensor, kind: Format) -> _Array:
        nonlocal last
        spec = tensor.spec
        if last is None or last[0] != (spec.name, kind):
            last = (spec.name, kind), np.concatenate([encode(chunk, kind).reshape(-1) for chunk in values.chunks(spec)])
        return _Array(tensor.of(last[1]))

    with whole_file(Path(path)) as file:
        _write(architecture, form, data, file.name, numbers, metadata(architecture, values), vocabulary)


def cached_gguf(cache: WeightCache, architecture: Architecture, seed: int, numbers: GgufFormat) -> Path:
    """Path of a GGUF file of untrained weights in the cache's folder, written if missing.

    The file's matrices are copies of the cache's files, which serve every architecture. The file has one more learned
    position than the model, because llama.cpp needs room for a token after the prompt. The most recently used files
    stay, within a quarter of the cache's `max_bytes`. Raises as `write_gguf`.
    """
    form = gguf_form(architecture, numbers)
    path = cache.folder / FOLDER / f"{architecture.digest}-{seed}-{numbers}-{_LAYOUT}.gguf"
    cache.touch(seed)
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        _write_cached(cache, architecture, form, seed, numbers, path)
    os.utime(path)
    return path


def _write_cached(
    cache: WeightCache, architecture: Architecture, form: GgufForm, seed: int, numbers: GgufFormat, path: Path
) -> None:
    draft = path.with_suffix(".part")

    def data(tensor: GgufTensor, kind: Format) -> _Array:
        return _Array(tensor.of(cache.array(tensor.spec, seed, kind)))

    def write() -> None:
        _write(architecture, form, data, draft, numbers, metadata(architecture, seed), None, measured=True)
        draft.replace(path)

    try:
        write()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _drop_earlier(path, 0)
        with refusing_full_disk(path):
            write()
    _drop_earlier(path, cache.max_bytes // _SHARE)


def _drop_earlier(path: Path, down_to: int) -> None:
    """Removes files other than `path`, least recently used first, until at most `down_to` bytes remain."""
    others = [other for other in path.parent.iterdir() if other != path]
    total = sum(file.stat().st_size for file in (path, *others) if file.exists())
    for other in sorted(others, key=lambda other: other.stat().st_mtime):
        if total > down_to or other.suffix == ".part":
            total -= other.stat().st_size
            other.unlink()


def _write(
    architecture: Architecture,
    form: GgufForm,
    data: Callable[[GgufTensor, Format], _Array],
    path: Path | str,
    numbers: GgufFormat,
    about: Mapping[str, str],
    vocabulary: GgufVocabulary | None,
    measured: bool = False,
) -> None:
    """Writes the file; `data` returns a tensor's values in a format. `measured` adds one row to learned positions."""
    import gguf

    from edgefront.core.model_files.gguf_tensors import tensors

    writer = gguf.GGUFWriter(str(path), form.kind)
    writer.add_name(about.get("name") or f"edgefront-{architecture.digest[:12]}")
    if licence := about.get("licence"):
        writer.add_license(licence)
    writer.add_file_type(file_type(numbers))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    stated = MAX_LENGTH if measured else architecture.stated_length
    longest = stated if architecture.max_length is None else architecture.max_length + int(measured)
    _describe(writer, architecture, form, longest)
    for key, value in about.items():
        writer.add_string(f"edgefront.{key}", value)
    if vocabulary is None:  # Gemma's published vocabulary is one of pieces, without merges
        vocabulary = numbered(architecture.embedding.vocab_size, merged=form.kind != "gemma3")
    _add_vocabulary(writer, vocabulary)
    ordered = sorted(
        tensors(architecture, form, numbers, zero_positions=int(measured)), key=lambda item: _copied(*item)
    )
    for tensor, kind in ordered:
        size, type_ = tensor.bytes_in(kind), getattr(gguf.GGMLQuantizationType, kind.upper())
        if kind in GGUF_BLOCKS:  # the writer expects the shape of block formats in bytes
            rows = tensor.shape[0]
            writer.add_tensor_info(tensor.name, (rows, size // rows), np.dtype("u1"), size, type_)
        else:
            writer.add_tensor_info(tensor.name, tensor.shape, np.dtype("f4"), size, type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    with closing(writer):
        for tensor, kind in ordered:
            writer.write_tensor_data(data(tensor, kind) if tensor.constant is None else _Array(tensor.constant))


def file_type(numbers: str) -> int:
    """llama.cpp's number of a format of files, `general.file_type`."""
    import gguf

    return int(getattr(gguf.LlamaFileType, _FILE_TYPES.get(numbers, f"MOSTLY_{numbers.upper()}")))


def _copied(tensor: GgufTensor, kind: Format) -> int:
    """How many processors make llama.cpp repack this matrix for its CPU kernels: 0 none, 1 some, 2 all.

    llama.cpp keeps its file mapped from the first to the last tensor that it uses in place. So repacked tensors are at
    the end of the file, because elsewhere the tensors would be in memory twice.
    """
    if tensor.name == _EMBEDDING or tensor.shape[0] % _REPACKED_ROWS:
        return 0
    return 2 if kind in _COPIED_BY_ALL else int(kind in _COPIED_BY_SOME)


def _describe(writer: Any, architecture: Architecture, form: GgufForm, length: int) -> None:
    """Writes the architecture's fields; a width is one number if equal in all layers, else an array over the layers."""
    from edgefront.core.model_files.gguf_tensors import PADDED_HEADS, PADDED_INNER

    blocks, eps = architecture.blocks, float(architecture.norm_eps)
    heads, kv_heads, inner = [], [], []
    for layer in form.layers:
        mixer = None if layer.mixer is None else blocks[layer.mixer]
        after = None if layer.feed_forward is None else blocks[layer.feed_forward]
        heads.append(mixer.n_head if isinstance(mixer, Attention) else 0)
        kv_heads.append(mixer.kv_heads if isinstance(mixer, Attention) else 0)
        inner.append(after.d_inner if isinstance(after, FeedForward) else PADDED_INNER)
    if form.layers[0].mixer is None:
        heads[0] = kv_heads[0] = PADDED_HEADS
    writer.add_block_count(len(form.layers))
    writer.add_context_length(length)
    writer.add_embedding_length(architecture.d_model)
    if form.kind != "deci":
        heads = [max(heads)] * len(heads)  # layers of short_conv declare the heads too
    for values, add in (
        (heads, writer.add_head_count),
        (kv_heads, writer.add_head_count_kv),
        (inner, writer.add_feed_forward_length),
    ):
        add(values[0] if len(set(values)) == 1 else values)
    positions = architecture.positions
    (writer.add_layer_norm_eps if architecture.norm_kind == "layer" else writer.add_layer_norm_rms_eps)(eps)
    if not isinstance(positions, RotaryPositions):
        return
    attention = next(block for block in blocks if isinstance(block, Attention))
    d_head = architecture.d_head(attention)
    writer.add_key_length(d_head)
    writer.add_value_length(d_head)
    writer.add_rope_dimension_count(positions.width(d_head))
    writer.add_rope_freq_base(float(positions.theta))
    writer.add_vocab_size(architecture.embedding.vocab_size)
    convolution = next((block for block in blocks if isinstance(block, ShortConv)), None)
    if convolution is not None:
        writer.add_shortconv_l_cache(convolution.kernel)
    window = next((block.window for block in blocks if isinstance(block, Attention) and block.window), None)
    if window is not None:
        writer.add_sliding_window(window)
    if form.kind == "granite":
        writer.add_attention_scale(architecture.attention_scale(attention))
        writer.add_embedding_scale(float(architecture.embedding.multiplier))
        writer.add_residual_scale(float(architecture.residual_multiplier))
        writer.add_logit_scale(float(architecture.output.logits_scaling))
    if form.kind in ("gptneox", "stablelm"):
        writer.add_parallel_residual(architecture.has_parallel_blocks)


def _add_vocabulary(writer: Any, vocabulary: GgufVocabulary) -> None:
    if vocabulary.scores:
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_scores(list(vocabulary.scores))
        writer.add_add_space_prefix(vocabulary.space_before)
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(vocabulary.pre)
        writer.add_token_merges(list(vocabulary.merges))
    writer.add_token_list(list(vocabulary.tokens))
    if vocabulary.types:
        writer.add_token_types(list(vocabulary.types))
    writer.add_add_bos_token(vocabulary.add_bos)
    if vocabulary.add_eos:
        writer.add_add_eos_token(True)
    for role, number in vocabulary.special.items():
        getattr(writer, f"add_{role}_token_id")(number)
    if vocabulary.unused:
        writer.add_array("tokenizer.ggml.suppress_tokens", list(vocabulary.unused))
    if vocabulary.chat_template is not None:
        writer.add_chat_template(vocabulary.chat_template)
