"""Making a run again from its export, whole or not at all, in one transaction."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from typing import Any

from queuety.commands.deciding import start_all
from queuety.commands.definitions import Definitions
from queuety.commands.imported import Imported, read_export
from queuety.commands.steer import NOBODY, By
from queuety.engine.decide import Decision
from queuety.engine.replaying import copy_of, replayed
from queuety.errors import DefinitionError, StoreError
from queuety.model import Effect, SaveWorkflow, StartRun, Workflow
from queuety.model.needs import Lacking, Need
from queuety.store import importing, load, settle
from queuety.store.door import Door, Tx
from queuety.store.facts import read_facts


def replay(
    door: Door,
    definitions: Definitions,
    data: Any,
    *,
    max_bytes: int,
    by: By = NOBODY,
) -> int:
    """The id of a new run that is as far as the exported one was; once, also if the connection is lost on committing.

    Raises `PayloadError` and `DefinitionError` for an export that cannot be right; nothing is written then.
    """
    imported = read_export(data, max_bytes=max_bytes)
    for definition in imported.definitions:
        definitions.ensure(door, definition)
    operation = secrets.randbits(63)
    made: list[int] = []

    def unit(tx: Tx) -> int:
        now_us, named = tx.now_us(), imported.own.job_ids()
        run_id, *new = tx.reserve(1 + len(named))
        made[:] = [run_id]
        copy = copy_of(imported.workflow, new_id=run_id, now_us=now_us)
        held = importing.add_run(tx, copy, imported.payload)
        importing.add_belongings(tx, run_id, imported.own, dict(zip(named, new, strict=True)))
        decision = _decide(tx, imported, copy, operation=operation, now_us=now_us, by=by)
        # What an attempt had yielded is handed to the first one here; past the step that yields it belongs to nobody.
        if decision.workflow.visit == copy.visit + (not copy.status.is_terminal):
            importing.add_chunks(tx, run_id, imported.own.chunks, visit=decision.workflow.visit)
        plan = settle.Plan.of([*_started(tx, decision, now_us=now_us), SaveWorkflow(decision.workflow, copy)])
        settle.write(tx, plan, {run_id: held})
        settle.add_jobs(tx, plan.added, now_us=now_us)
        tx.dialect.notify(tx.cursor, tx.tables.prefix)
        return run_id

    def landed(tx: Tx) -> int | None:
        return made[0] if made and load.has_operation(tx, made[0], operation) else None

    return door.write(unit, landed=landed)


def _decide(tx: Tx, imported: Imported, copy: Workflow, *, operation: int, now_us: int, by: By) -> Decision:
    """How the copy goes on, with facts read as they are asked for."""
    facts: dict[Need, Any] = {}
    while True:
        try:
            return replayed(
                imported.workflow,
                copy,
                imported.definition,
                operation=operation,
                now_us=now_us,
                actor=by.actor,
                reason=by.reason,
                facts=facts,
            )
        except Lacking as lack:
            answers = _answers(tx, copy.id, lack.needs)
        if not answers.keys() - facts.keys():
            raise StoreError(f"workflow {copy.id} needs what could not be read")
        facts |= answers


def _answers(tx: Tx, run_id: int, needs: Collection[Need]) -> Mapping[Need, Any]:
    """The facts; where that needs a run which only a newer version can read, an error that fails the step."""
    strange: dict[int, str] = {}
    found = read_facts(tx, {run_id: needs}, strange=strange)
    if run_id in strange:
        error = DefinitionError(f"{strange[run_id]}; retry the run when every worker has been upgraded")
        return dict.fromkeys(needs, error)
    return found[run_id]


def _started(tx: Tx, decision: Decision, *, now_us: int) -> list[Effect]:
    """The effects, with what starts a run in place of the wish to."""
    starts = [effect for effect in decision.effects if isinstance(effect, StartRun)]
    others: list[Effect] = [effect for effect in decision.effects if not isinstance(effect, StartRun)]
    if not starts:
        return others
    rows, more = start_all(tx, starts, now_us=now_us)
    return [*others, *rows, *more]
