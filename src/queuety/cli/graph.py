"""The command that draws: `queuety workflow graph`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from queuety.cli import starts
from queuety.cli.escapes import escaped_text
from queuety.cli.exits import Refusal
from queuety.cli.options import WorkflowsOption, command, listed
from queuety.cli.output import say
from queuety.cli.target import Place, Target

if TYPE_CHECKING:
    from queuety import Queuety


class Picture(StrEnum):
    """How a picture is drawn."""

    TEXT = "text"
    MERMAID = "mermaid"
    SVG = "svg"


_ENDINGS: Final = {
    ".svg": Picture.SVG,
    ".mmd": Picture.MERMAID,
    ".mermaid": Picture.MERMAID,
    ".txt": Picture.TEXT,
    "": Picture.TEXT,
}


def add_to(group: typer.Typer) -> None:
    """Adds the command of this file."""
    command(group, "graph")(graph)


def graph(
    place: Place,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="The id of a run; the name of a template, of a workflow that the application's module builds, or of "
            "one of which runs were started; or module:attribute of a builder.",
            show_default=False,
        ),
    ],
    form: Annotated[
        Picture | None,
        typer.Option(
            "--format",
            help="An outline, a Mermaid flowchart, or a picture. Else as FILE ends (.svg, .mmd, .txt), else text.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write it to this new file; - for stdout.", show_default=False
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --output: replace a file that is there.")] = False,
    workflows: WorkflowsOption = None,
) -> None:
    """Draw a workflow, or a run with how each step stands."""
    is_on_stdout = output is None or str(output) == "-"
    if force and is_on_stdout:
        raise Refusal("--force goes with --output FILE")
    drawing = (form or _by_ending(output)).value
    if target.isdecimal():
        with place.opened() as app:
            drawn = app.workflow_graph(int(target), drawing)
    else:
        with place.opened(workflows=workflows or ()) as app:
            drawn = app.workflow_graph(_described(target, app, place.target()), drawing)
    if output is None or is_on_stdout:
        typer.echo(escaped_text(drawn), nl=False)
        return
    try:
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(drawn)
    except FileExistsError:
        raise Refusal(f"{output} is there already; name another file, or say --force") from None
    except OSError as error:
        raise Refusal(f"{output} cannot be written: {error.strerror or error}") from error
    say(f"written to {output}")


def _by_ending(output: Path | None) -> Picture:
    """What the name of the file asks for. Raises `Refusal` for an ending of something else: it would hold text."""
    ending = "" if output is None else output.suffix.lower()
    if ending not in _ENDINGS:
        raise Refusal(
            f"{output} is to be neither .svg, .mmd nor .txt; say what it is to hold: --format {listed(Picture)}"
        )
    return _ENDINGS[ending]


def _described(name: str, app: Queuety, target: Target | None) -> Any:
    """What of the application's code has this name; the name itself if only the database may know it."""
    if ":" in name:
        return starts.builder_of(name, app, target)
    if name in app.workflow_templates() or target is None:
        return name
    try:
        return starts.builder_of(name, app, target)
    except Refusal:
        return name
