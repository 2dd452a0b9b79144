"""Streams text from files of any size.

A piece is at most about 64 KiB of text and a flag that says whether it ends its line or document. Pieces are cut before
white space, where byte-pair encoding cuts anyway, so that tokenizing pieces gives the tokens of the whole.
"""

from __future__ import annotations

from codecs import BOM_UTF8, getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.json_lines import object_in

Piece = tuple[str, bool]
Tick = Callable[[int], None]
"""Called with the number of bytes read."""

_BLOCK_CHARACTERS = 1 << 16
_MAX_WORD = 1 << 20
"""A run of more characters than this without white space is cut."""
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
}
_OTHERS = {
    b"PAR1": "is Parquet: write its rows as JSON lines first",
    b"\xff\xfe": "seems to be UTF-16: convert it first",
    b"\xfe\xff": "seems to be UTF-16: convert it first",
}


@dataclass(frozen=True)
class Part:
    """Bytes `start` to `stop` (exclusive) of a file; with `splits_characters` these may be inside a character."""

    path: Path
    start: int
    stop: int
    splits_characters: bool = False

    @classmethod
    def whole(cls, path: Path) -> Part:
        """All of a file."""
        return cls(path, 0, path.stat().st_size)

    @property
    def size(self) -> int:
        return self.stop - self.start


class Counts(NamedTuple):
    """Counts by which a loss is divided. `words` counts words between white space, and each end of a line as one."""

    characters: int
    words: int
    bytes: int

    @classmethod
    def of(cls, text: str) -> Counts:
        raw = len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))
        return cls(len(text), len(text.split()) + text.count("\n"), raw)


def documents(parts: Iterable[Part], tick: Tick) -> Iterator[Piece]:
    """Each part as one document."""
    for part in parts:
        yield from _ended(_between_words(decoded(part, tick)))


def lines(parts: Iterable[Part], tick: Tick) -> Iterator[Piece]:
    """Each line of the parts, with the line feed that ends it."""
    for part in parts:
        begun = False
        for text in _between_words(decoded(part, tick)):
            *whole, rest = text.split("\n")
            for line in whole:
                yield f"{line}\n", True
            begun = bool(rest) or (begun and not whole)
            if rest:
                yield rest, False
        if begun:
            yield "", True


def json_lines(parts: Iterable[Part], field: str, tick: Tick) -> Iterator[Piece]:
    """The text `field` of each line's JSON object; empty ones are left out.

    `InvalidInput` names the line that is no such object. Half of a surrogate pair becomes U+FFFD.
    """
    for part in parts:
        number, at = 0, part.start
        with part.path.open("rb") as file:
            file.seek(part.start)
            while at < part.stop:
                raw = file.readline()
                if not raw:
                    break
                number += 1
                text = _field(part, raw, field, number, at)
                at += len(raw)
                tick(len(raw))
                blocks = (text[i : i + _BLOCK_CHARACTERS] for i in range(0, len(text), _BLOCK_CHARACTERS))
                yield from _ended(_between_words(blocks))


def _field(part: Part, raw: bytes, field: str, number: int, at: int) -> str:
    try:
        line = raw.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(part.path, at + error.start) from None
    if not line.removeprefix("\ufeff").strip():
        return ""
    place = f"line {number} of {part.path}" if part.start == 0 else f"the line at byte {at} of {part.path}"
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
    """Pieces of one document from its texts: the last has the flag."""
    before: str | None = None
    for text in texts:
        if before is not None:
            yield before, False
        before = text
    if before is not None:
        yield before, True


def _between_words(blocks: Iterable[str]) -> Iterator[str]:
    """The same text, cut only before white space, or within a word of more than a million characters."""
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
    """Where the last white space of the text begins; 0 where there is none after other text."""
    body = text.rstrip()
    if len(body) == len(text):
        last_word = text.rsplit(None, 1)[-1] if text else ""
        body = text[: len(text) - len(last_word)].rstrip()
    return len(body)


def decoded(part: Part, tick: Tick) -> Iterator[str]:
    """The part's text in blocks. `InvalidInput` names the file and byte that is not UTF-8.

    If the part splits characters, the bytes of the split ones become surrogates (`surrogateescape`).
    """
    at = part.start
    decoder = getincrementaldecoder("utf-8")("surrogateescape" if part.splits_characters else "strict")
    with part.path.open("rb") as file:
        file.seek(at)
        while at < part.stop:
            block = file.read(min(_BLOCK_CHARACTERS, part.stop - at))
            if not block:
                raise _wrong(part.path, f"{part.path} became shorter while it was read", "a file that stays")
            tick(len(block))
            at += len(block)
            if at == len(block):  # the beginning of the file
                block = block.removeprefix(BOM_UTF8)
            try:
                text = decoder.decode(block, final=at == part.stop)
            except UnicodeDecodeError as error:  # its object ends here, and begins with what the decoder held back
                raise not_utf8(part.path, at - len(error.object) + error.start) from None
            if text:
                yield text


def not_utf8(path: Path, at: int) -> InvalidInput:
    """The error for a file that is no text, with a guess at what it is."""
    with path.open("rb") as file:
        head = file.read(8)
    packed = next((name for magic, name in _COMPRESSED.items() if head.startswith(magic)), None)
    other = next((what for magic, what in _OTHERS.items() if head.startswith(magic)), None)
    guess = f"; it is compressed with {packed}: decompress it first" if packed else f"; it {other}" if other else ""
    return _wrong(path, f"{path} is not UTF-8 at byte {at:,}{guess}", "UTF-8 text")


def _wrong(path: Path, detail: str, allowed: str) -> InvalidInput:
    return InvalidInput(detail, field="data", value=str(path), allowed=allowed)
