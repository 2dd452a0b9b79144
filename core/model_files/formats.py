"""Number formats that weights are kept in: float32, the two halves of it, int8 with one scale a tensor, int4 with many.

What "int8" means everywhere here is dynamic quantisation of the linear layers of the blocks: weights are int8 of seven
bits, -64 to 64, symmetric, with one scale for the whole tensor; the input of each layer is quantised to unsigned bytes
at run time, with scale and zero point of its own extremes; products are summed in int32 and come back as float32 before
the bias is added. Tables, output layer, norms, recurrences and attention's own products stay float32.

Seven bits, because x86 processors without VNNI add two products of an unsigned and a signed byte in 16 bits and
saturate: 2·255·64 fits, 2·255·127 does not (docs/decisions/0014-seven-bit-weights.md).

"int4" is of the same layers: each output's weights fall into blocks of `block_size` inputs (the last one padded), and
every block has a float32 scale. A weight is (n - 8)·scale for n from 0 to 15; two n are a byte, the first its low half.
It is what `MatMulNBits` of ONNX Runtime (com.microsoft) reads.

The formats of `GGUF_BLOCKS` are llama.cpp's, of matrices in GGUF files alone (`core.model_files.gguf`).

`WeightCache` keeps random weights that measuring processes memory-map instead of generating them again.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import shutil
import time
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.parameters import ParameterSpec
from edgefront.core.common.errors import InvalidInput, Unavailable
from edgefront.core.common.files import locked, refusing_full_disk
from edgefront.core.common.number_formats import GGUF_BLOCK, GGUF_BLOCKS, GgufBlocks, Quantisation
from edgefront.core.model_files.random_values import INT4_SCALE, STANDARD_DEVIATION, chunks

_PACKAGE = "xllamacpp"


def quantised(values: NDArray[np.float32], blocks: GgufBlocks) -> NDArray[np.uint8]:
    """Weights, whole blocks of them, as the bytes that `ggml_quantize_chunk` makes without an importance matrix.

    Raises `Unavailable` where xllamacpp is not installed, or lacks that function.
    """
    from gguf import GGMLQuantizationType

    count, size = GGUF_BLOCKS[blocks]
    number = GGMLQuantizationType[blocks.upper()].value
    source = np.ascontiguousarray(values, np.float32).reshape(-1, count)
    made = np.empty((len(source), size), np.uint8)
    written = _quantize_chunk()(number, source.ctypes.data, made.ctypes.data, 0, len(source), count, None)
    assert written == made.size
    return made.reshape(-1)


@cache
def _quantize_chunk() -> Any:
    try:
        function = ctypes.CDLL(str(_library())).ggml_quantize_chunk
    except (OSError, AttributeError) as error:
        raise Unavailable(f"the quantisation of llama.cpp is not in this build of {_PACKAGE}: {error}") from error
    function.restype = ctypes.c_size_t
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [ctypes.c_int, pointer, pointer, number, number, number, pointer]
    return function


def _library() -> Path:
    package = find_spec(_PACKAGE)
    if package is None:
        raise Unavailable(
            f"llama.cpp itself quantises weights into this format, and {_PACKAGE}, which has it, is not installed: "
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
"""How many values share how many bytes."""
OF_DTYPE: dict[str, Format] = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_LINEAR_MAPS = frozenset({"qkv", "out", "up", "down", "kv"})

LARGEST = 64
"""Magnitude of an int8 weight: two products with unsigned bytes, 2·255·64 = 32,640, stay below 2^15."""
RANDOM_SCALE = float(np.float32(STANDARD_DEVIATION * math.sqrt(3) / LARGEST))
"""Scale of the random weights: they are uniform up to ±0.02·√3, so that one scale serves every size of a tensor."""
_ZERO = 8


def bytes_of(count: int, kind: Format) -> int:
    """Bytes of so many values: whole units of the format."""
    values, size = _UNITS[kind]
    return -(-count // values) * size


def values_in(size: int, kind: Format) -> int:
    """How many values so many bytes hold, in whole units of the format."""
    values, unit = _UNITS[kind]
    return size // unit * values


def is_linear_map(parameter: str) -> bool:
    """Whether the parameter of this name is the weight (out, in) of a linear layer in a block: what int8 quantises.

    Relative attention's projection of distances is not: with few queries the order of its product changes.
    """
    path = parameter.removeprefix("source.").split(".")
    return len(path) == 4 and path[0] == "blocks" and path[2] in _LINEAR_MAPS and path[3] == "weight"


def format_of(parameter: str, dtype: str, quantisation: Quantisation) -> Format:
    """The format of a parameter in a model of this type; ValueError for a type that no file is kept in (float64)."""
    if dtype not in OF_DTYPE:
        raise ValueError(f"weights are stored as {', '.join(OF_DTYPE)}, not {dtype}")
    if quantisation == "full" or not is_linear_map(parameter):
        return OF_DTYPE[dtype]
    return "s7" if quantisation == "int8" else "u4"


def stored(
    spec: ParameterSpec, dtype: str, quantisation: Quantisation, block_size: int
) -> tuple[tuple[ParameterSpec, Format], ...]:
    """What a weight cache holds of a parameter for a model of this type, and what a model maps from there.

    In int4 the weight and its scales. A weight whose rows are no whole number of blocks is kept as float32: it is
    padded and quantised when a model is built.
    """
    kind = format_of(spec.name, dtype, quantisation)
    if kind != "u4":
        return ((spec, kind),)
    whole = spec.shape[1] % block_size == 0
    return (spec, kind if whole else "f32"), (int4_scales(spec, block_size), "f32")


def int4_scales(spec: ParameterSpec, block_size: int) -> ParameterSpec:
    """The scales (out, blocks) of a linear layer's weight in int4."""
    rows, width = spec.shape
    return ParameterSpec(f"{spec.name}.scale", (rows, -(-width // block_size)), "int4_scale")


def int4_shape(spec: ParameterSpec, block_size: int) -> tuple[int, int, int]:
    """Shape (out, blocks, bytes of a block) of a linear layer's weight in int4."""
    return (*int4_scales(spec, block_size).shape, block_size // 2)  # type: ignore[return-value]


def encode(values: NDArray[np.float32], kind: Format, scale: float = RANDOM_SCALE) -> NDArray[Any]:
    """float32 values as little-endian numbers of this format, rounded to the nearest, ties to even.

    bfloat16, which numpy does not have, comes as its bits (uint16); int8 values are in units of `scale`, int4 values in
    units of `INT4_SCALE`, an even number of them, two to a byte. llama.cpp's are whole blocks, as bytes; `Unavailable`
    for those that need xllamacpp where it is not installed (`core.model_files.formats`).
    """
    if kind == "bf16":
        bits: NDArray[Any] = np.ascontiguousarray(values, "<f4").view("<u4")
        bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        return np.asarray(bits >> np.uint32(16)).astype("<u2")
    if kind == "s7":
        return np.asarray(np.rint(values / np.float32(scale))).astype(np.int8)
    if kind == "q8_0":
        return _q8_0(values.reshape(-1, GGUF_BLOCK))
    if kind == "q4_0":
        return _q4_0(values.reshape(-1, GGUF_BLOCK))
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
            f"numbers float16 cannot hold {values[~np.isfinite(halves)][0]:g}, which the weights have",
            field="numbers",
            value="float16",
            allowed="float32 or, where the format has it, bfloat16",
        )
    return halves


def _q8_0(blocks: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Blocks of 32 as llama.cpp's q8_0: the largest magnitude becomes 127. gguf itself takes six times as long."""
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore"):
        units = blocks * np.where(scale == 0, np.float32(0), np.float32(1) / scale)
    units += np.copysign(np.float32(0.5), units)  # halves are rounded away from zero; the conversion cuts off
    made = np.empty((len(blocks), GGUF_BLOCKS["q8_0"][1]), np.uint8)
    made[:, :2] = scale.astype("<f2").view(np.uint8)
    made[:, 2:] = units.astype(np.int8).view(np.uint8)
    return made.reshape(-1)


def _q4_0(blocks: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Blocks of 32 as llama.cpp's q4_0: the largest magnitude becomes 0, zero 8. Two are a byte: the first half of a
    block and the second. gguf itself takes ten times as long.
    """
    largest = blocks[np.arange(len(blocks)), np.abs(blocks).argmax(axis=1)][:, None]
    scale = largest / np.float32(-_ZERO)
    with np.errstate(divide="ignore"):
        units = blocks * np.where(scale == 0, np.float32(0), np.float32(1) / scale)
    units += np.float32(_ZERO + 0.5)  # the conversion cuts off
    nibbles = np.minimum(units.astype(np.uint8), 2 * _ZERO - 1)
    half = GGUF_BLOCK // 2
    made = np.empty((len(blocks), GGUF_BLOCKS["q4_0"][1]), np.uint8)
    made[:, :2] = scale.astype("<f2").view(np.uint8)
    made[:, 2:] = nibbles[:, :half] | nibbles[:, half:] << np.uint8(4)
    return made.reshape(-1)


def quantise(weight: NDArray[Any]) -> tuple[NDArray[np.int8], float]:
    """Given weights as int8, and the scale that brings them back: the largest magnitude becomes `LARGEST`."""
    scale = float(np.float32(np.abs(weight).max(initial=0.0) / LARGEST)) or 1.0
    return np.rint(np.asarray(weight, np.float32) / np.float32(scale)).astype(np.int8), scale


def quantise_int4(
    weight: NDArray[Any], block_size: int, scale: float | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """A weight (out, in) as int4 in the shape of `int4_shape`, and its scales (out, blocks).

    Without a `scale` for all blocks the largest magnitude of each becomes -8, by a negative scale if it is positive.
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
    """Whole numbers, clipped to four bits, two to a byte."""
    nibbles = (np.clip(units, -_ZERO, _ZERO - 1) + _ZERO).astype(np.uint8).reshape(-1)
    return np.asarray(nibbles[0::2] | nibbles[1::2] << np.uint8(4))


_IN_USE_S = 60.0
_NUMPY: dict[Format, str] = {
    "f32": "<f4",
    "f16": "<f2",
    "bf16": "<u2",
    "s7": "i1",
    "u4": "u1",
    **dict.fromkeys(GGUF_BLOCKS, "u1"),
}


class WeightCache:
    """Raw little-endian files that processes share safely, one a parameter and format: `{folder}/{seed}/{name}.f32`.

    A parameter's values do not depend on its size, so one file serves every architecture: the largest so far, of which
    the others map a prefix. Parameters of ones and zeros map one file each, of any seed. Other formats than float32
    (`core.model_files.formats`) are rounded once, here.

    Growing appends under a lock and never shortens: what another process has mapped stays as it was, and an append
    that a crash or a full disk cuts short leaves a valid, shorter file. When the folder exceeds `max_bytes`, the
    seeds least recently used go, except those used within the last minute; on POSIX a process that has such a file
    mapped keeps it.
    """

    def __init__(self, folder: Path | str, max_bytes: int = 8 << 30) -> None:
        self.folder = Path(folder).absolute()
        self.max_bytes = max_bytes
        self._unmeasured = 0
        """Bytes that may be written before the whole folder, some hundred files a seed, is measured again."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def location(self, spec: ParameterSpec, seed: int, kind: Format = "f32") -> str:
        """Path of the parameter's file within the folder, with `/` on every system, as ONNX requires."""
        return f"{seed}/{spec.name}.{kind}" if spec.fill == "random" else f"{spec.fill}.{kind}"

    def file(self, spec: ParameterSpec, seed: int, kind: Format = "f32") -> Path:
        """A file whose first `spec.size` values are the parameter's; written or grown if need be.

        Raises `Unavailable` where the disk is full even after other seeds were dropped.
        """
        if seed < 0:
            raise InvalidInput(f"seed must be 0 or more, not {seed}", field="seed", value=seed, allowed="0 or more")
        path = self.folder / self.location(spec, seed, kind)
        if _bytes(path) < bytes_of(spec.size, kind):
            with locked(self.folder / ".lock"):
                self._grow(path, spec, seed, kind)
        return path

    def array(self, spec: ParameterSpec, seed: int, kind: Format = "f32") -> NDArray[Any]:
        """The parameter, mapped copy-on-write: no page is read before it is used, and writing stays private.

        float32, float16 or int8; bfloat16 as its bits, uint16; int4 and llama.cpp's as flat bytes.
        """
        shape = (bytes_of(spec.size, kind),) if _NUMPY[kind] == "u1" else spec.shape
        return np.memmap(self.file(spec, seed, kind), _NUMPY[kind], mode="c", shape=shape)

    def touch(self, seed: int) -> None:
        """Mark a seed as used now. `core.model_files.build` and `core.nn.weights` do so once a model."""
        folder = self.folder / str(seed)
        if folder.exists():
            os.utime(folder)

    def size_bytes(self) -> int:
        """Bytes of all files in the folder, also of formats that earlier releases kept."""
        return sum(_bytes(path) for path in self.folder.rglob("*.*") if path.suffix)

    def _grow(self, path: Path, spec: ParameterSpec, seed: int, kind: Format) -> None:
        missing = bytes_of(spec.size, kind) - _bytes(path)
        if missing <= 0:
            return  # another process was faster
        self._unmeasured -= missing
        if self._unmeasured < 0:
            total = self.size_bytes()
            if total + missing > self.max_bytes:
                # Room for more than this one, so that a full cache is not measured for every parameter.
                total = self._drop(total, seed, self.max_bytes - max(missing, self.max_bytes // 16))
            # Half of what is left: another process may write the other half.
            self._unmeasured = (self.max_bytes - total - missing) // 2
        try:
            _append(path, spec, seed, kind)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._drop(self.size_bytes(), seed, 0)
            with refusing_full_disk(path):
                _append(path, spec, seed, kind)

    def _drop(self, total: int, keep: int, down_to: int) -> int:
        """Remove seeds, the least recently used first, until of `total` bytes `down_to` are left; how many are."""
        seeds = [folder for folder in self.folder.iterdir() if folder.is_dir() and folder.name != str(keep)]
        for folder in sorted(seeds, key=lambda folder: folder.stat().st_mtime):
            if total <= down_to or time.time() - folder.stat().st_mtime < _IN_USE_S:
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
        # An append that was cut short may have left part of a value; nobody can have mapped that.
        have = values_in(file.tell(), kind)
        file.truncate(bytes_of(have, kind))
        start = have // 8 * 8
        for chunk in chunks(spec, seed, start):
            skip, start = max(0, have - start), start + chunk.size
            file.write(encode(chunk[skip:], kind).data)
