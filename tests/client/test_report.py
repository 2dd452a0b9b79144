"""`edgefront report`: the folder that one attaches to a ticket, and whether figures agree when measured again."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import pytest
from command_line import edgefront
from running_client import BOARD, Running

from edgefront.agents.device.probe import hardware
from edgefront.cli import exits
from edgefront.cli.workflows.measure import Measured
from edgefront.cli.workflows.report import gather, model_file, page, write
from edgefront.cli.workflows.verify import (
    ReportedFigures,
    compare,
    compare_machines,
    in_words,
    read_report,
    standings_in_words,
    subject_of,
    verdict,
)
from edgefront.core.common.errors import InvalidInput, NotFound, TooLarge
from edgefront.core.common.units import MB
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import GenerationSamples, LatencySamples, LaunchResult, PeakMemory
from edgefront.core.measurement.variants import measure_options
from edgefront.core.schemas.jobs import Limits
from edgefront.core.schemas.reports import MAX_REPORT_BYTES, Report

NO_LIMITS = dict.fromkeys(("max_latency_ms", "max_memory_mb", "max_first_token_ms", "max_token_ms"))


@pytest.fixture(scope="module")
def report(running: Running) -> Report:
    return gather(running.client, running.job.id, None, NO_LIMITS)


@pytest.fixture
def folder(report: Report, tmp_path: Path) -> Path:
    write(report, {}, tmp_path / "report")
    return tmp_path / "report"


def changed(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The folder's report, with a change of its JSON."""
    file = folder / "report.json"
    value = json.loads(file.read_text(encoding="utf-8"))
    change(value)
    file.write_text(json.dumps(value), encoding="utf-8")
    return file


def best(value: dict[str, Any]) -> dict[str, Any]:
    """The recommended model in the JSON of a report."""
    found: dict[str, Any] = value["targets"][0]["recommendation"]["recommended"]
    return found


# The folder -----------------------------------------------------------------------------------------------------------


def test_a_job_becomes_a_folder(running: Running, tmp_path: Path) -> None:
    out = tmp_path / "new" / "report"
    done = running.command("report write --json", running.job.id, "-o", str(out), code=exits.OK)
    output = json.loads(done.stdout)
    view = running.client.jobs.recommendation(running.job.id)
    assert view.recommended is not None
    names = {"report.html", "report.json", "commands.txt", "job.json", model_file(view.recommended.digest)}
    assert {Path(file).name for file in output["files"]} == names == {file.name for file in out.iterdir()}

    report = read_report(out)
    assert report.targets[0].recommendation == view
    assert report.targets[0].frontier.points == running.client.frontier(running.job.id).points
    assert output["candidates"] == len(report.shown) == len(report.launches)
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
    assert "<script" not in html  # it loads and runs nothing
    assert not re.search(r"(src|(?<!xlink:)href)=", html)
    assert not re.search(r"url\((?!#)", html)
    assert set(re.findall(r'xlink:href="(.)', html)) <= {"#"}
    commands = (out / "commands.txt").read_text(encoding="utf-8")
    assert "\nedgefront report verify report.json\n" in commands
    assert f" --launches {view.recommended.launches}\n" in commands

    again = running.command("report write", running.job.id, "-o", str(out), code=exits.REFUSED)
    assert "is not empty: write into it with --force" in again.stderr
    forced = running.command("report write --force", running.job.id, "-o", str(out), code=exits.OK)
    assert forced.stdout.strip() == str(out / "report.html")
    a_file = running.command("report write", running.job.id, "-o", str(out / "report.html"))
    assert "is not a folder" in a_file.stderr


