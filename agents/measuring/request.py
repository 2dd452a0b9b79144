"""The request to a measuring child: JSON between the agent, its fork server and the child."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.spaces.architecture import Architecture


class LaunchRequest(BaseModel):
    """One launch. Exactly one of `architecture` (the canonical description) and `onnx_file` is given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: dict[str, Any] | None = None
    onnx_file: Path | None = None
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
        if self.onnx_file is None:
            raise ValueError("a launch request needs an architecture or a file")
        return self.onnx_file
