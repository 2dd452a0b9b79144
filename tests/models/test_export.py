"""Exported files: whole, self-describing, the same bytes each time, and the same model in both formats."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.numpy
from built_graphs import build
from onnx import numpy_helper
from safetensors import safe_open
from tiny_models import adaptive, architecture, onnx_session, seeded_weights

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput, TooLarge
from edgefront.core.model_files import export, parameter_values
from edgefront.core.model_files.export import metadata, write_onnx, write_safetensors
from edgefront.core.model_files.state import GraphOptions
from edgefront.core.nn.weights import load_safetensors

S = {"kind": "attention", "n_head": 4}
F = {"kind": "feed_forward", "d_inner": 400}
MODELS = [architecture(), architecture(embedding={"vocab_size": 97, "d_embed": 8}), adaptive()]


@pytest.mark.parametrize("settings", [{"dtype": "float16"}, {"dtype": "bfloat16"}, {"quantisation": "int8"}], ids=str)
@pytest.mark.parametrize("mode", ["forward", "decode"])
def test_a_file_in_other_numbers_is_the_graph_that_is_measured(
    mode: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    model = architecture(positions={"kind": "relative"}, blocks=[S, {"kind": "srupp", "d_attn": 8}, F])
    write_onnx(model, 11, tmp_path / "model.onnx", GraphOptions(mode=mode, **settings))
    written, built = onnx.load(tmp_path / "model.onnx"), build(model, GraphOptions(mode=mode, **settings), seed=11)
    onnx.checker.check_model(written, full_check=True)
    assert [node.SerializeToString() for node in written.graph.node] == [
        node.SerializeToString() for node in built.graph.node
    ]
    tensors, expected = (
        {item.name: (item.data_type, numpy_helper.to_array(item).tobytes()) for item in model.graph.initializer}
        for model in (written, built)
    )
    assert tensors == expected
    about = {entry.key: entry.value for entry in written.metadata_props}
    assert {about["numbers"]} == set(settings.values())
    whole = tmp_path / "whole.onnx"
    write_onnx(model, 11, whole, GraphOptions(mode=mode))
    assert (tmp_path / "model.onnx").stat().st_size < whole.stat().st_size


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.digest[:6])
def test_other_readers_find_the_same_parameters(model: Architecture, tmp_path: Path) -> None:
    write_onnx(model, 2, tmp_path / "model.onnx", GraphOptions(logits="last"))
    write_safetensors(model, 2, tmp_path / "model.safetensors")
    expected = seeded_weights(model, 2)
    read = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    loaded = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(loaded, full_check=True)
    inside = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in loaded.graph.initializer}
    assert read.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(read[name], value)
        np.testing.assert_array_equal(inside[name], value)


def test_both_describe_themselves(tmp_path: Path) -> None:
    model = adaptive()
    write_onnx(model, 2, tmp_path / "model.onnx")
    write_safetensors(model, 2, tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", framework="np") as file:
        about = file.metadata()
    session = onnx_session(str(tmp_path / "model.onnx"))
    assert about == metadata(model, 2)
    assert session.get_modelmeta().custom_metadata_map == about | {"mode": "forward", "numbers": "float32"}
    assert about["weights"] == "untrained, random by seed"
    assert about["seed"] == "2"
    assert Architecture.parse(about["architecture"]).digest == about["digest"] == model.digest


@pytest.mark.parametrize("write", ["write_onnx", "write_safetensors"])
def test_the_same_seed_gives_the_same_bytes_in_any_process(write: str, tmp_path: Path) -> None:
    model = adaptive()
    here = tmp_path / "here"
    getattr(export, write)(model, 3, here)
    program = (
        f"import sys; from edgefront.core.model_files.export import {write} as write\n"
        "from edgefront.core.architectures.architecture import Architecture\n"
        "write(Architecture.parse(sys.argv[1]), 3, sys.argv[2]); assert 'torch' not in sys.modules"
    )
    there = tmp_path / "there"
    subprocess.run([sys.executable, "-c", program, model.canonical_json, str(there)], check=True)
    assert hashlib.sha256(here.read_bytes()).digest() == hashlib.sha256(there.read_bytes()).digest()
    other = tmp_path / "other"
    getattr(export, write)(model, 4, other)
    assert here.read_bytes() != other.read_bytes()


def test_safetensors_bytes_are_golden(tmp_path: Path) -> None:
    write_safetensors(adaptive(), 3, tmp_path / "model.safetensors")
    digest = hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest()
    assert digest == "dd22772b330b9a4d294e926db28491250a97f85117c4a8dfed382daaa256952c"


@pytest.mark.parametrize("write", [write_onnx, write_safetensors])
def test_a_failed_export_leaves_no_partial_file_and_keeps_the_old_one(
    write: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"as it was")

    def broken(*_: object) -> object:
        raise RuntimeError("the weights stop here")

    monkeypatch.setattr(parameter_values, "chunks", broken)
    with pytest.raises(RuntimeError, match="stop here"):
        write(adaptive(), 0, path)  # type: ignore[operator]
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]
    assert path.read_bytes() == b"as it was"


def test_onnx_above_two_gibibytes_is_refused_at_once(tmp_path: Path) -> None:
    huge = architecture(d_model=4096, blocks=[{"kind": "feed_forward", "d_inner": 65536}])
    with pytest.raises(TooLarge, match=r"2\.00 GiB, above the 2 GiB .* safetensors"):
        write_onnx(huge, 0, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_memory_is_bounded_whatever_the_size(tmp_path: Path) -> None:
    # 64 MiB of weights in each file; the process may grow by a quarter of one.
    program = """
