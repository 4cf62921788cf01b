"""Commands about workflows: `queuety workflow …`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from queuety.cli import inputs, starts
from queuety.cli.exits import Code, Refusal
from queuety.cli.options import FormatOption, IdArgument, LimitOption, TagOption, an_id, command, listed
from queuety.cli.output import Column, Format, readable, say, show_facts, show_json, show_table
from queuety.cli.spans import seconds_of
from queuety.cli.target import Place, now_of
from queuety.cli.times import ago, both, exact
from queuety.errors import NotFoundError
from queuety.model import CleanupStatus, ErrorKind, WorkflowStatus

if TYPE_CHECKING:
    from queuety import Queuety
    from queuety.inspect.states import WorkflowState


def add_to(group: typer.Typer) -> None:
    """Adds the commands of this file."""
    for name, function in (
        ("dispatch", dispatch),
        ("status", status),
        ("list", list_workflows),
    ):
        command(group, name)(function)


def dispatch(
    place: Place,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="module:attribute of a builder or of a function that returns one, or the name of a workflow that the "
            "application's module builds.",
            show_default=False,
        ),
    ] = None,
    definition: Annotated[
        str | None, typer.Option("--definition", metavar="FILE", help="Instead: a definition in JSON; - for stdin.")
    ] = None,
    payload: Annotated[str | None, typer.Option("--payload", metavar="JSON", help=inputs.PAYLOAD_HELP)] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Idempotency key: a second dispatch with it starts nothing."),
    ] = None,
    tag: TagOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Start a run, and print its id."""
    if (name is None) == (definition is None):
        raise Refusal("say either TARGET or --definition FILE")
    if definition == "-" and payload == "-":
        raise Refusal("--definition and --payload cannot both be read from stdin")
    given = inputs.payload(payload)
    if definition is not None:
        described = inputs.file_object(definition, what="--definition")
        with place.opened(makes_tables=True) as app:
            workflow_id = app.dispatch_definition(described, given, idempotency_key=key, tags=tag or ())
    else:
        with place.opened(makes_tables=True) as app:
            builder = starts.builder_of(name or "", app, place.target())
            if key is not None:
                builder.idempotency_key(key)
            if tag:
                builder.tag(*tag)
            workflow_id = app.dispatch_workflow(builder, given)
    if form is Format.JSON:
        show_json({"id": workflow_id})
    else:
        say(f"workflow {workflow_id} was started" if key is None else f"workflow {workflow_id} has the key {key}")


def status(place: Place, workflow_id: IdArgument, form: FormatOption = Format.TABLE) -> None:
    """Show a run: where it stands, its state, what went wrong."""
    with place.opened() as app:
        run = found_run(app, workflow_id)
        now = now_of(app)
    if form is Format.JSON:
        show_json(run)
    else:
        show_facts(f"workflow {run.id}  {run.name}", _facts(run, now))


def list_workflows(
    place: Place,
    status: Annotated[
        list[WorkflowStatus] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            case_sensitive=False,
            help=f"Only those that stand so: {listed(WorkflowStatus)}; may be given again, for either.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Only those of this name.")] = None,
    parent: Annotated[
        int | None, typer.Option("--parent", parser=an_id, metavar="ID", help="Only this one's children.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only those with this tag.")] = None,
    error_kind: Annotated[
        ErrorKind | None,
        typer.Option(
            "--error-kind",
            metavar="KIND",
            help=f"Only those that failed so: {listed(ErrorKind)}.",
        ),
    ] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="SPAN", help="Only those created longer ago: 90s, 2h, 1d.")
    ] = None,
    newer_than: Annotated[
        str | None, typer.Option("--newer-than", metavar="SPAN", help="Only those created not so long ago.")
    ] = None,
    before: Annotated[
        int | None,
        typer.Option("--before", parser=an_id, metavar="ID", help="Go on after a page that ended with it."),
    ] = None,
    limit: LimitOption = 50,
    form: FormatOption = Format.TABLE,
) -> None:
    """List runs, the newest first."""
    older, newer = seconds_of(older_than, "--older-than"), seconds_of(newer_than, "--newer-than")
    with place.opened() as app:
        runs = app.list_workflows(
            status=status or None,
            name=name,
            parent_id=parent,
            limit=limit,
            before_id=before,
            tag=tag,
            error_kind=error_kind,
            older_than=older,
            newer_than=newer,
        )
        now = now_of(app)
    if form is Format.JSON:
        show_json(runs)
        return
    columns = (
        Column("id", right=True, whole=True),
        Column("status", whole=True),
        Column("name"),
        Column("step"),
        Column("created (UTC)", whole=True),
        Column("", whole=True),
    )
    rows = [
        (str(run.id), run.status, run.name, _step(run), exact(run.created_at), ago(run.created_at, now)) for run in runs
    ]
    show_table(columns, rows, empty="no workflows")


def steer(place: Place, workflow_id: int, form: Format, do: Callable[[Queuety, int], object]) -> None:
    """Does it, and says how the run stands then."""
    with place.opened() as app:
        run = stands(app, workflow_id, do)
    if form is Format.JSON:
        show_json({"id": run.id, "status": run.status})
    else:
        say(f"workflow {run.id} is {run.status}")


