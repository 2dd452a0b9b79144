"""par-32, srupp, bert and hybrid: their published stacks, their floors of attention, and their sizes."""

from __future__ import annotations

from itertools import product
from math import comb
from typing import Any

import numpy as np
import pytest
from every_space import freed
from hypothesis import given
from hypothesis import strategies as st

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, Block, FeedForward, Srupp
from edgefront.core.architectures.block_stack import StackSpace
from edgefront.core.architectures.catalogue import BERT, HYBRID, LTS_TRANSFORMER_XL, PAR_32, SRUPP
from edgefront.core.architectures.gene import MIN_ATTENTION, MIN_MIXING, MinimumShare
from edgefront.core.architectures.models import named_model
from edgefront.core.architectures.pattern import expand, par_pattern
from edgefront.core.common.errors import SpaceError

STACKS = [PAR_32, SRUPP, BERT, HYBRID]


def attends(block: Block) -> bool:
    return isinstance(block, Attention) or (isinstance(block, Srupp) and block.attends != "none")


def par(pattern: str) -> Architecture:
    letters: dict[str, Block] = {"s": Attention(n_head=8), "f": FeedForward(d_inner=2048)}
    blocks = [letters[letter] for letter in expand(pattern)]
    return PAR_32.frame.model(512, blocks, d_embed=512, div=1)


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("transformer-xl-base", PAR_32),
        ("sandwich-base", PAR_32),
        ("par-base", PAR_32),
        ("srupp-base-wt103", SRUPP),
        ("srupp-large-wt103", SRUPP),
        ("srupp-large-ratio8-wt103", SRUPP),
        ("srupp-large-ratio8-k5-wt103", SRUPP),
        ("bert-base", BERT),
        ("par-bert-base", BERT),
        ("lts-transformer-xl-baseline", HYBRID),
    ],
)
def test_published_models_are_in_their_space(name: str, home: StackSpace) -> None:
    assert home.contains(named_model(name).architecture)


def test_baselines_are_the_stock_models() -> None:
    for space, name in ((PAR_32, "transformer-xl-base"), (BERT, "bert-base"), (HYBRID, "lts-transformer-xl-baseline")):
        assert space.baselines()[-1] == named_model(name).architecture
    assert SRUPP.baselines([10]) == (named_model("srupp-base-wt103").architecture,)
    assert [len(space.baselines()) for space in STACKS] == [16, 16, 12, 16]
    assert len(SRUPP.baselines()[-1].blocks) == 16
    # What every hybrid is compared with was perhaps measured for lts-transformer-xl already.
    assert set(HYBRID.baselines()) == set(LTS_TRANSFORMER_XL.baselines())


def test_a_job_that_excludes_kinds_keeps_the_stock_model() -> None:
    recurrent = HYBRID.narrow({"kind": ["srupp"], "d_model": [256], "n_block": [4, 6]})
    assert {block.kind for block in recurrent.baselines()[0].blocks} == {"attention", "feed_forward"}
    assert [len(baseline.blocks) for baseline in recurrent.baselines()] == [2, 4, 6]
    assert len(PAR_32.narrow({"n_block": 2}).baselines()) == 1


@pytest.mark.parametrize(("percent", "counted"), [(20, lambda n: max(1, round(n / 5))), (0, lambda n: 0)])
def test_par_32_counts_its_stacks(percent: int, counted: Any) -> None:
    """3^32 ways to fill the places are 2^n stacks of each length n, less those with too little attention."""
    space = PAR_32.narrow({MIN_ATTENTION: percent})
    exact = sum(comb(n, some) for n in range(1, 33) for some in range(counted(n), n + 1))
    assert space.size() == exact
    assert (percent != 0) or exact == 2**33 - 2


