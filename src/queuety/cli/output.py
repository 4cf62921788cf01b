"""What is written to stdout: tables and facts for people, one JSON document for scripts.

Nothing stored is ever read as markup, and nothing in it reaches a terminal as a command (`escapes`). Where stdout is no
terminal the same is written in plain aligned columns, as wide as they need to be.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final

import typer

from queuety.cli.escapes import escaped, escaped_json, escaped_lines

if TYPE_CHECKING:
    from rich.console import Console


class Format(StrEnum):
    """How a command answers."""

    TABLE = "table"
    JSON = "json"


STYLES: Final[Mapping[str, str]] = {
    "completed": "green",
    "running": "cyan",
    "processing": "cyan",
    "paused": "yellow",
    "waiting_for_signal": "yellow",
    "waiting_for_workflows": "yellow",
    "warning": "yellow",
    "delayed": "blue",
    "failed": "bold red",
    "buried": "bold red",
    "error": "bold red",
    "cancelled": "dim",
    "note": "dim",
}
"""How a word is coloured that stands alone in a cell."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `whole` cells are never folded; the others give way where the terminal is narrow."""

    title: str
    right: bool = False
    whole: bool = False


def show_json(value: Any) -> None:
    """One JSON document: dataclasses as objects with their fields' names, times in ISO 8601, UTC."""
    takes_all = "utf" in (sys.stdout.encoding or "utf").lower()
    typer.echo(escaped_json(json.dumps(plain(value), indent=2, ensure_ascii=not takes_all)))


def show_json_line(value: Any) -> None:
    """One JSON value on one line, for one of many."""
    takes_all = "utf" in (sys.stdout.encoding or "utf").lower()
    typer.echo(escaped_json(json.dumps(plain(value), ensure_ascii=not takes_all)))


def plain(value: Any) -> Any:
    """The value as JSON takes it.

    >>> plain({"at": datetime(2026, 1, 1, tzinfo=UTC), "format": Format.JSON})
    {'at': '2026-01-01T00:00:00.000000+00:00', 'format': 'json'}
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value


def say(text: str) -> None:
    """One line."""
    typer.echo(escaped(text))


def show_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """A table of texts, or the line `empty` if there are no rows."""
    if not rows:
        say(empty)
        return
    cells = [[escaped(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        _plain_table(columns, cells)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, column in enumerate(columns):
        widest = max((len(row[number]) for row in cells), default=0)
        table.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=column.whole,
            min_width=max(widest, len(column.title)) if column.whole else None,
        )
    for row in cells:
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    _console().print(table)


def show_facts(title: str, facts: Iterable[tuple[str, str]]) -> None:
    """A title, and under it one fact a line as name and value; what is empty is left out."""
    told = [(name, escaped_lines(value)) for name, value in facts if value]
    if not sys.stdout.isatty():
        width = max((len(name) for name, _ in told), default=0)
        typer.echo(escaped(title))
        for name, lines in told:
            for mark, line in zip((name, *[""] * len(lines)), lines, strict=False):
                typer.echo(f"  {mark:<{width}}  {line}".rstrip())
        return
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, lines in told:
        grid.add_row(Text(name), Text("\n".join(lines), style=STYLES.get(lines[0], "")))
    console = _console()
    console.print(Text(escaped(title), style="bold"))
    console.print(Padding(grid, (0, 0, 0, 2)))


def short(text: str | None, most: int = 60) -> str:
    """The beginning of the text's first line, for a cell; the whole text is had elsewhere.

    >>> short("one line\\nand another"), short("abcdef", 4)
    ('one line …', 'abc…')
    """
    if not text:
        return ""
    first, _, rest = text.strip().partition("\n")
    if len(first) > most:
        return first[: most - 1] + "…"
    return f"{first} …" if rest else first


def readable(value: Any) -> str:
    """A JSON value for people: on several lines if it is large."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else json.dumps(value, ensure_ascii=False, indent=2)


def _plain_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    from rich.cells import cell_len  # a character may take two columns, or none

    titles = [column.title for column in columns]
    widths = [max(cell_len(row[number]) for row in (titles, *rows)) for number in range(len(columns))]
    for row in (titles, *rows):
        padded = [
            " " * (width - cell_len(cell)) + cell if column.right else cell + " " * (width - cell_len(cell))
            for column, cell, width in zip(columns, row, widths, strict=True)
        ]
        typer.echo("  ".join(padded).rstrip())


def _console() -> Console:
    """A console on the present stdout that interprets nothing; it obeys NO_COLOR and TERM."""
    from rich.console import Console

    return Console(file=sys.stdout, markup=False, highlight=False, emoji=False, legacy_windows=os.name == "nt")
