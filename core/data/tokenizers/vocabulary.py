"""Makes the tokenizer of a text, or reads the one that a user gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from edgefront.core.data.sources.text import not_utf8
from edgefront.core.data.tokenizers.tokenizers import EOS, UNKNOWN, Bytes, Characters, Tokenizer, Words
from edgefront.core.errors import InvalidInput, NotFound

_CODE_POINTS = 0x110000


def bytes_seen(texts: Iterable[str]) -> Tokenizer:
    """A tokenizer of the bytes that occur in the texts, in ascending order."""
    seen = np.zeros(256, np.bool_)
    for text in texts:
        seen[np.frombuffer(text.encode("utf-8", "surrogateescape"), np.uint8)] = True
    return Bytes(np.flatnonzero(seen).tolist())


def characters_seen(texts: Iterable[str]) -> Tokenizer:
    """A tokenizer of the characters that occur in the texts, in the order of their code points."""
    seen = np.zeros(_CODE_POINTS, np.bool_)
    for text in texts:
        seen[np.frombuffer(text.encode("utf-32-le"), "<u4")] = True
    return Characters("".join(map(chr, np.flatnonzero(seen).tolist())))


def words_by_frequency(texts: Iterable[str], vocab_size: int | None) -> Tokenizer:
    """A tokenizer of `<eos>`, `<unk>` and the words by falling frequency; equally frequent ones by first occurrence."""
    counter: Counter[str] = Counter()
    for text in texts:
        counter.update(text.split())
    for special in (EOS, UNKNOWN):
        counter.pop(special, None)
    ranked = sorted(counter, key=lambda word: -counter[word])
    return Words([EOS, UNKNOWN, *ranked][:vocab_size])


def words_given(path: Path, vocab_size: int | None) -> Tokenizer:
    """A tokenizer of the first word of each line, for at most `vocab_size` lines.

    `InvalidInput` if <eos> or <unk> (or <S> and <UNK>) is missing, or a word occurs twice.
    """
    words = []
    for line in read_text(path).removeprefix("\ufeff").split("\n"):
        parts = line.split(None, 1)
        if parts:
            words.append(parts[0])
    try:
        return Words(words[:vocab_size])
    except InvalidInput as error:
        raise InvalidInput(
            f"{path}: {error.detail}", field="vocabulary", value=str(path), allowed=error.allowed
        ) from None


def read_text(path: Path) -> str:
    """Content of a UTF-8 file; `NotFound` if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except UnicodeDecodeError as error:
        raise not_utf8(path, error.start) from None
