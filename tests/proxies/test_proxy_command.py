"""`edgefront proxy list|score|study` as a user asks for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edgefront.cli import exits
from edgefront.cli.main import app
from edgefront.core.common.errors import InvalidInput
from edgefront.core.training.proxies.registry import proxies

GOLDEN = Path(__file__).parents[1] / "golden" / "lts_trained_wt103.jsonl"


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["proxy", *arguments], env={"COLUMNS": "200", "NO_COLOR": "1"})
    if done.exception is not None:
        raise done.exception
    return done.stdout


def test_a_study_prints_what_it_finds(tmp_path: Path) -> None:
    output = json.loads(run("study", str(GOLDEN), "--by", "set", "--json"))
    over_all = {name: one["proxies"][0]["slices"][0]["spearman"] for name, one in output.items()}
    assert round(over_all["random_GPT2_wt103"], 3) == 0.967
    assert round(over_all["random_TransXL_wt103"], 3) == 0.974
    shown = run("study", str(GOLDEN), "--where", "backbone=gpt2", "--proxy", "decoder_parameters")
    assert "200 models by valid_ppl (lower is better)" in shown
    assert "0.574" in shown

    alone = tmp_path / "alone.csv"
    alone.write_text("valid_ppl,decoder_parameters\n9,1\n8,2\n7,4\n", encoding="utf-8")
    (one,) = json.loads(run("study", str(alone), "--json"))["proxies"]  # of what the table tells
    assert one["proxy"] == "decoder_parameters"


def test_proxies_are_listed_and_score_a_model(tmp_path: Path) -> None:
    model = tmp_path / "mine.json"
    blocks = [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 64}]
    model.write_text(json.dumps({"d_model": 16, "embedding": {"vocab_size": 99}, "blocks": blocks}))
    listed = json.loads(run("list", "--json"))
    assert [one["name"] for one in listed] == list(proxies())
    arguments = ("--rows", "2", "--length", "8", "-p", "snip", "-p", "decoder_parameters", "--json")
    values = {load["proxy"]: load for load in json.loads(run("score", str(model), *arguments))["scores"]}
    assert values["snip"]["flops"] > 0
    assert values["decoder_parameters"]["score"] == 3312


def test_a_wrong_proxy_or_table_is_reported(tmp_path: Path) -> None:
    for arguments, said in (
        (("score", "gpt2-small", "-p", "nothing"), "no proxy 'nothing'; there are decoder_parameters"),
        (("study", str(tmp_path / "none.jsonl")), r"none\.jsonl: No such file or directory"),
    ):
        with pytest.raises(InvalidInput, match=said) as caught:
            run(*arguments)
        assert exits.exit_code(caught.value) == exits.REFUSED
