"""Sandwich Transformers: which patterns there are, and that each is counted once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgefront.core.errors import SpaceError
from edgefront.core.spaces.block import Attention, Block, FeedForward
from edgefront.core.spaces.models import named_model
from edgefront.core.spaces.pattern import expand
from edgefront.core.spaces.sandwich import SANDWICH

ONE_SHAPE = {"d_model": 512, "n_head": 8, "d_inner": 2048}


def test_published_models_are_in_the_space() -> None:
    base, large = named_model("sandwich-base").architecture, named_model("sandwich-large").architecture
    assert SANDWICH.contains(base)
    assert SANDWICH.contains(named_model("transformer-xl-base").architecture)
    assert not SANDWICH.contains(named_model("par-base").architecture)
    # The same stack as the Large model; that one was timed with other distances clamped.
    genome = {"pairs": 18, "coefficient": 6, "d_model": 1024, "div": 4, "d_embed": "d_model"}
    assert SANDWICH.architecture({**genome, "n_head": 16, "d_inner": 4096}).blocks == large.blocks


def test_the_size_is_exact() -> None:
    """Pairs 2 to 18 have 2 to 18 coefficients each."""
    patterns = sum(range(2, 19))
    assert SANDWICH.narrow(ONE_SHAPE).size() == patterns
    assert SANDWICH.narrow({**ONE_SHAPE, "div": [1, 4], "n_head": [4, 8]}).size() == 4 * patterns
    widths = sum(4 * (65 - 2 * j) for j in range(2, 17))
    assert SANDWICH.size() == patterns * widths


def test_a_coefficient_stays_below_the_pairs() -> None:
    rng = np.random.default_rng(0)
    genome = {**SANDWICH.sample(rng), "pairs": 3, "coefficient": 17}
    assert SANDWICH.repair(genome)["coefficient"] == 2
    assert all(genome["coefficient"] < genome["pairs"] for genome in (SANDWICH.sample(rng) for _ in range(200)))


@pytest.mark.parametrize(
    ("pattern", "contained"),
    [
        ("(sf)x4", True),
        ("(s)x3(sf)x1(f)x3", True),
        ("(s)x4(f)x4", True),  # a coefficient of 4 is the same stack as one of 3
        ("(ssff)x2", False),
        ("(fs)x4", False),
        ("(sff)x2", False),
        ("(s)x6", False),
        ("(sf)x19", False),
        ("(sf)x1", False),
    ],
)
def test_only_sandwiches_are_contained(pattern: str, contained: bool) -> None:
    letters: dict[str, Block] = {"s": Attention(n_head=8), "f": FeedForward(d_inner=2048)}
    blocks = [letters[letter] for letter in expand(pattern)]
    assert SANDWICH.contains(SANDWICH.frame.model(512, blocks, d_embed=512, div=1)) == contained


def test_the_baseline_is_transformer_xl() -> None:
    assert SANDWICH.baselines([16]) == (named_model("transformer-xl-base").architecture,)
    assert [len(baseline.blocks) for baseline in SANDWICH.narrow({"pairs": [2, 4]}).baselines()] == [2, 4, 6, 8]


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"pairs": [2, 4], "coefficient": [4, 5]}, "coefficient", "below pairs"),
        ({"pairs": 1}, "pairs", "2 to 18"),
        ({"d_model": 1024, "d_inner": 1024}, "d_model", "d_inner ≥ 2·d_model"),
    ],
)
def test_impossible_narrowing_names_the_gene(changes: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(SpaceError) as caught:
        SANDWICH.narrow(changes)
    assert caught.value.field == field
    assert words in f"{caught.value.detail} {caught.value.allowed}"


def test_narrowing_the_coefficient_takes_short_stacks_along() -> None:
    narrowed = SANDWICH.narrow({"coefficient": [6, 16]})
    assert narrowed.gene("pairs").values == tuple(range(7, 19))
    assert SANDWICH.narrow({"coefficient": [6, 16], "pairs": {"max": 10}}).gene("coefficient").values == (6,)
