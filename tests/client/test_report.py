"""`edgefront report`: the folder that one attaches to a ticket."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any

import pytest
from command_line import edgefront
from running_client import BOARD, Running

from edgefront import exits
from edgefront.core.measurement.measure_command import measure_options
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.wire.reports import Report
from edgefront.show.report_page import page
from edgefront.workflows.report import gather, model_file, write

NO_LIMITS = dict.fromkeys(("max_latency_ms", "max_memory_mb", "max_first_token_ms", "max_token_ms"))


@pytest.fixture(scope="module")
def report(running: Running) -> Report:
    return gather(running.client, running.job.id, None, NO_LIMITS)


@pytest.fixture
def folder(report: Report, tmp_path: Path) -> Path:
    write(report, {}, tmp_path / "report")
    return tmp_path / "report"


def test_a_job_becomes_a_folder(running: Running, tmp_path: Path) -> None:
    out = tmp_path / "new" / "report"
    done = edgefront("report", running.job.id, "-o", str(out), "--json", home=running.home)
    assert done.returncode == exits.OK, done.stderr
    told = json.loads(done.stdout)
    view = running.client.jobs.recommendation(running.job.id)
    assert view.recommended is not None
    names = {"report.html", "report.json", "commands.txt", "job.json", model_file(view.recommended.digest)}
    assert {Path(file).name for file in told["files"]} == names == {file.name for file in out.iterdir()}

    report = Report.model_validate_json((out / "report.json").read_bytes())
    assert report.targets[0].recommendation == view
    assert report.targets[0].frontier.points == running.client.frontier(running.job.id).points
    assert told["candidates"] == len(report.shown) == len(report.launches)
    assert {candidate.id for candidate in report.shown} >= {point.id for point in report.targets[0].frontier.points}
    for candidate in report.shown:
        assert report.launches[candidate.id] == running.client.candidates.launches(candidate.id)
    assert [device.name for device in report.devices] == [running.board]

    html = (out / "report.html").read_text(encoding="utf-8")
    for words in (
        escape(view.sentence),
        view.recommended.id,
        "onnxruntime",
        "f32",
        running.board,
        "<svg",
        "edgefront measure",
    ):
        assert words in html
    launch = report.launches[view.recommended.id][0].result
    assert launch is not None
    assert ", ".join(f"{sample:.6g}" for sample in launch.timed.samples_ms) in html
    commands = (out / "commands.txt").read_text(encoding="utf-8")
    assert f"\nedgefront measure {model_file(view.recommended.digest)} " in commands

    again = edgefront("report", running.job.id, "-o", str(out), home=running.home)
    assert again.returncode == exits.REFUSED
    assert "is not empty: write into it with --force" in again.stderr
    forced = edgefront("report", running.job.id, "-o", str(out), "--force", home=running.home)
    assert forced.returncode == exits.OK, forced.stderr
    assert forced.stdout.strip() == str(out / "report.html")
    a_file = edgefront("report", running.job.id, "-o", str(out / "report.html"), home=running.home)
    assert "is not a folder" in a_file.stderr


def test_the_page_loads_and_runs_nothing(running: Running, tmp_path: Path) -> None:
    assert edgefront("report", running.job.id, "-o", str(tmp_path), home=running.home).returncode == exits.OK
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in html
    assert not re.search(r"(src|(?<!xlink:)href)=", html)
    assert not re.search(r"url\((?!#)", html)
    assert set(re.findall(r'xlink:href="(.)', html)) <= {"#"}


def test_text_is_escaped(report: Report) -> None:
    hostile = "<script>alert(1)</script>"
    facts = report.devices[0].facts.model_copy(update={"cpu": hostile, "extra": {hostile: hostile}})
    launches = {
        name: tuple(each.model_copy(update={"mark": hostile}) for each in kept)
        for name, kept in report.launches.items()
    }
    target = report.targets[0]
    hostile_target = target.model_copy(
        update={"recommendation": target.recommendation.model_copy(update={"sentence": hostile, "note": hostile})}
    )
    html = page(
        report.model_copy(
            update={
                "job": report.job.model_copy(update={"name": hostile, "reason": hostile}),
                "devices": (report.devices[0].model_copy(update={"name": hostile, "facts": facts}),),
                "launches": launches,
                "targets": (hostile_target,),
            }
        ),
        {},
    )
    assert "<script" not in html
    assert html.count("&lt;script&gt;") > 8


def test_the_commands_do_it_again(running: Running, report: Report, folder: Path) -> None:
    estimate = running.client.jobs.estimate(json.loads((folder / "job.json").read_text(encoding="utf-8")))
    assert not estimate.refusals
    (target, candidate), *_ = report.recommended
    options = measure_options(target.protocol.model_copy(update={"repeats": 1, "warmup": 0}))
    done = edgefront("measure", str(folder / model_file(candidate.digest)), *options, "--launches", "1", "--json")
    assert done.returncode == exits.OK, done.stderr
    measured = json.loads(done.stdout)
    assert measured["digest"] == candidate.digest
    asked = {**target.protocol.identity, "repeats": 1, "warmup": 0}
    assert MeasurementProtocol.model_validate(measured["protocol"]).identity == asked


@pytest.mark.parametrize(
    "protocol",
    [
        {"runtime": "onnxruntime", "mode": "generate", "sequence_length": 8, "new_tokens": 3, "memory_length": 4},
        {"runtime": "onnxruntime", "mode": "decode", "memory_length": 20, "weights": "int4", "block_size": 64},
        {"runtime": "llamacpp", "weights": "q8_0", "kv_cache": "q8_0", "mode": "prefill", "sequence_length": 16},
    ],
)
def test_the_options_of_measure_are_the_protocol(protocol: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    blocks = [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 128}]
    positions = {"kind": "learned", "length": 32}
    described = {"d_model": 64, "positions": positions, "embedding": {"vocab_size": 100}, "blocks": blocks}
    file.write_text(json.dumps(described), encoding="utf-8")
    wanted = MeasurementProtocol.model_validate({**protocol, "repeats": 1, "warmup": 0})
    done = edgefront("measure", str(file), *measure_options(wanted), "--launches", "1", "--json")
    assert done.returncode == exits.OK, done.stderr
    told = json.loads(done.stdout)
    made = told["contexts"][0]["protocol"] if "contexts" in told else told["protocol"]
    assert MeasurementProtocol.model_validate(made).identity == wanted.identity


def test_a_job_that_runs_has_a_report_that_says_so(running: Running, tmp_path: Path) -> None:
    request = {"name": "waits", "space": {"name": "lts-gpt2"}, "targets": [{"device_class": BOARD}]}
    job = running.client.jobs.create({**request, "budget": {"candidates": 2000}})
    running.client.jobs.pause(job.id)
    try:
        done = edgefront("report", job.id, "-o", str(tmp_path), home=running.home)
        assert done.returncode == exits.OK, done.stderr
        assert "the job is paused: this is what is known by now" in done.stderr
        assert "The job is paused, not ended" in (tmp_path / "report.html").read_text(encoding="utf-8")
    finally:
        running.client.jobs.delete(job.id)
