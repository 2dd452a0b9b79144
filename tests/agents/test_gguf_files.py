"""GGUF files that llama.cpp runs as they are: measured like the same model made here, and refused in one sentence."""

from __future__ import annotations

import struct
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import subjects
from llama_cpp_models import FAMILIES, generation, model_of

from edgefront.agents.measuring.measure import Measurer
from edgefront.agents.measuring.runtimes import GgufModel, LaunchRequest, library
from edgefront.core.common.errors import InvalidInput
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.model_files.gguf import write_gguf
from edgefront.core.model_files.gguf_header import GgufHeader

pytestmark = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("gguf") is None, reason="xllamacpp or gguf is not installed"
)


def protocol(**fields: Any) -> MeasurementProtocol:
    return MeasurementProtocol.model_validate({"runtime": "llamacpp", "sequence_length": 24, "repeats": 2, **fields})


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    write_gguf(model_of("llama"), 3, tmp_path / "model.gguf", "q8_0")
    return tmp_path / "model.gguf"


@pytest.mark.parametrize("mode", ["forward", "prefill", "decode", "generate"])
@pytest.mark.parametrize("family", ["llama", "lfm2"])
def test_a_file_is_measured_in_every_mode(measurer: Measurer, tmp_path: Path, family: str, mode: str) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(model_of(family), 3, path)
    lengths: dict[str, Any] = {"memory_length": 30, "sequence_length": 1} if mode == "decode" else {}
    lengths |= {"memory_length": 30, "new_tokens": 8} if mode == "generate" else {}
    result = measurer.measure(path, protocol(mode=mode, repeats=20, **lengths), seed=3)
    assert result.outcome == "done", result.message
    assert result.memory is not None
    assert result.memory.mapped_weight_bytes == pytest.approx(GgufHeader(path).weight_bytes, rel=0.03)


@pytest.mark.parametrize("family", ["gpt2", *FAMILIES])
def test_it_is_the_model_that_is_made_here(weights: Path, tmp_path: Path, family: str) -> None:
    """The same tokens after the same prompt, which is of the same vocabulary."""
    model, asked = model_of(family), generation(memory_length=9)  # one more than Gemma's window
    write_gguf(model, 3, tmp_path / "model.gguf")
    header = GgufHeader(tmp_path / "model.gguf")
    file = GgufModel(paths=header.paths, vocab_size=header.vocab_size, keeps_state=header.keeps_state)
    tokens = []
    for subject in ({"architecture": model.canonical}, {"gguf_file": file}):
        request = LaunchRequest(**subject, protocol=asked, seed=3, cache=weights)
        made = library("llamacpp").generator(request)
        made.prepare()
        made.generate()
        tokens.append(made.tokens.tolist())
    assert tokens[0] == tokens[1]


def test_a_context_within_a_window_cannot_be_continued(measurer: Measurer) -> None:
    result = measurer.measure(model_of("gemma3"), generation(memory_length=5), seed=3)
    assert (result.outcome, result.reason) == ("failed", "unsupported")
    assert "Measure after a longer context, or without a context" in (result.message or "")


def test_parts_of_a_model_are_one(measurer: Measurer, llama: Path, tmp_path: Path) -> None:
    import gguf

    reader = gguf.GGUFReader(llama)
    writer = gguf.GGUFWriter(tmp_path / "parts.gguf", "llama", split_max_tensors=8)
    for name, field in reader.fields.items():
        if not name.startswith(("GGUF.", "general.architecture")):
            sub = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    first, *others = sorted(tmp_path.glob("parts-*.gguf"))
    assert len(others) >= 2
    whole, in_parts = GgufHeader(llama), GgufHeader(first)
    assert in_parts.facts == whole.facts
    result = measurer.measure(first, protocol(), seed=3)
    assert result.outcome == "done", result.message
    assert result.memory is not None
    assert result.memory.mapped_weight_bytes == pytest.approx(whole.weight_bytes, abs=4096 * len(in_parts.paths))
    with pytest.raises(InvalidInput, match=r"is part 2 of [0-9]; give the first"):
        GgufHeader(others[0])
    others[0].unlink()
    with pytest.raises(InvalidInput, match=f"is the first of {1 + len(others)} parts, but {others[0].name} is missing"):
        GgufHeader(first)


