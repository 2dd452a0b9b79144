"""Number formats of weights: float32, float16, bfloat16, int8 (one scale per tensor), int4 (one scale per block).

"int8" is dynamic quantisation of the linear layers of the blocks. Weights are symmetric int8 of seven bits, -64 to 64,
with one scale for the whole tensor. The input of each layer is quantised to unsigned bytes at run time, with scale and
zero point from its extremes. Products are summed in int32 and converted to float32 before the bias is added. Embedding
tables, output layer, norms, recurrences and the matrix products of attention stay float32.

Weights have seven bits, because x86 processors without VNNI add two products of an unsigned and a signed byte in 16
bits and saturate: 2·255·64 fits, 2·255·127 does not (docs/decisions/0014-seven-bit-weights.md).

"int4" quantises the same layers: each output's weights are divided into blocks of `block_size` inputs (the final block
padded), with one float32 scale per block. A weight is (n - 8)·scale for n from 0 to 15; a byte has two n, the first
in its low half. `MatMulNBits` of ONNX Runtime (com.microsoft) reads this format.

The formats of `GGUF_BLOCKS` are llama.cpp's, for matrices in GGUF files (`core.model_files.gguf`).

`WeightCache` stores random weights, which measuring processes memory-map instead of generating them again.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import shutil
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.parameters import ParameterSpec
from edgefront.core.common.errors import InvalidInput, Unavailable
from edgefront.core.common.files import refusing_full_disk
from edgefront.core.common.number_formats import GGUF_BLOCKS, GgufBlocks, Quantisation
from edgefront.core.model_files.random_values import INT4_SCALE, STANDARD_DEVIATION, chunks

_PACKAGE = "xllamacpp"


def quantised(values: NDArray[np.float32], blocks: GgufBlocks) -> NDArray[np.uint8]:
    """Quantises whole blocks of weights with llama.cpp's `ggml_quantize_chunk`, without an importance matrix.

    Without xllamacpp the gguf package quantises q8_0 and q4_0 to the same bytes, ten times slower. Raises `Unavailable`
    for another format, and if xllamacpp lacks that function.
    """
    from gguf import GGMLQuantizationType, quantize

    count, size = GGUF_BLOCKS[blocks]
    number = GGMLQuantizationType[blocks.upper()]
    source = np.ascontiguousarray(values, np.float32).reshape(-1, count)
    if blocks in ("q8_0", "q4_0") and find_spec(_PACKAGE) is None:
        return np.asarray(quantize(source, number)).reshape(-1)
    made = np.empty((len(source), size), np.uint8)
    written = _quantize_chunk()(number.value, source.ctypes.data, made.ctypes.data, 0, len(source), count, None)
    assert written == made.size
    return made.reshape(-1)


@cache
def _quantize_chunk() -> Any:
    try:
        function = ctypes.CDLL(str(_library())).ggml_quantize_chunk
    except (OSError, AttributeError) as error:
        raise Unavailable(f"this build of {_PACKAGE} lacks the quantisation of llama.cpp: {error}") from error
    function.restype = ctypes.c_size_t
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [ctypes.c_int, pointer, pointer, number, number, number, pointer]
    return function


def _library() -> Path:
    package = find_spec(_PACKAGE)
    if package is None:
        raise Unavailable(
            f"quantising weights into this format needs llama.cpp, whose package {_PACKAGE} is not installed: "
            "pip install 'edgefront-lm[llamacpp]'"
        )
    folder = Path(str(package.origin)).parent
    paths = [folder / f"{_PACKAGE}{suffix}" for suffix in EXTENSION_SUFFIXES]
    return next((path for path in paths if path.exists()), paths[0])


Format = Literal["f32", "f16", "bf16", "s7", "u4", GgufBlocks]

_UNITS: dict[Format, tuple[int, int]] = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "s7": (1, 1),
    "u4": (2, 1),
    **dict(GGUF_BLOCKS.items()),
}
"""Per format, the number of values in one unit and the unit's bytes."""
OF_DTYPE: dict[str, Format] = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_LINEAR_MAPS = frozenset({"qkv", "out", "up", "down", "kv"})

LARGEST = 64
"""Maximum magnitude of an int8 weight: two products with unsigned bytes, 2·255·64 = 32,640, stay below 2^15."""
RANDOM_SCALE = float(np.float32(STANDARD_DEVIATION * math.sqrt(3) / LARGEST))
"""int8 scale of random weights, which are uniform up to ±0.02·√3 in tensors of every size."""
_ZERO = 8


