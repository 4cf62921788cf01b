"""Commands that tell a run something: `queuety workflow signal`, `approve`, `reject`, `input`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from queuety.cli import inputs
from queuety.cli.exits import Refusal
from queuety.cli.many import By, asked
from queuety.cli.options import FormatOption, IdArgument, command
from queuety.cli.output import Format
from queuety.cli.target import Place
from queuety.cli.workflows import steer

if TYPE_CHECKING:
    from queuety import Queuety

GivenArgument = Annotated[str | None, typer.Argument(metavar="DATA", help=inputs.PAYLOAD_HELP, show_default=False)]
DataOption = Annotated[str | None, typer.Option("--data", metavar="JSON", help="The same as DATA.")]
NameOption = Annotated[
    str | None,
    typer.Option("--signal", metavar="NAME", help="The signal's name. Else the one that the run listens for now."),
]


def add_to(group: typer.Typer) -> None:
    """Adds the commands of this file."""
    for name, function in (("signal", signal), ("approve", approve), ("reject", reject), ("input", submit)):
        command(group, name)(asked(function))


def signal(
    place: Place,
    workflow_id: IdArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The signal's name.", show_default=False)],
    given: GivenArgument = None,
    data: DataOption = None,
    *,
    by: By,
    form: FormatOption = Format.TABLE,
) -> None:
    """Send a run a signal; it is kept until a wait uses it."""
    sent = _data(given, data)

    def do(app: Queuety) -> None:
        app.signal(workflow_id, name, sent, **by)

    steer(place, workflow_id, form, do)


def approve(
    place: Place,
    workflow_id: IdArgument,
    given: GivenArgument = None,
    data: DataOption = None,
    name: NameOption = None,
    *,
    by: By,
    form: FormatOption = Format.TABLE,
) -> None:
    """Say yes to a run that waits for an approval or a decision."""
    sent = _data(given, data)
    steer(place, workflow_id, form, lambda app: app.approve_workflow(workflow_id, sent, name, **by))


def reject(
    place: Place,
    workflow_id: IdArgument,
    given: GivenArgument = None,
    data: DataOption = None,
    name: NameOption = None,
    *,
    by: By,
    form: FormatOption = Format.TABLE,
) -> None:
    """Say no to a run that waits for a decision."""
    sent = _data(given, data)
    steer(place, workflow_id, form, lambda app: app.reject_workflow(workflow_id, sent, name, **by))


def submit(
    place: Place,
    workflow_id: IdArgument,
    given: GivenArgument = None,
    data: DataOption = None,
    name: NameOption = None,
    *,
    by: By,
    form: FormatOption = Format.TABLE,
) -> None:
    """Hand a run the input that it waits for."""
    sent = _data(given, data)
    steer(place, workflow_id, form, lambda app: app.submit_workflow_input(workflow_id, sent, name, **by))


def _data(given: str | None, option: str | None) -> dict[str, Any] | None:
    """The object that was given, in one way or the other; None for none."""
    if given is not None and option is not None:
        raise Refusal("say either DATA or --data, not both")
    return inputs.payload(given, what="DATA") if option is None else inputs.payload(option, what="--data")
