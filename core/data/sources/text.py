"""Streams text from files of any size.

A piece is at most about 64 KiB of text, with a flag that is True at the end of a line or document. Text is cut before
white space, where byte-pair encoding cuts anyway, so the tokens of the pieces are the tokens of the whole text.
"""

from __future__ import annotations

from codecs import BOM_UTF8, getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.files import object_in

Form = Literal["text", "jsonl"]
Unit = Literal["line", "document"]
Piece = tuple[str, bool]
Tick = Callable[[int], None]
"""Callback that receives the number of bytes read."""

_BLOCK_CHARACTERS = 1 << 16
_MAX_WORD = 1 << 20
"""Maximum length of a run of characters without white space; longer runs are cut."""


@dataclass(frozen=True)
class FilePart:
    """Bytes `start` to `stop` (exclusive) of a file; if `splits_characters`, both ends may lie inside characters."""

    path: Path
    start: int
    stop: int
    splits_characters: bool = False

    @classmethod
    def whole(cls, path: Path) -> FilePart:
        """Returns a part that consists of the whole file."""
        return cls(path, 0, path.stat().st_size)

    @property
    def size(self) -> int:
        return self.stop - self.start


class Counts(NamedTuple):
    """Sizes of a text. `words` is the number of words between white space plus the number of ends of lines."""

    characters: int
    words: int
    bytes: int

    @classmethod
    def of(cls, text: str) -> Counts:
        raw = len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))
        return cls(len(text), len(text.split()) + text.count("\n"), raw)


@dataclass(frozen=True)
class TextFormat:
    """Format of text files, and the unit (line or document) that a training shuffles."""

    form: Form
    unit: Unit
    field: str

    def pieces(self, parts: Iterable[FilePart], tick: Tick) -> Iterator[Piece]:
        """Streams the text of these parts in pieces."""
        if self.form == "jsonl":
            return json_lines(parts, self.field, tick)
        return (lines if self.unit == "line" else documents)(parts, tick)

    def encoded(self, piece: Piece, *, eos: bool) -> str:
        """Returns the text to encode. With `eos` the end of a line is removed; otherwise JSON lines get a line feed."""
        text, end = piece
        if not end:
            return text
        if self.unit == "line" and eos:
            return text.removesuffix("\n").removesuffix("\r")
        return f"{text}\n" if self.form == "jsonl" and not eos else text


def documents(parts: Iterable[FilePart], tick: Tick) -> Iterator[Piece]:
    """Streams each part as one document."""
    for part in parts:
        yield from _ended(_between_words(decoded(part, tick)))


def lines(parts: Iterable[FilePart], tick: Tick) -> Iterator[Piece]:
    """Streams each line of the parts, including the line feed."""
    for part in parts:
        is_open = False
        for text in _between_words(decoded(part, tick)):
            *whole, rest = text.split("\n")
            for line in whole:
                yield f"{line}\n", True
            is_open = bool(rest) or (is_open and not whole)
            if rest:
                yield rest, False
        if is_open:
            yield "", True


def json_lines(parts: Iterable[FilePart], field: str, tick: Tick) -> Iterator[Piece]:
    """Streams the text in `field` of each line's JSON object, except empty texts.

    Raises `InvalidInput`, which names the line, for an invalid line. Half of a surrogate pair becomes U+FFFD.
    """
    for part in parts:
        number, offset = 0, part.start
        with part.path.open("rb") as file:
            file.seek(part.start)
            while offset < part.stop:
                raw = file.readline()
                if not raw:
                    break
                number += 1
                text = _field(part, raw, field, number, offset)
                offset += len(raw)
                tick(len(raw))
                blocks = (text[i : i + _BLOCK_CHARACTERS] for i in range(0, len(text), _BLOCK_CHARACTERS))
                yield from _ended(_between_words(blocks))


def _field(part: FilePart, raw: bytes, field: str, number: int, offset: int) -> str:
    try:
        line = raw.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(part.path, offset + error.start) from None
    if not line.removeprefix("\ufeff").strip():
        return ""
    place = f"line {number} of {part.path}" if part.start == 0 else f"the line at byte {offset} of {part.path}"
    try:
        record = object_in(line)
    except ValueError as error:
        raise _wrong(part.path, f"{place} {error}", "one JSON object a line") from None
    text = record.get(field)
    if not isinstance(text, str):
        kind = "null" if text is None else f"a {type(text).__name__}"
        what = f"is {kind}, not text" if field in record else f"is missing: it has {', '.join(record)}"
        raise _wrong(part.path, f"the field {field!r} of {place} {what}", "objects with text in that field")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _ended(texts: Iterable[str]) -> Iterator[Piece]:
    """Yields the texts of one document as pieces; the flag of the final piece is True."""
    before: str | None = None
    for text in texts:
        if before is not None:
            yield before, False
        before = text
    if before is not None:
        yield before, True


def _between_words(blocks: Iterable[str]) -> Iterator[str]:
    """Yields the text of the blocks, cut only before white space or within a word longer than `_MAX_WORD`."""
    rest = ""
    for block in blocks:
        rest += block
        cut = _last_space(rest) or (len(rest) if len(rest) > _MAX_WORD else 0)
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
    if rest:
        yield rest


def _last_space(text: str) -> int:
    """Index of the final run of white space that follows other text; 0 if there is none."""
    body = text.rstrip()
    if len(body) == len(text):
        last_word = text.rsplit(None, 1)[-1] if text else ""
        body = text[: len(text) - len(last_word)].rstrip()
    return len(body)


def decoded(part: FilePart, tick: Tick) -> Iterator[str]:
    """Yields the part's text in blocks. Raises `InvalidInput`, which names the first byte that is not UTF-8.

    If the part begins or ends inside a character, the character's bytes become surrogates (`surrogateescape`).
    """
    offset = part.start
    decoder = getincrementaldecoder("utf-8")("surrogateescape" if part.splits_characters else "strict")
    with part.path.open("rb") as file:
        file.seek(offset)
        while offset < part.stop:
            block = file.read(min(_BLOCK_CHARACTERS, part.stop - offset))
            if not block:
                raise _wrong(part.path, f"{part.path} became shorter while it was read", "a file that does not change")
            tick(len(block))
            offset += len(block)
            if offset == len(block):  # the beginning of the file
                block = block.removeprefix(BOM_UTF8)
            try:
                text = decoder.decode(block, final=offset == part.stop)
            except UnicodeDecodeError as error:  # its object includes the bytes that the decoder had buffered
                raise not_utf8(part.path, offset - len(error.object) + error.start) from None
            if text:
                yield text


def not_utf8(path: Path, offset: int) -> InvalidInput:
    """Returns the error for a file that is not text."""
    return _wrong(path, f"{path} is not UTF-8 at byte {offset:,}", "UTF-8 text, neither compressed nor Parquet")


def _wrong(path: Path, detail: str, allowed: str) -> InvalidInput:
    return InvalidInput(detail, field="data", value=str(path), allowed=allowed)
