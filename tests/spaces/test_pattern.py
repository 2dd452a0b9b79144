"""Block patterns: every published one, wrong ones, and PAR's rules."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.pattern import MAX_LETTERS, contract, expand, par_pattern
from edgefront.core.common.errors import ArchitectureError

GOLDEN = Path(__file__).parent.parent / "golden" / "patterns.jsonl"
PUBLISHED = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row['source']}, {row['model']}, {row['pattern']}")
def test_published_patterns_have_the_published_layers(row: dict[str, Any]) -> None:
    blocks = expand(str(row["pattern"]))
    assert blocks == row["blocks"]
    assert len(blocks) == row["layers"]
    assert [at + 1 for at, letter in enumerate(blocks) if letter == "s"] == row["attention_layers"]


@pytest.mark.parametrize("row", [row for row in PUBLISHED if row["design_rule"]], ids=lambda row: row["model"])
def test_pars_rules_give_pars_patterns(row: dict[str, Any]) -> None:
    rule = row["design_rule"]
    assert expand(par_pattern(rule["layers"], rule["p"])) == row["blocks"]


def test_the_patterns_of_the_papers_in_the_papers_words() -> None:
    assert par_pattern(32) == "(sfff)x6(f)x8"
    assert par_pattern(24) == "(sff)x5(f)x9"
    assert par_pattern(36) == "(sfff)x7(f)x8"


@pytest.mark.parametrize(
    ("pattern", "blocks"),
    [
        ("(s)", "s"),
        ("(sf)x2 (f)", "sfsff"),
        (" ( s f ) x 2 ( f ) ", "sfsff"),
        ("(sfi)x1", "sfi"),
        ("(s)x02", "ss"),
        (f"(f)x{MAX_LETTERS}", "f" * MAX_LETTERS),
    ],
)
def test_valid_patterns(pattern: str, blocks: str) -> None:
    assert expand(pattern) == blocks


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("", "at character 1 there is nothing"),
        ("   ", "at character 1 there is nothing"),
        ("sf", "at character 1 there is 'sf'"),
        ("(sf)x2f", "at character 7 there is 'f'"),
        ("(sf)) (f)", "at character 5 there is ') (f)'"),
        ("(sf", "at character 1 there is '(sf'"),
        ("(s(f)", "at character 1 there is '(s(f)'"),
        ("(sf)x (f)", "at character 5 there is 'x (f)'"),
        ("(sgf)x2", "letters of a group must be s, f, i, at least one, not 'sgf'"),
        ("()x2", "at least one, not ''"),
        ("(sf)x0", "the group 'sf' must be repeated at least once"),
        (f"(f) (s)x{MAX_LETTERS}", f"more than {MAX_LETTERS}"),
        ("(sf)x999999999999999999", f"more than {MAX_LETTERS}"),
        ("par(32)", "at character 1"),
    ],
)
def test_a_wrong_pattern_is_said(pattern: str, words: str) -> None:
    with pytest.raises(ArchitectureError) as caught:
        expand(pattern)
    assert words in caught.value.detail
    assert (caught.value.field, caught.value.value) == ("pattern", pattern)


def test_an_architecture_with_a_wrong_pattern_says_where() -> None:
    described = {"d_model": 64, "embedding": {"vocab_size": 9}, "blocks": {"pattern": "(sf)y2", "s": {}, "f": {}}}
    with pytest.raises(ArchitectureError, match="at character 5") as caught:
        Architecture.parse(described)
    assert caught.value.field == "blocks.pattern"


groups = st.lists(st.tuples(st.text("sfi", min_size=1, max_size=6), st.integers(1, 20)), min_size=1, max_size=8)


@given(groups, st.sampled_from(["", " ", "  "]))
def test_any_pattern_can_be_written(written: list[tuple[str, int]], space: str) -> None:
    pattern = space.join(f"({space}{letters}{space}){space}x{count}" for letters, count in written)
    assert expand(pattern) == "".join(letters * count for letters, count in written)


@given(st.text("()sfix 0123", max_size=20))
def test_any_text_is_expanded_or_refused(pattern: str) -> None:
    with suppress(ArchitectureError):
        blocks = expand(pattern)
        assert 0 < len(blocks) <= MAX_LETTERS
        assert set(blocks) <= set("sfi")


@given(st.integers(2, 200), st.integers(1, 40))
def test_pars_rules_hold(layers: int, p: int) -> None:
    """As many layers as asked for, attention in one of p, evenly from the first on, in the first two thirds.

    PAR's own Large model has its last attention at 25 of 36, one past two thirds: so much is let pass.
    """
    blocks = expand(par_pattern(layers, p))
    places = [at for at, letter in enumerate(blocks) if letter == "s"]
    assert len(blocks) == layers
    assert places[0] == 0
    strides = {after - before for before, after in pairwise(places)}
    assert len(strides) <= 1
    assert len(places) == max(1, round(layers / p))
    assert p == 1 or places[-1] + 1 <= round(2 * layers / 3) + 1


@pytest.mark.parametrize(("layers", "p", "field"), [(1, 5, "layers"), (32, 0, "p")])
def test_rules_refuse_what_they_cannot_mean(layers: int, p: int, field: str) -> None:
    with pytest.raises(ArchitectureError) as caught:
        par_pattern(layers, p)
    assert caught.value.field == field


@given(st.text("sfi", min_size=1, max_size=60))
def test_a_contracted_pattern_expands_to_its_letters(letters: str) -> None:
    pattern = contract(letters)
    assert expand(pattern) == letters
    assert len(pattern) <= len(letters) + 2 * -(-len(letters) // 32)


@pytest.mark.parametrize("pattern", ["(sfff)x6(f)x8", "(sff)x5(f)x9", "(sf)x16", "(s)"])
def test_published_patterns_are_their_own_contraction(pattern: str) -> None:
    assert contract(expand(pattern)) == pattern