def stands(app: Queuety, workflow_id: int, do: Callable[[Queuety, int], object]) -> WorkflowState:
    """Does it, and gives the run as it stands then. Raises `Refusal` if there is none, or a job, with this id."""
    try:
        do(app, workflow_id)
    except NotFoundError:
        found_run(app, workflow_id)
        raise
    return found_run(app, workflow_id)


def found_run(app: Queuety, workflow_id: int) -> WorkflowState:
    """The run. Raises `Refusal` if there is none, or a job, with this id."""
    run = app.workflow_status(workflow_id)
    if run is not None:
        return run
    if app.job_status(workflow_id) is not None:
        raise Refusal(f"{workflow_id} is a job and no workflow; see `queuety inspect {workflow_id}`", Code.NO)
    raise Refusal(f"no workflow has the id {workflow_id}", Code.NO)


def _step(run: WorkflowState) -> str:
    """How far it is: steps done, steps in all, and the name of the one that it is at, if it was given one."""
    name = run.current_step_name
    return f"{run.current_step}/{run.total_steps}" + (f" {name}" if name and name != str(run.current_step) else "")


def _failed_step(run: WorkflowState) -> str:
    """Its index, and its name if it was given one."""
    if run.failed_step is None:
        return ""
    name = run.current_step_name if run.failed_step == run.current_step else None
    return f"{run.failed_step}" + (f" {name}" if name and name != str(run.failed_step) else "")


def _facts(run: WorkflowState, now: datetime) -> list[tuple[str, str]]:
    version = "" if run.definition_version is None else f"{run.definition_version}, "
    cleanup = "" if run.compensation_status is CleanupStatus.NONE else run.compensation_status
    return [
        ("status", run.status),
        ("step", _step(run)),
        ("waiting for", _wait(run, now)),
        ("progress", "" if run.progress is None else readable(run.progress)),
        ("error", run.error_message or ""),
        ("error kind", run.error_kind or ""),
        ("failed step", _failed_step(run)),
        ("cleaning up", cleanup),
        ("created", both(run.created_at, now)),
        ("completed", both(run.completed_at, now) if run.cancelled_at is None else ""),
        ("failed", both(run.failed_at, now)),
        ("cancelled", both(run.cancelled_at, now)),
        ("deadline", both(run.deadline_at, now)),
        ("definition", f"{version}{run.definition_hash}"),
        ("key", run.idempotency_key or ""),
        ("tags", ", ".join(run.tags)),
        ("budget", "" if run.budget is None else _budget(run.budget)),
        ("artifacts", ", ".join(run.artifact_keys)),
        ("parent", "" if run.parent_workflow_id is None else str(run.parent_workflow_id)),
        ("state", readable(run.state)),
    ]


_COUNTERS: Final = (
    ("transitions", "max_transitions"),
    ("cost_units", "max_cost_units"),
    ("started_workflows", "max_started_workflows"),
    ("public_state_bytes", "max_state_bytes"),
)
"""What is counted of a run, and the limit that it may have."""


def _budget(budget: Mapping[str, Any]) -> str:
    """What has been used, of how much where that is limited, one a line."""
    lines = []
    for counter, limit in _COUNTERS:
        most = f" of {budget[limit]:,}" if limit in budget else ""
        lines.append(f"{counter.replace('_', ' ')}: {budget[counter]:,}{most}")
    items = budget.get("max_for_each_items")
    return "\n".join([*lines, *([] if items is None else [f"items of a for-each step: at most {items:,}"])])


def _wait(run: WorkflowState, now: datetime) -> str:
    """What it waits for, what of that has come, and until when; nothing if it does not wait."""
    if not run.waiting_for:
        return ""
    details: dict[str, Any] = run.wait_details or {}
    thing = "signal" if run.wait_type == "signal" else "workflow"
    names = ", ".join(run.waiting_for)
    if len(run.waiting_for) == 1:
        lines = [f"{thing} {names}"]
    else:
        needed = f"{details.get('quorum')}" if run.wait_mode == "quorum" else run.wait_mode
        lines = [f"{needed} of the {thing}s {names}"]
        words = _of_signals(run.wait_mode) if thing == "signal" else _OF_WORKFLOWS
        lines += [f"{word}: {', '.join(details[key])}" for key, word in words.items() if details.get(key)]
    if details.get("human_wait"):
        lines.append(f"answered by a person ({details['human_wait']})")
    if details.get("due_at"):
        lines.append(f"until {both(datetime.fromisoformat(details['due_at']), now)}")
    return "\n".join(lines)


_OF_WORKFLOWS: Final = {"matched": "completed", "remaining": "left", "failed": "lost"}
"""How those that are waited for are called, by the key of `wait_details` that names them."""


def _of_signals(mode: str | None) -> dict[str, str]:
    """The same of signals; none of those is missing of which any one is enough."""
    return {"matched": "there"} if mode == "any" else {"matched": "there", "remaining": "missing"}
