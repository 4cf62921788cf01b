"""Commands that tell a run something: `queuety workflow signal`, `approve`, `reject`, `input`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from queuety.cli import inputs
from queuety.cli.exits import Refusal
from queuety.cli.many import By, Many, asked, is_id, one_or_many
from queuety.cli.options import FormatOption, IdArgument, an_id, command
from queuety.cli.output import Format
from queuety.cli.target import Place
from queuety.cli.workflows import steer

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
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="[ID] NAME [DATA]", help=f"The run, the signal's name, what it carries. {inputs.PAYLOAD_HELP}"
        ),
    ],
    data: DataOption = None,
    *,
    many: Many,
    by: By,
    form: FormatOption = Format.TABLE,
) -> None:
    """Send a run a signal; it is kept until a wait uses it."""
    workflow_id, name, given = _run_and_signal(target, many)
    sent = _data(given, data)
    one_or_many(
        place,
        workflow_id,
        many,
        form,
        lambda app, run_id: app.signal(run_id, name, sent, **by),
        lambda app, where: app.signal_workflows(where, name, sent, **many.bounds, **by),
    )


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
    steer(place, workflow_id, form, lambda app, run_id: app.approve_workflow(run_id, sent, name, **by))


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
    steer(place, workflow_id, form, lambda app, run_id: app.reject_workflow(run_id, sent, name, **by))


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
    steer(place, workflow_id, form, lambda app, run_id: app.submit_workflow_input(run_id, sent, name, **by))


def _run_and_signal(target: list[str], many: Many) -> tuple[int | None, str, str | None]:
    """The run, None for many, the signal's name, and the data as typed. Raises `Refusal`."""
    ids, said = (target[:1], target[1:]) if many.where is None else ([], target)
    if len(said) not in (1, 2) or not (is_id(ids[0]) if ids else not is_id(said[0])):
        raise Refusal("say the ID of a run and the NAME of a signal; for many runs the NAME alone, and which are meant")
    return (an_id(ids[0]) if ids else None), said[0], (said[1] if len(said) == 2 else None)


def _data(given: str | None, option: str | None) -> dict[str, Any] | None:
    """The object that was given, in one way or the other; None for none."""
    if given is not None and option is not None:
        raise Refusal("say either DATA or --data, not both")
    return inputs.payload(given, what="DATA") if option is None else inputs.payload(option, what="--data")
