"""Generations in real children: the times of each, the tokens that every runtime chooses, what is refused, energy."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import subjects
from pydantic import ValidationError

from edgefront.agents.measuring.child import Generations
from edgefront.agents.measuring.energy import EnergyMeter
from edgefront.agents.measuring.measure import Measurer, least_footprint_bytes
from edgefront.agents.measuring.runtimes import GenerationTimes, LaunchRequest, library
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.common.errors import InvalidInput
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.measurement.runtimes import INSTALLATIONS

WITH_A_GRAPH = ("onnxruntime", "pytorch", "openvino")
HERE = [
    name for name, needed in INSTALLATIONS.items() if all(find_spec(package) is not None for package in needed.packages)
]
SHORT = {"mode": "generate", "sequence_length": 11, "new_tokens": 6, "repeats": 3}
WORDS = {"vocab_size": 211}
FEED_FORWARD = {"kind": "feed_forward", "d_inner": 96}
MODELS = {
    "gpt": subjects.gpt(),
    "llama": Architecture.parse(
        {
            "d_model": 64,
            "positions": {"kind": "rotary"},
            "norm_kind": "rms",
            "activation": "silu",
            "embedding": WORDS,
            "blocks": [
                {"kind": "attention", "n_head": 4, "n_kv_head": 2, "bias": "none"},
                {**FEED_FORWARD, "gated": True, "bias": False},
                {"kind": "short_conv"},
                {"kind": "attention", "n_head": 4, "n_kv_head": 1, "qk_norm": True, "bias": "none", "window": 8},
                {**FEED_FORWARD, "gated": True, "bias": False},
            ],
        }
    ),
    "transformer-xl": Architecture.parse(
        {
            "d_model": 64,
            "positions": {"kind": "relative", "clamp": 20},
            "norm": "post",
            "embedding": {**WORDS, "cutoffs": [50, 100], "div": 2},
            "blocks": [{"kind": "attention", "n_head": 4}, FEED_FORWARD],
        }
    ),
    "recurrent": Architecture.parse(
        {
            "d_model": 64,
            "positions": {"kind": "none"},
            "embedding": WORDS,
            "blocks": [{"kind": "sru"}, {"kind": "srupp", "d_attn": 16}],
        }
    ),
}


def protocol(runtime: str = "onnxruntime", **fields: Any) -> MeasurementProtocol:
    return MeasurementProtocol.model_validate({"runtime": runtime, **SHORT, **fields})


def runs(name: str, runtime: str) -> bool:
    """llama.cpp runs what a GGUF file expresses, and OpenVINO no recurrences."""
    return {"llamacpp": name == "gpt", "openvino": name != "recurrent"}.get(runtime, True)


@pytest.mark.parametrize("context", [0, 13])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("runtime", HERE)
def test_a_launch_gives_the_times_of_each_generation(measurer: Measurer, runtime: str, name: str, context: int) -> None:
    asked = protocol(runtime, memory_length=context)
    result = measurer.measure(MODELS[name], asked, seed=3)
    if not runs(name, runtime):
        assert (result.outcome, result.reason) == ("failed", "build_error")
        return
    assert result.outcome == "done", result.message
    made, latency, memory = result.generation, result.latency, result.memory
    assert made is not None
    assert latency is not None
    assert memory is not None
    assert len(made.first_token_ms) == asked.repeats
    assert latency.samples_ms == made.total_ms
    for first, each, total in zip(made.first_token_ms, made.token_ms, made.total_ms, strict=True):
        assert total == pytest.approx(first + (asked.new_tokens - 1) * each)
    assert memory.peak_bytes >= least_footprint_bytes(MODELS[name], asked)
    assert made.energy  # a figure, or why there is none


@pytest.mark.parametrize("latency", ["first_token", "token"])
def test_the_protocol_says_which_time_is_the_latency(measurer: Measurer, latency: str) -> None:
    result = measurer.measure(subjects.gpt(), protocol(latency=latency), seed=3)
    assert result.generation is not None, result.message
    assert result.latency is not None
    assert result.latency.samples_ms == getattr(result.generation, f"{latency}_ms")


@pytest.mark.parametrize("context", [0, 13])
@pytest.mark.parametrize("name", MODELS)
def test_runtimes_choose_the_same_tokens(weights: Path, name: str, context: int) -> None:
    """With the weights of one seed, after the same context: in each runtime every token is the likeliest one."""
    chosen = {}
    for runtime in WITH_A_GRAPH:
        if runtime in HERE and runs(name, runtime):
            chosen[runtime] = tokens_of(weights, MODELS[name], protocol(runtime, memory_length=context, batch=2))
    expected = chosen.pop("pytorch")
    assert expected.shape == (2, 6)
    for runtime, tokens in chosen.items():
        assert np.array_equal(tokens, expected), runtime


@pytest.mark.parametrize("runtime", HERE)
def test_every_generation_is_the_same(weights: Path, runtime: str) -> None:
    asked = protocol(runtime, memory_length=13)
    model = library(asked.runtime).generator(request(weights, subjects.gpt(), asked))
    seen = []
    for _ in range(3):
        model.prepare()
        model.generate()
        seen.append(model.tokens.copy())
        assert model.finite()
    assert np.array_equal(seen[0], seen[1])
    assert np.array_equal(seen[0], seen[2])


def test_a_longer_context_takes_more_memory(measurer: Measurer) -> None:
    model_of = subjects.gpt(layers=4, d_model=256, length=4096)

    def peak(context: int) -> int:
        result = measurer.measure(model_of, protocol(memory_length=context), seed=3)
        assert result.memory is not None, result.message
        return result.memory.peak_bytes

    keys_and_values = 2 * 4 * 256 * 4 * 3000
    assert peak(3000) - peak(0) > keys_and_values


def test_what_cannot_be_generated_is_refused_before_anything_runs(measurer: Measurer, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput, match="1000 of context and 11 of the prompt and 64 new ones are 1075 tokens"
    ) as told:
        protocol_costs(subjects.gpt(), protocol(memory_length=1000, new_tokens=64))
    assert told.value.field == "sequence_length"
    assert "at most 1024" in told.value.extra["allowed"]
    encoder = Architecture.parse({**subjects.gpt().canonical, "causal": False, "output": {"kind": "masked_tokens"}})
    with pytest.raises(InvalidInput, match="mode: generate needs a causal model"):
        protocol_costs(encoder, protocol())
    result = measurer.measure(subjects.doubled(tmp_path / "doubled.onnx", 4), protocol(), seed=3)
    assert (result.outcome, result.reason) == ("failed", "unsupported")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"mode": "generate", "new_tokens": 1}, "new_tokens"),
        ({"mode": "generate", "logits": "all"}, "logits"),
        ({"new_tokens": 3}, "new_tokens"),
        ({"mode": "decode", "latency": "token"}, "latency"),
        ({"mode": "generate", "runtime": "llamacpp", "batch": 2}, "batch"),
    ],
)
def test_protocols_that_make_no_sense(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError, match=f"{field}: "):
        MeasurementProtocol.model_validate(fields)


def test_other_modes_neither_send_nor_count_what_is_of_generations() -> None:
    for mode in ("forward", "prefill", "decode"):
        known = MeasurementProtocol.model_validate({"mode": mode})
        assert not {"new_tokens", "latency"} & (known.model_dump().keys() | known.identity.keys())
    asked = protocol()
    assert asked.identity["new_tokens"] == 6
    assert len({asked.digest, protocol(latency="token").digest, protocol(new_tokens=7).digest}) == 3
    result = LaunchResult(outcome="failed", reason="crashed")
    assert "generation" not in result.model_dump()


def test_the_costs_of_a_generation_are_those_of_its_passes() -> None:
    found = protocol_costs(subjects.gpt(), protocol(new_tokens=3))
    model_of, last = subjects.gpt(), {"logits": "last"}
    prompt = costs(model_of, CostOptions(sequence_length=11, mode="prefill", **last))
    token = costs(model_of, CostOptions(sequence_length=1, mode="decode", memory_length=12, **last))
    assert found.flops == prompt.flops + 2 * token.flops
    assert (
        found.state_bytes
        == costs(model_of, CostOptions(sequence_length=1, mode="decode", memory_length=13)).state_bytes
    )
    assert (found.mode, found.sequence_length, found.memory_length) == ("generate", 11, 0)


def zone(folder: Path, number: str, name: str, **files: int) -> Path:
    """A zone of RAPL with these counters; returns that of its energy."""
    place = folder / f"intel-rapl:{number}"
    place.mkdir()
    (place / "name").write_text(f"{name}\n")
    for file, value in files.items():
        (place / file).write_text(f"{value}\n")
    return place / "energy_uj"


def test_energy_is_read_from_counters_that_may_begin_again(tmp_path: Path) -> None:
    full = {"energy_uj": 900_000, "max_energy_range_uj": 1_000_000}
    first, second = (zone(tmp_path, str(index), f"package-{index}", **full) for index in range(2))
    zone(tmp_path, "0:0", "core")
    meter = EnergyMeter("cpu", tmp_path)
    with meter:
        first.write_text("950000\n")
        second.write_text("100000\n")
    joules, source = meter.read()
    assert joules == pytest.approx(0.05 + 0.2)
    assert "RAPL" in source


class Counted:
    """A generator that uses 500 J for the context, 3 J for each generation, and nothing else."""

    tokens = np.zeros((1, 6), np.int64)

    def __init__(self, counter: Path) -> None:
        self._counter = counter
        self.versions: dict[str, str] = {}
        self.starts: dict[str, int] = {}

    def prepare(self) -> None:
        self._use(500)

    def generate(self) -> GenerationTimes:
        self._use(3)
        return GenerationTimes(2.0, 5.0)

    def release(self) -> None:
        self._use(500)

    def finite(self) -> bool:
        return True

    def _use(self, joules: int) -> None:
        self._counter.write_text(str(int(self._counter.read_text()) + joules * 10**6))


def test_energy_is_of_the_timed_part_of_the_timed_generations(tmp_path: Path) -> None:
    model = Generations(Counted(zone(tmp_path, "0", "package-0", energy_uj=7)), protocol())
    model.forward_ms()  # warm-up
    model.begin(EnergyMeter("cpu", tmp_path))
    for _ in range(4):
        assert model.forward_ms() == 7.0
    samples = model.samples()
    assert samples.total_ms == (7.0,) * 4
    assert samples.energy_token_mj == pytest.approx(3000 / 6)


def test_energy_that_cannot_be_read_is_said_to_be_absent(tmp_path: Path) -> None:
    assert EnergyMeter("cpu", tmp_path / "nothing").read() == (None, "no energy: this system has no RAPL counters")
    counter = zone(tmp_path, "0", "package-0")
    joules, why = EnergyMeter("cpu", tmp_path).read()
    assert joules is None
    assert "may not be read" in why
    counter.write_text("7\n")
    meter = EnergyMeter("cpu", tmp_path)
    with meter:
        pass
    joules, why = meter.read()
    assert joules is None
    assert "did not move" in why
    meter = EnergyMeter("cuda", tmp_path)
    with meter:
        pass
    joules, why = meter.read()
    assert joules is None or "NVML" in why


def tokens_of(weights: Path, architecture: Architecture, asked: MeasurementProtocol) -> np.ndarray[Any, Any]:
    model = library(asked.runtime).generator(request(weights, architecture, asked))
    model.prepare()
    model.generate()
    return model.tokens


def request(weights: Path, architecture: Architecture, asked: MeasurementProtocol) -> LaunchRequest:
    return LaunchRequest(architecture=architecture.canonical, protocol=asked, seed=3, cache=weights)


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_onnxruntime_writes_keys_and_values_where_they_are(weights: Path, name: str) -> None:
    """One buffer, as long as the generation: the context stays at its beginning, and every token is written behind it.
    Blocks with a window keep no more than it sees, and are copied.
    """
    from edgefront.agents.measuring.runtimes.onnx_runtime import OnnxGenerator

    asked = protocol(memory_length=13)
    model = OnnxGenerator(request(weights, MODELS[name], asked))
    buffers = {entry: value.numpy() for entry, value in model._buffers.items()}
    assert {array.shape[2] for array in buffers.values()} == {13 + 11 + 6}
    assert "blocks.0.keys" in buffers
    assert "blocks.3.keys" not in buffers
    before = {entry: array.copy() for entry, array in buffers.items()}
    model.prepare()
    model.generate()
    for entry, array in buffers.items():
        assert np.array_equal(array[:, :, :13], before[entry][:, :, :13]), entry
        written = np.abs(array[:, :, 13:]).sum(axis=(0, 1, 3)) > 0
        assert written.tolist() == [True] * (11 + 5) + [False]  # nothing follows the last token
