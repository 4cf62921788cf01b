"""Commands that steer and mend runs, one by its id or all that meet a filter: `queuety workflow retry`, `rewind`, …"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from queuety.cli import inputs
from queuety.cli.exits import Refusal
from queuety.cli.many import By, Many, MaybeId, asked, is_id, one_or_many
from queuety.cli.options import FormatOption, IdArgument, an_id, command
from queuety.cli.output import Format, say, show_json
from queuety.cli.target import Place
from queuety.cli.workflows import found_run, steer
from queuety.errors import NotFoundError

WithStateOption = Annotated[
    str | None,
    typer.Option("--with-state", metavar="JSON", help=f"Merged into the state first. {inputs.PAYLOAD_HELP}"),
]
StepOption = Annotated[
    str | None, typer.Option("--step", metavar="STEP", help=f"Only if this is the current one: {inputs.STEP_HELP}.")
]


def add_to(group: typer.Typer) -> None:
    """Adds the commands of this file."""
    for name, function in (
        ("pause", pause),
        ("resume", resume),
        ("retry", retry),
        ("cancel", cancel),
        ("rewind", rewind),
        ("fork", fork),
        ("skip-step", skip_step),
        ("complete-step", complete_step),
        ("patch-state", patch_state),
        ("run-now", run_now),
    ):
        command(group, name)(asked(function))


def pause(
    place: Place,
    workflow_id: MaybeId = None,
    *,
    many: Many,
    by: By,
    form: FormatOption = Format.TABLE,
) -> None:
    """Let the current step finish and start no other."""
    one_or_many(
        place,
        workflow_id,
        many,
        form,
        lambda app, run_id: app.pause_workflow(run_id, **by),
        lambda app, where: app.pause_workflows(where, **many.bounds, **by),
    )


def resume(
    place: Place,
    workflow_id: MaybeId = None,
    *,
    many: Many,
    by: By,
    form: FormatOption = Format.TABLE,
) -> None:
    """Go on after a pause."""
    one_or_many(
        place,
        workflow_id,
        many,
        form,
        lambda app, run_id: app.resume_workflow(run_id, **by),
        lambda app, where: app.resume_workflows(where, **many.bounds, **by),
    )


def retry(
    place: Place,
    workflow_id: MaybeId = None,
    with_state: WithStateOption = None,
    *,
    many: Many,
    by: By,
    form: FormatOption = Format.TABLE,
) -> None:
    """Go on at the step that failed, with fresh attempts."""
    given: Any = {**by, "with_state": _state(with_state)}
    one_or_many(
        place,
        workflow_id,
        many,
        form,
        lambda app, run_id: app.retry_workflow(run_id, **given),
        lambda app, where: app.retry_workflows(where, **many.bounds, **given),
    )


def cancel(
    place: Place,
    workflow_id: MaybeId = None,
    *,
    many: Many,
    by: By,
    form: FormatOption = Format.TABLE,
) -> None:
    """End a run now, and have its steps undone.

    Workers run the compensations of the steps that had completed, the last one first, then its on_cancel handler.
    """
    one_or_many(
        place,
        workflow_id,
        many,
        form,
        lambda app, run_id: app.cancel_workflow(run_id, **by),
        lambda app, where: app.cancel_workflows(where, **many.bounds, **by),
    )


def rewind(
    place: Place,
    target: Annotated[
        list[str],
        typer.Argument(metavar="[ID] STEP", help=f"The run, and the step to go back to: {inputs.STEP_HELP}."),
    ],
    with_state: WithStateOption = None,
    *,
    many: Many,
    by: By,
    form: FormatOption = Format.TABLE,
) -> None:
    """Go back to where a step had settled, and on from there.

    The state is as it was then, and the step after it is the next one to run. The index of the first step is 0.
    """
    given: Any = {**by, "with_state": _state(with_state)}
    workflow_id, to_step = _run_and_step(target, many)
    one_or_many(
        place,
        workflow_id,
        many,
        form,
        lambda app, run_id: app.rewind_workflow(run_id, to_step, **given),
        lambda app, where: app.rewind_workflows(where, to_step, **many.bounds, **given),
    )


def skip_step(
    place: Place,
    workflow_id: MaybeId = None,
    step: StepOption = None,
    *,
    many: Many,
    by: By,
    form: FormatOption = Format.TABLE,
) -> None:
    """Leave the current step as it is and go on with the next.

    For many runs say which --step is meant.
    """
    meant = _step(step)
    if workflow_id is None and meant is None and many.where is not None:
        raise Refusal("to skip a step of many runs say which one: --step INDEX or --step NAME")
    one_or_many(
        place,
        workflow_id,
        many,
        form,
        lambda app, run_id: app.skip_step(run_id, meant, **by),
        lambda app, where: app.skip_steps(where, meant or 0, **many.bounds, **by),
    )


def run_now(
    place: Place,
    workflow_id: MaybeId = None,
    *,
    many: Many,
    by: By,
    form: FormatOption = Format.TABLE,
) -> None:
    """Wait no longer for a delay or a back-off."""
    one_or_many(
        place,
        workflow_id,
        many,
        form,
        lambda app, run_id: app.run_now(run_id, **by),
        lambda app, where: app.run_workflows_now(where, **many.bounds, **by),
    )


def fork(
    place: Place,
    workflow_id: IdArgument,
    at_step: Annotated[
        str | None, typer.Option("--at-step", metavar="STEP", help=f"Begin with this one: {inputs.STEP_HELP}.")
    ] = None,
    with_state: WithStateOption = None,
    *,
    by: By,
    form: FormatOption = Format.TABLE,
) -> None:
    """Start a run of its own from where this one is.

    This one stays as it is. The id of the new one is printed.
    """
    given: Any = {**by, "with_state": _state(with_state)}
    with place.opened() as app:
        try:
            new_id = app.fork_workflow(workflow_id, _step(at_step), **given)
        except NotFoundError:
            found_run(app, workflow_id)
            raise
    if form is Format.JSON:
        show_json({"id": new_id, "forked_from": workflow_id})
    else:
        say(f"workflow {new_id} was forked from {workflow_id}")


def complete_step(
    place: Place,
    workflow_id: IdArgument,
    output: Annotated[
        str | None, typer.Argument(metavar="OUTPUT", help=inputs.PAYLOAD_HELP, show_default=False)
    ] = None,
    step: StepOption = None,
    *,
    by: By,
    form: FormatOption = Format.TABLE,
) -> None:
    """Settle the current step with this output.

    As if its handler had returned it: it is merged into the state, and the run goes on.
    """
    given, meant = inputs.payload(output, what="OUTPUT"), _step(step)

    steer(place, workflow_id, form, lambda app, run_id: app.complete_step(run_id, given, meant, **by))


def patch_state(
    place: Place,
    workflow_id: IdArgument,
    changes: Annotated[
        str | None, typer.Argument(metavar="CHANGES", help=inputs.PAYLOAD_HELP, show_default=False)
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="KEY", help="Take this key out; may be given again.")
    ] = None,
    *,
    by: By,
    form: FormatOption = Format.TABLE,
) -> None:
    """Set keys of the state and take others out.

    Nothing else happens: a failed run stays failed until it is retried.
    """
    given = inputs.payload(changes, what="CHANGES")

    steer(place, workflow_id, form, lambda app, run_id: app.patch_state(run_id, given, remove=remove or (), **by))


def _state(text: str | None) -> dict[str, Any] | None:
    return inputs.payload(text, what="--with-state")


def _step(text: str | None) -> int | str | None:
    return None if text is None else inputs.step(text)


def _run_and_step(target: list[str], many: Many) -> tuple[int | None, int | str]:
    """The run, None for many, and the step. Raises `Refusal`."""
    *ids, step = target
    if len(ids) > 1 or not (ids or many.where) or not all(is_id(text) for text in ids):
        raise Refusal("say the ID of a run and a STEP; for many runs the STEP alone, and which runs are meant")
    return (an_id(ids[0]) if ids else None), inputs.step(step)
