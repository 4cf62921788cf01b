"""What a worker's log says of attempts: which failed and what follows, which runs failed, whose handler is unknown.

What went well is not logged. All of it is in the database too, with tracebacks; a log is where one looks first.
"""

from __future__ import annotations

import logging
from typing import Final

from queuety.model import ErrorInfo, Failed, Job, RetryJob, Role, Workflow
from queuety.worker.outcome import Unhandled
from queuety.worker.turn import Turn

_log = logging.getLogger("queuety.worker")

LONGEST: Final = 500
"""Characters of an error's message that a line holds."""
MOST_UNKNOWN: Final = 1000
"""How many unknown handlers are remembered, to be named once only."""


class Announcer:
    """Tells of committed turns. Not thread-safe: it belongs to one loop."""

    def __init__(self) -> None:
        self._unknown: set[tuple[str, str]] = set()

    def announce(self, turn: Turn) -> None:
        """Logs what in this turn somebody should know."""
        for outcome in turn.settled:
            if isinstance(outcome, Failed):
                _log.warning("%s", failed_attempt(outcome, turn.retried.get(outcome.job.id)))
            elif isinstance(outcome, Unhandled):
                self._announce_unknown(outcome)
        for workflow in turn.failed_runs:
            _log.error("%s", failed_run(workflow))

    def _announce_unknown(self, outcome: Unhandled) -> None:
        key = (outcome.job.handler, outcome.message)
        if key in self._unknown:
            return
        if len(self._unknown) < MOST_UNKNOWN:
            self._unknown.add(key)
        _log.warning(
            "job %d is put off, and so is whatever else needs %s, until a worker knows it: %s",
            outcome.job.id,
            outcome.job.handler,
            _one_line(outcome.message),
        )


def failed_attempt(attempt: Failed, retry: RetryJob | None) -> str:
    """The line that tells of a failed attempt; `retry` is what follows, if another one does."""
    job = attempt.job
    if retry is not None:
        then = f"tried again in {max(retry.due_us - retry.now_us, 0) / 1_000_000:.3g} s"
    elif job.workflow_id is None or job.role is Role.CLEANUP:
        then = f"buried; see `queuety inspect {job.id}`"
    else:
        then = "not tried again"
    return f"attempt {job.attempt} of {job.max_attempts} of {_called(job)} failed, {then}: {_said(attempt.error)}"


def failed_run(workflow: Workflow) -> str:
    """The line that tells of a run that has failed."""
    reason = _one_line(workflow.error_message or "")
    return (
        f"workflow {workflow.id} ({workflow.name}) has failed in step {workflow.failed_step}: {reason}; "
        f"see `queuety workflow timeline {workflow.id}`"
    )


def _called(job: Job) -> str:
    where = "" if job.workflow_id is None else f" of workflow {job.workflow_id}"
    return f"{job.handler} (job {job.id}{where}{_purpose(job)})"


def _purpose(job: Job) -> str:
    """What a job is there for that runs after the end of its run; nothing for any other."""
    if job.role is not Role.CLEANUP:
        return ""
    if job.step_index is not None:
        return f", to undo step {job.step_index}"
    return f", its {(job.payload or {}).get('handler', 'cleanup')}"


def _said(error: ErrorInfo) -> str:
    """Type and message, as the last line of a traceback has them."""
    name = error.type_name.rpartition(":")[2]
    return _one_line(error.message if error.message.startswith(name) else f"{name}: {error.message}")


def _one_line(text: str) -> str:
    """The text without line breaks, shortened.

    >>> _one_line("first\\n   second")
    'first second'
    """
    line = " ".join(text[: 2 * LONGEST].split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} …"
