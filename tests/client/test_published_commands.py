"""Published models on the command line: the catalogue, which needs no server, and the best of them for a device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import edgefront
from running_client import Running

from edgefront.cli import exits
from edgefront.core.architectures.models import named_model
from edgefront.core.architectures.published import published_models
from edgefront.core.schemas.reports import Report

QWEN = "Qwen/Qwen3-0.6B"


def test_list_has_every_model_with_its_description_or_why_not() -> None:
    done = edgefront("model list --published --json", code=exits.OK)
    models = {model["id"]: model for model in json.loads(done.stdout)["models"]}
    assert models.keys() == published_models().keys()
    assert models[QWEN]["counted_parameters"] == 596_049_920
    assert models[QWEN]["not_expressible"] is None
    shown = edgefront("model list --published").stdout
    assert QWEN in shown
    assert "Mamba-2" in shown


def test_describe_shows_costs_facts_and_scores_by_table() -> None:
    output = json.loads(edgefront("describe --json", QWEN).stdout)
    assert output["total_parameters"] == output["published"]["counted_parameters"] == 596_049_920
    assert {score["table"] for score in output["published"]["scores"]} == {"lfm2_card", "redhat_qwen3_0_6b_w4a16"}
    shown = edgefront("describe", QWEN).stdout
    assert "lfm2_card: MMLU 44.93" in shown
    assert "not comparable" in shown


def test_describe_shows_the_facts_of_a_model_without_a_description() -> None:
    done = edgefront("describe nvidia/Nemotron-Flash-1B", code=exits.OK)
    assert "cannot be described: it has DeltaNet and Mamba-2 layers" in done.stdout
    refused = edgefront("model show nvidia/Nemotron-Flash-1B", code=exits.REFUSED)
    assert "cannot be described" in refused.stderr


def test_a_hub_id_is_a_model_for_other_commands(tmp_path: Path) -> None:
    shown = json.loads(edgefront("model show --json", QWEN).stdout)
    assert (shown["name"], shown["digest"]) == (QWEN, named_model(QWEN).architecture.digest)
    edgefront("model build --format architecture", QWEN, "-o", str(tmp_path / "qwen.json"), code=exits.OK)
    assert edgefront("quality predict --json", QWEN).returncode == exits.OK
    unknown = edgefront("describe Qwen/Qwen3-0.7B", code=exits.NOT_FOUND)
    assert QWEN in unknown.stderr


def test_a_catalogue_of_ones_own_is_listed_or_refused_by_line(tmp_path: Path) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text('{"id": "me/mine", "kind": "base", "licence": "mit"}\n', encoding="utf-8")
    env = {"EDGEFRONT_CATALOGUE": str(own)}
    listed = json.loads(edgefront("model", "list", "--published", "--json", env=env).stdout)["models"]
    assert listed[-1]["id"] == "me/mine"
    own.write_text('{"id": "me/mine"}\n', encoding="utf-8")
    refused = edgefront("model", "list", "--published", env=env)
    assert refused.returncode == exits.REFUSED
    assert "own.jsonl, line 1: kind is missing" in refused.stderr


def test_the_best_published_model_for_a_device(running: Running, tmp_path: Path) -> None:
    options = (
        "--published",
        "--device",
        running.board,
        "--runtime",
        "onnxruntime",
        "--formats",
        "f32",
        "--licence",
        "mit",
    )
    score = ("--score", "obsscaling_base:Hella", "--prompt", "16", "--new", "4")
    done = running.command("find --max-memory-mb 6000 --json", *options, *score, code=exits.OK)
    answer = json.loads(done.stdout)
    best = answer["choices"]["recommended"]
    assert answer["choices"]["score"] == "obsscaling_base:HellaSwag"
    assert (best["weights"], best["runtime"], best["licence"]) == ("f32", "onnxruntime", "mit")
    shown = running.command("job recommend --max-memory-mb 5000 --explain", answer["job"], code=exits.OK)
    for words in ("recommended", "HellaSwag", "edgefront model get", "nothing was downloaded"):
        assert words in shown.stdout
    nothing = running.command("job recommend --max-memory-mb 0.1", answer["job"], code=exits.NOTHING_FITS)
    assert "raise the memory limit" in nothing.stdout

    listed = running.command("frontier", answer["job"], code=exits.OK).stdout
    compared = running.command("compare", answer["job"], code=exits.OK).stdout
    for words in (best["model"], "HellaSwag", f"{best['score']:g}", "limits", "within"):
        assert words in listed
        assert words in compared
    assert "hypervolume" not in listed

    running.command("report write", answer["job"], "-o", str(tmp_path / "report"), code=exits.OK)
    report = Report.model_validate_json((tmp_path / "report" / "report.json").read_bytes())
    assert report.choices is not None
    assert {choice.candidate.id for choice in report.choices.frontier} <= report.launches.keys()
    ((_, recommended),) = report.recommended
    assert recommended.id == best["candidate"]["id"]
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    for words in (best["model"], "HellaSwag", "onnxruntime", "f32", "edgefront model get"):
        assert words in page
    running.command("report write --max-memory-mb 0.1", answer["job"], "-o", str(tmp_path / "no"), code=exits.OK)
    wrong = running.command("report write --target x", answer["job"], "-o", str(tmp_path / "x"))
    assert "one answer over all its targets" in wrong.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--licence", "mit", "--max-latency-ms", "5"), "add --published"),
        (("--published", "--model", "gpt2-small", "--max-latency-ms", "5"), "published models are as they are"),
        (("--published", "--formats", "q3", "--max-latency-ms", "5"), "formats"),
    ],
)
def test_options_that_do_not_go_together(running: Running, options: tuple[str, ...], words: str) -> None:
    done = running.command("find", "--device", running.board, *options, code=exits.REFUSED)
    assert words in done.stderr
