"""Commands about what has happened: `workflow timeline`, `workflow state-at`, `workflow trace`, `queuety log`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from queuety.cli import inputs
from queuety.cli.escapes import escaped_lines
from queuety.cli.exits import Code, Refusal, reported
from queuety.cli.jobs import found_job
from queuety.cli.once import Group
from queuety.cli.options import (
    LARGEST_COUNT,
    LARGEST_ID,
    AppOption,
    Common,
    DatabaseOption,
    DebugOption,
    FormatOption,
    IdArgument,
    JsonOption,
    LimitOption,
    PrefixOption,
    an_id,
    command,
    whole,
)
from queuety.cli.output import Column, Format, readable, say, short, show_facts, show_json, show_table
from queuety.cli.spans import seconds_of
from queuety.cli.target import Place
from queuety.cli.times import exact, span
from queuety.cli.workflows import found_run

if TYPE_CHECKING:
    from queuety.inspect.events import TimelineEvent
    from queuety.inspect.logged import LogRow

log = typer.Typer(cls=Group, invoke_without_command=True)
"""`queuety log`, which shows the log, and is a group for what else is done with it."""


def add_to(root: typer.Typer, workflow: typer.Typer) -> None:
    """Adds the commands of this file."""
    command(workflow, "timeline")(timeline)
    command(workflow, "state-at")(state_at)
    command(workflow, "trace")(trace)
    root.add_typer(log, name="log")


def timeline(
    place: Place,
    workflow_id: IdArgument,
    limit: LimitOption = 100,
    offset: Annotated[
        int, typer.Option("--offset", parser=whole(0, LARGEST_COUNT), metavar="N", help="How many to pass over.")
    ] = 0,
    after: Annotated[
        int | None,
        typer.Option(
            "--after", parser=whole(0, LARGEST_ID), metavar="EVENT", help="Go on after the event with this id."
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show what has happened to a run, the oldest first."""
    with place.opened() as app:
        events = app.workflow_timeline(workflow_id, limit=limit, offset=offset, after_id=after)
        if not events:
            found_run(app, workflow_id)
    if form is Format.JSON:
        show_json(events)
        return
    columns = [
        Column("time (UTC)", whole=True),
        Column("event", whole=True),
        Column("step"),
        Column("try", right=True, whole=True),
        Column("took", whole=True),
        Column("result"),
    ]
    rows = [_event_row(event) for event in events]
    if any(event.actor or event.reason for event in events):
        columns.append(Column("by"))
        rows = [(*row, _by(event.actor, event.reason)) for row, event in zip(rows, events, strict=True)]
    show_table(columns, rows, empty="no events")


