"""The request to a measuring process (`LaunchRequest`), and one module per runtime that can run the model. Importing
this package imports no runtime.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import assert_never

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Sru, Srupp
from edgefront.core.common.number_formats import NumberFormat
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.provider import Provider
from edgefront.core.measurement.runtimes import Runtime


class GgufModel(BaseModel):
    """A GGUF file that llama.cpp runs unchanged, with the header values that a launch needs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: Annotated[tuple[Path, ...], Field(min_length=1)]
    """The files of one model; llama.cpp gets the first file's path."""
    vocab_size: Annotated[int, Field(ge=1)]
    keeps_state: bool
    """Whether llama.cpp may be unable to remove a token from the model's state (`core.model_files.gguf_header`)."""


class LaunchRequest(BaseModel):
    """Request for one launch (one run of a model), sent as JSON from the agent to a measuring process.

    Exactly one of `architecture` (the canonical description), `onnx_file` and `gguf_file` is given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: dict[str, Any] | None = None
    onnx_file: Path | None = None
    gguf_file: GgufModel | None = None
    protocol: MeasurementProtocol
    seed: Annotated[int, Field(ge=0, lt=1 << 63)]
    cache: Path
    """Folder of the weight cache."""
    cores: tuple[int, ...] = ()
    """Cores to which the child is pinned; an empty tuple disables pinning."""
    memory_limit_bytes: Annotated[int, Field(ge=1)] | None = None
    """Memory limit of the launch in bytes; a higher peak counts as out of memory."""

    @property
    def subject(self) -> Architecture | Path:
        """Returns the measured model: an architecture, or the path of a file."""
        if self.architecture is not None:
            return Architecture.parse(self.architecture)
        if self.gguf_file is not None:
            return self.gguf_file.paths[0]
        if self.onnx_file is None:
            raise ValueError("a launch request needs an architecture or a file")
        return self.onnx_file


class Model(Protocol):
    """A model built for one launch, with the inputs bound."""

    versions: dict[str, str]
    """Versions of the libraries and runtime settings that explain the figures; complete after the passes."""
    starts: dict[str, int]
    """Real path of each mapped weight file → bytes from its start that belong to the model, for a runtime that maps
    whole files. Empty for a runtime that maps only the model's bytes.
    """

    def forward_ms(self) -> float:
        """Runs one full forward pass over the input. Returns the wall time in ms, including the device's work."""

    def finite(self) -> bool:
        """Whether the output of the latest forward pass is free of NaN and infinities."""


class GenerationTimes(NamedTuple):
    """Times of one generation (all new tokens), ms."""

    first_ms: float
    """Time from the prompt to the first token, including the selection of the token."""
    further_ms: float
    """Total time of all tokens after the first."""


class Generator(Protocol):
    """A model built for one launch. Each generation decodes greedily from the same context and prompt."""

    versions: dict[str, str]
    starts: dict[str, int]

    @property
    def tokens(self) -> NDArray[np.int64]:
        """Returns the tokens of the latest generation, [batch, new_tokens]."""

    def prepare(self) -> None:
        """Frees the previous generation's state, and prepares the state after the context, both without measuring."""

    def generate(self) -> GenerationTimes:
        """Runs one generation from the state that `prepare` made, and returns its times."""

    def finite(self) -> bool:
        """Whether the final scores of the latest generation are free of NaN and infinities."""


class Library(Protocol):
    """Interface that each runtime's module in this package implements."""

    def facts(self) -> dict[str, Any]:
        """Returns version, providers and memory methods: fields of `core.schemas.agent.RuntimeFacts`."""

    def build(self, request: LaunchRequest) -> Model:
        """Builds the model of this request. Raises `MeasurementError` (unsupported) if the runtime does not support the
        request.
        """

    def generator(self, request: LaunchRequest) -> Generator:
        """Builds the generator of a request with mode `generate`. Raises the same errors as `build`."""

    def computes_in(self, number_format: NumberFormat, request: LaunchRequest, /) -> bool:
        """Whether the request's provider computes the model in this number format, tested by a forward pass."""


def library(runtime: Runtime) -> Library:
    """Imports everything that a launch of this runtime needs, and returns its module. Executes no operator."""
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
    if runtime == "llamacpp":
        from edgefront.agents.measuring.runtimes import llama_cpp

        return llama_cpp
    assert_never(runtime)


def prepare_recurrence(runtime: Runtime, device: str) -> None:
    """Prepares, before launches of models with recurrences, the recurrence kernels that PyTorch does not include."""
    if runtime == "pytorch":
        from edgefront.core.nn.recurrence import prepare

        prepare(device)


def warm_up_device(request: LaunchRequest) -> None:
    """Loads and compiles what all models on the device share, so that a model's figures exclude this cost."""
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

        xllamacpp.get_device_info()  # queries the memory of each device
