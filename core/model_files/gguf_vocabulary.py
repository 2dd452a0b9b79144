"""Converts Hugging Face's `tokenizer.json` to the vocabulary of a GGUF file that gives the same tokens in llama.cpp.

llama.cpp's tokenizer `gpt2` is byte-pair encoding over the bytes of UTF-8, written as GPT-2's characters;
`tokenizer.ggml.pre` names the pattern that splits text before the encoding.

llama.cpp's tokenizer `llama` is SentencePiece's byte-pair encoding (Llama 2, TinyLlama, Mistral), which encodes unsplit
text: spaces become ▁, one space may be prepended, and a character without a token becomes its bytes. llama.cpp has no
merges. It joins two neighbours if the result is a token, and prefers the token of the highest score. This is equivalent
to merges if all splits of each token in two are merges, token after token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.hugging_face import GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
NO_MERGES = ("€ €",)
"""Placeholder, because the list must not be empty; no byte is written as €."""
SPACE = "▁"
_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
_BY_REGEX = {_GPT2: "gpt-2", _LLAMA3: "llama-bpe", _LLAMA3.replace("{1,3}", ""): "qwen2"}
_LLAMA3_NAMES = ("llama-bpe", "llama3", "llama-v3", "lfm2", "falcon3", "falcon-h1", "pixtral", "midm-2.0")
_IGNORES_MERGES = BEGUN = _LLAMA3_NAMES
"""Splits after which llama.cpp keeps a piece that is a token without merging, and adds `bos` by default."""
_EXPRESSIBLE = (
    "a tokenizer of bytes, of characters, byte-level bpe split as GPT-2's, Llama 3's, Qwen2's or SmolLM's, "
    "or SentencePiece's bpe with byte fallback as Llama 2's; --format transformers takes any tokenizer"
)

Role = Literal["bos", "eos", "eot", "eom", "unk", "pad"]


@dataclass(frozen=True)
class GgufVocabulary:
    """Vocabulary of a GGUF file: the tokens by id, and the encoding of text."""

    tokens: tuple[str, ...]
    types: tuple[int, ...] = ()
    merges: tuple[str, ...] = NO_MERGES
    pre: str = "gpt-2"
    scores: tuple[float, ...] = ()
    """Scores of a SentencePiece vocabulary, for which `pre` and `merges` are ignored."""
    space_before: bool = False
    special: Mapping[Role, int] = field(default_factory=dict)
    add_bos: bool = False
    add_eos: bool = False
    chat_template: str | Sequence[Mapping[str, str]] | None = None

    @property
    def unused(self) -> tuple[int, ...]:
        """Ids of embedding rows without a token, which must not be sampled."""
        return tuple(number for number, kind in enumerate(self.types) if kind == UNUSED)


def numbered(size: int, *, merged: bool) -> GgufVocabulary:
    """Vocabulary in which each token's text is the token's id; llama.cpp needs a vocabulary to generate.

    `merged`: each token has a merge, as in published vocabularies of bytes, so that llama.cpp takes as much memory. The
    merges apply to no text, because their parts are no tokens.
    """
    merges = tuple(f"<{token} >" for token in range(size)) if merged else NO_MERGES
    return GgufVocabulary(tuple(f"<{token}>" for token in range(size)), merges=merges)


def vocabulary_of(files: Mapping[str, bytes], size: int) -> GgufVocabulary | None:
    """Vocabulary of a model of `size` tokens, from the files of its tokenizer; None without a tokenizer.

    Raises `InvalidInput` for a tokenizer that GGUF cannot express, or that has more tokens than the model.
    """
    if TOKENIZER not in files:
        return None
    described = json.loads(files[TOKENIZER])
    model, added = described["model"], described.get("added_tokens") or []
    if model.get("type") != "BPE":
        raise _fault(f"a tokenizer of type {model.get('type')}, because llama.cpp splits words into pieces", "words")
    numbers: dict[str, int] = {**model["vocab"], **{token["content"]: token["id"] for token in added}}
    token_count = max(numbers.values()) + 1
    if token_count > size:
        raise InvalidInput(
            f"vocab_size: the tokenizer has {token_count} tokens, the model {size}",
            field="vocab_size",
            value=token_count,
            allowed=f"at most {size}",
        )
    is_pieces = bool(model.get("byte_fallback"))
    _check_added(added, described, is_pieces)
    config = json.loads(files.get(TOKENIZER_CONFIG, b"{}"))
    special = _special(files, config, numbers)
    types = [UNUSED] * size
    for number in numbers.values():
        types[number] = NORMAL
    for token in added:
        types[token["id"]] = CONTROL if token.get("special") else USER_DEFINED
    of_added = {token["id"] for token in added}
    for role, number in special.items():
        if role == "eos" or number in of_added:  # an ordinary piece, such as "!", may be the padding
            types[number] = CONTROL
    if is_pieces and "unk" in special:
        types[special["unk"]] = UNKNOWN
    tokens = [""] * size
    for token, number in numbers.items():
        tokens[number] = token
    # Without an end token llama.cpp uses token 11. The final token is rarer, and no text has the final byte.
    special.setdefault("eos", token_count - 1)
    vocabulary = (_of_pieces if is_pieces else _of_bytes)(described, tokens, types)
    add_bos, add_eos = _put_around(described, config)
    return replace(
        vocabulary,
        tokens=tuple(_all_named(vocabulary.tokens)),
        special=special,
        add_bos=add_bos,
        add_eos=add_eos,
        chat_template=config.get("chat_template"),
    )


def _of_bytes(described: Mapping[str, Any], tokens: list[str], types: list[int]) -> GgufVocabulary:
    model = described["model"]
    pre, merges = "gpt-2", [f"{left} {right}" for left, right in _merges(model)]
    if merges or described.get("pre_tokenizer") is not None:
        pre = _split_as(described, merged=bool(merges))
        _check_whole(model, pre, {token["content"] for token in described.get("added_tokens") or []})
    else:  # a vocabulary of characters, each of which becomes its bytes, merged first
        spelt = ["".join(_CHARACTERS[byte] for byte in token.encode()) for token in model["vocab"]]
        for number, token in zip(model["vocab"].values(), spelt, strict=True):
            tokens[number] = token
        # A prefix of a character is never another character.
        merges = list(dict.fromkeys(f"{token[:end]} {token[end]}" for token in spelt for end in range(1, len(token))))
    return GgufVocabulary(tuple(tokens), tuple(types), tuple(merges) or NO_MERGES, pre)


def _of_pieces(described: Mapping[str, Any], tokens: list[str], types: list[int]) -> GgufVocabulary:
    model = described["model"]
    _check_model(model, ("continuing_subword_prefix", "end_of_word_suffix", "dropout", "ignore_merges"))
    space_before = _puts_space_before(described)
    if space_before is None:
        shown = {name: described.get(name) for name in ("normalizer", "pre_tokenizer")}
        raise _fault(f"the tokenizer's treatment of spaces ({json.dumps(shown, ensure_ascii=False)})", "normalizer")
    missing = next((byte for byte in _BYTES if byte not in model["vocab"]), None)
    if missing is not None:
        raise _fault(f"byte fallback without the token {missing}", missing)
    for byte in _BYTES:
        types[model["vocab"][byte]] = _BYTE
    own = frozenset(token for token, number in model["vocab"].items() if types[number] == NORMAL)
    scores = _scores_of(tokens, _merges(model), own)
    if isinstance(scores, str):
        raise _fault(
            f"the tokenizer's merges, because llama.cpp joins any two tokens that form one, unlike those of {scores!r}",
            scores,
        )
    return GgufVocabulary(tuple(tokens), tuple(types), scores=tuple(scores), space_before=space_before)


def _puts_space_before(described: Mapping[str, Any]) -> bool | None:
    """Whether a space is prepended to a text; None if llama.cpp cannot process spaces like this tokenizer."""
    normalizer, pre = described.get("normalizer"), described.get("pre_tokenizer")
    if normalizer is None and pre is not None and pre.get("type") == "Metaspace" and pre.get("replacement") == SPACE:
        scheme = pre.get("prepend_scheme", "always" if pre.get("add_prefix_space", True) else "never")
        # Splitting at spaces has no effect if no token contains one.
        is_split = pre.get("split", True) and any(SPACE in token[1:] for token in described["model"]["vocab"])
        return None if is_split else scheme != "never"
    if pre is not None or normalizer is None:
        return None
    steps = normalizer["normalizers"] if normalizer.get("type") == "Sequence" else [normalizer]
    *before, last = steps or [{}]
    if last != {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}:
        return None
    return bool(before) if before in ([], [{"type": "Prepend", "prepend": SPACE}]) else None


def _scores_of(tokens: Sequence[str], merges: Sequence[tuple[str, str]], own: frozenset[str]) -> list[float] | str:
    """Returns a score per token, or, if scores cannot express the merges, the first token that differs in llama.cpp.

    `own` are the tokens that are characters or results of merges, without bytes and special tokens.
    """
    ranks: dict[str, int] = {}
    last = ""
    for rank, (left, right) in enumerate(merges):
        whole = left + right
        if whole != last and whole in ranks:  # with merges of another token in between
            return whole
        ranks.setdefault(whole, rank)
        last = whole
    pairs = set(merges)
    for token in own:
        if any(pair not in pairs for pair in splits(token, own)):
            return token
    return [-float(ranks.get(token, len(merges))) for token in tokens]


def splits(token: str, own: frozenset[str]) -> Iterator[tuple[str, str]]:
    """All pairs of tokens of `own` that together give this token."""
    for end in range(1, len(token)):
        if token[:end] in own and token[end:] in own:
            yield token[:end], token[end:]


def _merges(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs = (pair.split(" ") if isinstance(pair, str) else pair for pair in model.get("merges") or ())
    return [(left, right) for left, right in pairs]


def _all_named(tokens: Sequence[str]) -> Iterator[str]:
    """Text of every token id; ids without a token get unique names, because llama.cpp needs unique texts."""
    taken: set[str] = set(tokens)
    seen: set[str] = set()
    for number, token in enumerate(tokens):
        if token and token in seen:
            raise _fault(f"two tokens with the text {token!r}", token)
        seen.add(token)
        name = token or f"[UNUSED{number}]"
        while not token and name in taken:
            name = f"[{name}]"
        yield name


def _check_added(added: Sequence[Mapping[str, Any]], described: Mapping[str, Any], is_pieces: bool) -> None:
    """Raises `InvalidInput` for an added token that a text does not match exactly as written."""
    for token in added:
        content = token["content"]
        stripped = next((name for name in ("lstrip", "rstrip", "single_word") if token.get(name)), None)
        if stripped is not None:
            raise _fault(f"the token {content!r} with {stripped}", content)
        is_normalized = token.get("normalized") and described.get("normalizer") is not None
        if not token.get("special") and is_pieces and (is_normalized or " " in content or "▁" in content):
            raise _fault(f"the token {content!r}, because llama.cpp matches it before spaces are replaced", content)


def _special(files: Mapping[str, bytes], config: Mapping[str, Any], numbers: Mapping[str, int]) -> dict[Role, int]:
    named: dict[Role, int] = {}
    roles: tuple[Role, ...] = ("bos", "eos", "unk", "pad")
    for role in roles:
        token = config.get(f"{role}_token")
        if isinstance(token, str) and token in numbers:
            named[role] = numbers[token]
    ends = json.loads(files.get(GENERATION_CONFIG, b"{}")).get("eos_token_id")
    others = [end for end in (ends if isinstance(ends, list) else []) if end != named.get("eos")]
    # llama.cpp ends a generation at the end of a text, of a turn and of a message; a file has no fields for more ends.
    more: tuple[Role, ...] = ("eot", "eom")
    return named | dict(zip(more, others, strict=False))


def _put_around(described: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[bool, bool]:
    """Returns a pair: whether the tokenizer prepends `bos` to a text, and whether the tokenizer appends `eos`."""
    if "add_bos_token" in config:
        return bool(config["add_bos_token"]), bool(config.get("add_eos_token"))
    processor = described.get("post_processor") or {"type": "ByteLevel"}
    for step in processor.get("processors", [processor]):
        kind, single = step["type"], step.get("single", [])
        if kind == "ByteLevel" or (
            kind == "TemplateProcessing" and not any("SpecialToken" in piece for piece in single)
        ):
            continue
        raise _fault(f"the tokens that the post_processor {kind} adds", kind)
    return False, False


def _split_as(described: Mapping[str, Any], merged: bool) -> str:
    """llama.cpp's name of the pattern by which a byte-level tokenizer splits text."""
    model, pre = described["model"], described.get("pre_tokenizer") or {}
    _check_model(model, ("continuing_subword_prefix", "end_of_word_suffix", "dropout"))
    if model.get("unk_token") and not all(character in model["vocab"] for character in _CHARACTERS):
        raise _fault(f"model.unk_token {model['unk_token']}", model["unk_token"])
    steps: Sequence[Mapping[str, Any]] = pre["pretokenizers"] if pre.get("type") == "Sequence" else [pre]
    *before, last = steps
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space"):
        raise _fault(
            f"pre_tokenizer {last.get('type')}, which must be ByteLevel without an added space", last.get("type")
        )
    name = _name_of(before, bool(last.get("use_regex", True)))
    if name is None and not merged:
        name = "gpt-2"  # bytes without merges
    normalizer = described.get("normalizer")
    if name is None:
        raise _fault(f"the tokenizer's splitting of text ({json.dumps(before)})", "pre_tokenizer")
    if normalizer is not None and not (name == "qwen2" and normalizer.get("type") == "NFC"):
        raise _fault(f"normalizer {normalizer.get('type')}", normalizer.get("type"))
    return name