def state_at(
    place: Place,
    workflow_id: IdArgument,
    step: Annotated[str, typer.Argument(metavar="STEP", help=f"The step: {inputs.STEP_HELP}.", show_default=False)],
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the state as it was once a step had settled.

    As JSON. A step that has settled several times is meant as it did so last.
    """
    with place.opened() as app:
        state = app.workflow_state_at(workflow_id, inputs.step(step))
        if state is None:
            found_run(app, workflow_id)
    if state is None:
        raise Refusal(
            f"no state of workflow {workflow_id} after step {step} is recorded: the step has not settled, there is no "
            "such step, or the history was pruned",
            Code.NO,
        )
    if form is Format.JSON:
        show_json(state)
    else:
        for line in escaped_lines(readable(state)):
            say(line)


def trace(
    place: Place,
    workflow_id: IdArgument,
    states: Annotated[bool, typer.Option("--states/--no-states", help="Whether events tell states and inputs.")] = True,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show all that is known of a run.

    The whole with --json; for people how each step went, and how much there is.
    """
    with place.opened() as app:
        found_run(app, workflow_id)
        bundle = app.workflow_trace(workflow_id, states=states)
    if form is Format.JSON:
        show_json(bundle)
        return
    run = bundle["workflow"]
    parts = [(name.replace("_", " "), f"{len(part):,}") for name, part in bundle.items() if isinstance(part, list)]
    show_facts(f"workflow {run['id']}  {run['name']}", [("status", run["status"]), *parts])
    say("")
    columns = (
        Column("step", right=True, whole=True),
        Column("name"),
        Column("type", whole=True),
        Column("handler"),
        Column("events", right=True, whole=True),
        Column("latest", whole=True),
        Column("time (UTC)", whole=True),
    )
    show_table(columns, [_step_row(step) for step in bundle["steps"]], empty="no step has begun")


@log.callback()
def queuety_log(
    context: typer.Context,
    workflow: Annotated[
        int | None, typer.Option("--workflow", parser=an_id, metavar="ID", help="Only this run's.")
    ] = None,
    job: Annotated[int | None, typer.Option("--job", parser=an_id, metavar="ID", help="Only this job's.")] = None,
    handler: Annotated[str | None, typer.Option("--handler", metavar="HANDLER", help="Only this handler's.")] = None,
    event: Annotated[
        str | None, typer.Option("--event", metavar="EVENT", help="Only these: started, failed, workflow_failed …")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="From then on: 2h ago, or 2026-01-31T12:00 (UTC unless it says)."),
    ] = None,
    limit: LimitOption = 50,
    form: FormatOption = Format.TABLE,
    as_json: JsonOption = False,
    app: AppOption = None,
    database: DatabaseOption = None,
    table_prefix: PrefixOption = None,
    debug: DebugOption = False,
) -> None:
    """Show what has happened to runs and jobs.

    The newest comes first; of one run or job, and with --since, the oldest.
    """
    common = Common(app, database, table_prefix, debug)
    context.obj = common.over(context.obj) if isinstance(context.obj, Common) else common
    if context.invoked_subcommand is not None:
        return
    with reported(debug=context.obj.debug):
        moment = None if since is None else _moment(since)
        with context.obj.place.opened() as opened:
            lines = opened.logs(workflow, job, handler, event, moment, limit)
            if not lines and workflow is not None:
                found_run(opened, workflow)
            if not lines and job is not None:
                found_job(opened, job)
        if form is Format.JSON or as_json:
            show_json(lines)
            return
        columns = (
            Column("time (UTC)", whole=True),
            Column("event", whole=True),
            Column("of", whole=True),
            Column("handler"),
            Column("try", right=True, whole=True),
            Column("took", whole=True),
            Column("more"),
        )
        show_table(columns, [_log_row(line) for line in lines], empty="nothing is logged")


def _moment(text: str) -> datetime | timedelta:
    """The moment that is meant, or how long ago. Raises `Refusal`."""
    given = text.strip()
    if re.match(r"\d{4}-\d", given):
        try:
            moment = datetime.fromisoformat(given)
        except ValueError:
            raise Refusal(f"--since {text!r}: a moment such as 2026-01-31T12:00, or a span such as 2h") from None
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    try:
        seconds = seconds_of(given.removesuffix("ago"), "--since")
    except Refusal:
        raise Refusal(f"--since {text!r}: a moment such as 2026-01-31T12:00, or a span such as 2h") from None
    return timedelta(seconds=seconds or 0)


def _event_row(event: TimelineEvent) -> tuple[str, ...]:
    result: Any = event.error_message
    if result is None and event.output is not None:
        result = readable(event.output) if event.output else "nothing"
    return (
        exact(event.created_at),
        event.event,
        event.step_name or "",
        "" if event.attempt is None else str(event.attempt),
        "" if event.duration_ms is None else span(event.duration_ms / 1000),
        short(" ".join(str(result).split()) if result is not None else "", 100),
    )


def _step_row(step: Mapping[str, Any]) -> tuple[str, ...]:
    latest = step["latest"]
    return (
        str(step["step_index"]),
        step["step_name"],
        step["step_type"] or "",
        step["handler"] or "",
        f"{len(step['events']):,}",
        latest["event"],
        exact(datetime.fromisoformat(latest["created_at"])),
    )


def _log_row(line: LogRow) -> Sequence[str]:
    of = f"workflow {line.workflow_id}" if line.workflow_id is not None else f"job {line.job_id}"
    context = {key: value for key, value in (line.context or {}).items() if key not in ("actor", "reason")}
    by = _by((line.context or {}).get("actor"), (line.context or {}).get("reason"))
    more = [line.error_message, f"by {by}" if by else None, readable(context) if context else None]
    return (
        exact(line.created_at),
        line.event,
        of if line.step_index is None else f"{of}, step {line.step_index}",
        line.handler or "",
        "" if line.attempt is None else str(line.attempt),
        "" if line.duration_ms is None else span(line.duration_ms / 1000),
        short(" ".join(" ".join(part for part in more if part).split()), 100),
    )


def _by(actor: str | None, reason: str | None) -> str:
    """Who and why, as far as they said.

    >>> _by("Ada", "wrong price"), _by("Ada", None), _by(None, "wrong price"), _by(None, None)
    ('Ada: wrong price', 'Ada', 'wrong price', '')
    """
    return short(": ".join(part for part in (actor, reason) if part), 60)
