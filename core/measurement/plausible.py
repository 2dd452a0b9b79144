"""Checks whether a launch's result is possible: compares memory, speed, time and energy with physical bounds, and the
times of a generation with each other.

Hardware facts that a device reports give upper bounds of operations and bytes per second. The lowest of three holds:

1. Peak performance: cores × clock × maximum operations of a core per cycle, with generous values for unknown facts.
2. The speed of a small kernel when the agent started (`agents.device.kernel`), with a margin because a runtime may have
   better kernels.
3. A speed above that of every present processor.

NVIDIA GPUs have bounds 2 and 3, other accelerators bound 3 only. A device may report any facts, but no reported fact
can raise bound 3, the maximum clock or the maximum operations per cycle.
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
"""Clock assumed for a processor that reports no maximum clock, and upper bound of a reported maximum clock."""
CACHE_BYTES_PER_CYCLE = 128
"""Maximum bytes per cycle from the nearest cache into the registers of one core."""
BEYOND_CACHES = 1 << 30
"""Bytes of weights above which no cache holds the weights, so that each forward pass reads the weights from memory."""
MARGIN = 4.0
"""Factor by which a runtime may be faster than the small kernel. On a GPU the kernel is 1.5 times slower than the peak,
because power limits the clock in large products. The clock may have been lower when the agent started, and the kernel
adds in float32, although sums in float16 are twice as fast on consumer GPUs. Copies reach nine tenths of the memory's
bandwidth."""
CORE_MEMORY_BYTES = 4e11
"""Maximum bytes per second from memory into one core."""
PROCESSOR_FLOPS, PROCESSOR_BYTES = 4e15, 6e12
"""Operations, and bytes from memory, per second above those of every present processor with any number of cores."""
ACCELERATOR_FLOPS, ACCELERATOR_FLOPS_FLOAT32, ACCELERATOR_BYTES = 1e16, 2e15, 2e13
"""Operations, float32 or TF32 operations, and bytes from memory, per second above every present accelerator's."""

CORE_GFLOPS, CORE_GB = "core_gflops", "core_gb_per_s"
"""Names of the facts (`DeviceFacts.extra`) with the speed of the kernel on one core: 10⁹ operations, and 10⁹ bytes, per
second."""
GPU_GFLOPS, GPU_HALF_GFLOPS, GPU_GB = "gpu_gflops", "gpu_half_gflops", "gpu_gb_per_s"
"""Names of the facts with the speed of the kernel on the whole GPU, in 10⁹ per second: operations in float32 or TF32,
operations in the faster of float16 and bfloat16, and bytes of the GPU's memory."""
MAX_MHZ = "max_mhz"

_KERNEL = f"the kernel that its agent ran, {MARGIN:g} times over"
_UNKNOWN_PER_CYCLE = 512.0
"""Operations per cycle of a processor that reports no features, because some processors have matrix units."""
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
"""Float32 operations per cycle of one core by CPU feature: two fused multiply-adds per cycle on the widest registers,
or four on ARM's registers of 128 bits."""
_TIMES = {"float32": 1.0, "float16": 4.0, "bfloat16": 4.0}
_TIMES_INTEGER = 8.0
_TIMES_WITH_TILES = 32.0
"""Operations per cycle with matrix units (AMX, SME), divided by the operations per cycle in float32."""
_TIMES_INTEGER_GPU = 4.0
"""Ratio of a GPU's operations in int8 or fewer bits to those in the faster of float16 and float32. Present GPUs have 2
in int8 and 4 in four bits. The first GPUs with int8, which had no fast float16, have 4 compared with float32."""


@dataclass(frozen=True)
class Ceiling:
    """Maximum operations and bytes per second of a device, and a description of the source of each bound."""

    flops: float
    bytes: float
    flops_from: str
    bytes_from: str


