"""What generations took, by the context before them: a table, and a curve in text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgefront.show.output import NONE, megabytes, milliseconds, table

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
