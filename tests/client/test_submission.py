"""Flags of `job submit` as a job request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgefront.cli.commands.options import ProtocolOptions
from edgefront.client.requests import changed_protocol, parse_narrowing, parse_settings, parse_target, read_request
from edgefront.core.common.errors import InvalidInput
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.jobs import JobRequest


def test_narrowing_reads_ranges_steps_lists_and_words() -> None:
    given = ["n_layer=2..6 d_model=128..512:64", "n_head=2,4", "d_embed=d_model", "div=1"]
    assert parse_narrowing(given) == {
        "n_layer": {"min": 2, "max": 6},
        "d_model": {"min": 128, "max": 512, "step": 64},
        "n_head": [2, 4],
        "d_embed": ["d_model"],
        "div": [1],
    }


@pytest.mark.parametrize("given", ["n_layer", "=2", "n_layer=", "n_layer=2..", "n_layer=a..b", "d_model=1..2:x"])
def test_an_invalid_narrowing_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse_narrowing([given])
    assert raised.value.field == "narrow"


def test_a_gene_given_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="once"):
        parse_narrowing(["n_layer=2", "n_layer=3"])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("jetson", {"device": "jetson", "protocol": {}}),
        ("jetson:pytorch", {"device": "jetson", "protocol": {"runtime": "pytorch"}}),
        ("jetson:onnxruntime:4", {"device": "jetson", "protocol": {"runtime": "onnxruntime", "threads": 4}}),
        ("class=rpi 4:pytorch", {"device_class": "rpi 4", "protocol": {"runtime": "pytorch"}}),
        ("host:8090", {"device": "host:8090", "protocol": {}}),
        (
            "jetson:llamacpp:2,kv_cache=q8_0,weights=q4_0",
            {
                "device": "jetson",
                "protocol": {"runtime": "llamacpp", "threads": 2, "kv_cache": "q8_0", "weights": "q4_0"},
            },
        ),
        (
            "class=EPYC 7B13, 2 cores, x86_64:llamacpp,batch=1",
            {"device_class": "EPYC 7B13, 2 cores, x86_64", "protocol": {"runtime": "llamacpp", "batch": 1}},
        ),
        ("EPYC, 2 cores", {"device": "EPYC, 2 cores", "protocol": {}}),
        ("rack:3:onnxruntime", {"device": "rack:3", "protocol": {"runtime": "onnxruntime"}}),
        ("jetson:onnxruntime:²", {"device": "jetson:onnxruntime:²", "protocol": {}}),
    ],
)
def test_targets(given: str, expected: dict[str, object]) -> None:
    assert parse_target(given) == expected


@pytest.mark.parametrize("given", ["", "class=", ":pytorch"])
def test_targets_without_a_place_are_refused(given: str) -> None:
    with pytest.raises(InvalidInput):
        parse_target(given)


def test_a_changed_runtime_has_its_own_cache() -> None:
    stored = MeasurementProtocol(runtime="llamacpp", kv_cache="f32")
    assert changed_protocol(stored, {"threads": 2})["kv_cache"] == "f32", "as it was measured"
    assert "kv_cache" not in changed_protocol(stored, {"runtime": "onnxruntime"})


def test_settings_are_json_values_or_words() -> None:
    given = ["population=20 mutation=0.3", "elitist=true", "name=abc"]
    assert parse_settings(given) == {"population": 20, "mutation": 0.3, "elitist": True, "name": "abc"}
    with pytest.raises(InvalidInput):
        parse_settings(["population"])


def test_a_job_file(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"targets": [{"device": "jetson"}], "budget": {"candidates": 5}}), encoding="utf-8")
    assert read_request(file, JobRequest).budget.candidates == 5
    for text in ("[]", "{", '{"targets": []}', '{"targets": [{"device": "a"}], "sed": 1}'):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(InvalidInput):
            read_request(file, JobRequest)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"targets": [{"device": "jetson"}]}', encoding="utf-8-sig")
    assert read_request(tmp_path / "job.json", JobRequest).targets[0].device == "jetson"


def test_json_nested_too_deeply_is_refused_in_words(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text("[" * 100_000)
    with pytest.raises(InvalidInput, match="not JSON"):
        read_request(file, JobRequest)
    assert parse_settings(["population=" + "[" * 100_000]) == {"population": "[" * 100_000}


def test_when_busy_is_a_field_of_any_protocol() -> None:
    assert ProtocolOptions(when_busy="wait").fields == {"when_busy": "wait"}
    assert ProtocolOptions(when_busy="wait", prompt=64).fields == {
        "mode": "generate",
        "sequence_length": 64,
        "when_busy": "wait",
    }
