"""Commands about jobs: dispatch, list, inspect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from queuety.cli import inputs
from queuety.cli.escapes import escaped_lines
from queuety.cli.exits import Code, Refusal
from queuety.cli.options import FormatOption, LimitOption, an_id, command, listed
from queuety.cli.output import Column, Format, readable, say, short, show_facts, show_json, show_table
from queuety.cli.target import Place, now_of
from queuety.cli.times import ago, both, exact, span
from queuety.model import JobStatus

if TYPE_CHECKING:
    from queuety import Queuety
    from queuety.inspect.states import JobState
    from queuety.inspect.timeline import JobAttempt


def add_to(root: typer.Typer) -> None:
    """Adds the commands of this file."""
    command(root, "dispatch")(dispatch)
    command(root, "list")(list_jobs)
    command(root, "inspect")(inspect)


def dispatch(
    place: Place,
    handler: Annotated[
        str, typer.Argument(metavar="HANDLER", help="module:name of a job, or an alias that the application registers.")
    ],
    payload: Annotated[str | None, typer.Option("--payload", metavar="JSON", help=inputs.PAYLOAD_HELP)] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="QUEUE", help="Else the handler's, else default.")
    ] = None,
    priority: Annotated[str | None, typer.Option("--priority", metavar="PRIORITY", help=inputs.PRIORITY_HELP)] = None,
    delay: Annotated[
        float | None, typer.Option("--delay", metavar="SECONDS", help="Not before so long from now.")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", metavar="N", help="How often it is tried at most.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Add a job, and print its id."""
    given, urgency = inputs.payload(payload), inputs.priority(priority)
    with place.opened(makes_tables=True) as app:
        job_id = app.dispatch(handler, given, queue=queue, priority=urgency, delay=delay, max_attempts=max_attempts)
    if form is Format.JSON:
        show_json({"id": job_id})
    else:
        say(f"job {job_id} was added")


def list_jobs(
    place: Place,
    queue: Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Only those of this queue.")] = None,
    status: Annotated[
        list[JobStatus] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            case_sensitive=False,
            help=f"Only those that stand so: {listed(JobStatus)}; may be given again, for either.",
        ),
    ] = None,
    workflow: Annotated[
        int | None, typer.Option("--workflow", parser=an_id, metavar="ID", help="Only those of this workflow.")
    ] = None,
    cleanup: Annotated[bool, typer.Option("--cleanup", help="Those too that clean up after a run.")] = False,
    limit: LimitOption = 50,
    form: FormatOption = Format.TABLE,
) -> None:
    """List jobs, the newest first."""
    with place.opened() as app:
        jobs = app.list_jobs(queue=queue, status=status or None, workflow_id=workflow, cleanup=cleanup, limit=limit)
        now = now_of(app)
    if form is Format.JSON:
        show_json(jobs)
        return
    columns = (
        Column("id", right=True, whole=True),
        Column("status", whole=True),
        Column("queue"),
        Column("handler"),
        Column("tries", right=True, whole=True),
        Column("created (UTC)", whole=True),
        Column("", whole=True),
    )
    show_table(columns, [_row(job, now) for job in jobs], empty="no jobs")


def inspect(
    place: Place,
    job_id: Annotated[int, typer.Argument(parser=an_id, metavar="ID", help="The job.", show_default=False)],
    form: FormatOption = Format.TABLE,
) -> None:
    """Show a job with its attempts."""
    from queuety.inspect.timeline import job_history

    with place.opened() as app:
        job = found_job(app, job_id)
        door = app.door
        with door.reading() as connection:
            attempts = job_history(connection, door.tables, job_id)
        now = now_of(app)
    if form is Format.JSON:
        show_json({field.name: getattr(job, field.name) for field in fields(job)} | {"history": attempts})
    else:
        _show(job, attempts, now)


def found_job(app: Queuety, job_id: int) -> JobState:
    """The job. Raises `Refusal` if there is none, or a workflow, with this id."""
    job = app.job_status(job_id)
    if job is not None:
        return job
    if app.workflow_status(job_id) is not None:
        raise Refusal(f"{job_id} is a workflow and no job; see `queuety workflow status {job_id}`", Code.NO)
    raise Refusal(f"no job has the id {job_id}", Code.NO)


def _row(job: JobState, now: datetime) -> Sequence[str]:
    tries = f"{job.attempts}/{job.max_attempts}"
    return (str(job.id), job.status, job.queue, job.handler, tries, exact(job.created_at), ago(job.created_at, now))


def _show(job: JobState, attempts: Sequence[JobAttempt], now: datetime) -> None:
    run = "" if job.workflow_id is None else f"{job.workflow_id}"
    step = "" if job.step_index is None else f", step {job.step_index}"
    show_facts(
        f"job {job.id}",
        [
            ("status", job.status),
            ("handler", job.handler),
            ("workflow", run and run + step),
            ("queue", job.queue),
            ("priority", job.priority.name.lower()),
            ("attempts", f"{job.attempts} of {job.max_attempts}"),
            ("created", both(job.created_at, now)),
            ("due", both(job.available_at, now) if job.status is JobStatus.PENDING else ""),
            ("started", both(job.started_at, now)),
            ("completed", both(job.completed_at, now)),
            ("failed", both(job.failed_at, now)),
            ("progress", "" if job.progress is None else readable(job.progress)),
            ("payload", "" if job.workflow_id is not None else readable(job.payload)),
            ("settled" if job.status is JobStatus.COMPLETED else "error", job.error_message or ""),
        ],
    )
    if not attempts:
        return
    say("")
    columns = (
        Column("attempt", right=True, whole=True),
        Column("started (UTC)", whole=True),
        Column("took", whole=True),
        Column("outcome"),
    )
    show_table(columns, [_attempt_row(attempt) for attempt in attempts], empty="")
    trace = (attempts[-1].error or {}).get("trace")
    if trace:
        say("")
        for line in escaped_lines(str(trace)):
            say(line)


def _attempt_row(attempt: JobAttempt) -> Sequence[str]:
    outcome = short(attempt.error_message, 200) if attempt.error is not None else "completed"
    return (str(attempt.attempt), exact(attempt.started_at), span(attempt.duration_ms / 1000), outcome)