def ceiling(facts: Mapping[str, Any], protocol: MeasurementProtocol, read_bytes: float) -> Ceiling:
    """Returns the maximum speed of a device under a protocol. `facts` is `core.schemas.agent.DeviceFacts` as JSON.

    `read_bytes` is the minimum number of bytes that each forward pass reads. If `read_bytes` is larger than any cache,
    the bounds include the speed of the memory.
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
    """Returns the maximum speed of an accelerator; `extra` contains the speeds that the agent measured with a small
    kernel. Caches are several times as fast as memory, so the measured memory speed does not bound models that may fit
    into a cache.
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
    """A core's operations per cycle in this number format, divided by the operations per cycle in float32."""
    if number_format == "float32":
        return 1.0
    if any(feature.startswith(("amx", "sme")) for feature in features) or (is_x86 and not features):
        return _TIMES_WITH_TILES
    return _TIMES.get(number_format, _TIMES_INTEGER)


def _positive(value: Any, otherwise: float) -> float:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return float(value) if usable else otherwise


WEIGHTS_HELD = 0.95
"""Minimum share of the weights' bytes in memory during a forward pass, because a runtime may fold some weights away."""
CLOCKS_DIFFER = 1.05
STARTED_LATE_S = 10.0
"""Maximum time in seconds between the start of a launch and the server's notice of the start."""
ROUNDED_MS, ROUNDED = 1e-3, 1e-6
"""Maximum rounding error of a time, in ms and relative to the time."""
MAX_WATTS = 5e3
"""Maximum power in watts of the hardware whose energy an agent counts: all processors of one machine, or one GPU."""
MEMORY_TIMES = 2.0
"""Maximum ratio of a launch's peak memory to the device's memory, because a system may swap."""
LIMIT_REACHED = 0.9
"""Minimum share of the protocol's time limit that a launch over the limit must have taken."""
MIN_JOULES = 1e-14
"""Minimum energy of an operation in joules: a tenth of the most economical present accelerators' in four bits."""


class Counted(Protocol):
    """Exact costs of a forward pass: `core.architectures.cost.costs.Costs`, or a database row with the same columns."""

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
    """Minimum work and memory of one forward pass."""

    flops: float
    read_bytes: float
    """Bytes of the blocks' weights. A forward pass reads each weight at least once."""
    held_bytes: float
    """Bytes of the weights that are in memory during a forward pass."""

    @classmethod
    def of(cls, costs: Counted, protocol: MeasurementProtocol, *, translates: bool) -> Work:
        """Work of a forward pass with these costs. `translates`: passes may skip the source of a translation model."""
        blocks = costs.weight_bytes * costs.decoder_parameters / max(1, costs.total_parameters)
        # The resident set contains only the embedding rows that were read, the used memory of a GPU is polled, and a
        # forward pass without logits has no output head.
        whole = protocol.memory in ("anonymous", "allocator") and protocol.logits != "none"
        held = costs.weight_bytes if whole else blocks
        if protocol.runtime not in ("onnxruntime", "pytorch"):  # the runtime may convert weights to half the size
            held = blocks / 2
        if translates:
            return cls(0.0 if protocol.mode == "decode" else costs.flops / 2, 0.0, 0.0)
        return cls(costs.flops, blocks, held)


@dataclass(frozen=True)
class GenerationWork:
    """Minimum work of one text generation, by forward pass."""

    first_token: Work
    """Work of the forward pass over the prompt."""
    token: Work
    """Mean work of the forward pass of each later token."""
    new_tokens: int
    """Number of tokens generated for each sequence, including the first."""
    sequences: int
    latency: Latency
    """Name of the time of the generation that is the result's latency."""


def longest_s(elapsed_s: float) -> float:
    """Maximum duration of a launch, in seconds, if the server counted `elapsed_s` seconds since the launch's start."""
    return elapsed_s * CLOCKS_DIFFER + STARTED_LATE_S


