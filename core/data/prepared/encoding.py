"""Encodes pieces of text as tokens in files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edgefront.core.data.prepared.prepared import StoredFile, StoredSplit
from edgefront.core.data.sources.corpus import Form
from edgefront.core.data.sources.data_set import Unit
from edgefront.core.data.sources.text import Counts, Part, Piece, Tick, documents, json_lines, lines
from edgefront.core.data.tokenizers.load import (
    bytes_seen,
    characters_seen,
    words_by_frequency,
    words_given,
)
from edgefront.core.data.tokenizers.tokenizers import Bytes, Ids, Level, Tokenizer

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


_BATCH = 1 << 20
"""Characters that are encoded at once."""


@dataclass(frozen=True)
class Reading:
    """How the text is in its files, and what of it is a unit."""

    form: Form
    unit: Unit
    field: str

    def pieces(self, parts: Iterable[Part], tick: Tick) -> Iterator[Piece]:
        """The text, little by little."""
        if self.form == "jsonl":
            return json_lines(parts, self.field, tick)
        return (lines if self.unit == "line" else documents)(parts, tick)

    def shaped(self, piece: Piece, *, eos: bool) -> str:
        """What of a piece is encoded: where `<eos>` ends a line, its line feed is not; where nothing does, one is."""
        text, end = piece
        if not end:
            return text
        if self.unit == "line" and eos:
            return text.removesuffix("\n").removesuffix("\r")
        return f"{text}\n" if self.form == "jsonl" and not eos else text


def make_tokenizer(
    level: Level, texts: Callable[[], Iterable[str]], vocab_size: int | None, *, all_bytes: bool
) -> Tokenizer:
    """The tokenizer of these texts."""
    if level == "bytes":
        return Bytes() if all_bytes else bytes_seen(texts())
    if level == "characters":
        return characters_seen(texts())
    if level == "words":
        return words_by_frequency(texts(), vocab_size)
    from edgefront.core.data.tokenizers.bpe import Pieces

    assert vocab_size is not None
    return Pieces.train(iter(texts()), vocab_size)


def given_tokenizer(level: Level, vocabulary: Path, vocab_size: int | None) -> Tokenizer:
    """The tokenizer of a user's file, of level words or bpe."""
    if level == "words":
        return words_given(vocabulary, vocab_size)
    from edgefront.core.data.tokenizers.bpe import Pieces

    return Pieces.given(vocabulary)


def encode(pieces: Iterable[Piece], reading: Reading, tokenizer: Tokenizer, writer: SplitWriter) -> None:
    """Writes the tokens of the pieces, and counts their text."""
    begins = True
    for batch in _batched(pieces):
        texts = [reading.shaped(piece, eos=tokenizer.eos is not None) for piece in batch]
        for (text, end), ids in zip(batch, tokenizer.encode_many(texts), strict=True):
            whole = tokenizer.begin(ids) if begins else ids
            writer.add(tokenizer.end(whole) if end else whole, end)
            begins = end
            writer.count(Counts.of(text))


def _batched(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    held = 0
    for piece in pieces:
        batch.append(piece)
        held += len(piece[0])
        if held >= _BATCH:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch
