"""Descriptions of models that are wrong, each in one field: what REST, the command line and the client are to name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

S: dict[str, Any] = {"kind": "attention", "n_head": 4}
F: dict[str, Any] = {"kind": "feed_forward", "d_inner": 128}
RIGHT: dict[str, Any] = {"d_model": 64, "embedding": {"vocab_size": 100}, "blocks": [S, F]}
READER: dict[str, Any] = {"kind": "srupp", "d_attn": 16, "attends": "both"}
SOURCE: dict[str, Any] = {**RIGHT, "causal": False, "output": {"kind": "none"}}
LONG = "(sf)x2" * 40


@dataclass(frozen=True)
class Wrong:
    """`description` breaks one rule: the error names `field`, says `words`, and what is allowed."""

    title: str
    description: dict[str, Any]
    field: str
    words: str
    allowed: str

    def __str__(self) -> str:
        return self.title


def _wrong(title: str, changes: dict[str, Any], field: str, words: str, allowed: str) -> Wrong:
    return Wrong(title, {**RIGHT, **changes}, field, words, allowed)


WRONG = (
    _wrong(
        "heads that do not divide",
        {"blocks": [S, {"kind": "attention", "n_head": 5}]},
        "blocks.1.n_head",
        "blocks.1.n_head must divide d_model 64, but 5 does not",
        "a divisor of 64",
    ),
    _wrong(
        "heads that do not divide what SRU++ attends with",
        {"blocks": [{"kind": "srupp", "d_attn": 16, "n_head": 3}]},
        "blocks.0.n_head",
        "blocks.0.n_head must divide d_attn 16, but 3 does not",
        "a divisor of 16",
    ),
    _wrong(
        "heads that do not divide in a source",
        {"blocks": [READER], "source": {**SOURCE, "blocks": [{"kind": "attention", "n_head": 7}]}},
        "source.blocks.0.n_head",
        "source.blocks.0.n_head must divide d_model 64, but 7 does not",
        "a divisor of 64",
    ),
    _wrong("an unknown block", {"blocks": [S, {"kind": "mamba"}]}, "blocks.1.kind", "there is no 'mamba'", "srupp"),
    _wrong("a block of no kind", {"blocks": [{"n_head": 4}]}, "blocks.0.kind", "blocks.0.kind is missing", "a value"),
    _wrong("a negative width", {"d_model": -64}, "d_model", "greater than or equal to 1, not -64", "equal to 1"),
    _wrong(
        "a block's negative width", {"blocks": [S, {**F, "d_inner": -8}]}, "blocks.1.d_inner", "not -8", "equal to 1"
    ),
    _wrong("a width as text", {"d_model": "64"}, "d_model", "must be an integer, not '64'", "an integer"),
    _wrong(
        "a pattern that does not parse",
        {"blocks": {"pattern": "(sfff)x6 sf(f)", "s": S, "f": F}},
        "blocks.pattern",
        "a group must be letters in brackets, but at character 10 there is 'sf(f)'",
        "(sfff)x6(f)x8",
    ),
    _wrong(
        "a long pattern that does not parse",
        {"blocks": {"pattern": f"{LONG}q{LONG}", "s": S, "f": F}},
        "blocks.pattern",
        "but at character 241 there is 'q",
        "(sfff)x6(f)x8",
    ),
    _wrong(
        "a pattern with characters of other widths",
        {"blocks": {"pattern": "(sf)\t\n（sf）", "s": S, "f": F}},
        "blocks.pattern",
        "but at character 7 there is '（sf）'",
        "(sfff)x6(f)x8",
    ),
    _wrong(
        "a pattern of far too many",
        {"blocks": {"pattern": f"(sf)x{'9' * 5000}", "s": S, "f": F}},
        "blocks.pattern",
        "more than 1024 blocks",
        "(sfff)x6(f)x8",
    ),
    _wrong(
        "cut-offs beyond the vocabulary",
        {"embedding": {"vocab_size": 100, "cutoffs": [20, 200]}},
        "embedding.cutoffs",
        "embedding.cutoffs must rise and stay below vocab_size 100, not [20, 200]",
        "rising numbers from 1 to 99",
    ),
    _wrong("another version", {"version": 2}, "version", "reads version 1, not 2", "1"),
    _wrong("a version in words", {"version": "9" * 9000}, "version", "reads version 1, not '999", "1"),
    _wrong("no such field", {"depth": 12}, "depth", "there is no such field", "leave it out"),
    _wrong(
        "no such field, called like a kind of block",
        {"blocks": [S, {"kind": "srupp", "d_attn": 16, "attention": False}]},
        "blocks.1.attention",
        "there is no such field",
        "leave it out",
    ),
    _wrong(
        "no such field of a letter's block, called like its own kind",
        {"blocks": {"pattern": "(sf)", "s": S, "f": {**F, "feed_forward": 1}}},
        "blocks.f.feed_forward",
        "there is no such field",
        "leave it out",
    ),
    _wrong(
        "no such field of the positions, called like positions",
        {"positions": {"kind": "learned", "rotary": True}},
        "positions.rotary",
        "there is no such field",
        "leave it out",
    ),
    _wrong(
        "no such field, called like a type",
        {"embedding": {"vocab_size": 100, "int": 1}},
        "embedding.int",
        "there is no such field",
        "leave it out",
    ),
    _wrong("no such field of the model", {"sru": 1}, "sru", "there is no such field", "leave it out"),
    _wrong(
        "blocks as text",
        {"blocks": "(sf)x2"},
        "blocks",
        "must be a list, or an object with a pattern and its letters",
        '{"pattern": "(sf)x2"',
    ),
    _wrong(
        "blocks as text in a source", {"source": {**SOURCE, "blocks": "(sf)"}}, "source.blocks", "a list, or", "{…}"
    ),
    _wrong("an epsilon of nothing", {"norm_eps": "0"}, "norm_eps", "must be a positive number", "as text"),
    _wrong("an epsilon in words", {"norm_eps": "small"}, "norm_eps", "must be a positive number", "as text"),
    _wrong(
        "a base of nothing",
        {"positions": {"kind": "rotary", "theta": -1}},
        "positions.theta",
        "must be a positive number",
        "a whole one",
    ),
    _wrong("a part that is none", {"embedding": 3}, "embedding", "embedding: must be an object, not 3", "an object"),
    _wrong("no blocks", {"blocks": []}, "blocks", "must have at least 1 item, not 0", "at least 1 item"),
)
