"""Runs that are undone, cancelled and mended while their workers are killed, and what their handlers have noted.

`KILLING_URL` names the database, `KILLING_NOTES` the file of the notes: both outlive whoever is killed.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from queuety import Fail, Queuety, Settings, bind, current, errors, step
from queuety.define.builder import WorkflowBuilder
from queuety.store.tx import Tx
from queuety.worker import retain
from tests.support.killing import LEASE_S

State = dict[str, Any]

HOUR_US = 3_600_000_000
BROKEN = "it is broken"
SENT = {"by": "the operator"}
NOTES = os.environ.get("KILLING_NOTES")
SETTINGS = Settings(lease_seconds=LEASE_S, idle_poll_seconds=0.1, retention_days=0.5 / 24)

if NOTES:  # in a worker: it looks all the time for what has grown old
    vars(retain)["EVERY_S"] = 0.2

app = Queuety(os.environ.get("KILLING_URL", "sqlite://"), settings=SETTINGS)

_pause = threading.Event()


@dataclass(frozen=True, slots=True)
class Noted:
    """An attempt that has begun: what it was to do, in which run (of which family), at which step."""

    word: str
    run: int
    family: str
    step: int | None
    key: str


class Notes:
    """What handlers have begun, in that order; each note is there before the handler goes on."""

    def __init__(self, path: str) -> None:
        self.path = path
        with self._open() as file:
            file.execute(
                "CREATE TABLE IF NOT EXISTS notes "
                "(number INTEGER PRIMARY KEY, word TEXT, run INT, family TEXT, step INT, key TEXT)"
            )
        file.close()

    def add(self, word: str, family: str) -> None:
        """Notes the attempt that is running."""
        at = current()
        with self._open() as file:
            file.execute(
                "INSERT INTO notes (word, run, family, step, key) VALUES (?, ?, ?, ?, ?)",
                [word, at.workflow_id, family, at.step_index, at.idempotency_key],
            )
        file.close()

    def first(self, *words: str) -> list[Noted]:
        """The first attempt at each thing of these sorts, by when it began."""
        with self._open() as file:
            rows = file.execute("SELECT word, run, family, step, key FROM notes ORDER BY number").fetchall()
        file.close()
        firsts: dict[str, Noted] = {}
        for noted in (Noted(*row) for row in rows):
            if noted.word in words:
                firsts.setdefault(noted.key, noted)
        return list(firsts.values())

    def count(self) -> int:
        """How many attempts have begun."""
        with self._open() as file:
            found: int = file.execute("SELECT COUNT(*) FROM notes").fetchone()[0]
        file.close()
        return found

    def _open(self) -> sqlite3.Connection:
        # A process that is killed loses nothing of what it has handed to the system.
        opened = sqlite3.connect(self.path, timeout=60)
        opened.execute("PRAGMA synchronous = OFF")
        return opened


def _note(word: str, state: State) -> None:
    assert NOTES is not None
    Notes(NOTES).add(word, state["family"])
    _pause.wait(random.random() * 0.02)


@step(name="repairing.put", max_attempts=1000, backoff=[0])
def put(state: State, *, key: str) -> State:
    _note("did", state)
    return {key: state.get(key, 0) + 1}


@step(name="repairing.undo", max_attempts=1000, backoff=[0])
def undo(state: State) -> None:
    _note("undid", state)


@step(name="repairing.clean", max_attempts=1000, backoff=[0])
def clean(state: State) -> None:
    _note("cleaned", state)


@step(name="repairing.breaks", max_attempts=1000, backoff=[0])
def breaks(state: State) -> State:
    if not state.get("mended"):
        raise Fail(BROKEN)
    return {"passed": True}


def _begin(name: str, *keys: str) -> WorkflowBuilder:
    """Steps that are undone, the last one first."""
    builder = app.workflow(name).max_attempts(1000)
    for key in keys:
        builder.then(bind(put, key=key), name=key).compensate_with(undo)
    return builder


def saga() -> WorkflowBuilder:
    """Fails at its end and is undone."""
    return _begin("saga", "a", "b", "c").then(breaks).compensate_on_failure()


def late_saga() -> WorkflowBuilder:
    """The same once it is sent `go`."""
    return _begin("late saga", "a", "b").wait_for_signal("go", step_name="wait").then(breaks).compensate_on_failure()


def family() -> WorkflowBuilder:
    """Three generations; the youngest never ends by itself."""
    youngest = _begin("child", "a", "b").delay(seconds=3600).on_cancel(clean)
    middle = _begin("parent", "m").run_workflow("child", youngest).on_cancel(clean)
    return _begin("grandparent", "g", "h").run_workflow("parent", middle).on_cancel(clean)


def patient(*more: str) -> WorkflowBuilder:
    """Waits for `go` and ends; a newer version has `more` steps."""
    builder = _begin("patient", "a", "b").version(f"v{len(more)}").wait_for_signal("go", "go", step_name="wait")
    for key in ("c", *more):
        builder.then(bind(put, key=key), name=key)
    return builder


def broken() -> WorkflowBuilder:
    """Fails, and goes on once it is mended."""
    return _begin("broken", "a").then(breaks).then(bind(put, key="c"))


def filler() -> WorkflowBuilder:
    """Over soon, and then gone."""
    child = app.workflow("filler's child").then(bind(put, key="c")).max_attempts(1000)
    order = app.workflow("filler's order").then(bind(put, key="o")).max_attempts(1000)
    return (
        _begin("filler", "a")
        .run_workflow("filler's child", child)
        .start_workflows("orders", order, group_key="orders")
        .wait_for_workflow_group("orders", result_key="done")
        .on_cancel(clean)
    )


FILLERS = ("filler", "filler's child", "filler's order")

UNDONE = {"child": (0, 1), "parent": (0,), "grandparent": (0, 1)}
"""Which steps are undone, by the name of a run of a family."""

Repair = Callable[[Queuety, int], "int | None"]
"""Does something to a run, and gives back the id of another one that it has made. May be refused for now."""


def _rewind(app: Queuety, run: int) -> None:
    app.rewind_workflow(run, "a", with_state={"again": True})
    app.signal(run, "go", SENT)


def _fork(app: Queuety, run: int) -> int:
    made = app.fork_workflow(run)
    for each in (run, made):
        app.signal(each, "go", SENT)
    return made


def _patch(app: Queuety, run: int) -> None:
    app.patch_state(run, {"patched": True})
    app.signal(run, "go", SENT)


def _migrate(app: Queuety, run: int) -> None:
    app.migrate_workflow(run, patient("d"))
    app.signal(run, "go", SENT)


_ENDS: State = {"a": 1, "b": 1, "c": 1}

REPAIRS: dict[str, tuple[Repair, State]] = {
    "rewind": (_rewind, {**_ENDS, "again": True, "go": SENT}),
    "fork": (_fork, {**_ENDS, "go": SENT}),
    "skip": (lambda app, run: app.skip_step(run, "wait"), _ENDS),
    "complete": (lambda app, run: app.complete_step(run, {"go": "by hand"}, "wait"), {**_ENDS, "go": "by hand"}),
    "patch": (_patch, {**_ENDS, "patched": True, "go": SENT}),
    "migrate": (_migrate, {**_ENDS, "d": 1, "go": SENT}),
}
"""What is done to a run of `patient`, and what it ends with."""


GO_BACK: tuple[Repair, State] = (_rewind, {})
"""What is done to `late_saga`: only what was done anew is undone in the end."""


def _mend(app: Queuety, run: int) -> None:
    app.retry_workflow(run, with_state={"mended": True})


MEND: tuple[Repair, State] = (_mend, {"a": 1, "c": 1, "mended": True, "passed": True})
"""What is done to `broken`, and what it ends with."""


def tried(repair: Repair, app: Queuety, run: int) -> tuple[bool, int | None]:
    """Tries it: whether the run is not where it can be done, and else what it has given back."""
    try:
        return False, repair(app, run)
    except (errors.InvalidStateError, errors.SnapshotMissingError):
        return True, None


def grow_old(app: Queuety, begins: str = "") -> None:
    """Has runs whose name begins so, and that are over for good, be so for an hour: the workers purge them."""

    def unit(tx: Tx) -> None:
        p = tx.statements.parameter
        tx.cursor.execute(
            f"SELECT id FROM {tx.statements.workflows} WHERE status IN ('completed', 'cancelled') "
            f"AND completed_us > {p} AND name LIKE {p} ORDER BY id{tx.statements.bulk.for_update}",
            [tx.now_us() - HOUR_US, f"{begins}%"],
        )
        ids = [row[0] for row in tx.cursor.fetchall()]
        if ids:
            tx.statements.change_among(
                tx.cursor,
                f"UPDATE {tx.statements.workflows} SET completed_us = completed_us - {HOUR_US}",
                "id",
                ids,
            )

    app.door.write(unit)
