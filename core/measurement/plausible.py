"""Whether a launch's result can be true at all: memory, speed, time and energy against what is possible, and the times
of a generation against each other.

Upper bounds of a device's speed, in operations and bytes per second, from its facts.

The lowest of three bounds holds: peak performance (cores × clock × maximum operations of a core per cycle, generous
where the facts do not say); what a small kernel reached when the agent started (`agents.device.kernel`), with a margin
because a runtime may have better kernels; and what no processor of today reaches. NVIDIA GPUs have the last two bounds,
other accelerators the last.

A device may report any facts: none of them raises the last bound, the clock or the operations per cycle.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from edgefront.core.common.units import MB
from edgefront.core.measurement.protocol import LATENCY_NAMES, Latency, MeasurementProtocol
from edgefront.core.measurement.provider import Provider
from edgefront.core.measurement.record import GenerationSamples, LaunchResult

CLOCK_HZ = 6e9
"""Clock of a processor that does not report its highest one, and maximum of those that are reported."""
CACHE_BYTES_PER_CYCLE = 128
"""Maximum bytes per cycle from the nearest cache into the registers of one core."""
BEYOND_CACHES = 1 << 30
"""Weights (bytes) that no cache holds, so that each pass reads them from memory."""
MARGIN = 4.0
"""Factor by which a runtime may be faster than the small kernel. A GPU's is 1.5 times below its peak (in large products
its power limits the clock), may have had a lower clock when the agent started, and adds in float32: sums in float16 are
twice as fast on consumer GPUs. Copies reach nine tenths of the memory's bandwidth."""
CORE_MEMORY_BYTES = 4e11
"""Maximum bytes per second from memory into one core."""
PROCESSOR_FLOPS, PROCESSOR_BYTES = 4e15, 6e12
"""Operations and bytes from memory per second that no processor of today reaches, whatever cores a device reports."""
ACCELERATOR_FLOPS, ACCELERATOR_FLOPS_FLOAT32, ACCELERATOR_BYTES = 1e16, 2e15, 2e13
"""The same for a GPU or another accelerator; the figure of float32 covers TF32 too."""

CORE_GFLOPS, CORE_GB = "core_gflops", "core_gb_per_s"
"""Names of the facts (`DeviceFacts.extra`) that say what the kernel reached: 10⁹ operations and bytes per second, of
one core."""
GPU_GFLOPS, GPU_HALF_GFLOPS, GPU_GB = "gpu_gflops", "gpu_half_gflops", "gpu_gb_per_s"
"""The same of the whole GPU: in float32 or TF32, in the faster of float16 and bfloat16, and bytes of its memory."""
MAX_MHZ = "max_mhz"

_KERNEL = f"the kernel that its agent ran, {MARGIN:g} times over"
_UNKNOWN_PER_CYCLE = 512.0
"""Operations per cycle of a processor that does not report its features: some have matrix units."""
_X86, _X86_PER_CYCLE = frozenset({"x86_64", "amd64", "x86", "i386", "i686"}), 64.0
_PER_CYCLE = (
    ("sme", _UNKNOWN_PER_CYCLE),
    ("avx512f", 64.0),
    ("sve", 64.0),
    ("avx2", 32.0),
    ("asimd", 32.0),
    ("neon", 32.0),
    ("sse2", 16.0),
)
"""Operations of float32 per cycle by feature: two fused multiply-adds of the widest registers; four for ARM's 128 bits.
"""
_TIMES = {"float32": 1.0, "float16": 4.0, "bfloat16": 4.0}
_TIMES_INTEGER = 8.0
_TIMES_WITH_TILES = 32.0
"""Factor over float32 with matrix units (AMX, SME)."""
_TIMES_INTEGER_GPU = 4.0
"""Factor of int8 and below over float16 or float32, whichever is faster: GPUs of today have 2 in int8 and 4 in four
bits; the first with int8, which had no fast float16, 4 over float32."""


@dataclass(frozen=True)
class Ceiling:
    """Operations and bytes a second that a device cannot exceed, and where each bound comes from."""

    flops: float
    bytes: float
    flops_from: str
    bytes_from: str


