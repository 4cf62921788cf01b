"""Starting runs, inside an open transaction; the definitions must be there (`Definitions.ensure`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from queuety.codec import encode
from queuety.commands.deciding import start_all
from queuety.errors import StoreError
from queuety.model import Definition, Json, NewJob, StartRun
from queuety.store import load, settle
from queuety.store.door import Tx
from queuety.store.tags import add as add_tags


def start_run(
    tx: Tx,
    definition: Definition,
    payload: Mapping[str, Json],
    *,
    workflow_id: int,
    idempotency_key: str | None = None,
    tags: Sequence[str] = (),
    now_us: int | None = None,
) -> int:
    """Starts one run under this new id and gives back its id, or that of the run which the key already names.

    A run that is only found keeps the tags it has. `now_us` is when it is created, the transaction's own time without.
    """
    if idempotency_key is not None:
        earlier = load.id_of_key(tx, definition.name, idempotency_key)
        if earlier is not None:
            return earlier
    runs = [(workflow_id, payload)]
    is_new = _start(tx, definition, runs, idempotency_key=idempotency_key, tags=tags, now_us=now_us)
    if is_new or idempotency_key is None:
        return workflow_id
    # Of several that pass the first look at once, the unique key lets one in; the others read again, past what their
    # transaction has seen so far: a caller's own may go on seeing the database without the winner.
    winner = load.id_of_key(tx, definition.name, idempotency_key, is_latest=True)
    if winner is None:
        raise StoreError(f"the idempotency key {idempotency_key!r} is taken, and the run that it names cannot be read")
    return winner


def start_runs(
    tx: Tx,
    definition: Definition,
    payloads: Sequence[Mapping[str, Json]],
    *,
    tags: Sequence[str] = (),
    now_us: int | None = None,
) -> list[int]:
    """Starts a run per payload, in few statements; their ids in order. Each gets all the tags."""
    if not payloads:
        return []
    ids = tx.reserve(len(payloads))
    _start(tx, definition, list(zip(ids, payloads, strict=True)), idempotency_key=None, tags=tags, now_us=now_us)
    return ids


def _start(
    tx: Tx,
    definition: Definition,
    runs: Sequence[tuple[int, Mapping[str, Json]]],
    *,
    idempotency_key: str | None,
    tags: Sequence[str],
    now_us: int | None,
) -> bool:
    """Starts them; False, and nothing is written, if the key is taken."""
    now_us = tx.now_us() if now_us is None else now_us
    starts = [StartRun(workflow_id, definition, payload) for workflow_id, payload in runs]
    roots, effects = start_all(tx, starts, now_us=now_us, idempotency_key=idempotency_key)
    rows = [(root.workflow, encode(root.payload)) for root in roots]
    if idempotency_key is not None:
        if not settle.add_keyed_workflow(tx, *rows[0]):
            return False
    else:
        settle.add_workflows(tx, rows)
    if tags:
        add_tags(tx, ((workflow_id, tag) for workflow_id, _ in runs for tag in tags))
    plan = settle.Plan.of(effects)
    settle.write(tx, plan, {})
    settle.add_jobs(tx, plan.added, now_us=now_us)
    tx.dialect.notify(tx.cursor, tx.tables.prefix)
    return True


def add_jobs(tx: Tx, jobs: Sequence[NewJob], *, now_us: int) -> list[int]:
    """Adds plain jobs, created now; their ids in order."""
    ids = settle.add_jobs(tx, jobs, now_us=now_us)
    tx.dialect.notify(tx.cursor, tx.tables.prefix)
    return ids
