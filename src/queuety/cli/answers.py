"""Commands that explain and follow: `queuety why`, `queuety workflow stream`."""

from __future__ import annotations

from typing import Annotated

import typer

from queuety.cli.escapes import escaped_text
from queuety.cli.options import FormatOption, IdArgument, an_id, command
from queuety.cli.output import Format, readable, say, show_json, show_json_line
from queuety.cli.target import Place
from queuety.cli.workflows import found_run


def add_to(root: typer.Typer, workflow: typer.Typer) -> None:
    """Adds the commands of this file."""
    command(root, "why")(why)
    command(workflow, "stream")(stream)


def why(
    place: Place,
    id_: Annotated[int, typer.Argument(parser=an_id, metavar="ID", help="The run, or the job.", show_default=False)],
    form: FormatOption = Format.TABLE,
) -> None:
    """Say in plain words why a workflow or a job is not running."""
    with place.opened() as app:
        found = app.why(id_)
    if form is Format.JSON:
        show_json(found)
    else:
        say(found.answer)


def stream(
    place: Place,
    workflow_id: IdArgument,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", help="Give up once nothing has come for so long.", min=0),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Write what a run's streaming steps yield, as it comes.

    From the first chunk on, until the run has ended. Text is written as it is, any other value on a line of its own. As
    JSON every chunk is one line.
    """
    is_at_start = True
    with place.opened() as app:
        found_run(app, workflow_id)
        for chunk in app.workflow_stream(workflow_id, timeout=timeout):
            if form is Format.JSON:
                show_json_line(chunk)
            elif isinstance(chunk, str):
                typer.echo(escaped_text(chunk), nl=False)
                is_at_start = chunk.endswith("\n") if chunk else is_at_start
            else:
                typer.echo(("" if is_at_start else "\n") + escaped_text(readable(chunk)))
                is_at_start = True
    if not is_at_start:
        typer.echo()
