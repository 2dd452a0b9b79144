"""A table that fits the terminal by shortening identifiers, then by omitting the least important columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.progress_bar import ProgressBar
    from rich.table import Table as RichTable

    Cell = str | ProgressBar

Item = TypeVar("Item")

SHORTEST = 6
"""Minimum length of a shortened identifier; grows until the identifiers of one table differ."""
_IDENTIFIER = re.compile(r"^[a-z]{3}_[0-9a-z]{26}$")
_MIN_WRAPPED_WIDTH = 16
"""Minimum width of wrapped text; below this width less important columns are left out first."""
_UNLIMITED_WIDTH = 100_000


class Table:
    """A table that chooses its layout for the width of each console or page on which it is shown.

    Args:
        columns: headings.
        title: printed above the table.
        right: headings of right-aligned columns (numbers).
        wrap: headings of columns whose text may be wrapped.
        drop_first: headings of columns that a narrow terminal leaves out, in this order.
    """

    def __init__(
        self,
        *columns: str,
        title: str | None = None,
        right: Iterable[str] = (),
        wrap: Iterable[str] = (),
        drop_first: Sequence[str] = (),
    ) -> None:
        self._columns, self._title = columns, title
        self._right, self._wrap, self._drop_first = set(right), set(wrap), drop_first
        self._rows: list[tuple[Sequence[Cell], str | None]] = []
        self._section_ends: set[int] = set()

    @classmethod
    def of(cls, items: Iterable[Item], columns: Mapping[str, Callable[[Item], Cell]], **layout: Any) -> Table:
        """Returns a table with one row for each item. `columns` maps each heading to the function that returns an
        item's cell; `layout`: further arguments of `Table`.
        """
        table = cls(*columns, **layout)
        for item in items:
            table.add_row(*(cell(item) for cell in columns.values()))
        return table

    def add_row(self, *cells: Cell, style: str | None = None) -> None:
        """Adds a row of plain text (no markup) or progress bars."""
        self._rows.append((cells, style))

    def add_section(self) -> None:
        """Adds a horizontal line below the latest row."""
        self._section_ends.add(len(self._rows) - 1)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        if self._title:
            yield Text(self._title, style="bold", overflow="fold")

        def fits() -> bool:
            return self._min_width(layout, console, options) <= options.max_width

        left_out: list[str] = []
        layout = self._layout(short=False)
        if not fits():
            layout = self._layout(short=True)
            for heading in self._drop_first:
                if fits():
                    break
                if heading in self._columns:
                    left_out.append(heading)
                    layout = self._layout(short=True, left_out=left_out)
            if not fits():  # as a further step, names are wrapped, but not identifiers and numbers
                layout = self._layout(short=True, left_out=left_out, fold=True)
        yield layout
        if left_out:
            yield Text(f"Not shown: {', '.join(left_out)}. --wide shows all.", style="dim")

    def _repr_html_(self) -> str:
        """Returns the table with all columns as HTML, in the colours of the page that shows the table."""
        return table_html(self._title, self._columns, [cells for cells, _ in self._rows], right=self._right)

    def _layout(self, *, short: bool, left_out: Sequence[str] = (), fold: bool = False) -> RichTable:
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        layout = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        shown = [index for index, heading in enumerate(self._columns) if heading not in left_out]
        identifiers = {index: self._identifiers(index) for index in range(len(self._columns))}
        suffixes = short_ids(text for texts in identifiers.values() for text in texts) if short else {}
        for index in shown:
            heading = self._columns[index]
            number = heading in self._right
            wraps = heading in self._wrap or (fold and not number and not identifiers[index])
            # Folded text can still be copied; truncated text is lost.
            layout.add_column(Text(heading), justify="right" if number else "left", no_wrap=not wraps, overflow="fold")
        for row, (cells, style) in enumerate(self._rows):
            texts = [Text(suffixes.get(cell, cell)) if isinstance(cell, str) else cell for cell in cells]
            layout.add_row(*(texts[index] for index in shown), style=style, end_section=row in self._section_ends)
        return layout

    def _min_width(self, layout: RichTable, console: Console, options: ConsoleOptions) -> int:
        """Returns the minimum width of the table at which no column but the `wrap` columns is wrapped."""
        from rich.cells import cell_len

        width = layout.__rich_measure__(console, options.update(max_width=_UNLIMITED_WIDTH)).maximum
        for column in layout.columns:
            if str(column.header) in self._wrap:
                texts = [str(column.header), *map(str, column.cells)]
                widest = max(max(map(cell_len, text.splitlines()), default=0) for text in texts)
                longest_word = max(max(map(cell_len, text.split()), default=0) for text in texts)
                width -= max(0, widest - max(_MIN_WRAPPED_WIDTH, longest_word))
        return width

    def _identifiers(self, column: int) -> list[str]:
        texts = (cells[column] for cells, _ in self._rows)
        return [text for text in texts if isinstance(text, str) and _IDENTIFIER.match(text)]


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Returns identifier → its ending. Endings have `SHORTEST` characters, or as many as make all endings distinct."""
    distinct = sorted(set(ids))
    length = SHORTEST
    while len({id_[-length:] for id_ in distinct}) < len(distinct):
        length += 1
    return {id_: id_[-length:] for id_ in distinct}


def table_html(
    title: str | None, columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, right: Collection[str] = ()
) -> str:
    """Returns an HTML table; `right`: headings of right-aligned columns."""
    aligned = [f' style="text-align: {"right" if name in right else "left"}"' for name in columns]
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    head = "".join(f"<th{style}>{escape(name)}</th>" for name, style in zip(columns, aligned, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{style}>{_cell(cell)}</td>' for cell, style in zip(row, aligned, strict=True))}</tr>"
        for row in rows
    )
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return escape(cell)
    return f'<progress max="{cell.total or 1:g}" value="{cell.completed:g}"></progress>'
