"""The result of one launch: raw samples, memory by parts, and the environment.

Numbers are numbers: `"5"` and `true` are refused where one is expected.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from edgefront.core.common.states import LaunchOutcome
from edgefront.core.common.validation import printable
from edgefront.core.measurement.protocol import Latency, MemoryMethod

FailureReason = Literal[
    "out_of_memory",  # infeasible: the device has not enough memory for it
    "over_time",  # infeasible: slower than the protocol's time limit
    "crashed",  # the child died by a signal or an exit code
    "build_error",  # the model could not be built
    "run_error",  # the runtime raised while running
    "not_finite",  # the model's output held NaN or infinities
    "unsupported",  # this agent lacks the runtime, provider or memory method
]
INFEASIBLE: frozenset[str] = frozenset({"out_of_memory", "over_time"})

Milliseconds = Annotated[float, Field(strict=True, ge=1e-6, le=3.6e6, allow_inf_nan=False)]
"""From a nanosecond to an hour: intervals are taken on logarithms, which the absurd would blow up."""
Bytes = Annotated[int, Field(strict=True, ge=0, le=1 << 50)]
Seconds = Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False)]
Text = AfterValidator(lambda text: printable(text, keep="\n"))
"""Text of several lines, from devices, which terminals can show."""
Fact = Annotated[str, Field(max_length=8000), Text] | bool | int | Annotated[float, Field(allow_inf_nan=False)] | None
MAX_ENVIRONMENT_BYTES = 32 << 10


def _bounded(environment: dict[str, Any]) -> dict[str, Any]:
    values = (len(value.encode()) if isinstance(value, str) else 8 for value in environment.values())
    size = sum(len(name.encode()) for name in environment) + sum(values)
    if size > MAX_ENVIRONMENT_BYTES:
        raise ValueError(f"an environment has at most {MAX_ENVIRONMENT_BYTES} bytes, not {size}")
    return environment


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LatencySamples(_Record):
    """Wall time of each forward pass, in the order they ran."""

    warmup_ms: Annotated[tuple[Milliseconds, ...], Field(max_length=100, fail_fast=True)] = ()
    samples_ms: Annotated[tuple[Milliseconds, ...], Field(min_length=1, max_length=1000, fail_fast=True)]


class GenerationSamples(_Record):
    """The times of each timed generation, in the order of `LatencySamples.samples_ms`, and the energy of all."""

    first_token_ms: Annotated[tuple[Milliseconds, ...], Field(min_length=1, max_length=1000, fail_fast=True)]
    """Time from the prompt to the first token."""
    token_ms: Annotated[tuple[Milliseconds, ...], Field(min_length=1, max_length=1000, fail_fast=True)]
    """Time of each further token, in the mean over the generation."""
    total_ms: Annotated[tuple[Milliseconds, ...], Field(min_length=1, max_length=1000, fail_fast=True)]
    """Time from the prompt to the last token."""
    energy_token_mj: Annotated[float, Field(strict=True, gt=0, le=1e12, allow_inf_nan=False)] | None = None
    """Energy of the timed generations over the tokens that they generated, in millijoules; None where the machine
    does not let it be read."""
    energy: Annotated[str, Field(max_length=400), Text] = ""
    """What the energy is that of and who counted it, or why there is none."""

    def times(self, latency: Latency) -> tuple[float, ...]:
        """The times that are called so (ms)."""
        return {"first_token": self.first_token_ms, "token": self.token_ms, "total": self.total_ms}[latency]

    @model_validator(mode="after")
    def _of_the_same_generations(self) -> GenerationSamples:
        if not len(self.first_token_ms) == len(self.token_ms) == len(self.total_ms):
            raise ValueError("every generation has a time to the first token, one for each further, and a total")
        return self


class PeakMemory(_Record):
    """High-water marks of the child, less what it held before it began (bytes).

    `peak_bytes` is the objective: forward-pass peak plus the weights mapped from files. `mapped_weight_bytes` are
    those. `build_peak_bytes` is the high-water mark while the model was built.
    """

    method: MemoryMethod
    peak_bytes: Annotated[int, Field(strict=True, ge=1, le=1 << 50)]
    forward_peak_bytes: Bytes
    build_peak_bytes: Bytes
    mapped_weight_bytes: Bytes = 0

    @model_validator(mode="after")
    def _parts_fit(self) -> PeakMemory:
        if max(self.forward_peak_bytes, self.mapped_weight_bytes) > self.peak_bytes:
            raise ValueError("peak_bytes includes forward_peak_bytes and mapped_weight_bytes and cannot be less")
        return self


class LaunchResult(_Record):
    """One launch: samples and memory when `done`, else a reason and a message."""

    outcome: LaunchOutcome
    reason: FailureReason | None = None
    message: Annotated[str, Field(max_length=4000), Text] = ""
    latency: LatencySamples | None = None
    memory: PeakMemory | None = None
    generation: Annotated[GenerationSamples | None, Field(exclude_if=lambda samples: samples is None)] = None
    """Sent in mode generate alone."""
    environment: Annotated[
        dict[Annotated[str, Field(max_length=64), Text], Fact], Field(max_length=64), AfterValidator(_bounded)
    ] = Field(default_factory=dict)
    """Versions, pinned cores, load, clocks, temperature: whatever explains the number later."""
    build_s: Seconds = 0.0
    measuring_s: Seconds = 0.0
    """Warm-up and timed passes."""
    wall_s: Seconds = 0.0
    """Time from the fork to the result: everything this launch cost the device."""

    @property
    def conditions(self) -> str | None:
        """What the agent says of bad conditions during the launch, if it is text and not blank."""
        said = self.environment.get("conditions")
        return said.strip() or None if isinstance(said, str) else None

    @property
    def timed(self) -> LatencySamples:
        """The latency of a done launch. `ValueError` of another."""
        if self.latency is None:
            raise ValueError(f"a launch that {self.outcome} has no latency")
        return self.latency

    @property
    def peak(self) -> PeakMemory:
        """The peak memory of a done launch. `ValueError` of another."""
        if self.memory is None:
            raise ValueError(f"a launch that {self.outcome} has no peak memory")
        return self.memory

    @model_validator(mode="after")
    def _complete(self) -> LaunchResult:
        if self.outcome == LaunchOutcome.DONE:
            if self.latency is None or self.memory is None or self.reason is not None:
                raise ValueError("a done launch has latency and memory and no reason")
            if self.generation is not None and len(self.generation.total_ms) != len(self.latency.samples_ms):
                raise ValueError("a generation has as many times as the latency has samples")
        elif self.reason is None:
            raise ValueError(f"a launch that {self.outcome} has a reason")
        elif (self.outcome == LaunchOutcome.INFEASIBLE) != (self.reason in INFEASIBLE):
            raise ValueError(f"reason {self.reason} does not go with outcome {self.outcome}")
        return self