def bytes_of(count: int, kind: Format) -> int:
    """Bytes of `count` values, rounded up to whole units of the format."""
    values, size = _UNITS[kind]
    return -(-count // values) * size


def values_in(size: int, kind: Format) -> int:
    """Number of values in `size` bytes, rounded down to whole units of the format."""
    values, unit = _UNITS[kind]
    return size // unit * values


def is_linear_map(parameter: str) -> bool:
    """Whether this parameter is the weight (out, in) of a linear layer in a block, which int8 and int4 quantise.

    The projection of distances in relative attention is not quantised, because few queries change the product's order.
    """
    path = parameter.removeprefix("source.").split(".")
    return len(path) == 4 and path[0] == "blocks" and path[2] in _LINEAR_MAPS and path[3] == "weight"


def format_of(parameter: str, dtype: str, quantisation: Quantisation) -> Format:
    """Format of a parameter in a model of this dtype and quantisation. Raises ValueError for float64."""
    if dtype not in OF_DTYPE:
        raise ValueError(f"weights are stored as {', '.join(OF_DTYPE)}, not {dtype}")
    if quantisation == "full" or not is_linear_map(parameter):
        return OF_DTYPE[dtype]
    return "s7" if quantisation == "int8" else "u4"


def stored(
    spec: ParameterSpec, dtype: str, quantisation: Quantisation, block_size: int
) -> tuple[tuple[ParameterSpec, Format], ...]:
    """Specification and format of each cache file of a parameter, for a model of this dtype and quantisation.

    int4 has two files, the weight and its scales. A weight whose rows are not whole blocks is stored as float32, and is
    padded and quantised when a model is built.
    """
    kind = format_of(spec.name, dtype, quantisation)
    if kind != "u4":
        return ((spec, kind),)
    whole = spec.shape[1] % block_size == 0
    return (spec, kind if whole else "f32"), (int4_scales(spec, block_size), "f32")


def int4_scales(spec: ParameterSpec, block_size: int) -> ParameterSpec:
    """Specification of the int4 scales (out, blocks) of a linear layer's weight."""
    rows, width = spec.shape
    return ParameterSpec(f"{spec.name}.scale", (rows, -(-width // block_size)), "int4_scale")


def int4_shape(spec: ParameterSpec, block_size: int) -> tuple[int, int, int]:
    """int4 shape (out, blocks, bytes per block) of a linear layer's weight."""
    return (*int4_scales(spec, block_size).shape, block_size // 2)  # type: ignore[return-value]


def encode(values: NDArray[np.float32], kind: Format, scale: float = RANDOM_SCALE) -> NDArray[Any]:
    """Converts float32 values to little-endian numbers of this format, rounded to the nearest, ties to even.

    bfloat16 is returned as its bits (uint16); int8 values are in units of `scale`, int4 values in units of
    `INT4_SCALE`, two per byte. llama.cpp's formats take whole blocks and return bytes. Raises `Unavailable` for a
    format that needs xllamacpp if xllamacpp is not installed.
    """
    if kind == "bf16":
        bits: NDArray[Any] = np.ascontiguousarray(values, "<f4").view("<u4")
        bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        return np.asarray(bits >> np.uint32(16)).astype("<u2")
    if kind == "s7":
        return np.asarray(np.rint(values / np.float32(scale))).astype(np.int8)
    if kind in GGUF_BLOCKS:
        return quantised(values, cast(GgufBlocks, kind))
    if kind == "u4":
        return _packed(np.rint(values.reshape(-1) / np.float32(INT4_SCALE)))
    if kind == "f32":
        return values.astype("<f4", copy=False)
    with np.errstate(over="ignore"):
        halves = values.astype("<f2")
    if not np.isfinite(halves).all():
        raise InvalidInput(
            f"numbers float16 cannot represent the weight {values[~np.isfinite(halves)][0]:g}",
            field="numbers",
            value="float16",
            allowed="float32, or bfloat16 if the file format has it",
        )
    return halves


def quantise_int4(
    weight: NDArray[Any], block_size: int, scale: float | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Quantises a weight (out, in) to int4 in the shape of `int4_shape`; returns the values and scales (out, blocks).

    Without a common `scale` the largest magnitude of each block becomes -8; a block whose largest weight is positive
    has a negative scale.
    """
    rows, width = weight.shape
    blocks = np.zeros((rows, -(-width // block_size), block_size), np.float32)
    blocks.reshape(rows, -1)[:, :width] = weight
    if scale is None:
        at = np.abs(blocks).argmax(axis=2, keepdims=True)
        scales = np.take_along_axis(blocks, at, axis=2) / np.float32(-_ZERO)
    else:
        scales = np.full((*blocks.shape[:2], 1), scale, np.float32)
    units = np.rint(blocks / np.where(scales == 0, np.float32(1), scales))
    return _packed(units).reshape(*blocks.shape[:2], -1), scales[:, :, 0]


def _packed(units: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Clips integers to four bits and packs two into each byte."""
    nibbles = (np.clip(units, -_ZERO, _ZERO - 1) + _ZERO).astype(np.uint8).reshape(-1)
    return np.asarray(nibbles[0::2] | nibbles[1::2] << np.uint8(4))


_NUMPY: dict[Format, str] = {
    "f32": "<f4",
    "f16": "<f2",
    "bf16": "<u2",
    "s7": "i1",
    "u4": "u1",
    **dict.fromkeys(GGUF_BLOCKS, "u1"),
}


class WeightCache:
    """Raw little-endian files, one per parameter and format: `{folder}/{seed}/{name}.f32`.

    A parameter's values do not depend on its size, so one file serves all architectures: each architecture maps a
    prefix of the file. Parameters of ones and zeros map one file for all seeds. The cache rounds the values of formats
    other than float32 once, when it writes a file.

    One process, the agent, writes the files; its measuring processes read them. Files only grow: mapped pages never
    change, and an append that a crash or a full disk interrupts leaves a valid, shorter file. When the folder exceeds
    `max_bytes`, the least recently used other seeds are removed.
    """

    def __init__(self, folder: Path | str, max_bytes: int = 8 << 30) -> None:
        self.folder = Path(folder).absolute()
        self.max_bytes = max_bytes
        self._unmeasured = 0
        """Bytes that may be written before the size of the folder, with hundreds of files per seed, is measured again.
        """
        self.folder.mkdir(parents=True, exist_ok=True)

    def location(self, spec: ParameterSpec, seed: int, kind: Format = "f32") -> str:
        """Path of the parameter's file within the folder, with `/` on every system, as ONNX requires."""
        return f"{seed}/{spec.name}.{kind}" if spec.fill == "random" else f"{spec.fill}.{kind}"

    def file(self, spec: ParameterSpec, seed: int, kind: Format = "f32") -> Path:
        """Path of a file that begins with the parameter's `spec.size` values; writes or extends the file if necessary.

        Raises `Unavailable` if the disk is full even after other seeds were removed.
        """
        path = self.folder / self.location(spec, seed, kind)
        if (missing := bytes_of(spec.size, kind) - _bytes(path)) > 0:
            self._grow(path, spec, seed, kind, missing)
        return path

    def array(self, spec: ParameterSpec, seed: int, kind: Format = "f32") -> NDArray[Any]:
        """The parameter's values, memory-mapped copy-on-write: pages are read when used, and changes stay private.

        The dtype is float32, float16 or int8; bfloat16 is uint16 bits; int4 and llama.cpp's formats are flat bytes.
        """
        shape = (bytes_of(spec.size, kind),) if _NUMPY[kind] == "u1" else spec.shape
        return np.memmap(self.file(spec, seed, kind), _NUMPY[kind], mode="c", shape=shape)

    def touch(self, seed: int) -> None:
        """Marks a seed as used now. `core.model_files.build` and `core.nn.weights` call this once per model."""
        folder = self.folder / str(seed)
        if folder.exists():
            os.utime(folder)

    def size_bytes(self) -> int:
        """Bytes of all files in the folder, including files in formats of earlier releases."""
        return sum(_bytes(path) for path in self.folder.rglob("*.*") if path.suffix)

    def _grow(self, path: Path, spec: ParameterSpec, seed: int, kind: Format, missing: int) -> None:
        self._unmeasured -= missing
        if self._unmeasured < 0:
            total = self.size_bytes()
            if total + missing > self.max_bytes:
                # Free more than this file needs, so that a full cache is not measured for every parameter.
                total = self._drop(total, seed, self.max_bytes - max(missing, self.max_bytes // 16))
            self._unmeasured = self.max_bytes - total - missing
        try:
            _append(path, spec, seed, kind)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._drop(self.size_bytes(), seed, 0)
            with refusing_full_disk(path):
                _append(path, spec, seed, kind)

    def _drop(self, total: int, keep: int, down_to: int) -> int:
        """Removes seeds, least recently used first, until at most `down_to` of `total` bytes remain; returns the
        remaining bytes.
        """
        seeds = [folder for folder in self.folder.iterdir() if folder.is_dir() and folder.name != str(keep)]
        for folder in sorted(seeds, key=lambda folder: folder.stat().st_mtime):
            if total <= down_to:
                break
            total -= sum(_bytes(path) for path in folder.iterdir())
            shutil.rmtree(folder)
        return total


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _append(path: Path, spec: ParameterSpec, seed: int, kind: Format) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        # An interrupted append may have left part of a value, which no process can have mapped.
        have = values_in(file.tell(), kind)
        file.truncate(bytes_of(have, kind))
        start = have // 8 * 8
        for chunk in chunks(spec, seed, start):
            skip, start = max(0, have - start), start + chunk.size
            file.write(encode(chunk[skip:], kind).data)
