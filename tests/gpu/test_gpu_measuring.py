"""Launches on an NVIDIA GPU: what is found there, peak memory against footprints that are known, and out of memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from edgefront.agents.device.cores import CorePlan
from edgefront.agents.device.kernel import kernel_facts
from edgefront.agents.device.nvml import Gpu
from edgefront.agents.device.probe import gpus, try_runtime
from edgefront.agents.measuring.measure import Measurer
from edgefront.agents.measuring.memory_probes import AllocatorMeter, DeviceMeter, PeakMemoryMeter
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import costs
from edgefront.core.measurement.plausible import (
    ACCELERATOR_BYTES,
    ACCELERATOR_FLOPS_FLOAT32,
    GPU_GB,
    GPU_GFLOPS,
    GPU_HALF_GFLOPS,
    MARGIN,
    ceiling,
)
from edgefront.core.measurement.protocol import MeasurementProtocol, Runtime
from edgefront.core.measurement.record import LaunchResult, PeakMemory
from edgefront.core.measurement.runtimes import not_installed
from edgefront.core.schemas.agent import RuntimeFacts

MIB = 1 << 20
ON_CUDA = {"runtime": "pytorch", "provider": "cuda"}


def gpt(layers: int = 2, d_model: int = 64, vocabulary: int = 512) -> Architecture:
    """A GPT-2 with 4 heads, 4·d_model wide inside."""
    layer = ({"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 4 * d_model})
    blocks = [block for _ in range(layers) for block in layer]
    return Architecture.parse({"d_model": d_model, "embedding": {"vocab_size": vocabulary}, "blocks": blocks})


@pytest.fixture(scope="module")
def measurer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measurer]:
    folder = tmp_path_factory.mktemp("gpu")
    with Measurer(folder / "weights", lock=folder / "measure.lock") as made:
        yield made


def launched(measurer: Measurer, model: Architecture, **protocol: Any) -> tuple[LaunchResult, PeakMemory]:
    result = measurer.measure(model, MeasurementProtocol.model_validate(ON_CUDA | protocol), seed=3)
    assert result.outcome == "done", result.message
    assert result.memory is not None
    return result, result.memory


def facts_of(runtime: Runtime) -> RuntimeFacts:
    missing = not_installed(runtime)
    if missing is not None:
        pytest.skip(missing)
    facts = try_runtime(runtime).facts
    assert facts is not None, f"{runtime} is installed, and its test gave no facts"
    return facts


def test_nvml_names_the_gpu_of_torch_and_counts_what_it_holds() -> None:
    gpu = Gpu.visible()
    name = torch.cuda.get_device_name(0)
    assert gpu.name() in name or name in gpu.name()
    torch.cuda.empty_cache()
    torch.zeros(1, device="cuda")
    before = gpu.used_bytes()
    held = torch.zeros(512 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    assert gpu.used_bytes() - before >= 512 * MIB
    assert len(held) == 512 * MIB
    assert gpu.facts()  # clock, temperature, power: as far as the driver says
    joules = gpu.energy_joules()
    assert joules is None or joules >= 0


def test_the_driver_s_tool_lists_every_gpu() -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("nvidia-smi is not here")
    listed = gpus()
    assert len(listed) >= torch.cuda.device_count()
    assert all(isinstance(gpu["memory_bytes"], int) or gpu["memory_bytes"] is None for gpu in listed)


def test_the_kernel_of_the_gpu_says_what_no_launch_exceeds() -> None:
    facts = kernel_facts(CorePlan.of_device(), gpu=True)
    single, half, copied = (facts[name] for name in (GPU_GFLOPS, GPU_HALF_GFLOPS, GPU_GB))
    assert isinstance(single, float)
    assert isinstance(half, float)
    assert isinstance(copied, float)
    assert 100 < single < ACCELERATOR_FLOPS_FLOAT32 / 1e9
    assert 10 < copied < ACCELERATOR_BYTES / 1e9
    if torch.cuda.get_device_capability() >= (8, 0):  # TF32 is half as fast as float16 and bfloat16, or a quarter
        assert 1.2 < half / single < 6
    bound = ceiling({"extra": facts}, MeasurementProtocol.model_validate(ON_CUDA), 0)
    assert bound.flops == pytest.approx(min(ACCELERATOR_FLOPS_FLOAT32, MARGIN * single * 1e9))


def test_pytorch_is_found_with_cuda() -> None:
    facts = facts_of("pytorch")
    assert {"cpu", "cuda"} <= set(facts.providers)
    assert {"allocator", "device"} <= set(facts.memory_methods)
    assert {"float32", "bfloat16"} <= set(facts.numbers["cuda"])


@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_onnx_runtime_is_found_and_measures(measurer: Measurer, provider: str) -> None:
    facts = facts_of("onnxruntime")
    import onnxruntime

    if f"{provider}executionprovider" not in [name.lower() for name in onnxruntime.get_available_providers()]:
        pytest.skip(f"this ONNX Runtime was built without {provider}")
    assert provider in facts.providers, "built with it, and it did not start"
    assert "device" in facts.memory_methods
    launched(measurer, gpt(), runtime="onnxruntime", provider=provider)


def test_llama_cpp_is_found_and_measures(measurer: Measurer) -> None:
    facts = facts_of("llamacpp")
    on_gpu = [name for name in facts.providers if name.startswith("cuda")]
    if not on_gpu:
        pytest.skip(f"this llama.cpp was built without CUDA: it has {', '.join(facts.providers)}")
    model = gpt(d_model=128)
    protocol = {"runtime": "llamacpp", "provider": on_gpu[0], "mode": "generate", "new_tokens": 4}
    launched(measurer, model, sequence_length=16, **protocol)


def peak_of(meter: PeakMemoryMeter) -> PeakMemory:
    """With 128 MiB that stay, and in the passes 256 MiB more."""
    torch.cuda.empty_cache()
    torch.zeros(1, device="cuda")
    meter.start()
    weights = torch.zeros(128 * MIB, dtype=torch.uint8, device="cuda")
    meter.built()
    passing = torch.zeros(256 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    del passing
    peak = meter.read({})
    assert len(weights) == 128 * MIB
    return peak


def test_the_allocator_s_peak_is_torch_s_own() -> None:
    held = torch.cuda.memory_allocated()
    peak = peak_of(AllocatorMeter()).peak_bytes
    assert peak == torch.cuda.max_memory_allocated()
    assert peak - held == pytest.approx(384 * MIB, abs=MIB)


def test_the_device_s_peak_is_what_was_held() -> None:
    """CUDA reserves whole pages, of 2 MiB, and modules of kernels."""
    assert peak_of(DeviceMeter(Gpu.visible())).peak_bytes == pytest.approx(384 * MIB, abs=64 * MIB)


@pytest.mark.parametrize("method", ["allocator", "device"])
def test_twice_the_batch_is_once_more_the_logits(measurer: Measurer, method: str) -> None:
    model = gpt(layers=1, vocabulary=50264)
    first, second = (launched(measurer, model, logits="all", batch=batch, memory=method)[1] for batch in (8, 16))
    logits = 8 * 192 * 50264 * 4
    slack = 0.03 if method == "allocator" else 0.15
    assert second.peak_bytes - first.peak_bytes == pytest.approx(logits, rel=slack)
    assert first.peak_bytes > 4 * costs(model).total_parameters + logits


def test_bfloat16_computes_and_halves_the_weights(measurer: Measurer) -> None:
    model = gpt(layers=1, d_model=512, vocabulary=50264)
    single, half = (launched(measurer, model, dtype=dtype, sequence_length=8)[1] for dtype in ("float32", "bfloat16"))
    assert single.peak_bytes - half.peak_bytes == pytest.approx(2 * costs(model).total_parameters, rel=0.1)


def test_out_of_memory_is_infeasible(measurer: Measurer, tmp_path: Path) -> None:
    """With all but 1.5 GiB taken, logits of 4 GiB have no room, and small ones have."""
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    taken = torch.empty(max(0, free - 1536 * MIB), dtype=torch.uint8, device="cuda")
    model = gpt(layers=1, vocabulary=50264)
    protocol = MeasurementProtocol.model_validate({**ON_CUDA, "logits": "all", "batch": 112})
    result = measurer.measure(model, protocol, seed=3)
    assert (result.outcome, result.reason) == ("infeasible", "out_of_memory"), result.message
    launched(measurer, gpt())
    assert len(taken) >= 0
