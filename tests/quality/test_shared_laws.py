"""Laws that are shared by several tables: what they predict of shapes, recipes and data that were left out."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from left_out import pairs_held, rows_of, shapes_left_out, shared, trainings
from published_tables import read_published

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import space
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.models import named_model
from edgefront.core.common.errors import InvalidInput
from edgefront.core.quality import scaling_study
from edgefront.core.quality.features import NAMES
from edgefront.core.quality.predictor import Pace, PerplexityPredictor, TrainingTime
from edgefront.core.quality.scaling_law import OwnTrainings, ScalingLaw, own_trainings
from edgefront.core.quality.shipped import law_named
from edgefront.core.search.population_shapes import PopulationShapes
from edgefront.core.training.proxies.study import best, spearman
from edgefront.core.training.proxies.table import architecture_of

GOLDEN = Path(__file__).parents[1] / "golden"
RECIPES = ("constant_lr", "cooled", "half_lr")
DATA_SETS = tuple(table.name for table in scaling_study.study("lts").tables)
SIZE, WIDTH = NAMES.index("log_decoder"), NAMES.index("log_d_model")


def decoder(width: int = 512, depth: int = 12, **changes: Any) -> Architecture:
    """A decoder as those of the Gemstones, with heads of 64."""
    attention = {"kind": "attention", "n_head": width // 64, "n_kv_head": width // 128, "bias": "none"}
    inner = {"kind": "feed_forward", "d_inner": 4 * width, "gated": True, "bias": False}
    return Architecture.parse(
        {
            "d_model": width,
            "positions": {"kind": "rotary"},
            "norm_kind": "rms",
            "embedding": {"vocab_size": changes.get("vocab_size", 50_304)},
            "blocks": [attention | changes.get("attention", {}), inner | changes.get("inner", {})] * depth,
        }
    )


def shapes(*architectures: Architecture) -> Shapes:
    return Shapes.of(list(architectures))


# Shapes --------------------------------------------------------------------------------------------------------------


def test_counts_of_all_gemstones_are_exact_by_our_own_formulas() -> None:
    """2·50,304·w + w + depth·(15 w² + 2 w), where three heads have one for keys and values 14⅔ w²."""
    models = {
        (row["width"], row["depth"]): row
        for recipe in RECIPES
        for row in read_published(GOLDEN / f"gemstones_{recipe}.csv.gz")
    }
    assert len(models) == 18
    for (width, depth), row in models.items():
        architecture = architecture_of(row)
        assert architecture is not None
        counted = costs(architecture, CostOptions(sequence_length=1)).total_parameters
        layer = (44 * width**2 // 3 if width == 384 else 15 * width**2) + 2 * width
        assert counted == row["parameters"] == 2 * 50_304 * width + width + depth * layer


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_shape_that_was_left_out_is_predicted(recipe: str) -> None:
    foretold = shapes_left_out()
    of_table = foretold.table(recipe)
    error = np.abs(np.expm1(foretold.error[of_table]))
    assert error.mean() <= 0.01
    assert (np.abs(foretold.error) <= foretold.half_width)[of_table].mean() >= 0.92
    assert np.median(foretold.half_width[of_table]) < 0.05
    ranks = []
    for tokens in np.unique(foretold.study.log_tokens[of_table]):
        equal = of_table & (foretold.study.log_tokens == tokens)
        if equal.sum() > 7:
            ranks.append(spearman(foretold.mean[equal], foretold.study.log_perplexity[equal]))
    assert len(ranks) >= 5
    assert np.mean(ranks) >= 0.99


def test_inside_a_size_class_shape_and_tokens_are_told_apart() -> None:
    """Where the number of parameters is about the same."""
    foretold = shapes_left_out()
    study = foretold.study
    for low, high in ((40e6, 80e6), (80e6, 130e6), (450e6, 600e6), (900e6, 1.2e9), (1.8e9, 2.1e9)):
        rows = _of_size(low, high) & foretold.table("constant_lr")
        assert len(np.unique(study.inputs[rows], axis=0)) >= 2
        assert spearman(foretold.mean[rows], study.log_perplexity[rows]) >= 0.95


def _of_size(low: float, high: float) -> np.ndarray:
    """Rows of models with so many parameters in all."""
    study = scaling_study.study("gemstones")
    total = np.exp(study.inputs[:, SIZE]) + 2 * 50_304 * np.exp(study.inputs[:, WIDTH])
    return np.asarray((total >= low) & (total < high))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_that_was_left_out_keeps_the_ratios(recipe: str) -> None:
    study = scaling_study.study("gemstones")
    own = study.table == RECIPES.index(recipe)
    other = 1 if recipe != "cooled" else 0
    law = replace(shared("llama-dolma-other-recipe"), study=study.without(own), asked=other)
    held: list[np.ndarray] = []
    for tokens in np.unique(study.log_tokens[own]):
        places = np.flatnonzero(own & (study.log_tokens == tokens))
        if len(places) > 7:
            held.append(pairs_held(law, study, places))
    assert len(np.concatenate(held)) > 400
    assert np.concatenate(held).mean() >= 0.92


@pytest.mark.parametrize("name", ["llama-dolma-cooled", "llama-dolma", "own-data-llama", "llama-dolma-other-recipe"])
def test_more_tokens_are_never_worse(name: str) -> None:
    law, of = shared(name), space("llama")
    wide = of.narrow({"n_layer": {"min": 1}, "d_model": {"min": 128}, "layers": "alike"})
    rng = np.random.default_rng(0)
    drawn = [part.architecture(genome) for part in (of, wide) for genome in part.samples(100, rng)]
    low, high = law.token_range or (0.0, 0.0)
    steps = np.linspace(np.log(low), np.log(high), 40)
    many = Shapes.of(drawn)
    curves = np.array([law.at(many, np.full(len(drawn), step)).log_perplexity for step in steps])
    assert (np.diff(curves, axis=0) < 0).all()


# Data ----------------------------------------------------------------------------------------------------------------


@cache
def without_table(name: str) -> ScalingLaw:
    """The law of own data, of all tables but this."""
    study = scaling_study.study("lts")
    return replace(shared("own-data-gpt2"), study=study.without(study.table == DATA_SETS.index(name)))


@pytest.mark.parametrize("name", DATA_SETS)
def test_a_table_that_was_left_out_is_ranked(name: str) -> None:
    study, law = scaling_study.study("lts"), without_table(name)
    own = study.table == DATA_SETS.index(name)
    mean, _ = law._posterior.predict(rows_of(law, study, own))
    logs = study.log_perplexity[own]
    chosen = best(-logs, 0.3)
    ours, parameters = (spearman(values[chosen], logs[chosen]) for values in (mean, -study.inputs[own, SIZE]))
    assert ours >= 0.95 if parameters >= 0.95 else ours > parameters


@pytest.mark.parametrize("name", DATA_SETS)
@pytest.mark.parametrize("count", [0, 1, 3, 5, 10])
def test_ratios_hold_in_a_table_that_was_left_out(name: str, count: int) -> None:
    study, law = scaling_study.study("lts"), without_table(name)
    places = np.flatnonzero(study.table == DATA_SETS.index(name))
    held: list[np.ndarray] = []
    for seed in range(1 if count == 0 else 4):
        order = np.random.default_rng(seed).permutation(places)
        refined = law if count == 0 else law.refined(trainings(study, order[:count]), law.origin)
        held.append(pairs_held(refined, study, order[count:]))
    assert np.concatenate(held).mean() >= 0.90


def test_own_trainings_narrow_the_intervals() -> None:
    study, law = scaling_study.study("lts"), without_table(DATA_SETS[0])
    order = np.random.default_rng(0).permutation(np.flatnonzero(study.table == 0))
    asked = np.zeros(len(study.inputs), dtype=np.bool_)
    asked[order[10:40]] = True
    widths = []
    for count in (1, 3, 10):
        refined = law.refined(trainings(study, order[:count]), law.origin)
        widths.append(float(np.median(refined._posterior.predict(rows_of(refined, study, asked))[1])))
    assert widths[0] > widths[1] > widths[2]


def test_an_interval_counts_models_not_rows() -> None:
    """A hundred points of one learning curve tell no more of other models than three."""
    law = shared("own-data-llama")
    one, other = shapes(decoder(512, 12)), shapes(decoder(768, 20))
    widths = []
    for points in (3, 100):
        log_tokens = np.linspace(np.log(1e10), np.log(1e11), points)
        logs = law.study.prior.trend(law.study.inputs[:1], log_tokens) + 0.1
        own = own_trainings(law, one.take(np.zeros(points, dtype=int)), log_tokens, logs, ["a"] * points)
        assert own.trainings == 1
        refined = law.refined(own, law.origin)
        assert refined.models == 1, "own trainings"
        widths.append(float(refined.predict(other).half_width[0]))
    assert widths[1] >= 0.9 * widths[0]


def test_own_data_without_trainings_gives_ratios_alone() -> None:
    law = law_named("own-data-llama")
    assert law.relative_to == "smollm2-135m"
    assert law.predict(shapes(named_model("smollm2-135m").architecture)).perplexity[0] == pytest.approx(1)
    assert law_named("llama-dolma").relative_to is None


# What is known and what is not ---------------------------------------------------------------------------------------


def test_intervals_widen_where_tokens_and_shapes_are_beyond_the_tables() -> None:
    law, one = law_named("llama-dolma"), shapes(decoder())
    widths = {tokens: float(law.at_tokens(tokens).predict(one).half_width[0]) for tokens in (1e9, 2e9, 4e9, 30e9, 1e12)}
    assert widths[1e9] > widths[2e9] > 1.5 * widths[4e9]
    assert widths[1e12] > widths[30e9]
    assert law.at_tokens(2e9).beyond(one) == [("train_tokens",)]
    assert law.beyond(one) == [()]
    small, far = shapes(decoder(128, 4)), shapes(decoder(4096, 4))
    assert {"log_decoder", "log_d_model"} <= set(law.beyond(small)[0])
    assert "log_d_model" in law.beyond(far)[0]
    assert law.predict(small).half_width[0] > law.predict(one).half_width[0] < law.predict(far).half_width[0]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("kv_share", {"attention": {"n_kv_head": 8}}),
        ("inner_ratio", {"inner": {"d_inner": 1024}}),
        ("attention_width", {"attention": {"n_head": 4, "n_kv_head": 2, "d_head": 64}}),
        ("window", {"attention": {"window": 128}}),
        ("gate", {"inner": {"gated": False, "d_inner": 3072}}),
        ("vocabulary", {"vocab_size": 8_192}),
    ],
)
def test_what_no_table_varies_is_named_and_widens(name: str, changes: dict[str, Any]) -> None:
    law = law_named("llama-dolma-cooled")
    usual, apart = shapes(decoder()), shapes(decoder(**changes))
    assert law.beyond(apart) == [(name,)]
    assert law.predict(apart).extrapolated[0]
    assert law.predict(apart).half_width[0] > law.predict(usual).half_width[0]
    # What two models have in common cancels in their ratio.
    other = shapes(decoder(512, 10, **changes))
    assert law.ratio(apart, other).half_width[0] < law.ratio(apart, usual).half_width[0]


def test_convolutions_and_parts_left_out_are_named() -> None:
    law = law_named("llama-dolma-cooled")
    lfm = named_model("lfm2-350m").architecture
    assert "short_conv" in law.beyond(shapes(lfm))[0]
    whole = decoder().canonical
    partial = Architecture.parse({**whole, "blocks": list(whole["blocks"])[:-1]})
    assert law.beyond(shapes(partial)) == [("left_out",)]


def documented(first: str) -> list[list[str]]:
    """The rows of the table in docs/law-shapes.md whose first title this is."""
    text = (Path(__file__).parents[2] / "docs" / "law-shapes.md").read_text(encoding="utf-8")
    (part,) = (part for part in text.split("\n\n") if part.startswith(f"| {first} |"))
    head, _, *rows = [line.strip("| ").split(" | ") for line in part.splitlines()]
    return [head, *rows]


def percent(law: PerplexityPredictor, every: Shapes, stock: Shapes) -> np.ndarray:
    """± of the ratio of each to the stock model's perplexity."""
    return np.asarray(100 * np.expm1(law.ratio(every, stock).half_width))


