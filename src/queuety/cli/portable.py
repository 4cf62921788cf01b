"""Commands that carry a run elsewhere: `queuety workflow export`, `queuety workflow replay`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from queuety import codec
from queuety.cli.exits import Code, Refusal
from queuety.cli.many import By, asked
from queuety.cli.options import FormatOption, IdArgument, command
from queuety.cli.output import Format, say, show_json
from queuety.cli.target import Place
from queuety.cli.workflows import found_run


def add_to(group: typer.Typer) -> None:
    """Adds the commands of this file."""
    command(group, "export")(export)
    command(group, "replay")(asked(replay))


def export(
    place: Place,
    workflow_id: IdArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write it to this file, which must not be there yet; - for stdout."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --output: replace a file that is there.")] = False,
) -> None:
    """Write all that is kept of a run as JSON.

    It can be replayed here or in another database.
    """
    if output is None or str(output) == "-":
        if force:
            raise Refusal("--force goes with --output: nothing is replaced on stdout")
        with place.opened() as app:
            found_run(app, workflow_id)
            show_json(app.export_workflow(workflow_id))
        return
    with place.opened() as app:
        found_run(app, workflow_id)
        try:
            app.export_workflow_to_file(workflow_id, output, replace=force)
        except FileExistsError:
            raise Refusal(f"{output} is there already; name another file, or say --force", Code.USAGE) from None
        except OSError as error:
            raise Refusal(f"{output} cannot be written: {error.strerror or error}") from error
    say(f"workflow {workflow_id} was exported to {output}")


def replay(
    place: Place,
    name: Annotated[
        str, typer.Argument(metavar="FILE", help="What `workflow export` has written; - for stdin.", show_default=False)
    ],
    *,
    by: By,
    form: FormatOption = Format.TABLE,
) -> None:
    """Make an exported run again, under a new id.

    As it was, and going on from there. The id is printed.
    """
    where = "stdin" if name == "-" else name
    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise Refusal(f"{where} cannot be read: {error.strerror or error}") from error
    data = codec.unchecked(content, what=f"Invalid export data: {where}")
    with place.opened(makes_tables=True) as app:
        workflow_id = app.replay_workflow(data, **by)
        run = found_run(app, workflow_id)
    if form is Format.JSON:
        show_json({"id": run.id, "status": run.status})
    else:
        say(f"workflow {run.id} was replayed as {run.name}; it is {run.status}")
