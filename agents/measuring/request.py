"""The request to a measuring child: JSON between the agent, its fork server and the child."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.measurement.protocol import MeasurementProtocol


class GgufFile(BaseModel):
    """A GGUF file that llama.cpp runs as it is, and what of its header a launch depends on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: Annotated[tuple[Path, ...], Field(min_length=1)]
    """The file, or the parts of one model, of which llama.cpp is given the first."""
    vocab_size: Annotated[int, Field(ge=1)]
    keeps_state: bool
    """Whether llama.cpp may be unable to take a token back (`core.model_files.gguf_header`)."""


class LaunchRequest(BaseModel):
    """One launch. Exactly one of `architecture` (the canonical description), `onnx_file` and `gguf_file` is given."""

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
