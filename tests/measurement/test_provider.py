"""Providers by name: what each runs on and in whose memory, and that everything which depends on it asks the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgefront.agents.measuring.energy import EnergyMeter
from edgefront.agents.measuring.measure import Measurer
from edgefront.agents.measuring.memory_probes import meter_for
from edgefront.core.architectures.models import named_model
from edgefront.core.common.errors import MeasurementError
from edgefront.core.measurement.plausible import ACCELERATOR_BYTES, ceiling
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.provider import Provider
from edgefront.core.services.measuring.decision import _memory_bytes
from edgefront.core.services.search.proposing import _memory

# name → what it runs on, whether models are in the host's memory
PROVIDERS = {
    "cpu": ("cpu", True),
    "xnnpack": ("cpu", True),
    "openvino": ("cpu", True),
    "dnnl": ("cpu", True),
    "acl": ("cpu", True),
    "armnn": ("cpu", True),
    "blas": ("cpu", True),
    "cuda": ("cuda", False),
    "cuda0": ("cuda", False),
    "cuda1": ("cuda", False),
    "tensorrt": ("cuda", False),
    "nv_tensorrt_rtx": ("cuda", False),
    "rocm": ("rocm", False),
    "rocm0": ("rocm", False),
    "migraphx": ("rocm", False),
    "vulkan0": ("vulkan", False),
    "dml": ("dml", False),
    "xpu": ("xpu", False),
    "gpu": ("gpu", False),
    "mps": ("mps", True),
    "metal": ("metal", True),
    "coreml": ("coreml", True),
    "npu": ("npu", True),
    "qnn": ("qnn", True),
}
HOST, GPU = 64 << 30, 24 << 30
FACTS: dict[str, Any] = {"cores": 2, "memory_bytes": HOST, "gpus": [{"memory_bytes": 8 << 30}, {"memory_bytes": GPU}]}


def protocol_on(name: str, **fields: Any) -> MeasurementProtocol:
    return MeasurementProtocol(provider=name, **fields)


@pytest.mark.parametrize("name", PROVIDERS)
def test_what_a_provider_runs_on_and_in_whose_memory(name: str) -> None:
    hardware, shares = PROVIDERS[name]
    provider = Provider(name)
    assert (provider.hardware, provider.shares_host_memory) == (hardware, shares)
    assert provider.on_processor == (hardware == "cpu")
    assert provider.on_nvidia == (hardware == "cuda")
    # A search is bounded by the memory that models are in, a peak compared with the memory that was read.
    assert _memory(SimpleNamespace(facts=FACTS), protocol_on(name)) == (HOST if shares else GPU)
    without_gpu = SimpleNamespace(facts={**FACTS, "gpus": []})
    assert _memory(without_gpu, protocol_on(name)) == (HOST if shares else None)
    assert _memory_bytes(FACTS, protocol_on(name, memory="device")) == (HOST if shares else GPU)
    assert _memory_bytes(FACTS, protocol_on(name, memory="anonymous")) == HOST
    assert (ceiling(FACTS, protocol_on(name), 0).bytes < ACCELERATOR_BYTES) == (hardware == "cpu")


def test_a_provider_s_number_is_that_of_its_device() -> None:
    assert [Provider(name).number for name in ("cuda", "cuda0", "cuda1", "tensorrt", "vulkan12")] == [0, 0, 1, 0, 12]


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_model_that_exceeds_the_hosts_memory_is_refused_where_it_would_be_there(name: str, tmp_path: Path) -> None:
    with Measurer(tmp_path, memory_limit_bytes=1 << 20) as measurer:
        refusal = measurer._refuse(named_model("gpt2-small").architecture, protocol_on(name))
    assert (refusal is not None and refusal.reason == "out_of_memory") == PROVIDERS[name][1]


@pytest.mark.parametrize("name", PROVIDERS)
def test_nvml_is_asked_of_nvidia_gpus_alone(name: str, tmp_path: Path) -> None:
    on_nvidia = PROVIDERS[name][0] == "cuda"
    meter = EnergyMeter(name, tmp_path)
    with meter:
        pass
    assert ("GPU" in meter.read()[1]) == on_nvidia
    assert protocol_on(name).memory == ("device" if on_nvidia else "anonymous")
    if not on_nvidia:
        with pytest.raises(MeasurementError, match="device does not work with"):
            meter_for(protocol_on(name, memory="device"), ())