import resource, sys
from edgefront.core.model_files.export import write_onnx, write_safetensors
from edgefront.core.architectures.architecture import Architecture
blocks = [{"kind": "feed_forward", "d_inner": 8192}]
model = Architecture.parse({"d_model": 1024, "embedding": {"vocab_size": 9}, "blocks": blocks})
small = model.model_copy(update={"d_model": 8})
write_onnx(small, 0, sys.argv[1]); write_safetensors(small, 0, sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
write_onnx(model, 0, sys.argv[1]); write_safetensors(model, 0, sys.argv[1])
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 16 * 1024, f"{grown} KiB"
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "model")], check=True)
    assert (tmp_path / "model").stat().st_size > 64 << 20


def test_a_file_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"what")
    with pytest.raises(InvalidInput, match="not a safetensors file"):
        load_safetensors(path)
    safetensors.numpy.save_file({"a": np.zeros(3)}, path)
    with pytest.raises(InvalidInput, match="does not describe its architecture"):
        load_safetensors(path)


def test_a_file_with_wrong_parameters_names_them(tmp_path: Path) -> None:
    model = architecture()
    path = tmp_path / "model.safetensors"
    weights = seeded_weights(model, 0)
    missing = {name: value for name, value in weights.items() if name != "blocks.1.up.bias"}
    safetensors.numpy.save_file(missing, path, metadata(model, 0))
    with pytest.raises(InvalidInput, match=r"lacks the parameter blocks\.1\.up\.bias"):
        load_safetensors(path)
    safetensors.numpy.save_file({**weights, "extra": np.zeros(1)}, path, metadata(model, 0))
    with pytest.raises(InvalidInput, match="has extra, which is not a parameter"):
        load_safetensors(path)
    safetensors.numpy.save_file({**weights, "final_norm.bias": np.zeros(3, np.float32)}, path, metadata(model, 0))
    with pytest.raises(InvalidInput, match=r"final_norm\.bias as F32 of \[3\], not F32 of \(16,\)"):
        load_safetensors(path)
    safetensors.numpy.save_file(weights, path, {**metadata(model, 0), "digest": "0" * 64})
    with pytest.raises(InvalidInput, match="names digest 0000"):
        load_safetensors(path)