def test_ratios_of_the_tables_shapes_to_smollm2_are_known_as_documented() -> None:
    """Below 6 % where a shape is near those of the tables."""
    head, *rows = documented("d_model")
    depths = [int(title.split()[0]) for title in head[1:]]
    law, stock = law_named("llama-dolma-cooled").at_tokens(1e10), shapes(named_model("smollm2-135m").architecture)
    widths = []
    for row in rows:
        width = int(row[0])
        layer = {"layers": "alike", "n_head": width // 64, "n_kv_head": width // 128, "d_inner": 4 * width}
        of = space("llama").narrow({"d_model": width, "n_layer": depths, **layer})
        every = Shapes.of([of.architecture(genome) for genome in of.enumerate()])
        assert {name for names in law.beyond(every) for name in names} <= {
            "vocabulary",
            "train_tokens",
            "log_decoder",
            "log_depth",
        }
        widths.append(percent(law, every, stock))
    assert len(rows) == 5
    assert np.array(widths) == pytest.approx(np.array([list(map(float, row[1:])) for row in rows]), abs=0.051)
    assert (np.array(widths)[1:3, 2:] < 6).all()  # widths 384 and 512, from 12 layers on


def test_ratios_to_the_stock_model_of_the_same_size_are_known_as_documented() -> None:
    """To 13 layers of the stock model, of models of 30 to 60 million block parameters."""
    _, *rows = documented("layers")
    law, of, rng = law_named("llama-dolma-cooled").at_tokens(1e10), space("llama"), np.random.default_rng(0)
    every_part = {name: [value for value in of.gene(name).values if value] for name in ("n_head", "d_inner")}
    parts = [
        of,
        of.narrow({"layers": "alike", **every_part}),
    ]
    stock = shapes(of.baselines([13])[0])
    for part, (_, *row) in zip(parts, rows, strict=True):
        every = PopulationShapes(part)(part.operators.sample(6000, rng))
        every = every.take((every.decoder_parameters > 30e6) & (every.decoder_parameters < 60e6))
        known, ratios = percent(law, every, stock), np.exp(law.ratio(every, stock).log_perplexity)
        leading = np.argsort(ratios)[: len(ratios) // 10]
        figures = [np.median(known), np.median(known[leading]), np.median(ratios[leading]), ratios.min()]
        for figure, told, off in zip(figures, map(float, row), (0.2, 0.3, 0.01, 0.03), strict=True):
            assert float(figure) == pytest.approx(told, abs=off)


@pytest.mark.parametrize("name", ["own-data-gpt2", "lts-gpt2-wikitext103"])
def test_a_law_that_knows_one_budget_is_not_asked_for_others(name: str) -> None:
    law = law_named(name)
    assert law.train_tokens is None
    assert law.token_range is None
    time = TrainingTime(1.0, "gpu-box", Pace(1e-6, 1e-14, 512))
    for field, ask in (("train_tokens", lambda: law.at_tokens(1e10)), ("train_time", lambda: law.in_time(time))):
        with pytest.raises(InvalidInput, match=f"{field}: the scaling law {name} predicts for one") as caught:
            ask()
        assert caught.value.field == field


def test_seen_models_are_judged_without_themselves() -> None:
    study, law = scaling_study.study("lts"), without_table(DATA_SETS[0])
    own = OwnTrainings(study.inputs[:1], np.zeros((1, 8)), study.log_tokens[:1], study.log_perplexity[:1], np.zeros(1))
    assert law.refined(own, law.origin).without(study.inputs[0]).own is None
    assert law.refined(own, law.origin).without(study.inputs[5]).own is not None
