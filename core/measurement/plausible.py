"""Whether a launch's result can be true at all: memory, speed and time against what is possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from edgefront.core.measurement.ceiling import Ceiling
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.units import MB

WEIGHTS_HELD = 0.95
"""Of the weights' bytes that are held at least during a pass; the rest is for what a runtime folds away."""
CLOCKS_DIFFER = 1.05
STARTED_LATE_S = 10.0
"""A launch may have begun this long before the server heard of it."""


class Counted(Protocol):
    """The exact costs of a pass that are asked of here: `core.cost.costs.Costs`, or a row with its columns."""

    @property
    def flops(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def decoder_parameters(self) -> int: ...
    @property
    def total_parameters(self) -> int: ...


@dataclass(frozen=True)
class Work:
    """What one pass has to do, and hold, at least."""

    flops: float
    read_bytes: float
    """Weights of the blocks: each is read once at least."""
    held_bytes: float
    """Weights that are in memory during a pass."""

    @classmethod
    def of(cls, costs: Counted, protocol: MeasurementProtocol, *, translates: bool) -> Work:
        """`translates`: the model has a source, whose part a pass may be spared."""
        blocks = costs.weight_bytes * costs.decoder_parameters / max(1, costs.total_parameters)
        # The resident set has only those rows of the embedding that were read, used memory of a GPU is polled, and a
        # pass without logits has no output.
        whole = protocol.memory in ("anonymous", "allocator") and protocol.logits != "none"
        held = costs.weight_bytes if whole else blocks
        if protocol.runtime not in ("onnxruntime", "pytorch"):  # it may convert weights to half their size
            held = blocks / 2
        if translates:
            return cls(0.0 if protocol.mode == "decode" else costs.flops / 2, 0.0, 0.0)
        return cls(costs.flops, blocks, held)


def implausible(result: Mapping[str, Any], work: Work, ceiling: Ceiling, elapsed_s: float | None) -> str | None:
    """Why a done `LaunchResult` (as JSON) cannot be true, as a sentence; None if it can.

    `elapsed_s`: between the launch's start, as the server knows it, and its report.
    """
    peak = result["memory"]["peak_bytes"]
    if peak < WEIGHTS_HELD * work.held_bytes:
        return f"implausible: a peak memory of {_mb(peak)} is less than the weights, which take {_mb(work.held_bytes)}"
    samples = result["latency"]["samples_ms"]
    fastest_s = min(samples) / 1e3
    flops, read = work.flops / fastest_s, work.read_bytes / fastest_s
    if flops > ceiling.flops:
        return (
            f"implausible: {min(samples):.4g} ms for {work.flops:.3g} operations are {flops:.3g} a second; this device "
            f"does {ceiling.flops:.3g} at most ({ceiling.flops_from})"
        )
    if read > ceiling.bytes:
        return (
            f"implausible: {min(samples):.4g} ms for weights of {_mb(work.read_bytes)} are {read:.3g} bytes a second; "
            f"this device reads {ceiling.bytes:.3g} at most ({ceiling.bytes_from})"
        )
    spent_s = max(result["wall_s"], (sum(samples) + sum(result["latency"]["warmup_ms"])) / 1e3)
    if elapsed_s is not None and spent_s > elapsed_s * CLOCKS_DIFFER + STARTED_LATE_S:
        return f"implausible: it claims to have taken {spent_s:.4g} s, and was leased for {elapsed_s:.4g} s"
    return None


def _mb(size: float) -> str:
    return f"{size / MB:.4g} MB"
