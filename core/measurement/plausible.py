"""Whether a launch's result can be true at all: memory, speed, time and energy against what is possible, and the times
of a generation against each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from edgefront.core.measurement.ceiling import Ceiling
from edgefront.core.measurement.protocol import LATENCY_NAMES, Latency, MeasurementProtocol
from edgefront.core.measurement.record import GenerationSamples, LaunchResult
from edgefront.core.units import MB

WEIGHTS_HELD = 0.95
"""Share of the weights' bytes that is held at least during a pass; the rest is for what a runtime folds away."""
CLOCKS_DIFFER = 1.05
STARTED_LATE_S = 10.0
"""A launch may have begun this long before the server heard of it."""
ROUNDED_MS, ROUNDED = 1e-3, 1e-6
"""Times are rounded to a microsecond, or to this part of themselves, at most."""
MAX_WATTS = 5e3
"""Watts of what an agent counts the energy of: the packages of one machine's processors, or one GPU."""
MEMORY_TIMES = 2.0
"""Times a device's memory that a launch may have taken at most: a system may swap."""
LIMIT_REACHED = 0.9
"""Share of the protocol's time limit that a launch which exceeded it took at least."""
MIN_JOULES = 1e-14
"""Joules of an operation at least: a tenth of what the most economical accelerators of today take in four bits."""


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


@dataclass(frozen=True)
class GenerationWork:
    """What one generation has to do, by its passes."""

    first_token: Work
    """The pass over the prompt."""
    token: Work
    """The pass of each further token, in the mean."""
    new_tokens: int
    """Tokens generated for each sequence, the first included."""
    sequences: int
    latency: Latency
    """The time that is the result's latency."""


def longest_s(elapsed_s: float) -> float:
    """The most seconds that a launch can have taken which the server knew of for so many."""
    return elapsed_s * CLOCKS_DIFFER + STARTED_LATE_S


def over_time_too_early(result: LaunchResult, limit_s: float, elapsed_s: float) -> str | None:
    """Why a launch cannot have been over its time limit yet, by what its agent or the server knows; None if it can."""
    taken_s = min(result.wall_s, longest_s(elapsed_s))
    if taken_s < LIMIT_REACHED * limit_s:
        return f"implausible: over the time limit of {limit_s:g} s after no more than {taken_s:.3g} s"
    return None


def implausible(
    result: LaunchResult,
    work: Work,
    ceiling: Ceiling,
    elapsed_s: float | None,
    generation: GenerationWork | None = None,
    device_bytes: float | None = None,
) -> str | None:
    """Why the result of a done launch cannot be true, as a sentence; None if it can.

    Args:
        work: of what its latency times. elapsed_s: between the launch's start, as the server knows it, and its report.
        generation: of a launch that generates. device_bytes: memory of the device, where known.
    """
    peak = result.peak.peak_bytes
    if peak < WEIGHTS_HELD * work.held_bytes:
        return (
            f"implausible: a peak memory of {_size(peak)} is less than the weights, which take {_mb(work.held_bytes)}"
        )
    if device_bytes is not None and peak > MEMORY_TIMES * device_bytes:
        return f"implausible: a peak memory of {_size(peak)}, on a device that has {_size(device_bytes)}"
    samples = result.timed.samples_ms
    why = _too_fast(min(samples), None if generation is None else generation.latency, work, ceiling)
    spent_s = (sum(samples) + sum(result.timed.warmup_ms)) / 1e3
    made = result.generation
    if made is not None and generation is not None:
        why = (
            why
            or _too_fast(min(made.first_token_ms), "first_token", generation.first_token, ceiling)
            or _too_fast(min(made.token_ms), "token", generation.token, ceiling)
            or _contradiction(made, samples, generation)
        )
        spent_s = max(spent_s, sum(made.total_ms) / 1e3)
    spent_s = max(spent_s, result.wall_s)
    if why is None and elapsed_s is not None and spent_s > longest_s(elapsed_s):
        return f"implausible: it claims to have taken {spent_s:.4g} s, and was leased for {elapsed_s:.4g} s"
    if why is None and made is not None and generation is not None:
        return _impossible_energy(made, spent_s, generation)
    return why


def _too_fast(fastest_ms: float, time: Latency | None, work: Work, ceiling: Ceiling) -> str | None:
    shown = f"{fastest_ms:.4g} ms" if time is None else f"{fastest_ms:.4g} ms ({LATENCY_NAMES[time]})"
    flops, read = work.flops / fastest_ms * 1e3, work.read_bytes / fastest_ms * 1e3
    if flops > ceiling.flops:
        return (
            f"implausible: {shown} for {work.flops:.3g} operations are {flops:.3g} a second; this "
            f"device does {ceiling.flops:.3g} at most ({ceiling.flops_from})"
        )
    if read > ceiling.bytes:
        return (
            f"implausible: {shown} for weights of {_mb(work.read_bytes)} are {read:.3g} bytes a "
            f"second; this device reads {ceiling.bytes:.3g} at most ({ceiling.bytes_from})"
        )
    return None


def _contradiction(made: GenerationSamples, samples: Sequence[float], generation: GenerationWork) -> str | None:
    """Why the times of a generation do not go together: a total is the first token and the further ones, and the
    latency is one of the three.
    """
    further = generation.new_tokens - 1
    named = made.times(generation.latency)
    times = zip(made.first_token_ms, made.token_ms, made.total_ms, samples, named, strict=True)
    for first, each, total, sample, latency in times:
        sum_ms = first + further * each
        if not math.isclose(sum_ms, total, rel_tol=ROUNDED, abs_tol=ROUNDED_MS * (further + 2)):
            return (
                f"implausible: {first:.6g} ms to the first token and {each:.6g} ms for each of {further} further ones "
                f"are {sum_ms:.6g} ms, and the generation is said to have taken {total:.6g} ms"
            )
        if not math.isclose(sample, latency, rel_tol=ROUNDED, abs_tol=2 * ROUNDED_MS):
            return (
                f"implausible: its latency is the {LATENCY_NAMES[generation.latency]}, and is {sample:.6g} ms in one "
                f"place and {latency:.6g} ms in another"
            )
    return None


def _impossible_energy(made: GenerationSamples, spent_s: float, generation: GenerationWork) -> str | None:
    """Why the energy of all timed generations cannot have been used, or not sufficed."""
    token_mj = made.energy_token_mj
    if token_mj is None:
        return None
    one_joules = token_mj / 1e3 * generation.new_tokens * generation.sequences
    watts = one_joules * len(made.total_ms) / spent_s
    if watts > MAX_WATTS:
        return (
            f"implausible: {token_mj:.4g} mJ a token are {watts:.4g} W over the {spent_s:.4g} s of the launch, and no "
            f"device draws more than {MAX_WATTS:g} W"
        )
    flops = generation.first_token.flops + (generation.new_tokens - 1) * generation.token.flops
    if one_joules < MIN_JOULES * flops:
        return (
            f"implausible: {token_mj:.4g} mJ a token are {one_joules:.3g} J for {flops:.3g} operations, and none takes "
            f"less than {MIN_JOULES:g} J"
        )
    return None


def _size(size: float) -> str:
    return f"{size:g} byte{'' if size == 1 else 's'}" if size < MB / 1000 else _mb(size)


def _mb(size: float) -> str:
    return f"{size / MB:.4g} MB"
