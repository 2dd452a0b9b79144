"""What a child is asked for (`LaunchRequest`), and the runtimes that it can measure with, one file each. Importing this
package imports none of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Sru, Srupp
from edgefront.core.common.number_formats import NumberFormat
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.provider import Provider
from edgefront.core.measurement.runtimes import Runtime


class GgufFile(BaseModel):
    """A GGUF file that llama.cpp runs as it is, and what of its header a launch depends on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: Annotated[tuple[Path, ...], Field(min_length=1)]
    """The file, or the parts of one model, of which llama.cpp is given the first."""
    vocab_size: Annotated[int, Field(ge=1)]
    keeps_state: bool
    """Whether llama.cpp may be unable to take a token back (`core.model_files.gguf_header`)."""


class LaunchRequest(BaseModel):
    """One launch, as JSON between the agent, its fork server and the child.

    Exactly one of `architecture` (the canonical description), `onnx_file` and `gguf_file` is given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: dict[str, Any] | None = None
    onnx_file: Path | None = None
    gguf_file: GgufFile | None = None
    protocol: MeasurementProtocol
    seed: Annotated[int, Field(ge=0, lt=1 << 63)]
    cache: Path
    """Folder of the weight cache."""
    cores: tuple[int, ...] = ()
    """Cores to which the child is pinned; empty: not pinned."""
    memory_limit_bytes: Annotated[int, Field(ge=1)] | None = None
    """Memory limit of the launch; more counts as out of memory."""

    @property
    def subject(self) -> Architecture | Path:
        """The architecture or file that is measured."""
        if self.architecture is not None:
            return Architecture.parse(self.architecture)
        if self.gguf_file is not None:
            return self.gguf_file.paths[0]
        if self.onnx_file is None:
            raise ValueError("a launch request needs an architecture or a file")
        return self.onnx_file


class Model(Protocol):
    """A model built for one launch, with its input bound."""

    versions: dict[str, str]
    """Versions of the libraries, and what else of the runtime explains the figures; complete after the passes."""
    starts: dict[str, int]
    """Of a runtime that maps whole files of weights: the real path of each, and how many bytes of its start are the
    model's. Empty for one that maps no more than these."""

    def forward_ms(self) -> float:
        """One full forward pass over the input; its wall time in ms, device work included."""

    def release(self) -> None:
        """Frees the outputs of the last pass, as a caller in a loop would; every pass starts with this."""

    def finite(self) -> bool:
        """Whether the last pass's output has neither NaN nor infinities."""


class Generated(NamedTuple):
    """One generation: its times in ms."""

    first_ms: float
    """Time from the prompt to the first token, the choice of the token included."""
    further_ms: float
    """All further tokens together."""


class Generator(Protocol):
    """A model built for one launch that generates: each time from the same context and the same prompt, the likeliest
    token each time.
    """

    versions: dict[str, str]
    starts: dict[str, int]

    @property
    def tokens(self) -> NDArray[np.int64]:
        """What the last generation chose, [batch, new_tokens]."""

    def prepare(self) -> None:
        """Makes the state of the context for one generation: neither its time nor its energy counts."""

    def generate(self) -> Generated:
        """One generation, from the state that `prepare` made."""

    def release(self) -> None:
        """Frees the state of the last generation; every generation starts with this."""

    def finite(self) -> bool:
        """Whether the last scores of the last generation have neither NaN nor infinities."""


class Library(Protocol):
    """The module of a runtime."""

    def facts(self) -> dict[str, Any]:
        """Version, providers and memory methods, as in `core.schemas.agent.RuntimeFacts`."""

    def build(self, request: LaunchRequest) -> Model:
        """The model of this request. Raises `MeasurementError` with reason `unsupported` if the runtime does not
        support it.
        """

    def generator(self, request: LaunchRequest) -> Generator:
        """The same for a request of mode generate."""

    def computes_in(self, number_format: NumberFormat, request: LaunchRequest, /) -> bool:
        """Whether the request's provider computes its model in this number format, tested by a pass."""


def library(runtime: Runtime) -> Library:
    """Imports what every launch of this runtime needs, without executing an operator."""
    if runtime == "onnxruntime":
        from edgefront.agents.measuring.runtimes import onnx_runtime

        return onnx_runtime
    if runtime == "pytorch":
        from edgefront.agents.measuring.runtimes import pytorch

        return pytorch
    if runtime == "openvino":
        # Its converter, which is not needed, sends telemetry from a thread as soon as it is imported. A device should
        # contact only its server, and a process that forks should have one thread.
        sys.modules.setdefault("openvino.tools.ovc", None)  # type: ignore[arg-type]
        from edgefront.agents.measuring.runtimes import open_vino

        return open_vino
    assert runtime == "llamacpp"
    from edgefront.agents.measuring.runtimes import llama_cpp

    return llama_cpp


def prepare_recurrence(runtime: Runtime, device: str) -> None:
    """Prepares the recurrence kernels that PyTorch does not include, for launches of models with recurrences."""
    if runtime == "pytorch":
        from edgefront.core.nn.recurrence import prepare

        prepare(device)


def warm_up_device(request: LaunchRequest) -> None:
    """Loads and compiles what all programs on the device share, so that it is not attributed to a model."""
    protocol, subject = request.protocol, request.subject
    if isinstance(subject, Architecture) and any(isinstance(block, Sru | Srupp) for block in subject.blocks):
        prepare_recurrence(protocol.runtime, protocol.provider)
    if Provider(protocol.provider).on_processor:
        return
    if protocol.runtime == "onnxruntime":
        from edgefront.agents.measuring.runtimes.onnx_runtime import providers, works

        if protocol.provider in providers():
            works(protocol.provider)
    elif protocol.runtime == "pytorch":
        from edgefront.agents.measuring.runtimes.pytorch import start_device

        start_device(protocol.provider)
    elif protocol.runtime == "llamacpp":
        import xllamacpp

        xllamacpp.get_device_info()  # asks each device how much memory it has
