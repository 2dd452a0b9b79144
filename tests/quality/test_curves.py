"""Tables that state training tokens: learning curves, and laws that are refined by a few trainings of one's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from published_tables import read_published
from quality_command import result_of as run

from edgefront.core.common.errors import InvalidInput
from edgefront.core.training.proxies.table import read_table
from edgefront.core.training.proxies.trained import training_tokens

GOLDEN = Path(__file__).parents[1] / "golden"
Row = dict[str, Any]


def table(folder: Path, rows: Sequence[Row]) -> str:
    path = folder / "curves.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.fixture(scope="module")
def curves() -> list[Row]:
    """The learning curves of eight Gemstones with half the learning rate, five points each."""
    rows = [row for row in read_published(GOLDEN / "gemstones_half_lr.csv.gz") if row["tokens"] >= 1e10]
    models = sorted({(row["width"], row["depth"]) for row in rows})[:16:2]
    kept = []
    for width, depth in models:
        curve = [row for row in rows if (row["width"], row["depth"]) == (width, depth)]
        kept += curve[:: max(1, len(curve) // 5)][:5]
    return kept


def test_curves_refine_the_law_of_own_data(curves: list[Row], tmp_path: Path) -> None:
    law = tmp_path / "law.json"
    fitted = run("quality fit", table(tmp_path, curves), "--out", str(law))
    assert fitted["relative_to"] is None
    assert fitted["folds"]["models"] == 40
    assert fitted["folds"]["spearman"] > 0.97
    assert fitted["folds"]["error"] < 0.03
    assert fitted["folds"]["held"] >= 0.85
    assert fitted["note"] == "40 points of the learning curves of 8 architectures"
    assert fitted["train_tokens"] == max(row["tokens"] for row in curves)
    assert run("quality show", str(law))["own"]["tokens"][0] >= 1e10


def test_one_training_is_enough_after_a_shared_law_and_not_for_a_law_of_its_own(
    curves: list[Row], tmp_path: Path
) -> None:
    one = table(tmp_path, curves[:5])
    fitted = run("quality fit", one)
    assert fitted["folds"] is None
    assert "a single model cannot show how well the scaling law predicts other models" in fitted["note"]
    five = [{name: value for name, value in row.items() if name != "tokens"} for row in curves[:5]]
    with pytest.raises(InvalidInput, match="different shapes, not 1"):
        run("quality fit", table(tmp_path, five))
    with pytest.raises(InvalidInput, match="own-data-llama depends on the training tokens, which the table lacks"):
        run("quality fit", table(tmp_path, five), "--prior", "own-data-llama")


def test_a_law_that_is_refined_once_is_not_refined_again(curves: list[Row], tmp_path: Path) -> None:
    law, rows = str(tmp_path / "law.json"), table(tmp_path, curves)
    run("quality fit", rows, "--out", law)
    with pytest.raises(InvalidInput, match="has already been refined by trainings"):
        run("quality fit", rows, "--prior", law)


def test_models_without_tokens_refine_a_law_of_one_budget(tmp_path: Path) -> None:
    rows = [row for row in read_table(GOLDEN / "lts_trained_wt103.jsonl") if row["backbone"] == "gpt2"][:12]
    other = table(tmp_path, [{**row, "valid_ppl": 1.3 * row["valid_ppl"] ** 0.9} for row in rows])
    fitted = run("quality fit", other, "--prior", "own-data-gpt2")
    assert fitted["folds"]["spearman"] > 0.9
    assert fitted["relative_to"] is None


def test_no_law_of_several_budgets_is_about_gpt2(tmp_path: Path) -> None:
    rows = [row for row in read_table(GOLDEN / "lts_trained_wt103.jsonl") if row["backbone"] == "gpt2"][:8]
    apart = [{**row, "tokens": 1e9 * (1 + place % 2)} for place, row in enumerate(rows)]
    with pytest.raises(InvalidInput, match="tokens: scaling laws of gpt2 have one budget"):
        run("quality fit", table(tmp_path, apart))
    with pytest.raises(InvalidInput, match="prior: own-data-gpt2 has one budget"):
        run("quality fit", table(tmp_path, apart), "--prior", "own-data-gpt2")
    equal = run("quality fit", table(tmp_path, [{**row, "tokens": 1e9} for row in rows]))
    assert (
        equal["note"] == "all models were trained on equally many tokens: the scaling law is valid for this budget only"
    )


@pytest.mark.parametrize("tokens", [0, -5, 1e30, "10 B", True, float("nan"), [1]])
def test_wrong_tokens_are_named(tokens: object, curves: list[Row], tmp_path: Path) -> None:
    rows = [dict(row) for row in curves[:10]]
    rows[6]["tokens"] = tokens
    law = tmp_path / "law.json"
    with pytest.raises(InvalidInput) as caught:
        run("quality fit", table(tmp_path, rows), "--out", str(law))
    assert caught.value.field == "rows.7.tokens"
    assert caught.value.detail.startswith("row 7: tokens is ")
    assert not law.exists()


def test_rows_without_tokens_among_others_are_named(curves: list[Row], tmp_path: Path) -> None:
    rows = [dict(row) for row in curves[:10]]
    del rows[3]["tokens"]
    for command in ("fit", "study"):
        with pytest.raises(InvalidInput, match="row 4: tokens is missing, but other rows have it"):
            run("quality" if command == "fit" else "proxy", command, table(tmp_path, rows))
    assert training_tokens([{"loss": 1.0}]) is None


def test_a_study_asks_the_law_of_own_data_about_a_table(curves: list[Row], tmp_path: Path) -> None:
    output = run("proxy study", table(tmp_path, curves), "--proxy", "decoder_parameters", "--proxy", "quality_law")
    assert output["tokens"] == max(row["tokens"] for row in curves)  # ranked after equal tokens
    assert output["models"] == 8
    assert output["own_data"]["law"] == "own-data-llama"
    assert output["own_data"]["models"] == 8
    assert output["own_data"]["left_out"] >= 8  # points that are in the law's tables
    assert output["held"] >= 0.9
    assert output["held_ratios"] >= 0.9
    assert [after["trainings"] for after in output["after"]] == [1, 3, 5]  # of eight models, three are left
    assert all(after["held"] >= 0.9 and after["held_ratios"] >= 0.9 for after in output["after"])
    widths = [after["half_width"] for after in output["after"]]
    assert widths[0] > widths[1] > widths[2]


@pytest.mark.parametrize(("condition", "left_out"), [("backbone=gpt2", 200), ("n_layer=12", 0)])
def test_a_study_without_tokens(condition: str, left_out: int, tmp_path: Path) -> None:
    file = str(GOLDEN / "lts_trained_wt103.jsonl")
    if not left_out:
        file = table(tmp_path, read_published(GOLDEN / "hwgpt_owt_perplexity_s.csv.gz"))
    output = run("proxy study", file, "--where", condition, "--proxy", "decoder_parameters")
    assert output["tokens"] is None
    assert output["own_data"] == {"law": "own-data-gpt2", "models": 100, "left_out": left_out}
    assert [after["trainings"] for after in output["after"]] == [1, 3, 5, 10]
    for shares in (output, *output["after"]):
        assert shares["held"] >= 0.9
        assert shares["held_ratios"] >= 0.9


def test_a_study_of_what_no_law_is_about_has_no_shares(tmp_path: Path) -> None:
    rows = [{"decoder_parameters": size, "bleu": value} for size, value in ((1, 20.0), (2, 21.0), (3, 23.0))]
    output = run("proxy study", table(tmp_path, rows), "--proxy", "decoder_parameters")
    assert (output["held"], output["held_ratios"], output["after"], output["own_data"]) == (None, None, [], None)
