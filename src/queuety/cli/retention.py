"""Commands about age: `queuety purge`, `workflow purge`, `log purge`, `check-deadlines`. Workers do all of it."""

from __future__ import annotations

from typing import Annotated

import typer

from queuety.cli.exits import Refusal
from queuety.cli.options import FormatOption, command
from queuety.cli.output import Format, say, show_json
from queuety.cli.spans import seconds_of
from queuety.cli.target import Place
from queuety.model import JobStatus, WorkflowStatus

SPAN_HELP = "So long ago: 7d, 12h, 2w. A bare number is days."
DAY_S = 86_400.0


def add_to(root: typer.Typer, workflow: typer.Typer, log: typer.Typer) -> None:
    """Adds the commands of this file."""
    command(root, "purge")(purge)
    command(workflow, "purge")(purge_workflows)
    command(log, "purge")(purge_log)
    command(root, "check-deadlines")(check_deadlines)


def purge(
    place: Place,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="SPAN", help=f"{SPAN_HELP} Else the application's retention_days."),
    ] = None,
    status: Annotated[
        list[JobStatus] | None,
        typer.Option("--status", metavar="STATUS", help="completed, buried; may be given again. Else completed."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Delete plain jobs that have ended, with their history."""
    days = None if older_than is None else days_of(older_than)
    with place.opened() as app:
        count = app.purge(days, statuses=status or [JobStatus.COMPLETED])
    _tell(form, "purged", count, "job", "was deleted", "were deleted")


def purge_workflows(
    place: Place,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="SPAN", help=f"Ended longer ago. {SPAN_HELP}", show_default=False)
    ],
    status: Annotated[
        list[WorkflowStatus] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="completed, failed, cancelled; may be given again. Else completed.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say how many there are; delete nothing.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Delete runs that have ended, with all that is theirs."""
    days = days_of(older_than)
    with place.opened() as app:
        count = app.purge_workflows(days, status or [WorkflowStatus.COMPLETED], dry_run=dry_run)
    if dry_run:
        _tell(form, "would_purge", count, "workflow", "would be deleted", "would be deleted")
    else:
        _tell(form, "purged", count, "workflow", "was deleted", "were deleted")


def purge_log(
    place: Place,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="SPAN", help=f"Happened longer ago. {SPAN_HELP}", show_default=False)
    ],
    form: FormatOption = Format.TABLE,
) -> None:
    """Delete old history; the runs stay.

    As far as nothing needs it any more: what an open or failed run would be undone with is kept.
    """
    days = days_of(older_than)
    with place.opened() as app:
        count = app.prune_history(days)
    _tell(form, "pruned", count, "row of history", "was deleted", "were deleted", many="rows of history")


def check_deadlines(place: Place, form: FormatOption = Format.TABLE) -> None:
    """Fail the runs whose deadline has passed.

    Workers do it by themselves.
    """
    with place.opened() as app:
        count = app.check_deadlines()
    _tell(form, "failed", count, "workflow", "has failed by its deadline", "have failed by their deadline")


def days_of(text: str) -> float:
    """How many days are meant. Raises `Refusal` for what is no span.

    >>> days_of("7"), days_of("12h"), days_of("1w"), days_of("0")
    (7.0, 0.5, 7.0, 0.0)
    """
    given = text.strip()
    is_bare = given.replace(".", "", 1).isdecimal() and given.isascii()
    seconds = seconds_of(f"{given}d" if is_bare else given, "--older-than")
    if seconds is None:
        raise Refusal("--older-than: a length of time is needed, such as 7d")
    return seconds / DAY_S


def _tell(form: Format, word: str, count: int, one: str, was: str, were: str, *, many: str | None = None) -> None:
    if form is Format.JSON:
        show_json({word: count})
    else:
        say(f"{count:,} {one} {was}" if count == 1 else f"{count:,} {many or one + 's'} {were}")
