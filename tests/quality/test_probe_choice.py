"""Probes: the trainings that are chosen narrow a ratio more than others, on tables that the law has not seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from edgefront.core.cost.shapes import Shapes
from edgefront.core.proxies.table import quality_of, read_table
from edgefront.core.proxies.trained import Trained, trained_models
from edgefront.core.quality import studies
from edgefront.core.quality.law import Origin
from edgefront.core.quality.probes import Question, choose
from edgefront.core.quality.shared_law import SharedLaw, own_trainings
from edgefront.core.quality.shipped import law_named

GOLDEN = Path(__file__).parents[1] / "golden"
MODELS, PROBES = 50, 5
TABLES = tuple(table.name for table in studies.study("lts").tables)
ORIGIN = Origin("test", "test")


def table(name: str) -> Trained:
    """Some models of one table of LTS's."""
    files = ("lts_trained_wt103", "lts_trained_other")
    rows = [row for file in files for row in read_table(GOLDEN / f"{file}.jsonl") if row["set"] == name]
    return trained_models(rows[:MODELS], quality_of(rows))


def without(name: str) -> SharedLaw:
    """The law about data that no table has, learnt from a third of the models of the other tables."""
    law = law_named("own-data-gpt2")
    assert isinstance(law, SharedLaw)
    left = (law.study.table == TABLES.index(name)) | (np.arange(len(law.study.table)) % 3 > 0)
    return replace(law, study=law.study.without(left))


def question(law: SharedLaw, models: Trained) -> tuple[Question, np.ndarray]:
    """Of the smaller half the one that is least sure against the largest of it; all others may be trained."""
    order = np.argsort(models.shapes.decoder_parameters, kind="stable")
    half = order[: MODELS // 2]
    stock = half[-1]
    best = half[np.argmax(law.ratio(models.shapes.take(half[:-1]), models.shapes.take([stock])).half_width)]
    others = np.setdiff1d(np.arange(MODELS), [best, stock])
    return Question(law, models.shapes.take([best, stock]), models.shapes.take(others), 1e10), others


def refined(asked: Question, models: Trained, trained: np.ndarray) -> float:
    """Half of the interval after trainings of these models."""
    logs, law = models.log_perplexity[trained], asked.law
    tokens = np.full(len(trained), law.log_train_tokens)
    own = own_trainings(law, models.shapes.take(trained), tokens, logs, [str(place) for place in trained])
    return replace(asked, law=law.refined(own, ORIGIN)).half_width()


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_chosen_trainings_narrow_the_interval_more_than_others(name: str) -> None:
    models = table(name)
    asked, others = question(without(name), models)
    probes = choose(asked, PROBES)
    before, expected = probes.half_widths
    after = refined(asked, models, others[list(probes.chosen)])
    drawn = [np.random.default_rng(seed).permutation(others)[:PROBES] for seed in range(5)]
    assert after <= median(refined(asked, models, each) for each in drawn)
    assert after < 0.8 * before
    assert before == asked.half_width()
    assert expected < before
    assert 0.6 < after / expected < 1.4  # the values tell how sure the law may be: Student's t


def test_the_same_candidates_are_chosen_each_once_in_any_order() -> None:
    models = table(TABLES[0])
    asked, _ = question(without(TABLES[0]), models)
    first = choose(asked, 6).chosen
    assert len(set(first)) == 6
    assert choose(asked, 6).chosen == first
    turned = replace(asked, candidates=asked.candidates.take(np.arange(len(asked.candidates))[::-1]))
    again = [len(asked.candidates) - 1 - place for place in choose(turned, 6).chosen]
    assert (set(again[:2]), again[2:]) == (set(first[:2]), list(first[2:]))  # the first two are chosen together


def test_a_weight_on_costs_chooses_cheaper_ones() -> None:
    models = table(TABLES[0])
    asked, _ = question(without(TABLES[0]), models)
    costs = asked.candidates.decoder_parameters.astype(float)
    dear, cheap = (choose(asked, PROBES, costs, weight) for weight in (0.0, 1.0))
    assert costs[list(cheap.chosen)].sum() < costs[list(dear.chosen)].sum()
    assert dear.half_widths[1] <= cheap.half_widths[1] < cheap.half_widths[0]


def test_further_probes_count_what_was_trained_before() -> None:
    models = table(TABLES[0])
    asked, others = question(without(TABLES[0]), models)
    first = list(choose(asked, 3).chosen)
    trained = others[first]
    own = own_trainings(
        asked.law,
        models.shapes.take(trained),
        np.full(3, asked.law.log_train_tokens),
        models.log_perplexity[trained],
        ["a", "b", "c"],
    )
    later = choose(replace(asked, law=asked.law.refined(own, ORIGIN)), 2)
    assert later.half_widths[0] < asked.half_width()
    assert later.half_widths[1] < later.half_widths[0]


def test_few_candidates_and_none() -> None:
    models = table(TABLES[0])
    asked, _ = question(without(TABLES[0]), models)
    few = replace(asked, candidates=asked.candidates.take([3]))
    assert choose(few, 5).chosen == (0,)
    none = choose(replace(asked, candidates=asked.candidates.take([])), 5)
    assert (none.chosen, none.half_widths) == ((), (asked.half_width(), asked.half_width()))
    with pytest.raises(ValueError, match="two models, not of 1"):
        Question(asked.law, asked.pair.take([0]), asked.candidates, 1e10)


def test_tokens_of_a_training_count_where_the_law_knows_budgets() -> None:
    law = law_named("own-data-llama")
    assert isinstance(law, SharedLaw)
    shapes = law.reference[1]
    models = Shapes.concatenate([shapes, shapes])
    near, far = (choose(Question(law, models, models, tokens), 1).half_widths[1] for tokens in (3e10, 1e6))
    assert near <= far
