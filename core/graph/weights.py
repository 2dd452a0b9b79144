"""A cache of random weights that measuring processes memory-map instead of generating them again."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.errors import InvalidInput
from edgefront.core.files import locked, refusing_full_disk
from edgefront.core.graph.formats import Format, bytes_of, encode, values_in
from edgefront.core.graph.parameter import ParameterSpec
from edgefront.core.graph.random_values import chunks
from edgefront.core.number_formats import GGUF_BLOCKS

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
    (`core.graph.formats`) are rounded once, here.

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
        """Mark a seed as used now. `core.graph.build` and `core.nn.weights` do so once a model."""
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
