"""A run made again from its export: under a new id, in this database, as far as it was.

What has ended stays as it had ended. What has not enters its current step anew, as a new visit: so every kind of step
finds out for itself what it needs here, and nothing that the export had open has to be taken over. A paused run stays
paused, and enters the step when it is resumed.

Nobody else knows the new run: it has no parent, nobody waits for it, and a child that it was parked on belongs to the
other one. Its deadline is not set again. What was still to be cleaned up is the other run's to do, and is never done
here: such a run's cleanup counts as failed. What is over is over here from now on: retention counts from there, or a
run that is looked at after a month would be gone within a minute. When the other one ended stands in its history.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from queuety.engine import family
from queuety.engine.course import NOT_ENTERED, PAUSED, RUNNING, Course
from queuety.engine.decide import Decision
from queuety.engine.protocol import NO_FACTS, Facts
from queuety.model import CleanupStatus, Definition, Entry, State, Workflow

LONGEST_NAME: Final = 255


def copy_of(source: Workflow, *, new_id: int, now_us: int) -> Workflow:
    """The run under its new id, as it was when it was exported and with nothing that belongs to the other one.

    `source` is the run as it was exported.
    """
    return replace(
        source,
        id=new_id,
        name=_name(source.name, now_us),
        runtime=_kept(source),
        ledger={key: value for key, value in (source.ledger or {}).items() if key != "left"} or None,
        parent_id=None,
        parent_step=None,
        idempotency_key=None,
        cleanup=CleanupStatus.FAILED if source.cleanup is CleanupStatus.PENDING else source.cleanup,
        completed_us=None if source.completed_us is None else now_us,
        is_watched=False,
        deadline_us=None,
    )


def replayed(
    source: Workflow,
    copy: Workflow,
    definition: Definition,
    *,
    operation: int,
    now_us: int,
    actor: str | None = None,
    reason: str | None = None,
    facts: Facts = NO_FACTS,
) -> Decision:
    """The copy as it goes on from here, and what is to be written beside it; `operation` is that of the row that tells.

    Facts are those of the new run, whose copied rows must be there. Raises `Lacking` if one is needed that is not.
    """
    course = Course(copy, definition, now_us=now_us, facts=facts)
    by = {key: value for key, value in (("actor", actor), ("reason", reason)) if value is not None}
    control: dict[str, Any] = {"_by": by} if by else {}
    control["_replayed"] = _origin(source, definition)
    course.record(Entry.REPLAYED, token=operation, control=control)
    course.workflow = replace(copy, version=copy.version + 1)
    if not copy.status.is_terminal:
        is_paused = copy.status is PAUSED
        course.workflow = replace(
            course.workflow,
            status=PAUSED if is_paused else RUNNING,
            visit=copy.visit + 1,
            runtime=NOT_ENTERED if is_paused else None,
        )
        if not is_paused:
            course.enter()
    return Decision(course.workflow, (*course.effects, *family.news(copy, course.workflow, now_us=now_us)))


def _name(name: str, now_us: int) -> str:
    ending = f"_replay_{now_us // 1_000_000}"
    return name[: LONGEST_NAME - len(ending)] + ending


def _kept(source: Workflow) -> State | None:
    """What a run that has ended keeps of its last visit, without the child that it was parked on."""
    return {key: value for key, value in (source.runtime or {}).items() if key not in ("child", "awaits")} or None


def _origin(source: Workflow, definition: Definition) -> dict[str, Any]:
    """Where the run comes from, for the history. The key is told, and names the other run only."""
    origin: dict[str, Any] = {
        "source_workflow_id": source.id,
        "source_status": source.status.value,
        "definition_version": definition.version,
        "definition_hash": definition.hash,
    }
    if source.idempotency_key is not None:
        origin["idempotency_key"] = source.idempotency_key
    if source.cleanup is CleanupStatus.PENDING:
        origin["compensation_status"] = source.cleanup.value
    return origin
