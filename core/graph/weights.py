"""Random weights, and the cache of them that measuring processes map into memory instead of filling anew."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.errors import InvalidInput
from core.graph.files import locked, refusing_full_disk
from core.graph.parameter import ParameterSpec
from core.graph.random_values import chunks, values

__all__ = ["WeightCache", "values"]

ITEM_BYTES = 4
_IN_USE_S = 60.0


class WeightCache:
    """Raw little-endian float32 files, one a parameter name: `{folder}/{seed}/{name}.f32`, safe to share by processes.

    A parameter's values do not depend on its size, so one file serves every architecture: the largest so far, of
    which the others map the front. Parameters of ones and zeros map one file each, of any seed.

    Growing appends under a lock and never shortens: what another process has mapped stays as it was, and an append
    that a crash or a full disk cuts short leaves a valid, shorter file. When the folder exceeds `max_bytes`, the
    seeds least recently used go, except those used within the last minute; on POSIX a process that has such a file
    mapped keeps it.
    """

    def __init__(self, folder: Path | str, max_bytes: int = 8 << 30) -> None:
        self.folder = Path(folder).absolute()
        self.max_bytes = max_bytes
        self.folder.mkdir(parents=True, exist_ok=True)

    def location(self, spec: ParameterSpec, seed: int) -> str:
        """Path of the parameter's file within the folder, with `/` on every system, as ONNX wants it."""
        return f"{seed}/{spec.name}.f32" if spec.fill == "random" else f"{spec.fill}.f32"

    def file(self, spec: ParameterSpec, seed: int) -> Path:
        """A file whose first `spec.size` values are the parameter's; written or grown if need be.

        Raises `Unavailable` where the disk is full even after other seeds were dropped.
        """
        if seed < 0:
            raise InvalidInput(f"seed must be 0 or more, not {seed}", field="seed", value=seed, allowed="0 or more")
        path = self.folder / self.location(spec, seed)
        if _bytes(path) < spec.size * ITEM_BYTES:
            with locked(self.folder / ".lock"):
                self._grow(path, spec, seed)
        return path

    def array(self, spec: ParameterSpec, seed: int) -> NDArray[np.float32]:
        """The parameter, mapped copy-on-write: no page is read before it is used, and writing stays private."""
        return np.memmap(self.file(spec, seed), "<f4", mode="c", shape=spec.shape)

    def touch(self, seed: int) -> None:
        """Mark a seed as used now. `core.graph.build` and `core.nn.weights` do so once a model."""
        folder = self.folder / str(seed)
        if folder.exists():
            os.utime(folder)

    def size_bytes(self) -> int:
        """Bytes of all files in the folder."""
        return sum(_bytes(path) for path in self.folder.rglob("*.f32"))

    def _grow(self, path: Path, spec: ParameterSpec, seed: int) -> None:
        missing = spec.size * ITEM_BYTES - _bytes(path)
        if missing <= 0:
            return  # another process was faster
        if self.size_bytes() + missing > self.max_bytes:
            self._drop(seed, self.max_bytes - missing)
        try:
            _append(path, spec, seed)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._drop(seed, 0)
            with refusing_full_disk(path):
                _append(path, spec, seed)

    def _drop(self, keep: int, down_to: int) -> None:
        """Remove seeds, the least recently used first, until `down_to` bytes are left."""
        total = self.size_bytes()
        seeds = [folder for folder in self.folder.iterdir() if folder.is_dir() and folder.name != str(keep)]
        for folder in sorted(seeds, key=lambda folder: folder.stat().st_mtime):
            if total <= down_to or time.time() - folder.stat().st_mtime < _IN_USE_S:
                return
            total -= sum(_bytes(path) for path in folder.iterdir())
            shutil.rmtree(folder)


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _append(path: Path, spec: ParameterSpec, seed: int) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        # An append that was cut short may have left part of a value; nobody can have mapped that.
        have = file.tell() // ITEM_BYTES
        file.truncate(have * ITEM_BYTES)
        start = have // 8 * 8
        for chunk in chunks(spec, seed, start):
            skip, start = max(0, have - start), start + chunk.size
            file.write(chunk[skip:].astype("<f4", copy=False).data)
