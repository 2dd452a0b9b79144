"""Tables as HTML for notebooks: escaped, without scripts and without colours of their own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape

from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.text import Text


def table_html(
    title: str | None,
    columns: Sequence[str],
    rows: Sequence[Sequence[RenderableType]],
    *,
    right: Collection[str] = (),
) -> str:
    """A table; cells are text or bars of progress, those of the columns `right` numbers."""
    aligned = [f' style="text-align: {"right" if name in right else "left"}"' for name in columns]
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    head = "".join(f"<th{style}>{escape(name)}</th>" for name, style in zip(columns, aligned, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{style}>{_cell(cell)}</td>' for cell, style in zip(row, aligned, strict=True))}</tr>"
        for row in rows
    )
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(cell: RenderableType) -> str:
    if isinstance(cell, ProgressBar):
        return f'<progress max="{cell.total or 1:g}" value="{cell.completed:g}"></progress>'
    return escape(cell.plain if isinstance(cell, Text) else str(cell))
