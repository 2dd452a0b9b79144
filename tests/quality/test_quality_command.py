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
from edgefront.core.training.proxies.table import quality_of, read_table
from edgefront.core.training.proxies.trained import trained_models

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


def test_a_law_is_studied_on_a_table_that_is_not_its_own() -> None:
    study = ("proxy study", "--proxy", "quality_law", LTS, "--where", "backbone=txl", "--law")
    with pytest.raises(InvalidInput, match=f"law: {OF_TABLES[1]} was fitted to the models of this table"):
        run(*study, OF_TABLES[1])
    found = result_of(*study, OF_TABLES[0])["proxies"][0]
    assert found["models"] == 200
    assert found["slices"][3]["spearman"] > 0.8
    with pytest.raises(InvalidInput, match=r"law: params\.nonembedding is no perplexity"):
        run(*study, OF_TABLES[0], "--quality", "params.nonembedding:higher")


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
    read = read_table(table)
    quality = quality_of(read)
    with pytest.raises(InvalidInput) as caught:
        trained_models(read, quality)
    assert caught.value.field == field
    assert said in caught.value.detail
    if change.get("n_layer"):
        with pytest.raises(InvalidInput, match=r"row 3: n_layer is 'five'"):
            run("proxy study", str(table), "--proxy", "quality_law")


def test_tables_that_teach_nothing_are_refused(tmp_path: Path) -> None:
    rows = [{**row, "bleu": 3.0} for row in read_table(Path(LTS))[:6]]
    with pytest.raises(InvalidInput, match="predicts perplexity, but bleu is another measure"):
        trained_models(rows, quality_of(rows, "bleu"))
    (tmp_path / "packed.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(InvalidInput, match=r"packed\.csv\.gz: "):
        run("proxy study", str(tmp_path / "packed.csv.gz"))
