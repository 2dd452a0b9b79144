"""Makes the tokenizer of a text, reads the one that a user gives, and one of any level that was saved."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.hugging_face import TOKENIZER
from edgefront.core.common.validation import short
from edgefront.core.data.tokenizers.stated import read_text
from edgefront.core.data.tokenizers.tokenizers import (
    EOS,
    FILE,
    FORMAT,
    UNKNOWN,
    Bytes,
    Characters,
    Tokenizer,
    Words,
)

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


_TOGETHER = 8
"""Tokens, drawn at random, that make a text on which two tokenizers are compared."""
_CHARACTERS = (*range(9, 0x3000), *range(0x3000, 0xD800, 64), *range(0xE000, 0x20000, 256))
"""Code points that are compared alone: all of the scripts with an alphabet, some of the others."""


def same_tokens(folder: Path, other: Path) -> bool:
    """Whether a text has the same ids by the tokenizer in `folder` as by that in `other`, and so of a source's in
    `source/`; True where `folder` has none. What is put before a document does not count.

    They are compared on single characters and on every token of both beside random others: the size of a vocabulary is
    no proof, nor is the form that it is stored in. Takes a second or two for 100,000 tokens.
    """
    for part in ("", "source"):
        if (folder / part / FILE).is_file():
            if not (other / part / FILE).is_file():
                return False
            if not _is_same(load_tokenizer(folder / part), load_tokenizer(other / part)):
                return False
    return True


def _is_same(one: Tokenizer, other: Tokenizer) -> bool:
    if one.eos != other.eos and None not in (one.eos, other.eos):
        return False
    count = 0
    for text in (*map(chr, _CHARACTERS), *_texts(one), *_texts(other)):
        with suppress(InvalidInput):  # outside a closed vocabulary
            if one.encode(text) != other.encode(text):
                return False
            count += 1
    return count > 0


def _texts(tokenizer: Tokenizer) -> Iterator[str]:
    order = np.random.default_rng(0).permutation(np.tile(np.arange(tokenizer.vocab_size), 2))
    for start in range(0, len(order), _TOGETHER):
        yield tokenizer.decode(order[start : start + _TOGETHER].tolist())


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer that was saved there. `NotFound` where there is none, `InvalidInput` where it is damaged."""
    path = folder / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"it is not a tokenizer of format {FORMAT}")
        match content["level"]:
            case "bytes":
                return Bytes(content["bytes"])
            case "characters":
                return Characters(content["characters"])
            case "words":
                return Words(content["words"])
            case "bpe":
                from edgefront.core.data.tokenizers.bpe import Pieces

                return Pieces.read(folder / TOKENIZER, content)
            case level:
                raise ValueError(f"its level is {short(level)}")
    except FileNotFoundError as error:
        raise NotFound(f"there is no tokenizer in {folder}: {error.filename} is missing") from None
    except InvalidInput:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"{path} is damaged ({error}); prepare the data again", field="tokenizer", value=str(path)
        ) from None