def over_time_too_early(result: LaunchResult, limit_s: float, elapsed_s: float) -> str | None:
    """Checks a report that a launch exceeded the time limit. Returns a sentence if the duration by the agent's clock or
    by the server's clock (`elapsed_s`) is clearly below the limit; otherwise None.
    """
    taken_s = min(result.wall_s, longest_s(elapsed_s))
    if taken_s < LIMIT_REACHED * limit_s:
        return f"implausible: the time limit of {limit_s:g} s is reported as exceeded after at most {taken_s:.3g} s"
    return None


def implausible(
    result: LaunchResult,
    work: Work,
    ceiling: Ceiling,
    elapsed_s: float | None,
    generation: GenerationWork | None = None,
    device_bytes: float | None = None,
) -> str | None:
    """The reason, as a sentence, why the result of a done launch cannot be true; None if the result is possible.

    Args:
        work: minimum work of the computation that the result's latency measures.
        elapsed_s: seconds between the launch's start, as the server knows it, and the report; None if unknown.
        generation: minimum work of a generation, for launches of mode generate.
        device_bytes: memory of the device, if known.
    """
    peak = result.peak.peak_bytes
    if peak < WEIGHTS_HELD * work.held_bytes:
        return (
            f"implausible: a peak memory of {_size(peak)} is less than the weights, which take {_mb(work.held_bytes)}"
        )
    if device_bytes is not None and peak > MEMORY_TIMES * device_bytes:
        return f"implausible: a peak memory of {_size(peak)} is too large for a device with {_size(device_bytes)}"
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
        return f"implausible: the launch reports {spent_s:.4g} s, but was leased for only {elapsed_s:.4g} s"
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
    """The reason, as a sentence, why the times of a generation contradict each other; None if they agree. The total is
    the sum of all tokens' times, and the latency is one of the three times.
    """
    further = generation.new_tokens - 1
    named = made.times(generation.latency)
    times = zip(made.first_token_ms, made.token_ms, made.total_ms, samples, named, strict=True)
    for first, each, total, sample, latency in times:
        sum_ms = first + further * each
        if not math.isclose(sum_ms, total, rel_tol=ROUNDED, abs_tol=ROUNDED_MS * (further + 2)):
            return (
                f"implausible: {first:.6g} ms to the first token and {each:.6g} ms for each of {further} later tokens "
                f"are {sum_ms:.6g} ms, but the reported time of the generation is {total:.6g} ms"
            )
        if not math.isclose(sample, latency, rel_tol=ROUNDED, abs_tol=2 * ROUNDED_MS):
            return (
                f"implausible: the latency must equal the {LATENCY_NAMES[generation.latency]}, but the report has "
                f"{sample:.6g} ms and {latency:.6g} ms"
            )
    return None


def _impossible_energy(made: GenerationSamples, spent_s: float, generation: GenerationWork) -> str | None:
    """The reason, as a sentence, why the energy of the timed generations is too large or small; None if possible."""
    token_mj = made.energy_token_mj
    if token_mj is None:
        return None
    one_joules = token_mj / 1e3 * generation.new_tokens * generation.sequences
    watts = one_joules * len(made.total_ms) / spent_s
    if watts > MAX_WATTS:
        return (
            f"implausible: {token_mj:.4g} mJ per token are {watts:.4g} W over the {spent_s:.4g} s of the launch, but a "
            f"device draws at most {MAX_WATTS:g} W"
        )
    flops = generation.first_token.flops + (generation.new_tokens - 1) * generation.token.flops
    if one_joules < MIN_JOULES * flops:
        return (
            f"implausible: {token_mj:.4g} mJ per token are {one_joules:.3g} J for {flops:.3g} operations, but an "
            f"operation takes at least {MIN_JOULES:g} J"
        )
    return None


def _size(size: float) -> str:
    return f"{size:g} byte{'' if size == 1 else 's'}" if size < MB / 1000 else _mb(size)


def _mb(size: float) -> str:
    return f"{size / MB:.4g} MB"
