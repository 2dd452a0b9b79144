"""What is said of a proxy: published figures, what was trained here, and where it misleads."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from edgefront.core.architectures.catalogue import spaces
from edgefront.core.schemas.jobs import ProxyName
from edgefront.core.services.quality.trust import PUBLISHED, live_of, trust
from edgefront.core.training.proxies.study import slices_of
from edgefront.core.training.proxies.table import number_in, read_table, value_of, where

GOLDEN = Path(__file__).parents[1] / "golden" / "lts_trained_wt103.jsonl"
TABLES = {"lts-gpt2": "random_GPT2_wt103", "lts-transformer-xl": "random_TransXL_wt103"}


def test_stated_correlations_equal_those_of_the_logs() -> None:
    rows = read_table(GOLDEN)
    checked = 0
    for ranking in PUBLISHED:
        if ranking.best_tenth is None or ranking.proxy == "quality_law":  # tests/quality/test_law.py: ten folds
            continue
        part = where(rows, {"set": TABLES[ranking.space]})
        values = [value_of(row, ranking.proxy) or 0.0 for row in part]
        found = slices_of([-(number_in(row, "valid_ppl") or 0.0) for row in part], values)
        assert found[0].models == ranking.models
        assert found[0].spearman == pytest.approx(ranking.spearman, abs=6e-4)
        assert found[-1].spearman == pytest.approx(ranking.best_tenth, abs=6e-4)
        checked += 1
    assert checked == 4


def test_every_known_study_is_of_a_space_that_there_is() -> None:
    assert {ranking.space for ranking in PUBLISHED} <= set(spaces())
    assert {ranking.proxy for ranking in PUBLISHED} <= set(get_args(ProxyName))


def test_the_sentence_says_how_far_it_carries() -> None:
    assert trust("lts-gpt2", "decoder_parameters").sentence == (
        "Decoder parameters ranked 200 fully trained models of this space with Spearman's ρ of 0.97, but the best "
        "tenth of them with only 0.57: train those you choose between (LTS's logs of fully trained models (arXiv "
        "2203.02094, microsoft/archai), WikiText-103)."
    )
    assert trust("lts-gpt2", "quality_law").sentence.startswith(
        "quality_law ranked 200 fully trained models of this space with Spearman's ρ of 0.99, and the best tenth of "
        "them with 0.95 ("
    )
    unknown = trust("lts-opt", "decoder_parameters")
    assert unknown.spearman is None
    assert unknown.sentence == (
        "How well decoder parameters rank models of this space is not known: train some of them."
    )


def test_a_caveat_is_about_parameters_and_takes_the_word() -> None:
    caveat = spaces()["bert"].caveat
    told = trust("bert", "decoder_parameters", caveat)
    assert told.sentence == told.caveat == caveat
    assert told.spearman == 0.96
    other = trust("par-32", "quality_law", spaces()["par-32"].caveat)
    assert other.caveat == ""
    assert other.sentence == "How well quality_law ranks models of this space is not known: train some of them."


def test_models_trained_here_come_first() -> None:
    assert live_of("text", "perplexity", [1.0, 2.0], [1.0, 2.0]) is None
    assert live_of("text", "perplexity", [1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
    live = live_of("text", "perplexity", [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 5.0, 4.0])
    assert live is not None
    assert live.spearman == pytest.approx(0.9)
    told = trust("lts-opt", "quality_law", "", live)
    assert told.sentence.startswith(
        "quality_law ranks the 5 models of this job that were trained on text with Spearman's ρ of 0.90 (no interval: "
        "fewer than 10 models)"
    )
    many = live_of("text", "perplexity", range(10), [*range(8), 9, 8])
    assert " with Spearman's ρ of 0.99 (95 %: 0.93 to 1.00)" in trust("lts-opt", "quality_law", "", many).sentence
    assert told.sentence.endswith("by perplexity.")