def test_text_is_escaped(report: Report) -> None:
    hostile = "<script>alert(1)</script>"
    facts = report.devices[0].facts.model_copy(update={"cpu": hostile, "extra": {hostile: hostile}})
    target = report.targets[0]
    hostile_target = target.model_copy(
        update={"recommendation": target.recommendation.model_copy(update={"sentence": hostile, "note": hostile})}
    )
    html = page(
        report.model_copy(
            update={
                "job": report.job.model_copy(update={"name": hostile, "reason": hostile}),
                "devices": (report.devices[0].model_copy(update={"name": hostile, "facts": facts}),),
                "targets": (hostile_target,),
            }
        ),
        {},
    )
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 8


def test_the_commands_do_it_again(running: Running, report: Report, folder: Path) -> None:
    estimate = running.client.jobs.estimate(json.loads((folder / "job.json").read_text(encoding="utf-8")))
    assert not estimate.refusals
    (target, candidate), *_ = report.recommended
    options = measure_options(target.protocol.model_copy(update={"repeats": 1, "warmup": 2}))
    done = edgefront("measure --launches 1 --json", str(folder / model_file(candidate.digest)), *options, code=exits.OK)
    measured = json.loads(done.stdout)
    assert measured["digest"] == candidate.digest
    asked = {**target.protocol.identity, "repeats": 1, "warmup": 2}
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
    wanted = MeasurementProtocol.model_validate({**protocol, "repeats": 1, "warmup": 2})
    done = edgefront("measure --launches 1 --json", str(file), *measure_options(wanted), code=exits.OK)
    output = json.loads(done.stdout)
    made = output["contexts"][0]["protocol"] if "contexts" in output else output["protocol"]
    assert MeasurementProtocol.model_validate(made).identity == wanted.identity


def test_a_job_that_runs_has_a_report_that_says_so(running: Running, tmp_path: Path) -> None:
    request = {"name": "waits", "space": {"name": "lts-gpt2"}, "targets": [{"device_class": BOARD}]}
    job = running.client.jobs.create({**request, "budget": {"candidates": 2000}})
    running.client.jobs.pause(job.id)
    try:
        done = running.command("report write", job.id, "-o", str(tmp_path), code=exits.OK)
        assert "the job is paused: the report has its results so far" in done.stderr
        assert "The job is paused, not ended" in (tmp_path / "report.html").read_text(encoding="utf-8")
        if not read_report(tmp_path).recommended:
            with pytest.raises(NotFound, match="nothing is recommended"):
                subject_of(read_report(tmp_path), None)
    finally:
        running.client.jobs.delete(job.id)


# Measured again -------------------------------------------------------------------------------------------------------


def test_the_recommended_model_is_measured_again(report: Report, folder: Path) -> None:
    """The board is simulated: its latencies are not those of this machine."""
    done = edgefront("report verify --launches 2 --json", str(folder / "report.json"))
    output = json.loads(done.stdout)
    assert done.returncode == (exits.OK if output["agrees"] else exits.DISAGREES), done.stderr
    assert output["candidate"] == report.recommended[0][1].id
    assert [figure["figure"] for figure in output["figures"]] == ["latency", "peak memory"]
    assert output["same_class"] is False
    assert output["class_differences"]["processor"][0] == "simulated"
    assert len(output["measured"]["launches"]) == 2
    assert output["measured"]["protocol"]["sequence_length"] == report.recommended[0][0].protocol.sequence_length
    assert "another class" in output["sentence"]

    shown = edgefront("report verify --launches 2", str(folder))
    assert shown.returncode in (exits.OK, exits.DISAGREES), shown.stderr
    assert "ms reported" in shown.stdout
    assert "processor, simulated in the report" in shown.stderr


def measured(
    latencies: list[float], memory_mb: float = 100.0, generation: tuple[float, float] | None = None
) -> Measured:
    peak = PeakMemory(method="anonymous", peak_bytes=int(memory_mb * MB), forward_peak_bytes=1, build_peak_bytes=1)
    launches = []
    for latency in latencies:
        made = None
        if generation is not None:
            first, token = generation
            made = GenerationSamples(
                first_token_ms=(first * latency,), token_ms=(token * latency,), total_ms=(latency,)
            )
        samples = LatencySamples(samples_ms=(latency,))
        launches.append(LaunchResult(outcome="done", latency=samples, memory=peak, generation=made))
    return Measured(Path("model.onnx"), MeasurementProtocol(), tuple(launches))


