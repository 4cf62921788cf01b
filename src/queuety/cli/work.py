"""Commands that run handlers: work, flush, demo."""

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from queuety.cli.exits import Refusal
from queuety.cli.options import FormatOption, WorkflowsOption, a_count, command, listed, whole
from queuety.cli.output import Format, say, show_json
from queuety.cli.target import Place, workflow_folders

LONGEST_GRACE_S: Final = 10**9


class LogLevel(StrEnum):
    """From which level on log lines are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def add_to(root: typer.Typer) -> None:
    """Adds the commands of this file."""
    command(root, "work")(work)
    command(root, "flush")(flush)
    command(root, "demo")(demo)


def work(
    place: Place,
    queue: Annotated[str, typer.Option("--queue", metavar="A,B", help="Queues, the first one first.")] = "default",
    workers: Annotated[
        int, typer.Option("--workers", parser=whole(1, 1024), metavar="N", help="How many processes.")
    ] = 1,
    concurrency: Annotated[
        int, typer.Option("--concurrency", parser=a_count, metavar="N", help="How many handlers at a time in each.")
    ] = 10,
    grace: Annotated[
        float | None,
        typer.Option(
            "--grace",
            metavar="SECONDS",
            help="How long running handlers may finish when it is told to stop. Else the setting, 30.",
            show_default=False,
        ),
    ] = None,
    workflows: WorkflowsOption = None,
    log_level: Annotated[
        LogLevel,
        typer.Option(
            "--log-level",
            metavar="LEVEL",
            help=f"{listed(LogLevel)}: from which on it is logged, unless the application sets up its log.",
        ),
    ] = (LogLevel.INFO),
) -> None:
    """Run jobs and workflows until SIGTERM or Ctrl-C.

    Handlers that are running may finish; a second signal stops at once.
    """
    from queuety.worker.child import LOG_FORMAT
    from queuety.worker.supervise import supervise

    if grace is not None and not 0 <= grace <= LONGEST_GRACE_S:
        raise Refusal(f"--grace {grace:g}: a number of seconds from 0 to {LONGEST_GRACE_S:,} is needed")
    target = place.needed("work")
    folders = workflow_folders(workflows or ())
    with place.opened(workflows=folders) as app:
        terms = app.terms(queue, concurrency, grace_seconds=grace)
        level = logging.getLevelNamesMapping()[log_level.upper()]
        logging.basicConfig(format=LOG_FORMAT)
        logging.getLogger("queuety").setLevel(level)
        raise typer.Exit(supervise(target.name, app, terms, workers=workers, workflows=folders))


def flush(
    place: Place,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="A,B", help="Queues, the first one first. Else all.")
    ] = None,
    workflows: WorkflowsOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Run what is due, here and now, until nothing is due.

    One after the other, in this process.
    """
    place.needed("flush")
    with place.opened(makes_tables=True, workflows=workflows) as app:
        count = app.run_until_idle(queue)
    if form is Format.JSON:
        show_json({"ran": count})
    else:
        say(f"{count} {'handler' if count == 1 else 'handlers'} ran")


def demo(
    _place: Place,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER", help="Text documents to report on; else those that come with it.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", metavar="FOLDER", help="The folder that the report is written to.")
    ] = Path("demo-report"),
) -> None:
    """Make a report over documents, with a worker killed midway."""
    from queuety.demo.run import main

    raise typer.Exit(main(folder, output=output))