@given(
    st.integers(1, 5), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.integers(0, 100), st.integers(0, 100)
)
def test_the_floor_counts_what_it_permits(
    blocks: int, attention_layers: int, recurrent: int, pointwise: int, attention: int, mixing: int
) -> None:
    floor = MinimumShare(attention, mixing)
    choices = [(True, True)] * attention_layers + [(False, True)] * recurrent + [(False, False)] * pointwise
    stacks = [[sum(column) for column in zip(*stack, strict=True)] for stack in product(choices, repeat=blocks)]
    permitted = sum(floor.holds(blocks, *tally) for tally in stacks)
    assert floor.count(blocks, attention=attention_layers, recurrent=recurrent, pointwise=pointwise) == permitted


def test_the_floor_is_pars_rule() -> None:
    """n = layers / p, rounded: what PAR Base, Large and BERT have, and Transformer-XL itself."""
    fifth, half = MinimumShare(20, 0), MinimumShare(50, 0)
    assert [fifth.attention(blocks) for blocks in (32, 24, 36, 5, 2, 1)] == [6, 5, 7, 1, 1, 1]
    assert [fifth.attention(n) for n in range(2, 65)] == [max(1, round(n / 5)) for n in range(2, 65)]
    assert [half.attention(blocks) for blocks in (32, 3, 2)] == [16, 2, 1]
    assert MinimumShare(0, 0).attention(32) == 0


def test_pars_own_rows_need_the_floor_that_they_have() -> None:
    """PAR v1, Table 1: 252.9, 31.5 and 23.9 perplexity with 0, 1 and 3 blocks of attention are left out by default."""
    for pattern in ("(sfff)x6(f)x8", "(sff)x7(f)x11", "(sf)x16", par_pattern(32), par_pattern(20), par_pattern(24)):
        assert PAR_32.contains(par(pattern)), pattern
    for pattern in ("(f)x32", "(sfff)x1(f)x28", "(sfff)x3(f)x20", "(sfff)x5(f)x12"):
        assert not PAR_32.contains(par(pattern)), pattern
        assert PAR_32.narrow({MIN_ATTENTION: 0}).contains(par(pattern)), pattern
    assert not PAR_32.contains(par("(sf)x17"))
    assert PAR_32.contains(par("(s)x1"))


def test_several_shares_mean_the_least_of_them() -> None:
    strict, loose = (PAR_32.narrow({MIN_ATTENTION: share}) for share in (50, 10))
    both = PAR_32.narrow({MIN_ATTENTION: [10, 50]})
    assert strict.size() < both.size() == loose.size()
    rng = np.random.default_rng(0)
    shares = {both.sample(rng)[MIN_ATTENTION] for _ in range(20)}
    assert shares == {10, 50}


def test_where_attention_must_be_it_comes_early_and_in_srupp_late() -> None:
    rng = np.random.default_rng(0)
    pointwise = {**PAR_32.sample(rng), "n_block": 32, "kind": ["feed_forward"] * 32}
    repaired = PAR_32.architecture(PAR_32.repair(pointwise))
    assert [block.kind[0] for block in repaired.blocks] == list("a" * 6 + "f" * 26)
    silent = {**SRUPP.sample(rng), "n_layer": 10, "attends": ["none"] * 16}
    repaired = SRUPP.architecture(SRUPP.repair(silent))
    assert [getattr(block, "attends") for block in repaired.blocks] == ["none"] * 9 + ["self"]  # noqa: B009
    both = {**HYBRID.sample(rng), "n_block": 10, "kind": ["srupp"] * 32, "attends": ["none"] * 32}
    repaired = HYBRID.architecture(HYBRID.repair(both))
    assert [attends(block) for block in repaired.blocks] == [False] * 9 + [True]


def test_identity_is_in_the_genome_and_not_in_the_architecture() -> None:
    genome = {**PAR_32.sample(np.random.default_rng(0)), "n_block": 5}
    kinds = ["identity", "attention", "identity", "feed_forward", "identity"]
    dropped = {**genome, "kind": kinds + ["attention"] * 27}
    elsewhere = {**genome, "n_block": 2, "kind": ["attention", "feed_forward"] + ["identity"] * 30}
    assert PAR_32.architecture(dropped) == PAR_32.architecture(elsewhere) == par("(sf)")


