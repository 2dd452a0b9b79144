"""Tables of a device: its facts with units, its runtimes, and the history of its anchor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgefront.cli.show.output import NONE, gigabytes, moment, share
from edgefront.cli.show.table import Table
from edgefront.core.schemas.service import AnchorPoint, DeviceView

_UNITS = {
    "_gb_per_s": ("_bandwidth", "GB/s"),
    "_gflops": ("_compute", "GFLOP/s"),
    "_mhz": ("", "MHz"),
    "_s": ("", "s"),
    "_c": ("", "°C"),
    "_w": ("", "W"),
}
"""Suffix of a fact's name → its replacement, and the unit; the longer of two suffixes first."""


def facts_table(device: DeviceView, state: str) -> Table:
    """One fact per row, the most important first."""
    facts = device.facts
    table = Table("device", "value", wrap=("value",))
    lines: dict[str, str | None] = {
        "name": device.name,
        "id": device.id,
        "class": device.device_class,
        "owner": device.owner,
        "state": state,
        "quarantine": device.quarantine,
        "seen": moment(device.last_seen_at),
        "enrolled": moment(device.enrolled_at),
        "holds": f"{device.leased} launches",
        "measuring": f"{share(device.measuring_share)} of its time" if device.measuring_share is not None else None,
        "host": facts.hostname,
        "system": facts.system,
        "processor": f"{facts.cpu}, {facts.architecture}",
        "cores": str(facts.cores),
        "memory": gigabytes(facts.memory_bytes),
        **{
            f"GPU {number}": ", ".join(" ".join(_with_unit(*fact)) for fact in gpu.items() if fact[1] is not None)
            or NONE
            for number, gpu in enumerate(facts.gpus)
        },
        "modes": ", ".join(facts.modes),
        **dict(_with_unit(name, value) for name, value in facts.extra.items() if value is not None),
        "features": " ".join(facts.cpu_features),
    }
    for name, value in lines.items():
        if value:
            table.add_row(name, value)
    return table


def runtimes_table(device: DeviceView) -> Table:
    """One row for each provider of each runtime."""
    table = Table(
        *("runtime", "version", "provider", "computes in", "memory by"),
        wrap=("computes in", "memory by"),
        drop_first=("memory by", "version"),
    )
    for runtime in device.facts.runtimes:
        for provider in runtime.providers:
            numbers = ", ".join(runtime.numbers.get(provider, ("float32",)))
            table.add_row(runtime.runtime, runtime.version, provider, numbers, ", ".join(runtime.memory_methods))
    return table


def _with_unit(name: str, value: Any) -> tuple[str, str]:
    """Moves the unit from the name to the value: `memory_bytes` 16000000000 → memory, 16.0 GB; `core_gflops` 37.5 →
    core compute, 37.5 GFLOP/s.
    """
    if name.endswith("_bytes") and isinstance(value, int):
        return name.removesuffix("_bytes").replace("_", " "), gigabytes(value)
    for suffix, (replacement, unit) in _UNITS.items():
        if name.endswith(suffix) and isinstance(value, int | float) and not isinstance(value, bool):
            return (name.removesuffix(suffix) + replacement).replace("_", " "), f"{value:g} {unit}"
    return name.replace("_", " "), "yes" if value is True else "no" if value is False else str(value)


LATEST = 24


def anchor_table(points: Sequence[AnchorPoint]) -> Table:
    """The latest measurements of an anchor, oldest first."""
    table = Table(
        *("anchor", "on", "ms", "MHz", "load", "°C", "mark"),
        right=("ms", "MHz", "load", "°C"),
        wrap=("mark",),
        drop_first=("load", "°C", "MHz", "on"),
        title="Anchor",
    )
    for point in points[-LATEST:]:
        table.add_row(
            moment(point.measured_at),
            point.provider,
            f"{point.latency_ms:.3f}",
            *("" if value is None else f"{value:g}" for value in (point.clock_mhz, point.load_1m, point.temperature_c)),
            point.mark or "",
        )
    return table
