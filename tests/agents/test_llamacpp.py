"""llama.cpp: its own timings, memory of known size, files that are made here and nowhere sent, and what it refuses."""

from __future__ import annotations

import statistics
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import psutil
import pytest
import subjects
from llama_cpp_models import FAMILIES, GATED, ROTARY, generation, model_of
from pydantic import ValidationError

from edgefront.agents.measuring.measure import Measurer, least_footprint_bytes
from edgefront.agents.measuring.runtimes import LaunchRequest, library
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.common.number_formats import KV_CACHE_BYTES, GgufQuantisation
from edgefront.core.common.units import MIB
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.jobs import TargetRequest

pytestmark = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("gguf") is None, reason="xllamacpp or gguf is not installed"
)

LLAMACPP = MeasurementProtocol(runtime="llamacpp", sequence_length=24, repeats=3)
FORMATS: list[dict[str, str]] = [
    {},
    {"kv_cache": "f32"},
    {"dtype": "float16"},
    {"weights": "q8_0", "kv_cache": "f32"},
    {"weights": "q4_0"},
    {"weights": "q4_k_m"},
    {"weights": "iq4_nl"},
]


@pytest.mark.parametrize("mode", ["forward", "prefill", "decode"])
@pytest.mark.parametrize("choice", FORMATS, ids=str)
def test_every_mode_and_format_is_measured(measurer: Measurer, mode: str, choice: dict[str, str]) -> None:
    lengths = {"memory_length": 30} if mode == "decode" else {"sequence_length": 24}
    protocol = MeasurementProtocol.model_validate({"runtime": "llamacpp", "mode": mode, **lengths, **choice})
    result = measurer.measure(subjects.gpt(), protocol, seed=3)
    assert result.outcome == "done", result.message
    assert result.latency is not None
    assert len(result.latency.samples_ms) == 5
    assert {"xllamacpp", "request_overhead_ms"} <= set(result.environment)


@pytest.mark.parametrize(("family", "context"), [("gpt2", 0), *((family, 30) for family in ("gpt2", *FAMILIES))])
def test_every_family_generates(measurer: Measurer, family: str, context: int) -> None:
    """Times of every generation, and a peak that holds the weights and the tokens, and little more."""
    model, protocol = model_of(family), generation(memory_length=context, repeats=3)
    result = measurer.measure(model, protocol, seed=3)
    assert result.outcome == "done", result.message
    made, latency, memory = result.generation, result.latency, result.memory
    assert made is not None
    assert latency is not None
    assert memory is not None
    assert len(made.first_token_ms) == len(made.token_ms) == 3
    for first, each, total in zip(made.first_token_ms, made.token_ms, latency.samples_ms, strict=True):
        assert first > 0
        assert each > 0
        assert total == pytest.approx(first + (protocol.new_tokens - 1) * each)
    least = least_footprint_bytes(model, protocol)
    assert least < memory.peak_bytes < least + 40 * MIB


@pytest.mark.parametrize("family", ["gpt2", *FAMILIES])
def test_every_family_chooses_the_tokens_of_torch(weights: Path, family: str) -> None:
    """In float32, of a model whose output is not its embedding: that would say the last token again and again."""
    model = Architecture.parse({**model_of(family).canonical, "output": {"tied": False}})
    tokens = {}
    for runtime in ("llamacpp", "pytorch"):
        protocol = generation(runtime)
        request = LaunchRequest(architecture=model.canonical, protocol=protocol, seed=3, cache=weights)
        made = library(protocol.runtime).generator(request)
        made.prepare()
        made.generate()
        tokens[runtime] = made.tokens.tolist()
    assert tokens["llamacpp"] == tokens["pytorch"]
    assert len(set(tokens["pytorch"][0])) > 1


def test_a_context_is_evaluated_before_the_timed_generation(weights: Path) -> None:
    """Also where a convolution needs all of it again for every generation."""
    request = LaunchRequest(
        architecture=model_of("lfm2").canonical,
        protocol=generation(sequence_length=5, memory_length=20),
        seed=3,
        cache=weights,
    )
    model: Any = library("llamacpp").generator(request)
    asked: list[int] = []
    complete = model._complete
    model._complete = lambda request: asked.append(len(request["prompt"])) or complete(request)
    for _ in range(2):
        asked.clear()
        model.prepare()
        assert asked == [20]
        model.generate()
        assert asked == [20, 25]


