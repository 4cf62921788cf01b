"""What follows from the numbers that were found: pure, one function per thing that can be wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from queuety.inspect.report import Backlog, Health, Problem
from queuety.store.queries import Tally

SLOW_S: Final = 300
"""From how long a job has waited in a queue that is served on, its workers are said not to keep up."""

_ORDER: Final = {"error": 0, "warning": 1, "note": 2}


def problems_of(found: Health, *, lease_s: float) -> tuple[Problem, ...]:
    """All that is wrong, the worst first."""
    problems = [problem for rule in _RULES for problem in rule(found, lease_s)]
    return tuple(sorted(problems, key=lambda problem: _ORDER[problem.severity]))


def of_schema(revision: str | None, needed_revision: str | None) -> Problem | None:
    """What is wrong with the tables, if they are not those that this version needs."""
    if revision == needed_revision:
        return None
    if revision is None:
        return Problem("error", "there are no tables", "nothing has been dispatched here yet", "run `queuety migrate`")
    return Problem(
        "error",
        f"the tables are at revision {revision}, this version needs {needed_revision}",
        "they were made by another version of queuety",
        "run `queuety migrate` if they are older; install the version that made them if they are newer",
    )


def _schema(found: Health, _: float) -> Iterator[Problem]:
    problem = of_schema(found.revision, found.needed_revision)
    if problem is not None:
        yield problem


def _nobody(found: Health, _: float) -> Iterator[Problem]:
    if found.alive:
        return
    waiting = {*found.due_queues, *(backlog.queue for backlog in found.backlog if not backlog.is_paused)}
    is_timer_due = found.next_timer_s is not None and found.next_timer_s < 0
    if not waiting and not is_timer_due:
        yield Problem("note", "no worker is alive", "none has been seen lately", "nothing yet: no work is due")
        return
    which = f" --queue {','.join(sorted(waiting))}" if waiting else ""  # any worker looks at timers
    last = max((worker.seen_at for worker in found.workers), default=None)
    yield Problem(
        "error",
        "no worker is alive and work is waiting",
        "none is registered" if last is None else f"the last one was seen {_ago((found.at - last).total_seconds())}",
        f"start one: `queuety work{which}`",
    )


def _unserved(found: Health, _: float) -> Iterator[Problem]:
    """Said queue by queue only while there are workers; without any, `_nobody` names the queues."""
    for backlog in found.backlog if found.alive else ():
        if not backlog.is_served and not backlog.is_paused:
            yield Problem(
                "error",
                f"queue {backlog.queue!r}: {_waiting(backlog)}, the oldest due {_ago(backlog.oldest_s)}",
                "no living worker takes from this queue",
                f"start one that does: `queuety work --queue {backlog.queue}`",
            )


def _paused(found: Health, _: float) -> Iterator[Problem]:
    for backlog in found.backlog:
        if backlog.is_paused:
            yield Problem(
                "warning",
                f"queue {backlog.queue!r}: {_waiting(backlog)}, the oldest due {_ago(backlog.oldest_s)}",
                "the queue is paused",
                f"resume it when it should go on: queuety resume {backlog.queue}",
            )


def _slow(found: Health, _: float) -> Iterator[Problem]:
    for backlog in found.backlog:
        if backlog.is_served and not backlog.is_paused and backlog.oldest_s >= SLOW_S:
            yield Problem(
                "warning",
                f"queue {backlog.queue!r}: {_waiting(backlog)}, the oldest due {_ago(backlog.oldest_s)}",
                "its workers are busy with others, or do not keep up",
                "add workers or concurrency, or give it workers of its own; low priorities wait for higher ones",
            )


def _overdue(found: Health, lease_s: float) -> Iterator[Problem]:
    if found.overdue_leases:
        yield Problem(
            "error",
            f"{_of(found.overdue_leases, 'job')} held by a worker whose lease ended more than {lease_s:g} s ago",
            "the worker died or was cut off, and no other has taken its jobs back",
            "start a worker, which does it by itself, or run `queuety recover`",
        )


def _late(found: Health, lease_s: float) -> Iterator[Problem]:
    for tally, kind in ((found.late, "delayed job"), (found.late_timers, "timer")):
        if tally:
            yield Problem(
                "error",
                f"{_of(tally, kind)} due for more than {lease_s:g} s that nobody has looked at",
                "workers look at what comes due, and none did",
                "start a worker; if one is alive, its log says what keeps it",
            )


def _suspects(found: Health, _: float) -> Iterator[Problem]:
    for backlog in found.backlog:
        if backlog.suspects:
            yield Problem(
                "warning",
                f"queue {backlog.queue!r}: {_of(backlog.suspects, 'job')} set apart",
                "each was in hand when a process died, so one of them may have killed it; each is run alone",
                "nothing, if it passes; else look what kills the process: memory, native code, os._exit",
            )


def _unknown(found: Health, _: float) -> Iterator[Problem]:
    for unknown in found.unknown_handlers:
        jobs = "job" if unknown.jobs == 1 else "jobs"
        yield Problem(
            "warning",
            f"handler {unknown.handler!r}: {unknown.jobs:,} {jobs} put off (one is {unknown.job_id}), "
            f"the first {_ago(unknown.since_s)}",
            unknown.error_message or "no worker that was asked knows it",
            f"start a worker with the code that has it on queue {unknown.queue!r}, or give a renamed handler its old "
            "name too (app.register); it costs no attempt until then",
        )


def _buried(found: Health, _: float) -> Iterator[Problem]:
    if found.buried:
        yield Problem(
            "warning",
            f"{_of(found.buried, 'job')} buried",
            "every attempt failed",
            "`queuety list --status buried` shows them (with --cleanup also what was to undo steps or clean up after a "
            "run), `queuety inspect ID` why",
        )


def _failed(found: Health, _: float) -> Iterator[Problem]:
    if found.failed_workflows:
        yield Problem(
            "warning",
            f"{_of(found.failed_workflows, 'workflow')} failed",
            "a step failed in its last attempt, or a run broke a limit or its deadline",
            "`queuety workflow list --status failed` shows them, `queuety workflow retry ID` goes on there",
        )


def _stranded(found: Health, _: float) -> Iterator[Problem]:
    for workflow_id in found.stranded:
        yield Problem(
            "error",
            f"workflow {workflow_id} is running and nothing will ever move it",
            "it has no open job, timer or message, and no child that goes on; rows were changed by hand, or this is a "
            "bug",
            f"report what `queuety workflow timeline {workflow_id}` shows; end it by `queuety workflow cancel`",
        )


def _unwoken(found: Health, _: float) -> Iterator[Problem]:
    for workflow_id in found.unwoken:
        yield Problem(
            "error",
            f"workflow {workflow_id} waits for workflows of which nothing more will come, and nobody will tell it",
            "the message that they had ended was lost; rows were changed by hand, or this is a bug",
            f"report what `queuety why {workflow_id}` says; end it by `queuety workflow cancel`",
        )


def _silent(found: Health, _: float) -> Iterator[Problem]:
    if not found.alive:
        return
    for worker in found.workers:
        if not worker.is_alive:
            yield Problem(
                "note",
                f"worker {worker.pid} on {worker.host} was last seen "
                f"{_ago((found.at - worker.seen_at).total_seconds())}",
                "it died or was cut off from the database; others take its jobs back",
                "nothing, if it was meant to go",
            )


_RULES: Final[tuple[Callable[[Health, float], Iterator[Problem]], ...]] = (
    _schema,
    _nobody,
    _unserved,
    _overdue,
    _late,
    _stranded,
    _unwoken,
    _unknown,
    _suspects,
    _paused,
    _slow,
    _failed,
    _buried,
    _silent,
)


def _waiting(backlog: Backlog) -> str:
    return _of(backlog.ready, "ready job") if backlog.ready else _of(backlog.suspects, "suspect")


def _of(tally: Tally, thing: str) -> str:
    """How many of a thing.

    >>> _of(Tally(1), "job"), _of(Tally(10_000, is_exact=False), "ready job")
    ('1 job', '10,000+ ready jobs')
    """
    return f"{tally} {thing}" if tally == Tally(1) else f"{tally} {thing}s"


def _ago(seconds: float) -> str:
    """A length of time before now, as people say it.

    >>> _ago(0.2), _ago(90), _ago(7_300), _ago(200_000)
    ('just now', '90 s ago', '2 h ago', '2 days ago')
    """
    if seconds < 1:
        return "just now"
    for size, unit in ((86_400, " days"), (3_600, " h"), (60, " min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit} ago"
    return f"{seconds:.0f} s ago"