def test_any_heads_go_together_in_a_hybrid() -> None:
    blocks: list[Block] = [Attention(n_head=2), Srupp(d_attn=64, attends="none"), Attention(n_head=8)]
    stack = HYBRID.frame.model(256, [*blocks, FeedForward(d_inner=512), Srupp(d_attn=32)], d_embed=256, div=4)
    assert HYBRID.contains(stack)
    for block in (FeedForward(d_inner=448), Srupp(d_attn=48), Attention(n_head=16), Srupp(d_attn=64, n_head=2)):
        assert not HYBRID.contains(HYBRID.frame.model(256, [*blocks, block], d_embed=256, div=4)), block


@pytest.mark.parametrize(
    ("space", "changes", "field", "words"),
    [
        (PAR_32, {"kind": "feed_forward"}, MIN_ATTENTION, "attends to other tokens"),
        (PAR_32, {"kind": "identity"}, "kind", "at least one kind other than identity"),
        (PAR_32, {"kind": ["feed_forward", "identity"], MIN_ATTENTION: [10, 20]}, MIN_ATTENTION, "0, or a kind"),
        (HYBRID, {"kind": ["srupp", "feed_forward"], "attends": "none"}, MIN_ATTENTION, "attends to other tokens"),
        (HYBRID, {"kind": ["feed_forward"], MIN_ATTENTION: 0}, MIN_MIXING, "sees other tokens"),
        (SRUPP, {"d_model": 256, "attn_ratio": 6}, "d_model", "attn_ratio divides d_model"),
        (BERT, {"d_model": 1024, "d_inner": {"max": 2000}}, "d_model", "d_inner ≥ 2·d_model"),
        (PAR_32, {"kind": "srupp"}, "kind", "attention, feed_forward, identity"),
        (PAR_32, {MIN_ATTENTION: 7}, MIN_ATTENTION, "0 to 100 in steps of 5"),
        (PAR_32, {"n_layer": 4}, "n_layer", "n_block, d_model"),
        (PAR_32, {"n_block": {"min": -4, "max": -1}}, "n_block", "2 to 32"),
        (SRUPP, {"attends": "source"}, "attends", "self, none"),
        (SRUPP, {"attn_ratio": 3}, "attn_ratio", "2 to 10 in steps of 2"),
        (BERT, {"n_head": [5]}, "n_head", "2, 4, 8, 12, 16"),
    ],
)
def test_impossible_narrowing_names_the_gene(
    space: StackSpace, changes: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(SpaceError) as caught:
        space.narrow(changes)
    assert caught.value.field == field
    assert words in f"{caught.value.detail} {caught.value.allowed}"


def test_narrowing_to_kinds_without_attention_removes_the_minimum() -> None:
    recurrent = freed(SRUPP).narrow({"attends": "none", "n_layer": 4, "d_model": 256, "attn_ratio": 4, "div": 4})
    assert recurrent.gene(MIN_ATTENTION).values == (0,)
    blocks = recurrent.architecture(recurrent.sample(np.random.default_rng(0))).blocks
    assert set(blocks) == {Srupp(d_attn=64, attends="none")}


def test_a_width_that_a_kind_needs_goes_with_the_kind() -> None:
    """par-32's inner width of 2048 is free of 2·d_model; bert's must fit each d_model unless it has no use."""
    assert BERT.narrow({"d_inner": 1024}).gene("d_model").values == tuple(range(128, 513, 64))
    only_attention = BERT.narrow({"d_inner": 1024, "kind": ["attention", "identity"]})
    assert only_attention.gene("d_model").values == tuple(range(128, 1025, 64))
    assert only_attention.size() == sum(
        sum(1 for head in (2, 4, 8, 12, 16) if width % head == 0) ** length
        for width in range(128, 1025, 64)
        for length in range(1, 25)
    )
