"""A frontier as a table and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from edgefront.core.spaces.words import layers_in_words, spread, stack_in_words
from edgefront.core.wire.jobs import CandidateView, FrontierView
from edgefront.show.output import NONE, mebibytes, millions, milliseconds, speedup, table, times

if TYPE_CHECKING:
    from rich.table import Table

_CSV = (
    "target",
    "role",
    "id",
    "digest",
    "decoder_parameters",
    "total_parameters",
    "latency_ms",
    "latency_half_width_ms",
    "memory_bytes",
    "speedup",
    "speedup_low",
    "speedup_high",
    "memory_ratio",
    "perplexity",
    "launches",
)


def frontier_table(view: FrontierView, *, baseline: bool = True) -> Table:
    """The points by rising decoder parameters, with the baseline beside them; perplexities where some were trained."""
    numbers = ("latency ms", "memory MiB", "faster", "smaller", "launches", *(("perplexity",) if view.trained else ()))
    shown = table(
        "model",
        "parameters",
        "blocks",
        "d_model",
        "d_inner",
        *numbers,
        title=_title(view),
        right=("parameters", "d_model", *numbers),
    )
    scores = {one.candidate_id: f"{one.perplexity:.4g}" for one in view.trained}

    def cells(point: CandidateView) -> list[str]:
        return _cells(point) + ([scores.get(point.id, "")] if scores else [])

    for point in view.points:
        shown.add_row(point.id, *cells(point))
    if baseline and view.baseline:
        shown.add_section()
        for point in sorted(view.baseline, key=lambda item: item.decoder_parameters):
            shown.add_row(
                f"baseline, {layers_in_words(point.architecture.get('blocks', ()))}", *cells(point), style="dim"
            )
    return shown


def _title(view: FrontierView) -> str:
    alike = f" (alike up to {100 * view.epsilon:g} %)" if view.epsilon else ""
    if view.by == "perplexity":
        data = f" on {view.trained[0].dataset} by {view.trained[0].recipe}" if view.trained else ""
        return f"{view.target}: {len(view.points)} of {len(view.trained)} models trained{data} on the frontier{alike}"
    return f"{view.target}: {len(view.points)} models on the frontier{alike}, hypervolume {view.hypervolume:.4f}"


def _cells(point: CandidateView) -> list[str]:
    versus = point.versus_baseline if point.role == "search" else None
    mark = "*" if versus is not None and versus.extrapolated else ""
    return [
        millions(point.decoder_parameters),
        stack_in_words(point.architecture.get("blocks", ())),
        str(point.architecture.get("d_model", NONE)),
        spread(_inner_widths(point)),
        milliseconds(point.latency_ms, point.latency_half_width_ms),
        mebibytes(point.memory_bytes),
        speedup(versus) + mark if versus else "",
        times(versus.memory_ratio) + mark if versus else "",
        str(point.launches),
    ]


def frontier_csv(views: Iterable[FrontierView]) -> str:
    """Every point and every baseline of these frontiers, one per line, with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _CSV, lineterminator="\n")
    writer.writeheader()
    for view in views:
        for point in (*view.points, *view.baseline):
            writer.writerow({name: _field(view, point, name) for name in _CSV})
    return text.getvalue()


def _field(view: FrontierView, point: CandidateView, name: str) -> Any:
    if name == "target":
        return view.target
    if name in ("speedup", "speedup_low", "speedup_high", "memory_ratio"):
        return getattr(point.versus_baseline, name, None)
    if name == "perplexity":
        return next((one.perplexity for one in view.trained if one.candidate_id == point.id), None)
    return getattr(point, name)


def _inner_widths(point: CandidateView) -> list[int]:
    return [int(block["d_inner"]) for block in point.architecture.get("blocks", ()) if "d_inner" in block]