def changed(path: Path, was: bytes, becomes: bytes) -> Path:
    content = path.read_bytes()
    assert was in content
    path.write_bytes(content.replace(was, becomes, 1))
    return path


def test_what_llama_cpp_does_not_know_is_said_by_it(measurer: Measurer, llama: Path) -> None:
    name = b"general.architecture" + struct.pack("<IQ", 8, 5)
    changed(llama, name + b"llama", name + b"zebra")
    result = measurer.measure(llama, protocol(), seed=3)
    assert (result.outcome, result.reason) == ("failed", "build_error")
    assert result.message == "llama.cpp cannot load model.gguf: unknown model architecture: 'zebra'"


def test_a_number_format_that_llama_cpp_does_not_know_is_said_by_it(measurer: Measurer, llama: Path) -> None:
    name, shape = b"blk.0.ffn_up.weight", struct.pack("<IQQ", 2, 64, 96)
    changed(llama, name + shape + struct.pack("<I", 8), name + shape + struct.pack("<I", 250))
    result = measurer.measure(llama, protocol(), seed=3)
    assert (result.outcome, result.reason) == ("failed", "build_error")
    assert "blk.0.ffn_up.weight" in str(result.message)
    assert "invalid ggml type 250" in str(result.message)


def test_a_file_that_was_cut_short_is_refused(measurer: Measurer, llama: Path) -> None:
    whole = llama.read_bytes()
    for length, said in (
        (len(whole) // 2, "was cut short"),
        (40, "was cut short or is damaged"),
        (4, "was cut short"),
    ):
        llama.write_bytes(whole[:length])
        result = measurer.measure(llama, protocol(), seed=3)
        assert (result.outcome, result.reason) == ("failed", "build_error")
        assert said in str(result.message)
        assert f"{length}" in str(result.message)


def test_a_file_larger_than_the_memory_is_refused_before_it_is_loaded(weights: Path, llama: Path) -> None:
    with Measurer(weights, memory_limit_bytes=10_000) as measurer:
        result = measurer.measure(llama, protocol(), seed=3)
    assert (result.outcome, result.reason) == ("infeasible", "out_of_memory")
    least = GgufHeader(llama).weight_bytes
    assert result.message == f"the model needs at least {least} bytes of memory, but only 10000 are available"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"weights": "q4_0"}, "weights q4_0 needs an architecture: a GGUF file is run unchanged"),
        ({"dtype": "float16"}, "dtype float16 needs an architecture: a GGUF file is run unchanged"),
        ({"runtime": "onnxruntime"}, "runtime onnxruntime cannot run GGUF files"),
        ({"sequence_length": 64}, "sequence_length: 64 tokens in all, but model.gguf allows a context of 64"),
        (
            {"mode": "generate", "memory_length": 40, "sequence_length": 20, "new_tokens": 5},
            "memory_length: 65 tokens in all, but model.gguf allows a context of 64",
        ),
    ],
    ids=str,
)
def test_a_protocol_that_does_not_suit_the_file_is_refused(
    measurer: Measurer, tmp_path: Path, fields: dict[str, Any], said: str
) -> None:
    write_gguf(subjects.gpt(length=64), 3, tmp_path / "model.gguf")
    asked = MeasurementProtocol.model_validate({"runtime": "llamacpp", **fields})
    result = measurer.measure(tmp_path / "model.gguf", asked, seed=3)
    assert (result.outcome, result.reason) == ("failed", "unsupported")
    assert said in str(result.message)


def test_the_whole_context_of_a_file_is_measured(measurer: Measurer, tmp_path: Path) -> None:
    write_gguf(subjects.gpt(length=64), 3, tmp_path / "model.gguf")
    for fields in ({"sequence_length": 63}, {"mode": "generate", "sequence_length": 56, "new_tokens": 8}):
        result = measurer.measure(tmp_path / "model.gguf", protocol(**fields), seed=3)
        assert result.outcome == "done", result.message
