"""Upper bounds of a device's speed, in operations and bytes per second, from its facts.

The lowest of three bounds holds: peak performance (cores × clock × maximum operations of a core per cycle, generous
where the facts do not say); what a small kernel reached when the agent started (`agents.device.kernel`), with a margin
because a runtime may have better kernels; and what no processor of today reaches. NVIDIA GPUs have the last two bounds,
other accelerators the last.

A device may report any facts: none of them raises the last bound, the clock or the operations per cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.provider import Provider

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
    """The ceiling of a device with these facts (`core.wire.agent.DeviceFacts` as JSON) under a protocol.

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
    per_cycle = _per_cycle(features, is_x86)
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


def _per_cycle(features: Collection[str], is_x86: bool) -> float:
    unknown = _X86_PER_CYCLE if is_x86 else _UNKNOWN_PER_CYCLE
    return next((count for feature, count in _PER_CYCLE if feature in features), unknown)


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
