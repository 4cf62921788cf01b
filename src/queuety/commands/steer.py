"""What people do to a run from outside: open → load → decide → write, in one transaction under the run's lock."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from queuety.commands.deciding import Case, OnFault, decide_cases
from queuety.commands.definitions import Definitions
from queuety.engine.faults import undecidable
from queuety.errors import NotFoundError
from queuety.model import Cancel, Command, Commanded, Definition, ErrorInfo, Event, Signalled, Workflow
from queuety.store import load, settle
from queuety.store.door import Door, Tx

_log = logging.getLogger("queuety")


@dataclass(frozen=True, slots=True)
class By:
    """Who asks for something and why, as far as they say. With `dry_run` it is decided and not done."""

    actor: str | None = None
    reason: str | None = None
    dry_run: bool = False


NOBODY: Final = By()


def steer(
    door: Door,
    definitions: Definitions,
    workflow_id: int,
    command: Command,
    *,
    by: By = NOBODY,
    max_bytes: int | None = None,
) -> None:
    """Has the command done to the run, once, also if the connection is lost while committing.

    Raises `NotFoundError` for an unknown id, `InvalidStateError` where the run's status forbids it, and what else the
    engine says of the command (`engine/commanded.py`); nothing is changed then.
    """

    def event_of(operation: int) -> Commanded:
        return Commanded(command, operation, by.actor, by.reason)

    tell(door, definitions, workflow_id, event_of, max_bytes=max_bytes, dry_run=by.dry_run)


def tell(
    door: Door,
    definitions: Definitions,
    workflow_id: int,
    event_of: Callable[[int], Event],
    *,
    max_bytes: int | None = None,
    dry_run: bool = False,
) -> None:
    """Lets the event happen to the run, once, also if the connection is lost while committing.

    `event_of` makes it for an operation id, under which the history will show it. With `dry_run` nothing is written,
    and only what would be raised is. Raises as `steer`.
    """
    operation = secrets.randbits(63)
    event = event_of(operation)

    def unit(tx: Tx) -> None:
        now_us = tx.now_us()
        found = load.lock(tx, load.Runs(), [workflow_id], waiting=True)
        if not found and tx.catch_up():
            found = load.lock(tx, load.Runs(), [workflow_id], waiting=True)
        if workflow_id not in found:
            raise NotFoundError(f"no workflow has the id {workflow_id}")
        workflow = found[workflow_id].workflow
        case = Case(workflow, _definition_for(tx, definitions, workflow, event), [event])
        effects = decide_cases(tx, [case], now_us=now_us, max_bytes=max_bytes, on_fault=_on_fault(event))
        if dry_run:
            return
        plan = settle.Plan.of(effects)
        settle.write(tx, plan, found)
        settle.add_jobs(tx, plan.added, now_us=now_us)
        tx.dialect.notify(tx.cursor, tx.tables.prefix)

    def landed(tx: Tx) -> bool | None:
        return True if load.has_operation(tx, workflow_id, operation) else None

    door.write(unit, landed=landed)


def _definition_for(tx: Tx, definitions: Definitions, workflow: Workflow, event: Event) -> Definition:
    """What the run does. One whose definition is not there any more can at least be cancelled."""
    try:
        return definitions.get(tx, workflow.definition_hash)
    except NotFoundError:
        if isinstance(event, Commanded) and isinstance(event.command, Cancel):
            return Definition(workflow.name, (), hash=workflow.definition_hash)
        raise


def _on_fault(event: Event) -> OnFault | None:
    """A signal is kept whatever it leads to, and only the run that waits for it pays; a command's fault is raised."""
    if not isinstance(event, Signalled):
        return None

    def fail(workflow: Workflow, error: Exception) -> ErrorInfo:
        _log.error("workflow %d cannot be decided; it fails", workflow.id, exc_info=error)
        return undecidable(error)

    return fail
