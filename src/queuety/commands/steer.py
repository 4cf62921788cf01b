"""What people do to a run from outside: open → load → decide → write, in one transaction under the run's lock."""

from __future__ import annotations

import secrets

from queuety.commands.definitions import Definitions
from queuety.engine.decide import decide_all
from queuety.errors import NotFoundError
from queuety.model import Command, Commanded
from queuety.store import load, settle
from queuety.store.door import Door, Tx


def steer(door: Door, definitions: Definitions, workflow_id: int, command: Command) -> None:
    """Has the command done to the run, once, also if the connection is lost while committing.

    Raises `NotFoundError` for an unknown id, `InvalidStateError` where the run's status forbids it; nothing is changed.
    """
    operation = secrets.randbits(63)

    def unit(tx: Tx) -> None:
        now_us = tx.now_us()
        found = load.lock(tx, load.Runs(), [workflow_id], waiting=True)
        if workflow_id not in found:
            raise NotFoundError(f"no workflow has the id {workflow_id}")
        workflow = found[workflow_id].workflow
        definition = definitions.get(tx, workflow.definition_hash)
        effects = decide_all(workflow, definition, [Commanded(command, operation)], now_us=now_us)
        plan = settle.Plan.of(effects)
        settle.write(tx, plan, found)
        settle.add_jobs(tx, plan.added, now_us=now_us)
        tx.dialect.notify(tx.cursor, tx.tables.prefix)

    def landed(tx: Tx) -> bool | None:
        return True if load.has_operation(tx, workflow_id, operation) else None

    door.write(unit, landed=landed)
