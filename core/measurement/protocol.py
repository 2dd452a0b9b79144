"""The measurement protocol: how a number was made, so that only like is compared with like."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from core.canonical import digest
from core.errors import ProtocolError

Runtime = Literal["pytorch", "onnxruntime"]
MemoryMethod = Literal["anonymous", "allocator", "device", "resident"]


class MeasurementProtocol(BaseModel):
    """What is run, how, and with which ruler.

    The fields up to `memory` make the identity (`digest`): a measurement belongs to an architecture, a device and a
    protocol digest. Those after it say how long to go on, not what is measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    runtime: Runtime = "onnxruntime"
    provider: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}$")] = "cpu"
    """Execution provider (ONNX Runtime) or device type (PyTorch) in lower case: cpu, cuda, xnnpack, openvino …"""
    mode: Literal["forward"] = "forward"
    logits: Literal["none", "last", "all"] = "last"
    batch: Annotated[int, Field(ge=1, le=1024)] = 1
    sequence_length: Annotated[int, Field(ge=1, le=65536)] = 192
    dtype: Literal["float32"] = "float32"
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    warmup: Annotated[int, Field(ge=0, le=100)] = 2
    repeats: Annotated[int, Field(ge=1, le=1000)] = 5
    memory: MemoryMethod | None = None
    """How peak memory is taken. None: what suits the provider (`allocator` on cuda with PyTorch, `device` with
    ONNX Runtime, else `anonymous`)."""

    precision: Annotated[float, Field(gt=0, le=1)] = 0.02
    """Wanted 95 % half-width of the median latency, relative to it."""
    max_launches: Annotated[int, Field(ge=1, le=100)] = 5
    """At most so many launches for one candidate."""
    time_limit_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """Wall-clock limit of one launch; over it the candidate is infeasible on this device."""

    @model_validator(mode="after")
    def _ruler_fits_provider(self) -> MeasurementProtocol:
        if self.memory is None:
            cuda = "allocator" if self.runtime == "pytorch" else "device"
            object.__setattr__(self, "memory", cuda if self.provider == "cuda" else "anonymous")
        if self.memory == "allocator" and self.runtime != "pytorch":
            raise ProtocolError(
                "memory: only PyTorch has an allocator to ask",
                field="memory",
                value=self.memory,
                allowed="anonymous, device or resident",
            )
        return self

    @property
    def identity(self) -> dict[str, Any]:
        """The fields that decide which measurements may be compared."""
        return self.model_dump(mode="json", exclude={"precision", "max_launches", "time_limit_s"})

    @cached_property
    def digest(self) -> str:
        """SHA-256 over `identity`."""
        return digest(self.identity)
