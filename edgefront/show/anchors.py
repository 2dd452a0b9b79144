"""The history of a device's anchor on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgefront.core.measurement.provider import PROCESSOR
from edgefront.core.wire.service import AnchorPoint
from edgefront.show.output import moment, table

if TYPE_CHECKING:
    from edgefront.show.fitting import FittingTable

LATEST = 24
_WIDTH = 30


def anchor_table(points: Sequence[AnchorPoint]) -> FittingTable:
    """The latest measurements of an anchor, oldest first, each with a bar of its latency. What they were measured on is
    shown where that is not always the processor.
    """
    latest = points[-LATEST:]
    on = ("on",) if any(point.provider != PROCESSOR for point in latest) else ()
    shown = table(
        *("anchor", *on, "ms", "latency", "MHz", "load", "°C", "mark"),
        right=("ms", "MHz", "load", "°C"),
        prose=("mark",),
        less=("latency", "load", "°C", "MHz"),
        title="Anchor",
    )
    most = {point.provider: 0.0 for point in latest}
    for point in latest:
        most[point.provider] = max(most[point.provider], point.latency_ms)
    for point in latest:
        shown.add_row(
            moment(point.measured_at),
            *((point.provider,) if on else ()),
            f"{point.latency_ms:.3f}",
            "█" * max(1, round(_WIDTH * point.latency_ms / most[point.provider])),
            *(_number(value) for value in (point.clock_mhz, point.load_1m, point.temperature_c)),
            point.mark or "",
        )
    return shown


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