def ceiling(facts: Mapping[str, Any], protocol: MeasurementProtocol, read_bytes: float) -> Ceiling:
    """The ceiling of a device with these facts (`core.schemas.agent.DeviceFacts` as JSON) under a protocol.

    `read_bytes` are those that each pass reads at least: where no cache holds them, memory is the bound.
    """
    extra = facts.get("extra", {})
    provider = Provider(protocol.provider)
    if not provider.on_processor:
        return _of_accelerator(extra if provider.on_nvidia else {}, protocol.number_format, read_bytes)
    features = facts.get("cpu_features", ())
    cores = max(1, min(protocol.threads, int(facts["cores"])))
    is_x86 = str(facts.get("architecture", "")).lower() in _X86
    times = _times(protocol.number_format, features, is_x86)
    clock = min(CLOCK_HZ, _positive(extra.get(MAX_MHZ), CLOCK_HZ / 1e6) * 1e6)
    processor = f"{cores} core{'s' if cores > 1 else ''} at {clock / 1e9:g} GHz"
    of_any = "any processor of today"
    unknown = _X86_PER_CYCLE if is_x86 else _UNKNOWN_PER_CYCLE
    per_cycle = next((count for feature, count in _PER_CYCLE if feature in features), unknown)
    reached = cores * _positive(extra.get(CORE_GFLOPS), float("inf")) * 1e9 * MARGIN * times
    flops, flops_from = min(
        (PROCESSOR_FLOPS, of_any), (cores * clock * per_cycle * times, processor), (reached, _KERNEL), key=_bound
    )
    bounds = [(cores * clock * CACHE_BYTES_PER_CYCLE, processor)]
    if read_bytes > BEYOND_CACHES:
        reached = cores * _positive(extra.get(CORE_GB), float("inf")) * 1e9 * MARGIN
        bounds += [(PROCESSOR_BYTES, of_any), (cores * CORE_MEMORY_BYTES, processor), (reached, _KERNEL)]
    memory, memory_from = min(bounds, key=_bound)
    return Ceiling(flops, memory, flops_from, memory_from)


def _of_accelerator(extra: Mapping[str, Any], number_format: str, read_bytes: float) -> Ceiling:
    """That of an accelerator whose agent's kernel reached what `extra` says. Caches are several times as fast as the
    memory that the kernel copies, so models that one may hold have the bound of any accelerator.
    """
    of_any = "any accelerator of today"
    single, half = (_positive(extra.get(name), float("inf")) for name in (GPU_GFLOPS, GPU_HALF_GFLOPS))
    if number_format == "float32":
        most, reached = ACCELERATOR_FLOPS_FLOAT32, single
    else:  # some GPUs have no fast float16
        most, reached = ACCELERATOR_FLOPS, max(single, half)
        reached *= 1.0 if number_format in _TIMES else _TIMES_INTEGER_GPU
    flops, flops_from = min((most, of_any), (reached * 1e9 * MARGIN, _KERNEL), key=_bound)
    bounds = [(ACCELERATOR_BYTES, of_any)]
    if read_bytes > BEYOND_CACHES:
        bounds.append((_positive(extra.get(GPU_GB), float("inf")) * 1e9 * MARGIN, _KERNEL))
    memory, memory_from = min(bounds, key=_bound)
    return Ceiling(flops, memory, flops_from, memory_from)


def _bound(bound: tuple[float, str]) -> float:
    return bound[0]


def _times(number_format: str, features: Collection[str], is_x86: bool) -> float:
    """Ratio of the operations of a core in this number format to those in float32."""
    if number_format == "float32":
        return 1.0
    if any(feature.startswith(("amx", "sme")) for feature in features) or (is_x86 and not features):
        return _TIMES_WITH_TILES
    return _TIMES.get(number_format, _TIMES_INTEGER)


def _positive(value: Any, otherwise: float) -> float:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return float(value) if usable else otherwise


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
    """The exact costs of a pass that are asked of here: `core.architectures.cost.costs.Costs`, or a row with its
    columns.
    """

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
