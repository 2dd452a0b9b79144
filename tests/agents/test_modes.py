"""Every kind of block, in every mode and number format, in real children of both runtimes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from block_models import ATTENTION, MODELS, MODES, WORDS

from edgefront.agents.measuring.inputs import random_indices, random_state
from edgefront.agents.measuring.measure import Measurer, least_footprint_bytes
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.units import MIB
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.model_files.state import state_specs
from edgefront.core.schemas.agent import DeviceFacts

RUNTIMES = ("onnxruntime", "pytorch")


def suits(name: str, mode: str) -> bool:
    return mode == "forward" or not (name == "bert" or (name == "translation" and mode == "segment"))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_measured_in_every_mode(measurer: Measurer, name: str, mode: str, runtime: str) -> None:
    protocol = MeasurementProtocol(runtime=runtime, batch=2, repeats=2, **MODES[mode])
    result = measurer.measure(MODELS[name], protocol, seed=3)
    if not suits(name, mode):
        assert (result.outcome, result.reason) == ("failed", "build_error")
        assert "memory_length" in result.message or "mode" in result.message
        return
    assert result.outcome == "done", result.message
    assert result.latency is not None
    assert result.memory is not None
    assert len(result.latency.samples_ms) == 2
    assert result.memory.peak_bytes > result.memory.mapped_weight_bytes


@pytest.mark.parametrize("name", ["transformer-xl", "hybrid"])
@pytest.mark.parametrize("mode", ["segment", "decode"])
@pytest.mark.parametrize(
    ("runtime", "choice"),
    [
        ("onnxruntime", {"weights": "int8"}),
        ("pytorch", {"weights": "int8"}),
        ("pytorch", {"dtype": "bfloat16"}),
        ("pytorch", {"dtype": "float16"}),
    ],
)
def test_every_number_format_is_measured(
    measurer: Measurer, name: str, mode: str, runtime: str, choice: dict[str, str]
) -> None:
    protocol = MeasurementProtocol.model_validate({"runtime": runtime, **choice, **MODES[mode]})
    result = measurer.measure(MODELS[name], protocol, seed=3)
    assert result.outcome == "done", result.message


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_number_format_that_a_provider_would_cast_is_unsupported(
    measurer: Measurer, facts: DeviceFacts, dtype: str
) -> None:
    """ONNX Runtime's CPU kernels know no halves, but float16 on some ARM processors: it would compute in float32 under
    their name, or not at all.
    """
    protocol = MeasurementProtocol.model_validate({"dtype": dtype, "sequence_length": 24})
    result = measurer.measure(MODELS["gpt"], protocol, seed=3)
    computed = next(runtime.numbers["cpu"] for runtime in facts.runtimes if runtime.runtime == "onnxruntime")
    if dtype in computed:
        assert facts.architecture == "aarch64"
        assert result.outcome == "done"
        return
    assert (result.outcome, result.reason) == ("failed", "unsupported")
    assert dtype in result.message


@pytest.mark.parametrize(
    ("runtime", "positions", "times"),
    [("onnxruntime", "none", 2), ("onnxruntime", "rotary", 1), ("pytorch", "rotary", 2)],
)
def test_a_cache_counts_as_memory_of_decoding(measurer: Measurer, runtime: str, positions: str, times: int) -> None:
    """Keys and values of the tokens before, and once more what the pass leaves behind for the next, unless ONNX Runtime
    writes it where they are.
    """
    model = Architecture.parse(
        {"d_model": 64, "positions": {"kind": positions}, "embedding": WORDS, "blocks": [ATTENTION] * 4}
    )
    peaks = []
    for memory_length in (1024, 9216):
        protocol = MeasurementProtocol(runtime=runtime, mode="decode", memory_length=memory_length)
        result = measurer.measure(model, protocol, seed=3)
        assert result.memory is not None, result.message
        peaks.append(result.memory.peak_bytes)
    cache = 4 * (9216 - 1024) * 4 * 2 * 64
    assert peaks[1] - peaks[0] == pytest.approx(times * cache, rel=0.15)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_smaller_weights_are_less_memory(measurer: Measurer, runtime: str) -> None:
    """Both runtimes pack int8 weights as bytes; PyTorch maps halves from the file as they are."""
    wide = {"kind": "feed_forward", "d_inner": 4096}
    model = Architecture.parse(
        {"d_model": 512, "positions": {"kind": "none"}, "embedding": WORDS, "blocks": [wide] * 3}
    )
    choices: list[dict[str, Any]] = [{}, {"weights": "int8"}] + (
        [{"dtype": "bfloat16"}] if runtime == "pytorch" else []
    )
    for choice in choices:
        protocol = MeasurementProtocol(runtime=runtime, sequence_length=2, logits="none", **choice)
        result = measurer.measure(model, protocol, seed=3)
        assert result.memory is not None, result.message
        weights = protocol_costs(model, protocol).weight_bytes
        assert result.memory.peak_bytes == pytest.approx(weights, abs=10 * MIB), choice
        assert least_footprint_bytes(model, protocol) < result.memory.peak_bytes


def test_the_least_footprint_holds_state_and_smaller_weights() -> None:
    model = MODELS["hybrid"]
    least = {
        name: least_footprint_bytes(model, MeasurementProtocol(**fields))
        for name, fields in {
            "forward": {"sequence_length": 1, "logits": "none"},
            "decode": {"mode": "decode", "memory_length": 4096, "logits": "none"},
            "half": {"sequence_length": 1, "logits": "none", "dtype": "bfloat16"},
            "int8": {"sequence_length": 1, "logits": "none", "weights": "int8"},
        }.items()
    }
    # Keys and values of SRU++ (16 features) and attention (64), and the cells of two recurrences.
    state = 4 * (4096 * 2 * (16 + 64) + 2 * 64)
    assert least["decode"] - least["forward"] == pytest.approx(state, rel=0.02)
    assert least["half"] * 2 == least["forward"]
    assert least["int8"] < least["forward"]


def test_states_are_finite_random_and_as_long_as_the_memory() -> None:
    protocol = MeasurementProtocol(mode="decode", memory_length=30, batch=2)
    model = MODELS["translation"]
    state = random_state(model, protocol, seed=1)
    assert list(state) == [spec.name for spec in state_specs(model, "cache")]
    assert state["position"] == 30
    assert state["blocks.0.keys"].shape == (2, 1, 60, 16)  # the source, and the past
    assert state["blocks.1.values"].shape == (2, 4, 30, 16)
    assert state["blocks.0.cell"].shape == (2, 64)
    cell = state["blocks.0.cell"]
    assert cell.dtype == np.float32
    assert -1 <= cell.min() < -0.5 < 0.5 < cell.max() <= 1
    again = random_state(model, protocol, seed=1)
    assert all(np.array_equal(state[name], again[name]) for name in state)
    memory = random_state(MODELS["hybrid"], MeasurementProtocol(memory_length=7, sequence_length=2), seed=1)
    assert memory["blocks.1.memory"].shape == (1, 7, 64)
    assert random_state(model, MeasurementProtocol(mode="prefill"), seed=1) == {}


def test_all_that_a_pass_looks_up_is_given() -> None:
    indices = random_indices(MODELS["bert"], MeasurementProtocol(sequence_length=40, batch=3), seed=1)
    assert {name: array.shape for name, array in indices.items()} == {"tokens": (3, 40), "segments": (3, 40)}
    assert set(np.unique(indices["segments"])) == {0, 1}
    translation = MODELS["translation"]
    assert random_indices(translation, MeasurementProtocol(sequence_length=9), seed=1)["source_tokens"].shape == (1, 9)
    assert set(random_indices(translation, MeasurementProtocol(mode="decode"), seed=1)) == {"tokens"}