def splitting(pre: str) -> dict[str, Any] | None:
    """`pre_tokenizer` and `model` (without vocabulary) of a `tokenizer.json` for llama.cpp's name of a splitting
    pattern; None for an unknown name.
    """
    regex = {name: pattern for pattern, name in _BY_REGEX.items()} | dict.fromkeys(_LLAMA3_NAMES, _LLAMA3)
    first: list[dict[str, Any]] = []
    if pre == "smollm":
        first = [{"type": "Digits", "individual_digits": True}]
    elif pre in regex and pre != "gpt-2":
        first = [{"type": "Split", "pattern": {"Regex": regex[pre]}, "behavior": "Isolated", "invert": False}]
    elif pre != "gpt-2":
        return None
    by_regex = not first or pre == "smollm"
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": by_regex}
    model = {"type": "BPE", "fuse_unk": False, "byte_fallback": False, "ignore_merges": pre in _IGNORES_MERGES}
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [*first, level]}, "model": model}


def _name_of(before: Sequence[Mapping[str, Any]], by_regex: bool) -> str | None:
    if not before:
        return "gpt-2" if by_regex else None
    (first, *more) = before
    if more:
        return None
    if first.get("type") == "Digits" and first.get("individual_digits") and by_regex:
        return "smollm"
    is_split = first.get("type") == "Split" and first.get("behavior") == "Isolated" and not first.get("invert")
    if is_split and not by_regex:
        return _BY_REGEX.get(first.get("pattern", {}).get("Regex", ""))
    return None


