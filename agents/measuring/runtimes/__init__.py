"""The runtimes that a child can measure with, one file each. Importing this package imports none of them."""

from __future__ import annotations

from typing import Protocol

from edgefront.agents.measuring.request import LaunchRequest
from edgefront.core.measurement.protocol import Runtime
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Sru, Srupp

ON_NVIDIA = frozenset({"cuda", "tensorrt"})
"""Providers whose inputs and outputs live in a CUDA device's memory."""


class Model(Protocol):
    """A model built for one launch, with its input in place."""

    versions: dict[str, str]
    """Of the libraries that do the work."""

    def forward_ms(self) -> float:
        """One full forward pass over the input; its wall time in ms, device work included."""

    def let_go(self) -> None:
        """Free what the last pass left, as a caller does that goes on; every pass begins with this."""

    def finite(self) -> bool:
        """Whether the last pass's output holds neither NaN nor infinities."""


def preload(runtime: Runtime) -> None:
    """Import what every launch of this runtime needs, and run nothing."""
    if runtime == "pytorch":
        import edgefront.agents.measuring.runtimes.pytorch
    else:
        import edgefront.agents.measuring.runtimes.onnx_runtime  # noqa: F401


def prepare_recurrence(runtime: Runtime, device: str) -> None:
    """Have what launches of models with recurrences need beside: kernels that PyTorch itself does not bring."""
    if runtime == "pytorch":
        from edgefront.core.nn.recurrence import prepare

        prepare(device)


def wake_device(request: LaunchRequest) -> None:
    """Have loaded and compiled what is the same for all programs on the device, so that no model is charged with it."""
    protocol, subject = request.protocol, request.subject
    if isinstance(subject, Architecture) and any(isinstance(block, Sru | Srupp) for block in subject.blocks):
        prepare_recurrence(protocol.runtime, protocol.provider)
    if protocol.provider != "cpu" and protocol.runtime == "onnxruntime":
        from edgefront.agents.measuring.runtimes.onnx_runtime import providers, works

        if protocol.provider in providers():
            works(protocol.provider)


def build(request: LaunchRequest) -> Model:
    """The model of this request. Raises `MeasurementError` with reason `unsupported` where the runtime lacks it."""
    if request.protocol.runtime == "pytorch":
        from edgefront.agents.measuring.runtimes.pytorch import TorchModel

        return TorchModel(request)
    from edgefront.agents.measuring.runtimes.onnx_runtime import OnnxModel

    return OnnxModel(request)
