"""`edgefront quality …`, a study by the scaling law, and predicted quality in `describe`, as a user asks for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from quality_command import result_of, run

from edgefront.cli.commands.quality import sentence
from edgefront.core.common.errors import InvalidInput
from edgefront.core.quality.predictor import NOT_STATED
from edgefront.core.quality.shipped import NAMES

GOLDEN = Path(__file__).parents[1] / "golden"
LTS = str(GOLDEN / "lts_trained_wt103.jsonl")
OF_TABLES = NAMES[-3:]
"""The laws of one table each: GPT-2 and Transformer-XL on WikiText-103, GPT-2 on OpenWebText."""


def test_laws_are_listed_and_shown() -> None:
    listed = result_of("quality list")
    assert [one["name"] for one in listed] == list(NAMES)
    assert all(one["data"] and one["trained"] and one["features"] for one in listed)
    assert "WikiText-103" in run("quality list")
    whole = result_of("quality show", OF_TABLES[0])
    assert len(whole["models"]) == 200
    shown = run("quality show", OF_TABLES[0])
    assert "40,000 steps" in shown
    assert "parameters" in shown


def test_a_model_is_predicted_with_what_it_is_of() -> None:
    output = result_of("quality predict", "gpt2-small", "--law", OF_TABLES[0])
    assert output["law"] == OF_TABLES[0]
    assert output["low"] < output["perplexity"] < output["high"]
    assert output["extrapolated"]
    assert "log_d_model" in output["beyond"]
    other = result_of("quality predict", "gpt2-small", "--law", OF_TABLES[2])
    assert other["data"] == "OpenWebText"
    assert not {"log_d_model", "log_depth", "log_embedding"} & set(other["beyond"])
    assert "on OpenWebText" in run("quality predict", "gpt2-small", "--law", OF_TABLES[2])
    with pytest.raises(InvalidInput, match="no scaling law covers encoders"):
        run("quality predict", "bert-base")


def test_describe_tells_the_predicted_quality() -> None:
    assert (
        result_of("describe", "gpt2-small")["quality"]["perplexity"]
        == result_of("quality predict", "gpt2-small")["perplexity"]
    )
    assert "predicted 1.00 × gpt2-small's perplexity" in run("describe", "gpt2-small")
    assert result_of("describe", "bert-base")["quality"] is None


def test_a_table_with_repeated_rows_is_judged_as_if_they_stood_there_once(tmp_path: Path) -> None:
    lines = [line for line in Path(LTS).read_text().splitlines() if '"backbone":"gpt2"' in line][:12]
    other_seed = json.dumps({**json.loads(lines[0]), "valid_ppl": json.loads(lines[0])["valid_ppl"] + 0.1})
    for name, rows in (("once", lines), ("twice", lines * 2), ("seeds", [*lines, other_seed])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    once, twice, seeds = (
        result_of("quality fit", str(tmp_path / f"{name}.jsonl"), "--name", "mine")
        for name in ("once", "twice", "seeds")
    )
    assert once["note"] == ""
    assert twice["folds"] == once["folds"]
    assert twice["table_models"] == 12
    assert twice["note"] == "12 rows repeat earlier rows (the same model, the same quality): each counts once"
    assert seeds["note"] == "the 13 trainings are of 12 architectures"


def test_a_prior_that_has_learnt_from_the_models_of_a_table_is_named(tmp_path: Path) -> None:
    """Its folds would flatter: of these the error is a fifth of that without the prior."""
    lines = [line for line in Path(LTS).read_text().splitlines() if '"backbone":"gpt2"' in line][:12]
    other = [{**json.loads(line), "valid_ppl": json.loads(line)["valid_ppl"] * 1.1} for line in lines]
    table, first, again = tmp_path / "some.jsonl", tmp_path / "first.json", tmp_path / "again.json"
    table.write_text("\n".join(json.dumps(row) for row in other))  # trained again, on other data
    said = (
        "was fitted to 12 of these architectures; predictions of other architectures are less accurate than those of "
        "the folds"
    )
    assert result_of("quality fit", str(table), "--prior", OF_TABLES[1], "--out", str(first))["note"] == ""
    assert result_of("quality fit", str(table), "--prior", OF_TABLES[0])["note"] == f"{OF_TABLES[0]} {said}"
    output = result_of("quality fit", str(table), "--prior", str(first), "--out", str(again))
    assert output["note"] == f"some {said}", "the name of the law in the file"


def test_a_law_is_fitted_kept_and_used(tmp_path: Path) -> None:
    some = tmp_path / "some.jsonl"
    lines = [line for line in Path(LTS).read_text().splitlines() if '"backbone":"txl"' in line][:25]
    some.write_text("\n".join(lines))
    law = tmp_path / "mine.json"
    output = result_of(
        "quality fit", str(some), "--prior", OF_TABLES[0], "--out", str(law), "--name", "mine", "--data", "WikiText-103"
    )
    assert (output["name"], output["prior"], output["table_models"], output["family"]) == (
        "mine",
        OF_TABLES[0],
        25,
        "transformer-xl",
    )
    assert output["folds"]["models"] == 25
    assert output["folds"]["spearman"] > 0.95
    assert 0 < output["folds"]["held"] <= 1
    assert result_of("quality show", str(law))["prior"]["name"] == OF_TABLES[0]
    shown = run("quality show", str(law))
    assert "data: WikiText-103" in shown
    assert "The law does not state its split, tokens, trained, licence." in shown
    assert "not stated" not in shown
    study = ("proxy study", "--proxy", "quality_law", "--law", str(law))
    with pytest.raises(InvalidInput, match="law: mine was fitted to the models of this table"):
        run(*study, LTS, "--where", "backbone=txl")
    others = tmp_path / "others.jsonl"
    others.write_text(
        "\n".join(line for line in Path(LTS).read_text().splitlines() if '"txl"' in line and line not in lines)
    )
    judged = result_of(*study, str(others))
    assert judged["proxies"][0]["models"] == 175
    assert judged["proxies"][0]["slices"][3]["spearman"] > 0.8
    assert judged["held"] is None  # the law is not of the user's own data
    with pytest.raises(InvalidInput, match=r"law: params\.nonembedding is no perplexity"):
        run(*study, str(others), "--quality", "params.nonembedding:higher")


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({}, "perplexity 30 (95 %: 29 to 31); the law does not state on which data"),
        ({"data": "text"}, "perplexity 30 (95 %: 29 to 31) on text"),
        ({"data": "text", "split": "test", "tokens": "word"}, "perplexity 30 (95 %: 29 to 31) on text, test, per word"),
    ],
)
def test_a_prediction_says_of_what_it_is_as_far_as_its_law_does(stated: dict[str, str], words: str) -> None:
    nothing = dict.fromkeys(("data", "split", "tokens"), NOT_STATED)
    numbers = {"perplexity": 30.0, "low": 29.0, "high": 31.0, "extrapolated": False}
    assert sentence({**numbers, **nothing, **stated, "relative_to": None}) == words


def test_a_law_is_judged_without_the_rows_of_the_table() -> None:
    both = result_of("proxy study", LTS, "--proxy", "quality_law", "--by", "backbone")
    for backbone, least in (("gpt2", 0.8), ("txl", 0.55)):
        found = both[backbone]
        assert found["own_data"]["left_out"] == 200
        assert found["proxies"][0]["models"] == 200
        assert found["proxies"][0]["slices"][3]["spearman"] >= least


def test_a_study_by_default_leaves_out_laws_that_are_about_nothing(tmp_path: Path) -> None:
    table = tmp_path / "encoders.jsonl"
    blocks = [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 64}]
    with table.open("w") as file:
        for width in (16, 32, 48):
            model = {"d_model": width, "causal": False, "embedding": {"vocab_size": 99}, "blocks": blocks}
            file.write(json.dumps({"architecture": model, "ppl": 100 / width}) + "\n")
    assert "quality_law" not in {one["proxy"] for one in result_of("proxy study", str(table))["proxies"]}
    with pytest.raises(InvalidInput, match="quality_law has a value for 0 of 3 models"):
        run("proxy study", str(table), "--proxy", "quality_law")


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"d_inner": None}, "rows.3.d_inner", "row 3 does not describe a model: d_inner is missing"),
        ({"valid_ppl": float("nan")}, "rows.3.valid_ppl", "row 3: valid_ppl is nan"),
        ({"valid_ppl": -1}, "rows.3.valid_ppl", "row 3: valid_ppl is -1"),
        ({"n_head": [3] * 5}, "rows.3.blocks.0.n_head", "row 3: blocks.0.n_head must divide"),
        ({"n_layer": "five"}, "rows.3.n_layer", "row 3: n_layer is 'five', not a whole number"),
        ({"n_head": [2]}, "rows.3.n_head", "row 3: n_head has 1 numbers for 5 layers"),
    ],
)
def test_wrong_rows_are_named(change: dict[str, Any], field: str, said: str, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in Path(LTS).read_text().splitlines()[:6]]
    rows[2] = {**rows[0], **change}
    table = tmp_path / "table.jsonl"
    table.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InvalidInput) as caught:
        run("quality fit", str(table))
    assert caught.value.field == field
    assert said in caught.value.detail
    if change.get("n_layer"):
        with pytest.raises(InvalidInput, match=r"row 3: n_layer is 'five'"):
            run("proxy study", str(table), "--proxy", "quality_law")


def test_tables_that_teach_nothing_are_refused(tmp_path: Path) -> None:
    lines = Path(LTS).read_text().splitlines()
    table = tmp_path / "table.jsonl"
    table.write_text("\n".join(lines[:1] * 8))
    with pytest.raises(InvalidInput, match="different shapes, not 1"):
        run("quality fit", str(table))
    bleu = tmp_path / "bleu.jsonl"
    bleu.write_text("\n".join(json.dumps({**json.loads(line), "bleu": 3.0}) for line in lines[:6]))
    (tmp_path / "packed.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(InvalidInput, match=r"packed\.csv\.gz: "):
        run("quality fit", str(tmp_path / "packed.csv.gz"))
    with pytest.raises(InvalidInput, match="predicts perplexity, but bleu is another measure"):
        run("quality fit", str(bleu), "--quality", "bleu")
