"""The runtimes that devices measure with, and what installs each."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import Literal, NamedTuple

Runtime = Literal["onnxruntime", "pytorch", "openvino", "llamacpp"]


PROCESSOR = "cpu"
ON_PROCESSOR = frozenset({PROCESSOR, "xnnpack", "openvino", "dnnl", "acl", "armnn"})
"""Providers that run operators on the processor, in its memory."""
_ON_THE_SAME = {"tensorrt": "cuda", "nv_tensorrt_rtx": "cuda", "nvtensorrtrtx": "cuda", "migraphx": "rocm"}


def hardware_of(provider: str) -> str:
    """What a provider runs on, as the name of one of its providers: `PROCESSOR`, or an accelerator (cuda, npu …)."""
    if provider in ON_PROCESSOR:
        return PROCESSOR
    return _ON_THE_SAME.get(provider, provider.removesuffix("0"))  # llama.cpp numbers its devices


class Installation(NamedTuple):
    """The packages that a runtime imports, and the extra that installs them beside `agent`."""

    packages: tuple[str, ...]
    extra: str


INSTALLATIONS: Mapping[Runtime, Installation] = MappingProxyType(
    {
        "onnxruntime": Installation(("onnxruntime", "onnx"), "agent"),
        "pytorch": Installation(("torch",), "torch"),
        "openvino": Installation(("openvino", "onnx"), "openvino"),
        "llamacpp": Installation(("xllamacpp", "gguf"), "llamacpp"),
    }
)


def not_installed(runtime: Runtime) -> str | None:
    """What is missing here to measure with this runtime, and the extra that installs it; None if nothing is."""
    packages, extra = INSTALLATIONS[runtime]
    missing = next((package for package in packages if find_spec(package) is None), None)
    if missing is None:
        return None
    return f"runtime {runtime} needs {missing}, which is not installed: pip install 'edgefront-lm[{extra}]'"
