"""Tables that state training tokens: learning curves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from published_tables import read_published
from quality_command import result_of as run

from edgefront.core.common.errors import InvalidInput
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


@pytest.mark.parametrize("tokens", [0, -5, 1e30, "10 B", True, float("nan"), [1]])
def test_wrong_tokens_are_named(tokens: object, curves: list[Row], tmp_path: Path) -> None:
    rows = [dict(row) for row in curves[:10]]
    rows[6]["tokens"] = tokens
    with pytest.raises(InvalidInput) as caught:
        run("proxy study", table(tmp_path, rows))
    assert caught.value.field == "rows.7.tokens"
    assert caught.value.detail.startswith("row 7: tokens is ")


def test_rows_without_tokens_among_others_are_named(curves: list[Row], tmp_path: Path) -> None:
    rows = [dict(row) for row in curves[:10]]
    del rows[3]["tokens"]
    with pytest.raises(InvalidInput, match="row 4: tokens is missing, but other rows have it"):
        run("proxy study", table(tmp_path, rows))
    assert training_tokens([{"loss": 1.0}]) is None


def test_a_study_ranks_the_models_of_a_table_after_equal_tokens(curves: list[Row], tmp_path: Path) -> None:
    output = run("proxy study", table(tmp_path, curves), "--proxy", "decoder_parameters", "--proxy", "quality_law")
    assert output["tokens"] == max(row["tokens"] for row in curves)
    assert output["models"] == 8
    assert [each["proxy"] for each in output["proxies"]] == ["decoder_parameters", "quality_law"]
    assert output["proxies"][1]["slices"][0]["spearman"] > 0.9


def test_a_study_without_tokens(tmp_path: Path) -> None:
    file = table(tmp_path, read_published(GOLDEN / "hwgpt_owt_perplexity_s.csv.gz"))
    assert run("proxy study", file, "--where", "n_layer=12", "--proxy", "decoder_parameters")["tokens"] is None
