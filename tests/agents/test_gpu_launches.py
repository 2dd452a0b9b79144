"""What launches on NVIDIA GPUs depend on and a machine without one can show: which GPU is asked, what is loaded first,
where llama.cpp computes, and which failures are for lack of memory. `tests/gpu` has the rest.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import subjects
import xllamacpp

from edgefront.agents.device import nvml, probe
from edgefront.agents.device.nvml import Gpu
from edgefront.agents.measuring import runtimes
from edgefront.agents.measuring.failures import reason_of
from edgefront.agents.measuring.runtimes import LaunchRequest, llama_cpp, onnx_runtime
from edgefront.core.common.errors import MeasurementError
from edgefront.core.measurement.plausible import GPU_GFLOPS
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.agent import RuntimeFacts

KINDS = xllamacpp.ggml_backend_dev_type


class Driver:
    """NVML, which keeps what it was asked for."""

    asked: Any = None

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, _handle: object) -> int:  # noqa: N802
        self.asked = index.value
        return 0

    def nvmlDeviceGetHandleByUUID(self, name: bytes, _handle: object) -> int:  # noqa: N802
        self.asked = name
        return 0


@pytest.mark.parametrize(
    ("visible", "number", "asked"),
    [("", 0, 0), ("", 1, 1), ("2", 0, 2), ("2,3", 1, 3), ("GPU-8932f937, MIG-1", 1, b"MIG-1")],
)
def test_the_driver_is_asked_of_the_gpu_that_cuda_sees(
    monkeypatch: pytest.MonkeyPatch, visible: str, number: int, asked: int | bytes
) -> None:
    driver = Driver()
    monkeypatch.setattr(nvml.ctypes, "CDLL", lambda _name: driver)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    Gpu.visible(number)
    assert driver.asked == asked


def test_a_hidden_gpu_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml.ctypes, "CDLL", lambda _name: Driver())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    with pytest.raises(MeasurementError, match="CUDA_VISIBLE_DEVICES=2 hides GPU 1"):
        Gpu.visible(1)


def devices(*named: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "type": kind} for name, kind in named]


def test_llama_cpp_computes_on_one_device() -> None:
    """On the processor in a build that has GPUs, too."""
    gpu, integrated = KINDS.GGML_BACKEND_DEVICE_TYPE_GPU, KINDS.GGML_BACKEND_DEVICE_TYPE_IGPU
    cpu, blas = KINDS.GGML_BACKEND_DEVICE_TYPE_CPU, KINDS.GGML_BACKEND_DEVICE_TYPE_ACCEL
    two = devices(("CUDA0", gpu), ("CUDA1", gpu), ("Vulkan0", integrated), ("BLAS", blas), ("CPU", cpu))
    numbers = {name: llama_cpp._gpu_number(name, two) for name in ("cuda0", "cuda1", "vulkan0", "blas", "cpu")}
    assert numbers == {"cuda0": 0, "cuda1": 1, "vulkan0": 0, "blas": -1, "cpu": -1}


def test_a_llama_cpp_on_a_gpu_has_the_memory_method_that_its_launches_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "device" not in llama_cpp.facts()["memory_methods"]
    two = devices(("CUDA0", KINDS.GGML_BACKEND_DEVICE_TYPE_GPU), ("CPU", KINDS.GGML_BACKEND_DEVICE_TYPE_CPU))
    monkeypatch.setattr(llama_cpp.xllamacpp, "get_device_info", lambda: two)
    described = llama_cpp.facts()
    assert described["providers"] == ["cpu", "cuda0"]
    default = MeasurementProtocol(runtime="llamacpp", provider="cuda0").memory
    assert default in described["memory_methods"]


def test_what_tensorrt_has_not_runs_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {name: f"{name}ExecutionProvider" for name in ("cpu", "cuda", "tensorrt", "xnnpack")}
    monkeypatch.setattr(onnx_runtime, "providers", lambda: names)
    cuda = ("cudaExecutionProvider", {"use_tf32": "1"})
    assert onnx_runtime._chosen("tensorrt") == ["tensorrtExecutionProvider", cuda, "cpuExecutionProvider"]
    assert onnx_runtime._chosen("cuda") == [cuda, "cpuExecutionProvider"]
    assert onnx_runtime._chosen("xnnpack") == ["xnnpackExecutionProvider", "cpuExecutionProvider"]
    assert onnx_runtime._chosen("cpu") == ["cpuExecutionProvider"]
    del names["cuda"]
    assert onnx_runtime._chosen("tensorrt") == ["tensorrtExecutionProvider", "cpuExecutionProvider"]


def test_cuda_s_libraries_of_python_packages_are_loaded_before_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(onnx_runtime.ort, "preload_dlls", lambda: loaded.append("cuda"), raising=False)
    monkeypatch.setattr(onnx_runtime, "import_module", loaded.append)
    for provider in ("cpu", "cuda", "tensorrt"):
        assert onnx_runtime.works(provider) == (provider == "cpu")
    assert loaded == ["cuda", "cuda", "tensorrt"]


@pytest.mark.parametrize("runtime", ["pytorch", "llamacpp"])
def test_the_context_of_a_gpu_is_not_attributed_to_a_model(
    runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    monkeypatch.setattr("edgefront.agents.measuring.runtimes.pytorch.start_device", begun.append)
    monkeypatch.setattr(xllamacpp, "get_device_info", lambda: begun.append("cuda"))
    for provider in ("cpu", "cuda"):
        protocol = MeasurementProtocol.model_validate({"runtime": runtime, "provider": provider})
        request = LaunchRequest(architecture=subjects.gpt().canonical, protocol=protocol, seed=0, cache=tmp_path)
        runtimes.warm_up_device(request)
    assert begun == ["cuda"]


@pytest.mark.parametrize(
    "message",
    [
        "CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 79.10 GiB",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "CUDA failure 2: out of memory ; GPU=0 ; hostname=a",
        "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Failed to allocate memory for requested buffer of size 42949",
        "TensorRT EP: Error Code 2: OutOfMemory (Requested size was 4294967296 bytes.)",
        "cudaMalloc failed: out of memory",
    ],
)
def test_a_gpu_that_is_too_small_makes_a_model_infeasible(message: str) -> None:
    assert reason_of(RuntimeError(message), "run_error") == "out_of_memory"
    assert reason_of(RuntimeError("CUDA error: an illegal memory access was encountered"), "run_error") == "run_error"


def test_the_gpu_s_kernel_runs_where_a_runtime_has_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-smi is not everywhere; and the GPU that it lists may be of no runtime."""
    monkeypatch.setattr(probe, "kernel_facts", lambda _plan, *, gpu: {GPU_GFLOPS: 1.0} if gpu else {})
    described = {"runtime": "pytorch", "version": "2", "memory_methods": ["anonymous"]}
    for providers, known in ((["cpu"], False), (["cpu", "cuda"], True)):
        tested = RuntimeFacts.model_validate({**described, "providers": providers})
        assert (GPU_GFLOPS in probe._facts(None, (), (tested,)).extra) == known