def figures(**changes: Any) -> ReportedFigures:
    known = {
        "latency_ms": 20.0,
        "latency_half_width_ms": 0.4,
        "first_token_ms": None,
        "first_token_half_width_ms": None,
        "token_ms": None,
        "token_half_width_ms": None,
        "memory_bytes": 100 * MB,
        "launches": 3,
    }
    return ReportedFigures.model_validate({**known, **changes})


@pytest.mark.parametrize(
    ("latencies", "verdict"),
    [
        ([20.0, 20.1, 19.9], "agrees"),
        ([20.8, 20.9, 20.7], "agrees"),  # 4 % more: less than the intervals of both and epsilon
        ([22.4, 22.5, 22.3], "differs"),
        ([17.8, 17.9, 17.7], "differs"),
        ([20.0, 30.0, 45.0], "cannot tell"),  # who scatters so much contradicts nothing
        ([40.0, 40.2, 39.8], "differs"),
    ],
)
def test_latencies_agree_by_their_intervals(latencies: list[float], verdict: str) -> None:
    latency, memory = compare(figures(), measured(latencies), 0.02)
    agrees = latency.agrees
    assert agrees == (verdict != "differs")
    assert memory.agrees
    assert latency.ratio.low is not None
    assert latency.ratio.high is not None
    assert (max(latency.ratio.low, 1 / latency.ratio.high) > 1.02) == (not agrees)
    assert in_words(latency).endswith(verdict)


def test_epsilon_is_what_counts_as_no_difference() -> None:
    close = [20.9, 20.9, 20.9]
    exact = figures(latency_half_width_ms=0.0)
    spread = compare(exact, measured(close), 0.0)[0].ratio.spread
    assert spread is not None
    assert compare(exact, measured(close), 0.2)[0].agrees
    assert not compare(exact, measured([20.0 * math.exp(spread + 0.005)] * 3), 0.0)[0].agrees


def test_memory_and_the_times_of_a_generation_agree_too() -> None:
    reported = figures(first_token_ms=10.0, first_token_half_width_ms=0.2, token_ms=1.0, token_half_width_ms=0.02)
    same = compare(reported, measured([20.0, 20.1, 19.9], 101.0, (0.5, 0.05)), 0.02)
    assert [(each.name, each.agrees) for each in same] == [
        ("latency", True),
        ("first token", True),
        ("further token", True),
        ("peak memory", True),
    ]
    other = compare(reported, measured([20.0, 20.1, 19.9], 108.0, (0.5, 0.08)), 0.02)
    assert [each.name for each in other if not each.agrees] == ["further token", "peak memory"]
    assert "peak memory: 100.0 ± 0.5 MB reported, 108.0 ± 0.5 MB here" in in_words(other[-1])


def test_the_statement_names_class_and_figures(report: Report) -> None:
    subject, here = subject_of(report, None), hardware()
    agreeing = compare(figures(), measured([20.0, 20.1, 19.9]), 0.02)
    wrong = compare(figures(), measured([40.0, 40.1, 39.9], 150.0), 0.02)
    now = measured([20.0, 20.1])
    device = report.devices[0]
    same = compare_machines(
        report.model_copy(update={"devices": (device.model_copy(update={"facts": here}),)}), subject, here, now
    )
    assert not same.class_facts
    assert verdict(agreeing, same, "") == "All figures agree, on a device of the same class."
    standings = standings_in_words(wrong, Limits(latency_ms=40.0, memory_mb=140.0))
    assert verdict(wrong, same, standings) == (
        "Latency and peak memory differ, on a device of the same class; now at your limit of 40 ms; now beyond your "
        "140 MB."
    )
    assert standings_in_words(agreeing, subject.limits) == "", "the job has no limits"
    fewer = here.model_copy(update={"cores": here.cores + 1})
    cores = compare_machines(
        report.model_copy(update={"devices": (device.model_copy(update={"facts": fewer}),)}), subject, here, now
    )
    assert cores.class_facts == {"cores": (str(here.cores + 1), str(here.cores))}
    assert verdict(agreeing, cores, "") == "All figures agree, though this machine is of another class (cores)."
    gone = compare_machines(report.model_copy(update={"devices": ()}), subject, here, now)
    assert "does not say which device" in verdict(agreeing, gone, "")


