"""What a provider runs on, and in whose memory."""

from __future__ import annotations

from dataclasses import dataclass

PROCESSOR = "cpu"
_ON_PROCESSOR = frozenset({PROCESSOR, "xnnpack", "openvino", "dnnl", "acl", "armnn", "blas"})
_ON_THE_SAME = {"tensorrt": "cuda", "nv_tensorrt_rtx": "cuda", "nvtensorrtrtx": "cuda", "migraphx": "rocm"}
_IN_HOST_MEMORY = frozenset({"mps", "metal", "mtl", "coreml", "nnapi", "qnn", "snpe", "rknpu", "vsinpu", "npu"})
"""Providers of Apple's computers, of phones and of NPUs: accelerators without memory of their own."""


@dataclass(frozen=True)
class Provider:
    """An execution provider (ONNX Runtime) or device (PyTorch, OpenVINO, llama.cpp), by its name in a protocol."""

    name: str

    @property
    def hardware(self) -> str:
        """What it runs on, as the name of one of its providers: `PROCESSOR`, or an accelerator (cuda, npu …)."""
        if self.name in _ON_PROCESSOR:
            return PROCESSOR
        return _ON_THE_SAME.get(self.name, self.name.rstrip("0123456789"))  # llama.cpp numbers its devices

    @property
    def number(self) -> int:
        """Which of its devices, as CUDA counts them: of `cuda1` 1, without a number the first."""
        digits = self.name.removeprefix(self.name.rstrip("0123456789"))
        return int(digits or 0)

    @property
    def on_processor(self) -> bool:
        return self.hardware == PROCESSOR

    @property
    def on_nvidia(self) -> bool:
        """Whether it runs on an NVIDIA GPU: inputs and outputs are in its memory, and NVML reads its state."""
        return self.hardware == "cuda"

    @property
    def shares_host_memory(self) -> bool:
        """Whether models are in the memory that the processor uses; else in that of a GPU, as far as is known."""
        return self.on_processor or self.hardware in _IN_HOST_MEMORY
