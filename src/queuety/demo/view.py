"""How the demo tells what happens: lines and a moving bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import typer

from queuety.cli.escapes import escaped

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class View(Protocol):
    """Tells; inside its context only, if it shows how far a step is."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...

    def say(self, text: str, style: str = "") -> None:
        """One line."""

    def progress(self, what: str, done: int, of: int) -> None:
        """How far something is; may be said again and again."""

    def no_progress(self) -> None:
        """What was under way has ended."""


def view() -> View:
    """The one for stdout."""
    return _Terminal() if sys.stdout.isatty() else _Lines()


class _Lines:
    """A line whenever something has changed."""

    def __init__(self) -> None:
        self._last: tuple[str, int, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return

    def say(self, text: str, style: str = "") -> None:  # noqa: ARG002 - there are no colours here
        typer.echo(escaped(text))

    def progress(self, what: str, done: int, of: int) -> None:
        if self._last != (what, done, of):
            self._last = (what, done, of)
            typer.echo(f"  {what}: {done} of {of} documents")

    def no_progress(self) -> None:
        self._last = None


class _Terminal:
    """Lines that stay, and below them a bar."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(markup=False, highlight=False, emoji=False)
        columns = (
            TextColumn("  {task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.completed:.0f} of {task.total:.0f} documents", markup=False),
        )
        self._progress: Progress = Progress(*columns, console=console, transient=True)
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()

    def say(self, text: str, style: str = "") -> None:
        from rich.text import Text

        self._progress.console.print(Text(escaped(text), style=style), soft_wrap=True)

    def progress(self, what: str, done: int, of: int) -> None:
        if self._task is None:
            self._task = self._progress.add_task(what, total=of)
        self._progress.update(self._task, description=what, completed=done, total=of)

    def no_progress(self) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
