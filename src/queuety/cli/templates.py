"""Commands about templates: those that the application registers, and those of workflow files."""

from __future__ import annotations

from typing import Annotated

import typer

from queuety.cli import inputs, starts
from queuety.cli.exits import Code, Refusal
from queuety.cli.options import FormatOption, TagOption, WorkflowsOption, command
from queuety.cli.output import Column, Format, say, show_json, show_table
from queuety.cli.target import Place
from queuety.errors import NotFoundError


def add_to(group: typer.Typer) -> None:
    """Adds the commands of this file."""
    command(group, "templates")(templates)
    command(group, "run")(run)


def templates(place: Place, workflows: WorkflowsOption = None, form: FormatOption = Format.TABLE) -> None:
    """List the templates of the application and workflow files."""
    with place.opened(workflows=workflows or ()) as app:
        found = app.workflow_templates()
    if form is Format.JSON:
        show_json(list(found.values()))
        return
    columns = (
        Column("name"),
        Column("steps", right=True, whole=True),
        Column("version"),
        Column("definition", whole=True),
        Column("from"),
    )
    rows = [
        (each.name, str(len(each.steps)), each.version or "", each.hash[:12], each.source or "")
        for each in found.values()
    ]
    show_table(columns, rows, empty="no templates")


def run(
    place: Place,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a template.", show_default=False)],
    payload: Annotated[str | None, typer.Option("--payload", metavar="JSON", help=inputs.PAYLOAD_HELP)] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Idempotency key: a second run with it is not started.")
    ] = None,
    tag: TagOption = None,
    workflows: WorkflowsOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Start a run of a template, and print its id."""
    given = inputs.payload(payload)
    with place.opened(makes_tables=True, workflows=workflows) as app:
        try:
            workflow_id = app.run_workflow(name, given, idempotency_key=key, tags=tag or ())
        except NotFoundError as error:
            if starts.is_built(name, place.target()):
                message = (
                    f"{name!r} is no template; `queuety workflow dispatch {name}` starts the workflow of that name"
                )
                raise Refusal(message, Code.NO) from error
            raise
    if form is Format.JSON:
        show_json({"id": workflow_id})
    else:
        say(f"workflow {workflow_id} was started" if key is None else f"workflow {workflow_id} has the key {key}")