def _check_model(model: Mapping[str, Any], fields: Sequence[str]) -> None:
    for name in fields:
        if model.get(name):
            raise _fault(f"model.{name} {model[name]}", model[name])


def _check_whole(model: Mapping[str, Any], pre: str, added: Set[str]) -> None:
    """Raises `InvalidInput` if llama.cpp would encode a token's text differently from transformers.

    If only one of the two keeps a piece of text that is a token without merging, the results are still equal if merging
    the text of every token, except added tokens, gives the token.
    """
    if bool(model.get("ignore_merges")) == (pre in _IGNORES_MERGES) or not model.get("merges"):
        return
    from tokenizers import Tokenizer

    alone = {"version": "1.0", "added_tokens": [], "model": {**model, "ignore_merges": False}}
    names = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    merging = Tokenizer.from_str(json.dumps({**dict.fromkeys(names), **alone}))
    characters = set(_CHARACTERS)
    tokens = [token for token in model["vocab"] if token not in added and characters.issuperset(token)]
    for token, encoding in zip(tokens, merging.encode_batch(tokens), strict=True):
        if len(encoding.ids) != 1:
            raise _fault(
                f"model.ignore_merges {bool(model.get('ignore_merges'))}, because merges do not make {token!r}", token
            )


def text_of(token: str) -> str:
    """Text of a token written in GPT-2's characters; other tokens are unchanged."""
    try:
        return bytes(map(_CHARACTERS.index, token)).decode()
    except ValueError:  # characters that GPT-2 does not use, as in a special token
        return token


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
