"""The result of one launch: raw samples, parts of the peak memory, and the environment.

Fields of numbers refuse other JSON types, such as `"5"` and `true`.
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
"""A time from a nanosecond to an hour. Absurd times would distort intervals, because intervals use logarithms."""
Bytes = Annotated[int, Field(strict=True, ge=0, le=1 << 50)]
Seconds = Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False)]
Text = AfterValidator(lambda text: printable(text, keep="\n"))
"""Validator that makes a device's (possibly multi-line) text safe for terminals."""
Fact = Annotated[str, Field(max_length=8000), Text] | bool | int | Annotated[float, Field(allow_inf_nan=False)] | None
MAX_ENVIRONMENT_BYTES = 32 << 10


def _bounded(environment: dict[str, Any]) -> dict[str, Any]:
    values = (len(value.encode()) if isinstance(value, str) else 8 for value in environment.values())
    size = sum(len(name.encode()) for name in environment) + sum(values)
    if size > MAX_ENVIRONMENT_BYTES:
        raise ValueError(f"the environment must have at most {MAX_ENVIRONMENT_BYTES} bytes, not {size}")
    return environment


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LatencySamples(_Record):
    """Wall time of each untimed and each timed forward pass or generation, in the order of execution."""

    warmup_ms: Annotated[tuple[Milliseconds, ...], Field(max_length=100, fail_fast=True)] = ()
    samples_ms: Annotated[tuple[Milliseconds, ...], Field(min_length=1, max_length=1000, fail_fast=True)]


class GenerationSamples(_Record):
    """Times of each timed generation, in the order of `LatencySamples.samples_ms`, and the energy per token."""

    first_token_ms: Annotated[tuple[Milliseconds, ...], Field(min_length=1, max_length=1000, fail_fast=True)]
    """Time of each generation from the prompt to the first token."""
    token_ms: Annotated[tuple[Milliseconds, ...], Field(min_length=1, max_length=1000, fail_fast=True)]
    """Mean time of each later token, for each generation."""
    total_ms: Annotated[tuple[Milliseconds, ...], Field(min_length=1, max_length=1000, fail_fast=True)]
    """Time of each generation from the prompt to the final token."""
    energy_token_mj: Annotated[float, Field(strict=True, gt=0, le=1e12, allow_inf_nan=False)] | None = None
    """Energy of the timed generations divided by the number of generated tokens, in millijoules; None if the machine
    reports no energy."""
    energy: Annotated[str, Field(max_length=400), Text] = ""
    """Hardware whose energy was counted and the counter's name, or the reason why the energy is unknown."""

    def times(self, latency: Latency) -> tuple[float, ...]:
        """The time with this name of each generation, in ms."""
        return {"first_token": self.first_token_ms, "token": self.token_ms, "total": self.total_ms}[latency]

    @model_validator(mode="after")
    def _of_the_same_generations(self) -> GenerationSamples:
        if not len(self.first_token_ms) == len(self.token_ms) == len(self.total_ms):
            raise ValueError("first_token_ms, token_ms and total_ms must have equal lengths: one time per generation")
        return self


class PeakMemory(_Record):
    """High-water marks of the child process's memory, minus the memory before the launch began, in bytes.

    `peak_bytes` is the objective: the peak of the forward pass plus `mapped_weight_bytes`, the weights mapped from
    files. `build_peak_bytes` is the high-water mark while the model was built.
    """

    method: MemoryMethod
    peak_bytes: Annotated[int, Field(strict=True, ge=1, le=1 << 50)]
    forward_peak_bytes: Bytes
    build_peak_bytes: Bytes
    mapped_weight_bytes: Bytes = 0

    @model_validator(mode="after")
    def _parts_fit(self) -> PeakMemory:
        if max(self.forward_peak_bytes, self.mapped_weight_bytes) > self.peak_bytes:
            raise ValueError("peak_bytes must be at least forward_peak_bytes and mapped_weight_bytes")
        return self


class LaunchResult(_Record):
    """Result of one launch: samples and memory if the outcome is `done`, otherwise a reason and a message."""

    outcome: LaunchOutcome
    reason: FailureReason | None = None
    message: Annotated[str, Field(max_length=4000), Text] = ""
    latency: LatencySamples | None = None
    memory: PeakMemory | None = None
    generation: Annotated[GenerationSamples | None, Field(exclude_if=lambda samples: samples is None)] = None
    """Times and energy of the generations; only in mode generate."""
    environment: Annotated[
        dict[Annotated[str, Field(max_length=64), Text], Fact], Field(max_length=64), AfterValidator(_bounded)
    ] = Field(default_factory=dict)
    """Facts that may later explain the figures: versions, pinned cores, load, clocks, temperature."""
    build_s: Seconds = 0.0
    measuring_s: Seconds = 0.0
    """Duration of the warm-up and of the timed passes."""
    wall_s: Seconds = 0.0
    """Time from the fork to the result: the device's whole time for this launch."""

    @property
    def conditions(self) -> str | None:
        """The agent's description of bad conditions during the launch; None if blank or not text."""
        said = self.environment.get("conditions")
        return said.strip() or None if isinstance(said, str) else None

    @property
    def timed(self) -> LatencySamples:
        """The latency samples of a done launch. Raises ValueError for a launch with another outcome."""
        if self.latency is None:
            raise ValueError(f"a launch with the outcome {self.outcome} has no latency")
        return self.latency

    @property
    def peak(self) -> PeakMemory:
        """The peak memory of a done launch. Raises ValueError for a launch with another outcome."""
        if self.memory is None:
            raise ValueError(f"a launch with the outcome {self.outcome} has no peak memory")
        return self.memory

    @model_validator(mode="after")
    def _complete(self) -> LaunchResult:
        if self.outcome == LaunchOutcome.DONE:
            if self.latency is None or self.memory is None or self.reason is not None:
                raise ValueError("a launch with the outcome done must have latency and memory, and no reason")
            if self.generation is not None and len(self.generation.total_ms) != len(self.latency.samples_ms):
                raise ValueError("generation must have as many times as latency has samples")
        elif self.reason is None:
            raise ValueError(f"a launch with the outcome {self.outcome} must have a reason")
        elif (self.outcome == LaunchOutcome.INFEASIBLE) != (self.reason in INFEASIBLE):
            raise ValueError(f"the outcome {self.outcome} cannot have the reason {self.reason}")
        return self