def test_its_timings_are_those_of_the_wall_clock(weights: Path) -> None:
    """Of whole prompts, beside which the way to the server and back is little."""
    protocol = LLAMACPP.model_copy(update={"sequence_length": 512})
    larger = subjects.gpt(layers=4, d_model=256, vocabulary=2000, length=1024)
    request = LaunchRequest(architecture=larger.canonical, protocol=protocol, seed=3, cache=weights)
    model = library("llamacpp").build(request)
    shares = []
    for _ in range(7):
        started = time.perf_counter()
        taken = model.forward_ms()
        shares.append(taken / (1000 * (time.perf_counter() - started)))
    assert max(shares) <= 1
    assert statistics.median(shares) > 0.97


def test_the_whole_length_of_the_positions_is_measured(measurer: Measurer) -> None:
    whole = LLAMACPP.model_copy(update={"sequence_length": 64})
    assert measurer.measure(subjects.gpt(length=64), whole, seed=3).outcome == "done"
    decode = MeasurementProtocol(runtime="llamacpp", mode="decode", memory_length=63)
    assert measurer.measure(subjects.gpt(length=64), decode, seed=3).outcome == "done"


def test_weights_are_mapped_and_counted_by_size(measurer: Measurer) -> None:
    """A file of known size, and beside it what the server holds for itself and its tokens."""
    peaks = []
    for width in (256, 512):
        model = subjects.gpt(layers=4, d_model=width, vocabulary=8192)
        result = measurer.measure(model, LLAMACPP, seed=3)
        assert result.memory is not None, result.message
        assert result.memory.mapped_weight_bytes == pytest.approx(costs(model).weight_bytes, rel=0.03)
        peaks.append((result.memory.peak_bytes, costs(model).weight_bytes))
    (small, small_weights), (large, large_weights) = peaks
    assert large - small == pytest.approx(large_weights - small_weights, rel=0.1)
    assert small - small_weights < 40 * MIB


def test_smaller_weights_are_less_memory(measurer: Measurer) -> None:
    model = subjects.gpt(layers=4, d_model=512, vocabulary=8192)
    for weights in ("full", *get_args(GgufQuantisation)):
        protocol = MeasurementProtocol.model_validate(
            {"runtime": "llamacpp", "sequence_length": 4, "weights": weights, "repeats": 2}
        )
        result = measurer.measure(model, protocol, seed=3)
        assert result.memory is not None, result.message
        expected = costs(model, CostOptions(weights=weights)).weight_bytes
        mapped = result.memory.mapped_weight_bytes
        if weights in (
            "q4_0",
            "q4_k_m",
            "iq4_nl",
        ):  # a CPU's kernels may want copies, which are there instead of what is mapped
            assert mapped <= 1.1 * expected
        else:
            assert mapped == pytest.approx(expected, rel=0.1)
        assert expected < result.memory.peak_bytes < expected + 40 * MIB


@pytest.mark.slow
def test_the_cache_takes_as_much_as_its_format(measurer: Measurer) -> None:
    """Of a model that is little else: 8 layers of keys and values of 2,048 numbers, 64 MiB in float32."""
    attention = {"kind": "attention", "n_head": 8, "n_kv_head": 8, "d_head": 256, "bias": "none"}
    model = Architecture.parse(
        {**ROTARY, "d_model": 64, "embedding": {"vocab_size": 300}, "blocks": [attention, GATED] * 8}
    )
    peaks: dict[str, int] = {}
    for held in ("f32", "f16", "q8_0", "q4_0"):
        choice = {"mode": "decode", "memory_length": 510, "repeats": 1, "kv_cache": held}
        protocol = MeasurementProtocol.model_validate({"runtime": "llamacpp", **choice})
        result = measurer.measure(model, protocol, seed=3)
        assert result.outcome == "done", result.message
        assert result.memory is not None
        peaks[held] = result.memory.peak_bytes
        least = least_footprint_bytes(model, protocol)
        assert least < peaks[held] < least + 40 * MIB
    kept = {
        held: costs(model, CostOptions(mode="decode", memory_length=510, kv_cache=held)).state_bytes
        for held in KV_CACHE_BYTES
    }
    for held in ("q8_0", "q4_0"):
        assert peaks["f16"] - peaks[held] == pytest.approx(kept["f16"] - kept[held], abs=4 * MIB)
    assert peaks["f32"] - peaks["f16"] > kept["f32"] - kept["f16"] - 4 * MIB  # scores are kept without flash attention


