"""What generations took, by the context before them: a table, a curve in text, and a curve in a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefront.core.units import MB
from edgefront.show.output import NONE, megabytes, milliseconds, table
from edgefront.show.picture import BASELINE, FRONTIER, panels

if TYPE_CHECKING:
    from edgefront.show.fitting import FittingTable
    from edgefront.workflows.measure import Measured

_BAR = 40
"""Characters of the longest bar."""
_COLUMNS = ("context", "first token (ms)", "further token (ms)", "whole (ms)", "tokens/s", "peak (MB)", "mJ/token")


def generations_table(title: str, measured: Sequence[Measured]) -> FittingTable:
    """A row for each context."""
    shown = table(*_COLUMNS, title=title, right=_COLUMNS, less=("mJ/token", "whole (ms)", "peak (MB)", "tokens/s"))
    for setting in measured:
        report = setting.report()
        made, energy = report["generation"], report["generation"]["energy_token_mj"]
        shown.add_row(
            str(setting.protocol.memory_length),
            *(
                milliseconds(made[f"{name}_ms"], made[f"{name}_half_width_ms"])
                for name in ("first_token", "token", "total")
            ),
            f"{made['tokens_per_s']:.1f}",
            megabytes(report["memory"]["peak_bytes"]),
            NONE if energy is None else f"{energy:.3g}",
        )
    return shown


def curve(measured: Sequence[Measured]) -> str:
    """A bar for each context, as long as a further token takes there."""
    rows = [(setting.protocol.memory_length, float(setting.report()["generation"]["token_ms"])) for setting in measured]
    longest = max(ms for _, ms in rows)
    width = max(len(str(context)) for context, _ in rows)
    lines = [
        f"{context:>{width}}  {'█' * max(1, round(_BAR * ms / longest))} {milliseconds(ms)} ms" for context, ms in rows
    ]
    return "\n".join(["Time of each further token, by context:", *lines])


def draw_curve(measured: Sequence[Measured], path: Path, *, title: str = "") -> None:
    """Draws first token, further token and peak memory over the context into a PNG, SVG or PDF file."""
    reports = [setting.report() for setting in measured]
    contexts = [setting.protocol.memory_length for setting in measured]
    with panels(1, 3, (13, 4.2), path, title) as (row,):
        for axes, name, label, color in (
            (row[0], "first_token", "time to the first token (ms)", FRONTIER),
            (row[1], "token", "time of each further token (ms)", FRONTIER),
            (row[2], None, "peak memory (MB)", BASELINE),
        ):
            values = [_value(report, name) for report in reports]
            halves = [
                0.0 if name is None else report["generation"][f"{name}_half_width_ms"] or 0.0 for report in reports
            ]
            axes.errorbar(
                contexts, values, yerr=halves, color=color, marker="o", markersize=5, capsize=2, linewidth=1.4
            )
            axes.set_xlabel("tokens of context before the prompt")
            axes.set_ylabel(f"{label}, less is better")
            axes.set_ylim(0, max(values) * 1.15)


def _value(report: dict[str, Any], name: str | None) -> float:
    if name is None:
        return float(report["memory"]["peak_bytes"]) / MB
    return float(report["generation"][f"{name}_ms"])
