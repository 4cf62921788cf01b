"""Commands about the installation: migrate, doctor, version, demo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from queuety.cli.exits import Code
from queuety.cli.options import FormatOption, command
from queuety.cli.output import Format, say, show_facts, show_json
from queuety.cli.target import Place, door_as_it_is
from queuety.cli.times import ago, span

if TYPE_CHECKING:
    from queuety.inspect.report import Health, Problem


def add_to(root: typer.Typer) -> None:
    """Adds the commands of this file."""
    command(root, "migrate")(migrate)
    command(root, "doctor")(doctor)
    command(root, "version")(version)


def migrate(place: Place, form: FormatOption = Format.TABLE) -> None:
    """Create the tables, or bring them up to date.

    Safe to run by several at once.
    """
    from queuety.store.migrate import standing

    with place.opened() as app:
        door = door_as_it_is(app)
        before = standing(door)
        app.migrate()
    if form is Format.JSON:
        show_json({"database": door.dialect.place, "found": before.found, "now": before.needed})
    elif before.is_current:
        say(f"{door.dialect.place}: the tables are current (revision {before.needed})")
    else:
        made = "made" if before.found is None else f"brought from revision {before.found}"
        say(f"{door.dialect.place}: the tables were {made} (revision {before.needed})")


def doctor(place: Place, form: FormatOption = Format.TABLE) -> None:
    """Look whether all is well, and what is stuck and why.

    At the database, its tables, the workers, jobs and runs. It changes nothing. The exit code is 1 if there is a
    warning or an error, 3 if the tables are not those of this version.
    """
    from queuety.inspect.health import examine
    from queuety.inspect.problems import of_schema
    from queuety.store.migrate import standing

    with place.opened() as app:
        door = door_as_it_is(app)
        found = standing(door)
        schema = of_schema(found.found, found.needed)
        if schema is not None:
            _tell(door.dialect.place, None, [schema], form)
            raise typer.Exit(Code.DATABASE)
        with door.reading() as connection:
            health = examine(
                connection,
                door.tables,
                now_us=door.now_us(),
                lease_s=app.settings.lease_seconds,
                revision=found.found,
                needed_revision=found.needed,
            )
    _tell(door.dialect.place, health, health.problems, form)
    if any(problem.severity != "note" for problem in health.problems):
        raise typer.Exit(Code.NO)


def version(_place: Place) -> None:
    """Print the version."""
    from queuety import __version__

    say(f"queuety {__version__}")


def _tell(database: str, health: Health | None, problems: Sequence[Problem], form: Format) -> None:
    if form is Format.JSON:
        show_json({"database": database, "problems": problems, "health": health})
        return
    show_facts("database", [("place", database), *(_facts(health) if health is not None else ())])
    for problem in problems:
        say("")
        show_facts(f"{problem.severity}: {problem.what}", [("why", problem.why), ("do", problem.do)])
    count = sum(problem.severity != "note" for problem in problems)
    say("")
    say("no problems" if not count else "1 problem" if count == 1 else f"{count} problems")


def _facts(health: Health) -> list[tuple[str, str]]:
    ready = sum(backlog.ready.count for backlog in health.backlog)
    due = "" if health.next_due_s is None else f", the next due {_in(health.next_due_s)}"
    workers = "\n".join(
        f"{worker.host}:{worker.pid} on {','.join(worker.queues)}, seen {ago(worker.seen_at, health.at)}"
        for worker in health.alive
    )
    return [
        ("tables", f"revision {health.revision}"),
        ("workers", workers or "none is alive"),
        ("jobs", f"{ready:,} ready, {health.delayed} delayed{due}, {health.leased} running"),
    ]


def _in(seconds: float) -> str:
    return f"in {span(seconds)}" if seconds > 0 else "now"
