"""The vocabulary of a GGUF file, made from Hugging Face's `tokenizer.json`, so that llama.cpp makes the same tokens.

llama.cpp's tokenizer of type `gpt2` is byte-pair encoding over the bytes of UTF-8, each byte being the character that
GPT-2 has for it; how text is split before that has a name (`tokenizer.ggml.pre`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgefront.core.errors import InvalidInput

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
_NO_MERGES = ("€ €",)
"""A list must not be empty; no byte is called so."""
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
_BY_REGEX = {_LLAMA3: "llama-bpe", _LLAMA3.replace("{1,3}", ""): "qwen2"}
_EXPRESSIBLE = "a tokenizer of bytes, of characters, or byte-level bpe split as GPT-2's, Llama 3's, Qwen2's or SmolLM's"


@dataclass(frozen=True)
class GgufVocabulary:
    """The tokens by their numbers, and how text becomes them."""

    tokens: tuple[str, ...]
    types: tuple[int, ...] = ()
    merges: tuple[str, ...] = _NO_MERGES
    pre: str = "gpt-2"
    eos: int | None = None


def numbered(size: int) -> GgufVocabulary:
    """Tokens that are their numbers: llama.cpp generates nothing without a vocabulary."""
    return GgufVocabulary(tuple(f"<{token}>" for token in range(size)))


def vocabulary_of(files: Mapping[str, bytes], size: int) -> GgufVocabulary | None:
    """The vocabulary of a model of `size` tokens, from the files of its tokenizer; None where there are none.

    Raises `InvalidInput` for a tokenizer that GGUF cannot express, or of more tokens than the model.
    """
    if TOKENIZER not in files:
        return None
    described = json.loads(files[TOKENIZER])
    model, added = described["model"], described.get("added_tokens") or []
    if model.get("type") != "BPE":
        raise _fault(f"one of type {model.get('type')}, as of words: llama.cpp splits words into pieces", "words")
    numbers: dict[str, int] = {**model["vocab"], **{token["content"]: token["id"] for token in added}}
    known = max(numbers.values()) + 1
    if known > size:
        raise InvalidInput(
            f"vocab_size: the tokenizer has {known} tokens, the model {size}",
            field="vocab_size",
            value=known,
            allowed=f"at most {size}",
        )
    tokens = [f"[UNUSED{number}]" for number in range(size)]
    types = [_UNUSED] * size
    for token, number in numbers.items():
        tokens[number], types[number] = token, _NORMAL
    for token in added:
        types[token["id"]] = _CONTROL if token.get("special") else _USER_DEFINED
    pre, merges = "gpt-2", [pair if isinstance(pair, str) else " ".join(pair) for pair in model.get("merges") or []]
    if merges or described.get("pre_tokenizer") is not None:
        pre = _split_as(described, merged=bool(merges))
    else:  # of characters: each becomes the bytes that it has, which are joined first of all
        for token, number in model["vocab"].items():
            tokens[number] = _spelt(token)
        merges = list(dict.fromkeys(_joined([tokens[number] for number in model["vocab"].values()])))
    eos = _eos(files, numbers)
    # llama.cpp takes token 11 where a file names none: the last one is rarer, of all bytes one that no text has.
    return GgufVocabulary(
        tuple(tokens), tuple(types), tuple(merges) or _NO_MERGES, pre, known - 1 if eos is None else eos
    )


def _split_as(described: Mapping[str, Any], merged: bool) -> str:
    """llama.cpp's name of how a byte-level tokenizer splits text."""
    model, pre = described["model"], described.get("pre_tokenizer") or {}
    for field in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "dropout"):
        if model.get(field):
            raise _fault(f"model.{field} {model[field]}", model[field])
    steps: Sequence[Mapping[str, Any]] = pre["pretokenizers"] if pre.get("type") == "Sequence" else [pre]
    *before, last = steps
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space"):
        raise _fault(f"pre_tokenizer {last.get('type')}: it must be byte-level, adding no space", last.get("type"))
    name = _name_of(before, bool(last.get("use_regex", True)))
    if name is None and not merged:
        name = "gpt-2"  # bytes that are never joined
    normalizer = described.get("normalizer")
    if name is None:
        raise _fault(f"the way it splits text ({json.dumps(before)})", "pre_tokenizer")
    if normalizer is not None and not (name == "qwen2" and normalizer.get("type") == "NFC"):
        raise _fault(f"normalizer {normalizer.get('type')}", normalizer.get("type"))
    return name


def _name_of(before: Sequence[Mapping[str, Any]], by_regex: bool) -> str | None:
    if not before:
        return "gpt-2" if by_regex else None
    (first, *more) = before
    if more:
        return None
    if first.get("type") == "Digits" and first.get("individual_digits") and by_regex:
        return "smollm"
    if first.get("type") == "Split" and first.get("behavior") == "Isolated" and not by_regex:
        return _BY_REGEX.get(first.get("pattern", {}).get("Regex", ""))
    return None


def _eos(files: Mapping[str, bytes], numbers: Mapping[str, int]) -> int | None:
    config = json.loads(files.get(TOKENIZER_CONFIG, b"{}"))
    return numbers.get(config.get("eos_token"))


def _spelt(text: str) -> str:
    """A text as GPT-2 writes its bytes: itself where a byte is printable, else another character."""
    return "".join(_CHARACTERS[byte] for byte in text.encode())


def _joined(characters: Sequence[str]) -> Iterator[str]:
    """Merges that make characters of several bytes whole. They start with a byte that only starts a character."""
    for character in characters:
        for end in range(1, len(character)):
            yield f"{character[:end]} {character[end]}"


def _characters() -> Iterator[str]:
    shift = 256
    for byte in range(256):
        if 0x21 <= byte < 0x7F or 0xA1 <= byte < 0xAD or byte >= 0xAE:
            yield chr(byte)
        else:
            yield chr(shift)
            shift += 1


_CHARACTERS = tuple(_characters())


def _fault(what: str, value: Any) -> InvalidInput:
    return InvalidInput(f"tokenizer: GGUF cannot express {what}", field="tokenizer", value=value, allowed=_EXPRESSIBLE)
