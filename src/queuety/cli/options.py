"""What all commands have in common: the options that say where, and how a command is made of a function.

A command's function takes a `Place` first and then its own arguments. The common options may stand before the command's
name or after it; after it wins.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

import typer

from queuety.cli.exits import reported
from queuety.cli.once import Command
from queuety.cli.output import Format
from queuety.cli.target import Place

PANEL: Final = "Application"
LARGEST_ID: Final = 2**63 - 1
LARGEST_COUNT: Final = 2**31 - 1


def whole(least: int, most: int, wanted: str | None = None) -> Callable[[object], int]:
    """What reads a whole number within these bounds, for an argument or option; `wanted` says what is to be given.

    >>> whole(1, 1024)("12")
    12
    """
    needed = wanted or f"a whole number from {least:,} to {most:,}"

    def number(given: object) -> int:
        text = str(given).strip()
        if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most:
            return int(text)
        raise typer.BadParameter(f"{text!r}: {needed} is needed")

    return number


def listed(words: Iterable[str]) -> str:
    """The words that an option takes, for its help.

    >>> listed(Format)
    'table, json'
    """
    return ", ".join(words)


an_id: Final = whole(1, LARGEST_ID, "an id (a whole number)")
a_count: Final = whole(1, LARGEST_COUNT)

AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:ATTR",
        help="The Queuety object, or a function that returns one. Else QUEUETY_APP, else app in pyproject.toml.",
        rich_help_panel=PANEL,
    ),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="Without an application: the database. Else QUEUETY_DATABASE_URL, else queuety.db here.",
        rich_help_panel=PANEL,
    ),
]
PrefixOption = Annotated[
    str | None,
    typer.Option(
        "--table-prefix", metavar="PREFIX", help="With --database: how its tables begin.", rich_help_panel=PANEL
    ),
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=PANEL)]

JsonOption = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
FormatOption = Annotated[Format, typer.Option("--format", help="For people, or for scripts.")]
IdArgument = Annotated[int, typer.Argument(parser=an_id, metavar="ID", help="The run.", show_default=False)]
WorkflowsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--workflows",
        metavar="FOLDER",
        help="Load the workflow files of this folder and those in it; may be given again. Else QUEUETY_WORKFLOWS.",
        show_default=False,
    ),
]
TagOption = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="A word that the run may be found by; may be given again."),
]
LimitOption = Annotated[int, typer.Option("--limit", parser=a_count, metavar="N", help="How many at most.")]


@dataclass(frozen=True, slots=True)
class Common:
    """The common options as given in one place of the command line."""

    app: str | None = None
    database: str | None = None
    table_prefix: str | None = None
    debug: bool = False

    def over(self, other: Common) -> Common:
        """These options, and the other ones where these say nothing; --app here replaces --database there, and back."""
        if self.app is not None:
            other = Common(table_prefix=other.table_prefix, debug=other.debug)
        if self.database is not None:
            other = Common(table_prefix=other.table_prefix, debug=other.debug)
        return Common(
            other.app if self.app is None else self.app,
            other.database if self.database is None else self.database,
            other.table_prefix if self.table_prefix is None else self.table_prefix,
            self.debug or other.debug,
        )

    @property
    def place(self) -> Place:
        """What they say about where."""
        return Place(self.app, self.database, self.table_prefix)


_PARAMETERS: Final = tuple(
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
    for name, default, annotation in (
        ("app", None, AppOption),
        ("database", None, DatabaseOption),
        ("table_prefix", None, PrefixOption),
        ("debug", False, DebugOption),
    )
)
_JSON: Final = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption)
_CONTEXT: Final = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)


def command(group: typer.Typer, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a function a command of this group, with the common options, and errors as one line and an exit code."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        _place, *own = inspect.signature(function, eval_str=True).parameters.values()

        @functools.wraps(function)
        def run(*, context: typer.Context, **given: Any) -> None:
            here = Common(**{field.name: given.pop(field.name) for field in fields(Common)})
            common = here.over(context.obj) if isinstance(context.obj, Common) else here
            if given.pop(_JSON.name, False):
                given["form"] = Format.JSON
            with reported(debug=common.debug):
                function(common.place, **given)

        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        if any(parameter.annotation == FormatOption for parameter in own):
            own.append(_JSON)
        run.__signature__ = inspect.Signature([_CONTEXT, *own, *_PARAMETERS])  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in (_CONTEXT, *own, *_PARAMETERS)}
        group.command(name, cls=Command)(run)
        return function

    return add