def test_a_head_that_blocks_do_not_fill_is_refused_before_a_launch(measurer: Measurer) -> None:
    for held in ("q8_0", "q4_0"):
        protocol = MeasurementProtocol.model_validate({"runtime": "llamacpp", "kv_cache": held})
        result = measurer.measure(subjects.gpt(), protocol, seed=3)
        assert (result.outcome, result.reason) == ("failed", "build_error")
        assert "kv_cache: llama.cpp stores keys and values as" in str(result.message)


def test_the_default_of_requests_is_llama_cpps_own() -> None:
    import xllamacpp

    own = xllamacpp.CommonParams()
    protocol = TargetRequest.model_validate({"protocol": {"runtime": "llamacpp"}}).protocol
    held = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{str(protocol.kv_cache).upper()}")
    assert own.cache_type_k == own.cache_type_v == held
    assert own.flash_attn_type == xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_AUTO


def test_a_launch_opens_no_port(weights: Path) -> None:
    request = LaunchRequest(architecture=subjects.gpt().canonical, protocol=LLAMACPP, seed=3, cache=weights)
    before = listening()
    model: Any = library("llamacpp").build(request)
    assert model._server.listening_address.startswith("unix:")
    assert listening() == before
    model.forward_ms()  # a server that is ended before it works on anything may wait for itself for ever


def test_a_long_path_of_temporary_files_is_no_obstacle(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket's path has a hundred characters at most."""
    folder = tmp_path / ("t" * 120)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    before = Path.cwd()
    request = LaunchRequest(architecture=subjects.gpt().canonical, protocol=LLAMACPP, seed=3, cache=weights)
    assert library("llamacpp").build(request).forward_ms() > 0
    assert Path.cwd() == before
    assert not list(folder.iterdir())


def listening() -> set[Any]:
    """Addresses of the TCP ports that this process has open."""
    connections = psutil.Process().net_connections("tcp")
    return {connection.laddr for connection in connections if connection.status == psutil.CONN_LISTEN}


def test_a_file_serves_later_launches(measurer: Measurer, weights: Path) -> None:
    written = []
    for seed in (3, 4, 3):
        assert measurer.measure(subjects.gpt(), LLAMACPP, seed=seed).outcome == "done"
        (path,) = (weights / "gguf").glob(f"{subjects.gpt().digest}-{seed}-float32-*.gguf")
        written.append(path.stat().st_ino)
    assert written[0] == written[2] != written[1]


TRANSFORMER_XL = {"d_model": 64, "positions": {"kind": "relative"}, "embedding": {"vocab_size": 50}}
ATTENTION, FEED_FORWARD = {"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 64}


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ({**TRANSFORMER_XL, "blocks": [ATTENTION, FEED_FORWARD]}, "without segment memory"),
        (
            {
                **TRANSFORMER_XL,
                "positions": {"kind": "learned", "length": 64},
                "blocks": [ATTENTION, FEED_FORWARD, ATTENTION, {**FEED_FORWARD, "d_inner": 96}],
            },
            "blocks.3",
        ),
    ],
)
def test_what_gguf_cannot_express_is_refused(measurer: Measurer, description: dict[str, Any], said: str) -> None:
    result = measurer.measure(Architecture.parse(description), LLAMACPP, seed=3)
    assert (result.outcome, result.reason) == ("failed", "build_error")
    assert "GGUF cannot express" in result.message
    assert said in result.message


def test_other_files_and_devices_are_refused(measurer: Measurer, tmp_path: Path) -> None:
    result = measurer.measure(subjects.doubled(tmp_path / "some.onnx", 64), LLAMACPP, seed=3)
    assert (result.outcome, result.reason) == ("failed", "unsupported")
    result = measurer.measure(subjects.gpt(), LLAMACPP.model_copy(update={"provider": "vulkan"}), seed=3)
    assert (result.outcome, result.reason) == ("failed", "unsupported")
    assert "cpu" in result.message


@pytest.mark.parametrize(
    "fields",
    [{"batch": 2}, {"logits": "all"}, {"memory_length": 8}, {"dtype": "bfloat16"}, {"weights": "int8"}],
    ids=str,
)
def test_passes_that_it_does_not_time_are_no_protocols(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(fields))):
        MeasurementProtocol.model_validate({"runtime": "llamacpp", **fields})
