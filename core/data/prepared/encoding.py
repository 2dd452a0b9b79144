"""Encodes pieces of text as tokens in files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgefront.core.data.prepared.writing import SplitWriter
from edgefront.core.data.sources.corpus import Form
from edgefront.core.data.sources.data_set import Unit
from edgefront.core.data.sources.text import Counts, Part, Piece, Tick, documents, json_lines, lines
from edgefront.core.data.tokenizers.tokenizers import Bytes, Level, Tokenizer
from edgefront.core.data.tokenizers.vocabulary import (
    bytes_seen,
    characters_seen,
    words_by_frequency,
    words_given,
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
