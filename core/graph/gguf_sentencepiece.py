"""SentencePiece's byte-pair encoding (Llama 2, TinyLlama, Mistral) as llama.cpp implements it: tokenizer type `llama`.

Text is not split before it is encoded: spaces become ▁, one may be put in front, and a character without a token
becomes its bytes. llama.cpp has no merges: it joins two neighbours wherever the whole is a token, the token with the
highest score first. That is the same where every way to split a token in two is a merge, token after token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_SPACE = "▁"
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


def is_sentencepiece(described: Mapping[str, Any]) -> bool:
    return bool(described["model"].get("byte_fallback"))


def puts_space_before(described: Mapping[str, Any]) -> bool | None:
    """Whether a space is put before a text; None where spaces are treated in a way that llama.cpp does not know."""
    normalizer, pre = described.get("normalizer"), described.get("pre_tokenizer")
    if normalizer is None and pre is not None and pre.get("type") == "Metaspace" and pre.get("replacement") == _SPACE:
        scheme = pre.get("prepend_scheme", "always" if pre.get("add_prefix_space", True) else "never")
        # Splitting at spaces changes nothing if no token contains one.
        is_split = pre.get("split", True) and any(_SPACE in token[1:] for token in described["model"]["vocab"])
        return None if is_split else scheme != "never"
    if pre is not None or normalizer is None:
        return None
    steps = normalizer["normalizers"] if normalizer.get("type") == "Sequence" else [normalizer]
    *before, last = steps or [{}]
    if last != {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}:
        return None
    return bool(before) if before in ([], [{"type": "Prepend", "prepend": _SPACE}]) else None


def scores_of(tokens: Sequence[str], merges: Sequence[tuple[str, str]], own: frozenset[str]) -> list[float] | str:
    """A score for each token, or the first token that llama.cpp would make in another way. `own`: tokens of the model
    that are made by merges or are characters, thus neither bytes nor special.
    """
    ranks: dict[str, int] = {}
    last = ""
    for rank, (left, right) in enumerate(merges):
        whole = left + right
        if whole != last and whole in ranks:  # merges of another token lie between
            return whole
        ranks.setdefault(whole, rank)
        last = whole
    pairs = set(merges)
    for token in own:
        if any(pair not in pairs for pair in _splits(token, own)):
            return token
    return [-float(ranks.get(token, len(merges))) for token in tokens]


def _splits(token: str, own: frozenset[str]) -> Iterator[tuple[str, str]]:
    for end in range(1, len(token)):
        if token[:end] in own and token[end:] in own:
            yield token[:end], token[end:]


def merges_of(scores: Mapping[str, float]) -> list[str]:
    """The merges by which tokens with these scores are joined as llama.cpp does: every way to split a token in two, of
    the token with the highest score first.
    """
    own = frozenset(scores)
    return [
        f"{left} {right}"
        for token in sorted(scores, key=lambda token: -scores[token])
        for left, right in _splits(token, own)
    ]


def described_pieces(
    vocabulary: Mapping[str, int], merges: Sequence[str], unknown: str | None, space_before: bool
) -> dict[str, Any]:
    """The parts of a `tokenizer.json` that treat text as llama.cpp does."""
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    before: list[dict[str, Any]] = [{"type": "Prepend", "prepend": _SPACE}] if space_before else []
    spaces = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
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