def test_versions_that_differ_are_named(report: Report) -> None:
    subject = subject_of(report, None)

    def with_version(version: str) -> dict[str, Any]:
        return {"environment": {"onnxruntime": version, "load_1m": len(version), "cores": version}}

    then = report.launches[subject.candidate.id][-1]
    assert then.result is not None
    launch = then.model_copy(update={"result": then.result.model_copy(update=with_version("1.20"))})
    old = report.model_copy(update={"launches": {**report.launches, subject.candidate.id: (launch,)}})
    now = measured([20.0, 20.1])
    now = Measured(
        now.subject, now.protocol, tuple(each.model_copy(update=with_version("1.3")) for each in now.launches)
    )
    assert compare_machines(old, subject, hardware(), now).others == {"onnxruntime": ("1.20", "1.3")}


# What is no report ----------------------------------------------------------------------------------------------------


def test_a_report_that_is_cut_off_or_none_is_refused_in_one_sentence(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "report.json").read_bytes()
    for content in (
        whole[: len(whole) // 2],
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"version": 2}',
    ):
        file = tmp_path / "report.json"
        file.write_bytes(content)
        done = edgefront("report verify", str(file), code=exits.REFUSED)
        assert "is not a report that this release reads" in done.stderr
        assert "Traceback" not in done.stderr
    missing = edgefront("report verify", str(tmp_path / "none.json"), code=exits.NOT_FOUND)
    assert "`edgefront report write JOB` writes such a file" in missing.stderr
    with (tmp_path / "huge.json").open("wb") as sparse:
        sparse.truncate(MAX_REPORT_BYTES + 1)
    with pytest.raises(TooLarge, match="64 MiB"):
        read_report(tmp_path / "huge.json")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda value: best(value).update(latency_ms=-1.0), "latency_ms"),
        (lambda value: best(value).update(latency_ms=1e300), "latency_ms"),
        (lambda value: best(value).update(latency_half_width_ms=float("nan")), "latency_half_width_ms"),
        (lambda value: best(value).update(memory_bytes=0), "memory_bytes"),
        (lambda value: best(value).update(launches=0), "launches"),
        (lambda value: best(value).update(architecture={"__class__": "os.system"}), ""),
        (lambda value: best(value)["architecture"].update(d_model=1 << 40), "d_model"),
        (lambda value: best(value).update(digest="0" * 64), "digest"),
        (lambda value: value["job"]["targets"][0]["protocol"].update(provider="../../x"), "provider"),
        (lambda value: value["job"]["targets"][0]["protocol"].update(repeats=10**9), "repeats"),
        (lambda value: value["job"]["request"].update(epsilon=-1), "epsilon"),
    ],
)
def test_a_report_that_says_what_cannot_be_is_refused(
    change: Callable[[dict[str, Any]], None], field: str, folder: Path
) -> None:
    with pytest.raises(InvalidInput) as refused:
        subject_of(read_report(changed(folder, change)), None)
    assert field in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_target_that_is_not_there_is_named(report: Report) -> None:
    assert subject_of(report, "board").target.name == "board"
    with pytest.raises(NotFound, match=r"no target 'nope' .*there are board"):
        subject_of(report, "nope")
