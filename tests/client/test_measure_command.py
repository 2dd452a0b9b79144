"""`edgefront measure`: one model on this machine, without a server."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from command_line import edgefront

from edgefront.cli import exits
from edgefront.cli.commands.measure import _note
from edgefront.cli.session import Session
from edgefront.cli.workflows.measure import Measured, time_limit_s
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.models import named_model
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LatencySamples, LaunchResult, PeakMemory
from edgefront.core.model_files.export import write_onnx
from edgefront.core.model_files.gguf import write_gguf
from edgefront.core.model_files.state import GraphOptions

TINY = {
    "d_model": 64,
    "positions": {"kind": "learned", "length": 32},
    "embedding": {"vocab_size": 100},
    "blocks": [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 128}],
}
QUICK = ("--sequence-length", "16", "--launches", "2")


@pytest.fixture
def description(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.json"
    file.write_text(json.dumps(TINY), encoding="utf-8")
    return file


@pytest.mark.parametrize("runtime", ["onnxruntime", "pytorch"])
def test_an_architecture_is_measured_with_either_runtime(description: Path, runtime: str) -> None:
    done = edgefront("measure --json", str(description), "--runtime", runtime, *QUICK, code=exits.OK)
    report = json.loads(done.stdout)
    assert report["digest"] == Architecture.parse(TINY).digest
    assert report["latency_ms"] > 0
    assert report["latency_half_width_ms"] > 0
    assert report["latency_p90_ms"] is None  # ten samples tell none
    assert report["memory"]["peak_bytes"] > report["memory"]["mapped_weight_bytes"] > 0
    assert report["protocol"]["runtime"] == runtime
    assert [len(launch["latency"]["samples_ms"]) for launch in report["launches"]] == [5, 5]


def test_a_launch_under_bad_conditions_is_said() -> None:
    samples = LatencySamples(samples_ms=(1.0, 2.0))
    memory = PeakMemory(method="resident", peak_bytes=2, forward_peak_bytes=2, build_peak_bytes=1)
    good = LaunchResult(outcome="done", latency=samples, memory=memory)
    slowed = good.model_copy(update={"environment": {"conditions": "CPU quota (it stopped the passes)"}})
    lines: list[str] = []
    session = cast("Session", SimpleNamespace(note=lines.append))
    subject = Architecture.parse(TINY)
    _note(session, Measured(subject, MeasurementProtocol(), (good, good)))
    assert len(lines) == 1
    _note(session, Measured(subject, MeasurementProtocol(), (good, slowed, slowed)))
    assert lines[2:] == ["! 2 of 3 launches: CPU quota (it stopped the passes)"]


def test_choices_that_do_not_go_together_name_the_field(description: Path) -> None:
    for options, field in (
        (("--mode", "decode", "--sequence-length", "8"), "sequence_length"),
        (("--mode", "prefill", "--memory-length", "8"), "memory_length"),
        (("--dtype", "float16", "--weights", "int8"), "weights"),
        (("--mode", "decode", "--memory-length", "32"), "memory_length"),
        (("--sequence-length", "33"), "sequence_length"),
    ):
        refused = edgefront("measure", str(description), *options, code=exits.REFUSED)
        assert field in refused.stderr


def test_an_onnx_file_is_measured_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    write_onnx(Architecture.parse(TINY), 3, file, GraphOptions(logits="last"))
    done = edgefront("measure --json", str(file), *QUICK, code=exits.OK)
    report = json.loads(done.stdout)
    assert report["file"] == str(file)
    assert report["latency_ms"] > 0
    assert report["computes"] == "logits: one position"
    assert report["protocol"].keys().isdisjoint({"logits", "dtype", "weights"})  # the graph's, not the protocol's
    write_onnx(Architecture.parse(TINY), 3, file)
    shown = edgefront("measure", str(file), *QUICK, code=exits.OK)
    assert "peak memory" in shown.stdout
    assert "logits: all positions" in shown.stderr
    refused = edgefront("measure --logits last", str(file), *QUICK, code=exits.REFUSED)
    assert "an ONNX file computes what its graph says" in refused.stderr
    refused = edgefront("measure --weights int8", str(file), *QUICK, code=exits.ERROR)
    assert "an ONNX file is run unchanged" in refused.stderr


@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="xllamacpp is not installed")
def test_a_gguf_file_is_measured_as_it_is_by_llama_cpp(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    write_gguf(Architecture.parse(TINY), 3, file, "q8_0")
    lengths = ("--prompt", "5", "--new", "4", "--context", "16,0", "--repeats", "2")
    done = edgefront("measure --json", str(file), *lengths, code=exits.OK)
    for context in json.loads(done.stdout)["contexts"]:
        assert (context["file"], context["protocol"]["runtime"]) == (str(file), "llamacpp")
        assert context["gguf"]["architecture"] == "gpt2"
        assert set(context["gguf"]["weights"]) == {"Q8_0", "F32"}
        assert context["generation"]["first_token_ms"] > 0
        assert context["memory"]["peak_bytes"] > context["gguf"]["weight_bytes"]
    shown = edgefront("measure", str(file), *QUICK, code=exits.OK)
    assert "weights, as they are in the file: 0.04 M Q8_0" in " ".join(shown.stderr.split())
    other = edgefront("measure --runtime onnxruntime", str(file), *QUICK, code=exits.OK)
    assert "its description is measured, with random weights" in other.stderr


def test_models_that_cannot_be_measured_are_reported(description: Path, tmp_path: Path) -> None:
    refused = edgefront("measure --provider no_such", str(description), *QUICK, code=exits.ERROR)
    assert "unsupported: this ONNX Runtime has no provider no_such" in " ".join(refused.stderr.split())
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not a graph")
    done = edgefront("measure", str(broken), *QUICK, code=exits.ERROR)
    assert "build error: Load model from" in " ".join(done.stderr.split())
    missing = edgefront("measure", str(tmp_path / "missing.onnx"), code=exits.NOT_FOUND)
    assert "neither a file nor a named model" in missing.stderr
    mistyped = edgefront("measure gpt2-smal", code=exits.NOT_FOUND)
    assert "the nearest are gpt2-small, " in mistyped.stderr
    assert "`edgefront model list` lists all" in mistyped.stderr
    assert edgefront("measure --batch 5000", str(description), *QUICK).returncode == exits.REFUSED


def test_a_generation_at_several_contexts(description: Path) -> None:
    options = ("--prompt", "5", "--new", "4", "--context", "16,0", "--launches", "2", "--repeats", "2")
    done = edgefront("measure --json", str(description), *options, code=exits.OK)
    contexts = json.loads(done.stdout)["contexts"]
    assert [report["protocol"]["memory_length"] for report in contexts] == [0, 16]
    for report in contexts:
        made = report["generation"]
        assert report["protocol"]["mode"] == "generate"
        assert report["latency_ms"] == made["total_ms"] > made["first_token_ms"] > 0
        assert made["token_half_width_ms"] > 0
        assert made["tokens_per_s"] == pytest.approx(1000 / made["token_ms"])
        assert (made["energy_token_mj"] is None) == made["energy"].startswith("no energy")


@pytest.mark.parametrize("as_json", [True, False])
def test_contexts_that_were_measured_are_shown_before_the_one_that_fails(tmp_path: Path, as_json: bool) -> None:
    """One that no memory holds: 64 sequences of 65,000 tokens take more than a terabyte."""
    wide = {"kind": "attention", "n_head": 64, "d_head": 64}
    file = tmp_path / "wide.json"
    file.write_text(json.dumps({**TINY, "positions": {"kind": "rotary"}, "blocks": [wide] * 8}), encoding="utf-8")
    options = ("--prompt", "2", "--new", "2", "--context", "0,65000", "--batch", "64", "--launches", "1")
    done = edgefront("measure --repeats 1", str(file), *options, *["--json"] * as_json, code=exits.ERROR)
    assert "context 65000: infeasible, out of memory: the model needs at least" in " ".join(done.stderr.split())
    if as_json:
        assert [load["protocol"]["memory_length"] for load in json.loads(done.stdout)["contexts"]] == [0]
    else:
        assert "2 tokens from a prompt of 2" in done.stdout
        assert "65000" not in done.stdout


def test_the_time_limit_grows_with_the_tokens_and_the_model() -> None:
    def limit(name: str, **fields: Any) -> float:
        return time_limit_s(named_model(name).architecture, MeasurementProtocol(**fields))

    assert limit("gpt2-small", mode="decode", memory_length=100, repeats=1) == pytest.approx(60, abs=10)
    short = limit("smollm2-135m", mode="generate", sequence_length=128, new_tokens=16)
    long = limit("smollm2-135m", mode="generate", sequence_length=512, new_tokens=64, memory_length=4096)
    read = limit("smollm2-135m", mode="generate", sequence_length=512, memory_length=4096, runtime="llamacpp")
    assert 60 < short < long < read <= 3600
    assert limit("tinyllama-1.1b", mode="generate", sequence_length=4096, memory_length=8192) == 3600


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ("--prompt", "20", "--new", "8", "--context", "0,4,5"),
            "5 of context and 20 of the prompt and 8 new ones are 33",
        ),
        (("--prompt", "20", "--context", "0;4"), "is not a list of numbers of tokens"),
        (("--prompt", "20", "--mode", "decode"), "--prompt needs mode generate, not decode"),
        (("--mode", "generate", "--sequence-length", "20"), "mode generate needs --prompt instead"),
    ],
)
def test_a_generation_that_makes_no_sense_is_refused_before_anything_runs(
    description: Path, tmp_path: Path, options: tuple[str, ...], text: str
) -> None:
    done = edgefront("measure", str(description), *options, code=exits.REFUSED)
    assert text in " ".join(done.stderr.split())
    assert "measuring" not in done.stderr
