"""Reads a GGUF file's tokenizer as Hugging Face's files: byte-level bpe (`gpt2`) and SentencePiece's bpe (`llama`).

Missing fields have llama.cpp's defaults (`llama_vocab::impl::load`, 2026.10); fields required by llama.cpp must exist.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.hugging_face import GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG
from edgefront.core.common.validation import short
from edgefront.core.model_files.gguf_header import GgufHeader, fault
from edgefront.core.model_files.gguf_vocabulary import (
    BEGUN,
    CONTROL,
    NO_MERGES,
    NORMAL,
    SPACE,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    splits,
    splitting,
    text_of,
)

_WITHOUT = (None, "no_vocab", "none")
_GIVE_FOLDER = "give its Hugging Face folder"


def tokenizer_files(header: GgufHeader) -> dict[str, bytes]:
    """Files of the model's tokenizer: `tokenizer.json` and related files; empty if the GGUF file has no tokenizer.

    Raises `InvalidInput` if the tokenizer is of another kind, splits text in an unknown way, or has invalid fields.
    """
    kind = _field(header, "model")
    if kind in _WITHOUT:
        return {}
    if kind not in ("gpt2", "llama"):
        raise _fault(
            header,
            f"has a tokenizer {kind}; it must be byte-level bpe (gpt2) or bpe of pieces (llama), or {_GIVE_FOLDER}",
            "model",
        )
    tokens = _list(header, "tokens", str)
    types = _list(header, "token_type", int) or [NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise _fault(header, f"has {len(types)} token types for {len(tokens)} tokens", "token_type")
    config = _config(header, tokens, pieces=kind == "llama")
    described = (_of_pieces if kind == "llama" else _of_bytes)(header, tokens, types)
    ends = [_number(header, "eos", _default_end(header)), _number(header, "eot"), _number(header, "eom")]
    generation = {"eos_token_id": [end for end in dict.fromkeys(ends) if end is not None and end < len(tokens)]}
    return {
        TOKENIZER: json.dumps({"version": "1.0", "truncation": None, "padding": None, **described}).encode(),
        TOKENIZER_CONFIG: json.dumps(config).encode(),
        GENERATION_CONFIG: json.dumps(generation).encode(),
    }


def _of_bytes(header: GgufHeader, tokens: list[str], types: list[int]) -> dict[str, Any]:
    name = _field(header, "pre", "default")
    pre = splitting(str(name))
    if pre is None:
        raise _fault(header, f"splits text by the unknown pattern {short(name)}; {_GIVE_FOLDER}", "pre")
    if _field(header, "merges") is None:
        raise _fault(header, "lacks tokenizer.ggml.merges", "merges")
    merges = [merge for merge in _list(header, "merges", str) if merge not in NO_MERGES]
    vocabulary = {token: number for number, token in enumerate(tokens) if types[number] != UNUSED}
    decoder: dict[str, Any] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    if not all(part in vocabulary for merge in merges for part in merge.split(" ")):
        # The merges of a vocabulary of characters use bytes without tokens, which `tokenizers` refuses.
        vocabulary, merges = {text_of(token): number for token, number in vocabulary.items()}, []
        pre, decoder = {**pre, "pre_tokenizer": None}, {"type": "Fuse"}
    return {
        "added_tokens": _added(tokens, types, (CONTROL, USER_DEFINED)),
        "normalizer": None,
        **pre,
        "model": {**pre["model"], "vocab": vocabulary, "merges": merges},
        "post_processor": None,
        "decoder": decoder,
    }


def _of_pieces(header: GgufHeader, tokens: list[str], types: list[int]) -> dict[str, Any]:
    scores = _list(header, "scores", float)
    if len(scores) != len(tokens):
        raise _fault(header, f"has {len(scores)} token scores for {len(tokens)} tokens", "scores")
    own = {token: scores[number] for number, token in enumerate(tokens) if types[number] == NORMAL}
    vocabulary = {token: number for number, token in enumerate(tokens) if types[number] != UNUSED}
    unknown = next((token for number, token in enumerate(tokens) if types[number] == UNKNOWN), None)
    space_before = bool(_field(header, "add_space_prefix", True))
    described = _described_pieces(vocabulary, _merges_of(own), unknown, space_before)
    return {"added_tokens": _added(tokens, types, (CONTROL, USER_DEFINED, UNKNOWN)), **described}


def _added(tokens: list[str], types: list[int], kinds: tuple[int, ...]) -> list[dict[str, Any]]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": number, "content": token, "special": type_ != USER_DEFINED, **plain}
        for number, (token, type_) in enumerate(zip(tokens, types, strict=True))
        if type_ in kinds
    ]


def _config(header: GgufHeader, tokens: list[str], pieces: bool) -> dict[str, Any]:
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": bool(_field(header, "add_bos_token", pieces or _field(header, "pre") in BEGUN)),
        "add_eos_token": bool(_field(header, "add_eos_token", False)),
    }
    defaults = {"eos": _default_end(header), "unknown": 0 if pieces else None}
    if config["add_bos_token"]:
        defaults["bos"] = 1 if pieces else 11
    for role, name in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        number = _number(header, name, defaults.get(name))
        if number is not None and number < len(tokens):
            config[f"{role}_token"] = tokens[number]
    if isinstance(template := header.fields.get("tokenizer.chat_template"), str):
        config["chat_template"] = template
    return config


def _default_end(header: GgufHeader) -> int:
    return 2 if _field(header, "model") == "llama" else 11


def _number(header: GgufHeader, name: str, default: int | None = None) -> int | None:
    """Id of the special token in the role `name` (such as bos); None if there is no such token."""
    number = _field(header, f"{name}_token_id", default)
    if number is not None and type(number) is not int:
        field = f"{name}_token_id"
        raise _fault(header, f"has tokenizer.ggml.{field} {short(number)}; it must be a token id", field)
    return number


def _list(header: GgufHeader, name: str, of: type) -> list[Any]:
    values = _field(header, name) or []
    if not isinstance(values, list) or not all(isinstance(value, of) for value in values):
        raise _fault(header, f"has tokenizer.ggml.{name} that is not a list of {of.__name__}", name)
    return values


def _field(header: GgufHeader, name: str, default: Any = None) -> Any:
    return header.fields.get(f"tokenizer.ggml.{name}", default)


def _fault(header: GgufHeader, what: str, field: str) -> InvalidInput:
    return fault(header.path, what, f"tokenizer.ggml.{field}")


def _merges_of(scores: Mapping[str, float]) -> list[str]:
    """Merges equivalent to these scores in llama.cpp: all splits of each token in two, by falling score."""
    own = frozenset(scores)
    return [
        f"{left} {right}"
        for token in sorted(scores, key=lambda token: -scores[token])
        for left, right in splits(token, own)
    ]


def _described_pieces(
    vocabulary: Mapping[str, int], merges: Sequence[str], unknown: str | None, space_before: bool
) -> dict[str, Any]:
    """Sections of a `tokenizer.json` that process text as llama.cpp does."""
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    before: list[dict[str, Any]] = [{"type": "Prepend", "prepend": SPACE}] if space_before else []
    spaces = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    strip: list[dict[str, Any]] = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if space_before else []
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*before, replace]},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [spaces, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": unknown,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": dict(vocabulary),
            "merges": list(merges),
        },
    }
