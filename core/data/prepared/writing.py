"""Writes the files of a split, a little at a time."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edgefront.core.data.prepared.prepared import StoredFile, StoredSplit
from edgefront.core.data.sources.text import Counts
from edgefront.core.data.tokenizers.tokenizers import Ids

DType = Literal["|u1", "<u2", "<i4"]

_HELD = 1 << 18
"""Numbers that are kept until they are written."""


def smallest(vocab_size: int) -> DType:
    """The type of integers that holds every token of the vocabulary."""
    return "|u1" if vocab_size <= 1 << 8 else "<u2" if vocab_size <= 1 << 16 else "<i4"


class _Numbers:
    """One file of numbers."""

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self._file = (folder / name).open("xb")
        self._name, self._dtype, self._hash = name, np.dtype(dtype), hashlib.sha256()
        self._held: list[Any] = []
        self._waiting = 0
        self.count = 0

    def add(self, numbers: Any) -> None:
        self._held.append(numbers)
        self._waiting += len(numbers)
        self.count += len(numbers)
        if self._waiting >= _HELD:
            self._write()

    def _write(self) -> None:
        if self._held:
            raw = np.concatenate(self._held).astype(self._dtype).tobytes()
            self._file.write(raw)
            self._hash.update(raw)
        self._held, self._waiting = [], 0

    def close(self) -> None:
        self._file.close()

    def finish(self) -> StoredFile:
        """Writes the rest, syncs it to the disk, and returns the file's facts."""
        self._write()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self.count * self._dtype.itemsize
        return StoredFile(name=self._name, bytes=size, sha256=self._hash.hexdigest())


class SplitWriter:
    """The tokens of a split, and where its lines or documents start. Closes its files when its block ends."""

    def __init__(self, folder: Path, name: str, vocab_size: int) -> None:
        self._dtype = smallest(vocab_size)
        self._tokens = _Numbers(folder, f"{name}.tokens", self._dtype)
        self._starts = _Numbers(folder, f"{name}.starts", "<i8")
        self._ends = [0]
        self._characters = self._words = self._bytes = 0

    def __enter__(self) -> SplitWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._tokens.close()
        self._starts.close()

    def add(self, ids: Ids, end: bool) -> None:
        """The next tokens; `end` if they end a line or document."""
        self._tokens.add(ids)
        if end:
            self._ends.append(self._tokens.count)
            if len(self._ends) >= _HELD:
                self._write_ends()

    def count(self, counts: Counts) -> None:
        """Adds to what the text has."""
        self._characters += counts.characters
        self._words += counts.words
        self._bytes += counts.bytes

    def _write_ends(self) -> None:
        self._starts.add(self._ends)
        self._ends = []

    def finish(self) -> StoredSplit:
        """Writes the rest, syncs it to the disk, and returns the files' facts."""
        self._write_ends()
        return StoredSplit(
            tokens=self._tokens.finish(),
            starts=self._starts.finish(),
            dtype=self._dtype,
            characters=self._characters,
            words=self._words,
            bytes=self._bytes,
        )
