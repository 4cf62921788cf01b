"""Commands about queues: status, pause, resume, recover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from queuety.cli.options import FormatOption, command
from queuety.cli.output import Column, Format, say, show_json, show_table
from queuety.cli.target import Place, now_of
from queuety.cli.times import ago

if TYPE_CHECKING:
    from datetime import datetime

    from queuety.inspect.queues import QueueState
    from queuety.inspect.report import WorkerState

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="Its name.", show_default=False)]


def add_to(root: typer.Typer) -> None:
    """Adds the commands of this file."""
    command(root, "status")(status)
    command(root, "pause")(pause)
    command(root, "resume")(resume)
    command(root, "recover")(recover)


def status(
    place: Place,
    queue: Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Only this queue.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show what waits and runs in each queue, and the workers."""
    from queuety.inspect.health import registered
    from queuety.inspect.queues import queue_states

    with place.opened() as app:
        door, lease_s = app.door, app.settings.lease_seconds
        with door.reading() as connection:
            known = registered(connection, door.tables, now_us=door.now_us(), lease_s=lease_s)
            queues = queue_states(connection, door.tables, known, queue=queue)
        now = now_of(app)
    workers = [worker for worker in known if worker.is_alive and (queue is None or queue in worker.queues)]
    if form is Format.JSON:
        show_json({"queues": queues, "workers": workers})
        return
    titles = ("ready", "delayed", "processing", "buried", "workers")
    columns = (Column("queue"), *(Column(title, right=True, whole=True) for title in titles), Column("", whole=True))
    show_table(columns, [_row(one) for one in queues], empty="no jobs are waiting or running")
    say("")
    columns = (
        Column("worker", whole=True),
        Column("queues"),
        Column("concurrency", right=True, whole=True),
        Column("started", whole=True),
        Column("seen", whole=True),
    )
    show_table(columns, [_worker_row(worker, now) for worker in workers], empty="no worker is alive")


def pause(place: Place, queue: QueueArgument, form: FormatOption = Format.TABLE) -> None:
    """Have workers start nothing more of a queue."""
    with place.opened() as app:
        app.pause(queue)
    if form is Format.JSON:
        show_json({"queue": queue, "paused": True})
    else:
        say(f"queue {queue} is paused")


def resume(place: Place, queue: QueueArgument, form: FormatOption = Format.TABLE) -> None:
    """Have workers take from a queue again."""
    with place.opened() as app:
        app.resume(queue)
    if form is Format.JSON:
        show_json({"queue": queue, "paused": False})
    else:
        say(f"queue {queue} goes on")


def recover(place: Place, form: FormatOption = Format.TABLE) -> None:
    """Take back what dead workers held.

    Workers do it by themselves.
    """
    with place.opened() as app:
        count = app.recover()
    if form is Format.JSON:
        show_json({"recovered": count})
    else:
        say(f"{count} {'job was' if count == 1 else 'jobs were'} taken back")


def _row(queue: QueueState) -> tuple[str, ...]:
    counts = (queue.ready, queue.delayed, queue.processing, queue.buried, queue.workers)
    remarks = ["paused"] if queue.is_paused else []
    if queue.suspects:
        remarks.append(f"{queue.suspects} to be run alone")
    return (queue.queue, *(str(count) for count in counts), ", ".join(remarks))


def _worker_row(worker: WorkerState, now: datetime) -> tuple[str, ...]:
    return (
        f"{worker.host}:{worker.pid}",
        ",".join(worker.queues),
        str(worker.concurrency),
        ago(worker.started_at, now),
        ago(worker.seen_at, now),
    )
