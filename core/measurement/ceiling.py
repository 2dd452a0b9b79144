"""What a device can do at most: operations and bytes a second, from its facts.

Two bounds, of which the lower holds. What the processor could do: cores × clock × the most operations that a core
finishes in a cycle, generous where the facts do not say. And what a small kernel reached on it when its agent started
(`agents.device.kernel`), with a margin, for a runtime may have better kernels. A device may report any facts, so the
second alone would bound nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.runtimes import ON_PROCESSOR

CLOCK_HZ = 6e9
"""Of a processor that does not report its highest clock; no reported one counts as higher."""
CACHE_BYTES_A_CYCLE = 128
"""From the nearest cache into the registers of one core."""
BEYOND_CACHES = 1 << 30
"""Weights (bytes) that no cache holds, so that each pass reads them from memory."""
MARGIN = 4.0
"""Of a runtime over the small kernel."""
ACCELERATOR_FLOPS, ACCELERATOR_BYTES = 1e16, 2e13
"""A second, of a GPU or another accelerator: beyond those of today."""

CORE_GFLOPS, CORE_GB = "core_gflops", "core_gb_per_s"
"""Names of the facts (`DeviceFacts.extra`) that say what the kernel reached: 10⁹ operations and bytes a second, of one
core."""
MAX_MHZ = "max_mhz"

_UNKNOWN_A_CYCLE = 512.0
_A_CYCLE = (("avx512f", 64.0), ("avx2", 32.0), ("sse2", 16.0))
"""Operations of float32 in a cycle: two fused multiply-adds of the widest registers."""
_TIMES = {"float32": 1.0, "float16": 4.0, "bfloat16": 4.0}
_TIMES_INTEGER = 8.0
_TIMES_WITH_TILES = 32.0
"""With matrix units (AMX, SME)."""


@dataclass(frozen=True)
class Ceiling:
    """Operations and bytes a second that a device cannot exceed, and where each bound comes from."""

    flops: float
    bytes: float
    flops_from: str
    bytes_from: str


def ceiling(facts: Mapping[str, Any], protocol: MeasurementProtocol, read_bytes: float) -> Ceiling:
    """Of a device with these facts (`core.wire.agent.DeviceFacts` as JSON) under a protocol.

    `read_bytes` are those that each pass reads at least: where no cache holds them, memory is the bound.
    """
    if protocol.provider not in ON_PROCESSOR:
        source = "any accelerator of today"
        return Ceiling(ACCELERATOR_FLOPS, ACCELERATOR_BYTES, source, source)
    features = facts.get("cpu_features", ())
    extra = facts.get("extra", {})
    cores = max(1, min(protocol.threads, int(facts["cores"])))
    times = _times(protocol.number_format, features)
    clock = min(CLOCK_HZ, _positive(extra.get(MAX_MHZ), CLOCK_HZ / 1e6) * 1e6)
    processor = f"{cores} core{'s' if cores > 1 else ''} at {clock / 1e9:g} GHz"
    flops, flops_from = cores * clock * _a_cycle(features) * times, processor
    memory, memory_from = cores * clock * CACHE_BYTES_A_CYCLE, processor
    kernel = f"the kernel that its agent ran, {MARGIN:g} times over"
    reached = cores * _positive(extra.get(CORE_GFLOPS), float("inf")) * 1e9 * MARGIN * times
    if reached < flops:
        flops, flops_from = reached, kernel
    reached = cores * _positive(extra.get(CORE_GB), float("inf")) * 1e9 * MARGIN
    if read_bytes > BEYOND_CACHES and reached < memory:
        memory, memory_from = reached, kernel
    return Ceiling(flops, memory, flops_from, memory_from)


def _a_cycle(features: Collection[str]) -> float:
    return next((count for feature, count in _A_CYCLE if feature in features), _UNKNOWN_A_CYCLE)


def _times(number_format: str, features: Collection[str]) -> float:
    """How many times as many operations a core does in this number format as in float32."""
    if number_format == "float32":
        return 1.0
    if any(feature.startswith(("amx", "sme")) for feature in features):
        return _TIMES_WITH_TILES
    return _TIMES.get(number_format, _TIMES_INTEGER)


def _positive(value: Any, otherwise: float) -> float:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return float(value) if usable else otherwise
