"""The history of an anchor on the terminal."""

from __future__ import annotations

import io
from datetime import datetime, timezone

import pytest
from rich.console import Console

from edgefront.core.wire.service import AnchorPoint
from edgefront.show.devices import anchor_table


@pytest.mark.parametrize("with_gpu", [False, True])
def test_what_an_anchor_was_measured_on_is_shown_where_it_is_not_always_the_processor(with_gpu: bool) -> None:
    now = datetime(2026, 11, 25, tzinfo=timezone.utc)
    measured = [("cpu", 8.0), *([("cuda", 0.5)] if with_gpu else []), ("cpu", 4.0)]
    points = [
        AnchorPoint(launch_id=f"lau_{index}", measured_at=now, provider=provider, latency_ms=latency)
        for index, (provider, latency) in enumerate(measured)
    ]
    out = io.StringIO()
    Console(file=out, width=140).print(anchor_table(points))
    lines = out.getvalue().splitlines()
    bars = [line.count("█") for line in lines if "█" in line]
    assert bars == ([30, 30, 15] if with_gpu else [30, 15])  # of each provider by its own longest
    assert ("cuda" in out.getvalue()) == with_gpu
    assert any(" on " in line for line in lines) == with_gpu
