"""Hardware and memory that an execution provider uses."""

from __future__ import annotations

from dataclasses import dataclass

PROCESSOR = "cpu"
_ON_PROCESSOR = frozenset({PROCESSOR, "xnnpack", "openvino", "dnnl", "acl", "armnn", "blas"})
_ON_THE_SAME = {"tensorrt": "cuda", "nv_tensorrt_rtx": "cuda", "nvtensorrtrtx": "cuda", "migraphx": "rocm"}
_IN_HOST_MEMORY = frozenset({"mps", "metal", "mtl", "coreml", "nnapi", "qnn", "snpe", "rknpu", "vsinpu", "npu"})
"""Providers for accelerators without separate memory, on Apple's computers, phones and NPUs."""


@dataclass(frozen=True)
class Provider:
    """An execution provider (ONNX Runtime) or device (PyTorch, OpenVINO, llama.cpp), named as in a protocol."""

    name: str

    @property
    def hardware(self) -> str:
        """Hardware that the provider uses, as the name of a provider: `PROCESSOR`, or an accelerator (cuda, npu …)."""
        if self.name in _ON_PROCESSOR:
            return PROCESSOR
        return _ON_THE_SAME.get(self.name, self.name.rstrip("0123456789"))  # llama.cpp numbers its devices

    @property
    def number(self) -> int:
        """Number of the device in CUDA's order: 1 for `cuda1`, 0 for a name without a number."""
        digits = self.name.removeprefix(self.name.rstrip("0123456789"))
        return int(digits or 0)

    @property
    def on_processor(self) -> bool:
        return self.hardware == PROCESSOR

    @property
    def on_nvidia(self) -> bool:
        """Whether the provider uses an NVIDIA GPU (inputs and outputs in the GPU's memory, state read by NVML)."""
        return self.hardware == "cuda"

    @property
    def shares_host_memory(self) -> bool:
        """Whether models are in the processor's memory, not in the memory of a GPU."""
        return self.on_processor or self.hardware in _IN_HOST_MEMORY
