"""Loads a saved tokenizer of any level, and compares two tokenizers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.hugging_face import TOKENIZER
from edgefront.core.common.validation import short
from edgefront.core.data.tokenizers.tokenizers import (
    FILE,
    FORMAT,
    ByteTokenizer,
    CharacterTokenizer,
    Tokenizer,
    WordTokenizer,
)

_TOKENS_OF_TEXT = 8
"""Number of random tokens in each text with which tokenizers are compared."""
_CHARACTERS = (*range(9, 0x3000), *range(0x3000, 0xD800, 64), *range(0xE000, 0x20000, 256))
"""Code points that are compared one by one: every code point of alphabetic scripts, a sample of other scripts."""


def same_tokens(folder: Path, other: Path) -> bool:
    """Whether the tokenizers of both folders, and the source tokenizers in `source/`, give the same ids for a text.

    True if `folder` has no tokenizer. The token before a document is not compared. Vocabularies of equal size may
    differ, and equal vocabularies may be stored differently, so the function compares the ids of single characters and
    of random texts with every token of both tokenizers. Takes a second or two for 100,000 tokens.
    """
    for part in ("", "source"):
        if (folder / part / FILE).is_file():
            if not (other / part / FILE).is_file():
                return False
            if not _are_equal(load_tokenizer(folder / part), load_tokenizer(other / part)):
                return False
    return True


def _are_equal(first: Tokenizer, second: Tokenizer) -> bool:
    if first.eos != second.eos and None not in (first.eos, second.eos):
        return False
    count = 0
    for text in (*map(chr, _CHARACTERS), *_sample_texts(first), *_sample_texts(second)):
        with suppress(InvalidInput):  # outside a closed vocabulary
            if first.encode(text) != second.encode(text):
                return False
            count += 1
    return count > 0


def _sample_texts(tokenizer: Tokenizer) -> Iterator[str]:
    order = np.random.default_rng(0).permutation(np.tile(np.arange(tokenizer.vocab_size), 2))
    for start in range(0, len(order), _TOKENS_OF_TEXT):
        yield tokenizer.decode(order[start : start + _TOKENS_OF_TEXT].tolist())


def load_tokenizer(folder: Path) -> Tokenizer:
    """Reads the tokenizer saved in `folder`. Raises `NotFound` without a tokenizer, `InvalidInput` if it is damaged."""
    path = folder / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"it is not a tokenizer of format {FORMAT}")
        match content["level"]:
            case "bytes":
                return ByteTokenizer(content["bytes"])
            case "characters":
                return CharacterTokenizer(content["characters"])
            case "words":
                return WordTokenizer(content["words"])
            case "bpe":
                from edgefront.core.data.tokenizers.bpe import BPETokenizer

                return BPETokenizer.load(folder / TOKENIZER, content)
            case level:
                raise ValueError(f"its level {short(level)} is unknown")
    except FileNotFoundError as error:
        raise NotFound(f"there is no tokenizer in {folder}: {error.filename} is missing") from None
    except InvalidInput:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"{path} is damaged ({error}); prepare the data again", field="tokenizer", value=str(path)
        ) from None
