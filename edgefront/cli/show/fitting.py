"""A table that fits its terminal: identifiers get short, then columns that matter less are left out.

Identifiers, names, states and numbers are never cut. Text (`prose`) is wrapped between words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from html import escape
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

SHORTEST = 6
"""Characters of a short identifier, or more, until those of one table differ."""
_IDENTIFIER = re.compile(r"^[a-z]{3}_[0-9a-z]{26}$")
_PROSE = 16
"""Narrower than this, text is hard to read: columns that matter less go before it."""
_ANY_WIDTH = 100_000


class FittingTable:
    """A table that decides at each output what fits.

    Args:
        columns: the headings.
        title: printed above it.
        right: headings of columns with numbers.
        prose: headings of columns whose text may be wrapped.
        less: headings of columns that are left out where it is narrow, in this order.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        title: str | None = None,
        right: Iterable[str] = (),
        prose: Iterable[str] = (),
        less: Sequence[str] = (),
    ) -> None:
        self._columns, self._title = columns, title
        self._right, self._prose, self._less = set(right), set(prose), less
        self._rows: list[tuple[Sequence[RenderableType], str | None]] = []
        self._sections: set[int] = set()

    def add_row(self, *cells: RenderableType, style: str | None = None) -> None:
        """A row: text as it is (no markup), or anything that rich renders."""
        self._rows.append(([Text(cell) if isinstance(cell, str) else cell for cell in cells], style))

    def add_section(self) -> None:
        """A line below the last row."""
        self._sections.add(len(self._rows) - 1)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._title:
            yield Text(self._title, style="bold", overflow="fold")
        left_out: list[str] = []
        shown = self._made(short=False)
        if self._needs(shown, console, options) > options.max_width:
            shown = self._made(short=True)
            for heading in self._less:
                if self._needs(shown, console, options) <= options.max_width:
                    break
                if heading in self._columns:
                    left_out.append(heading)
                    shown = self._made(short=True, left_out=left_out)
            if self._needs(shown, console, options) > options.max_width:
                # Names are wrapped then, but not identifiers and numbers.
                shown = self._made(short=True, left_out=left_out, fold=True)
        yield shown
        if left_out:
            yield Text(f"Not shown: {', '.join(left_out)}. --wide shows all.", style="dim")

    def _repr_html_(self) -> str:
        """All columns as HTML, in the colours of the page that shows it."""
        from edgefront.cli.show.fitting import table_html

        return table_html(self._title, self._columns, [cells for cells, _ in self._rows], right=self._right)

    def _made(self, *, short: bool, left_out: Sequence[str] = (), fold: bool = False) -> Table:
        made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        kept = [index for index, heading in enumerate(self._columns) if heading not in left_out]
        tails = short_ids(self._identifiers()) if short else {}
        for index in kept:
            heading = self._columns[index]
            number = heading in self._right
            wraps = heading in self._prose or (fold and not number and not self._identifiers([index]))
            # What is folded can still be copied; what is truncated is lost.
            made.add_column(Text(heading), justify="right" if number else "left", no_wrap=not wraps, overflow="fold")
        for number_of_row, (cells, style) in enumerate(self._rows):
            shown = [tails.get(_plain(cells[index]), cells[index]) for index in kept]
            made.add_row(*shown, style=style, end_section=number_of_row in self._sections)
        return made

    def _needs(self, made: Table, console: Console, options: ConsoleOptions) -> int:
        """The width below which something other than prose would be wrapped."""
        natural = Table.__rich_measure__(made, console, options.update(max_width=_ANY_WIDTH)).maximum
        for column in made.columns:
            if _plain(column.header) in self._prose:
                cells = [column.header, *column.cells]
                widest = max(max(map(cell_len, _plain(cell).splitlines()), default=0) for cell in cells)
                longest = max(max(map(cell_len, _plain(cell).split()), default=0) for cell in cells)
                natural -= max(0, widest - max(_PROSE, longest))
        return natural

    def _identifiers(self, columns: Iterable[int] | None = None) -> list[str]:
        texts = (
            _plain(cells[index])
            for cells, _ in self._rows
            for index in (range(len(cells)) if columns is None else columns)
        )
        return [text for text in texts if _IDENTIFIER.match(text)]


def _plain(cell: Any) -> str:
    return cell.plain if isinstance(cell, Text) else ""


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Identifier → its last characters: six, or as many more as make all of these different."""
    whole = sorted(set(ids))
    length = SHORTEST
    while len({id_[-length:] for id_ in whole}) < len(whole):
        length += 1
    return {id_: id_[-length:] for id_ in whole}


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
