"""Verbs of workflows: start, see, steer, wait."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from queuety.app.core import Core, checked_timeout, known_id
from queuety.commands.dispatch import start_run, start_runs
from queuety.define.builder import WorkflowBuilder
from queuety.define.names import check_tags
from queuety.define.payloads import workflow_payload
from queuety.define.wire import definition_from_json
from queuety.errors import DefinitionError, NotFoundError, WaitTimeout
from queuety.inspect import workflows
from queuety.inspect.filters import WorkflowFilter
from queuety.inspect.states import WorkflowState
from queuety.model import Definition, ErrorKind, Json, WorkflowStatus
from queuety.store import load
from queuety.store.door import Tx

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session, scoped_session


WAIT_PAUSE_S = (0.01, 0.5)
"""How long `wait` pauses between two looks, first and at most."""


class WorkflowVerbs(Core):
    """What can be done with workflows."""

    def dispatch_workflow(
        self,
        builder: WorkflowBuilder,
        payload: Any = None,
        *,
        connection: Connection | Session | scoped_session[Session] | None = None,
    ) -> int:
        """Starts a run of what the builder says and gives back its id.

        With `connection` (an SQLAlchemy `Connection` or `Session`) the dispatch is part of the caller's transaction:
        committed or rolled back with it. Raises `DefinitionError` for a workflow without steps, `PayloadError` for a
        payload that is not a mapping of JSON or holds a key that starts with `_`; nothing is written then.
        """
        return self._start(_builder(builder).build(self.registry), payload, builder.key, connection, builder.tags)

    def dispatch_definition(
        self,
        definition: Mapping[str, Any],
        payload: Any = None,
        *,
        idempotency_key: str | None = None,
        tags: Iterable[str] = (),
        connection: Connection | Session | scoped_session[Session] | None = None,
    ) -> int:
        """Starts a run of a definition in its JSON form (`builder.definition()`) and gives back its id.

        Of several dispatches of one workflow name with one `idempotency_key` the first wins; all give back its id.
        `tags` are words that the run may be found by (`list_workflows(tag=…)`). Raises as `dispatch_workflow`.
        """
        known = definition_from_json(definition, self.registry)
        return self._start(known, payload, idempotency_key, connection, check_tags(tags, what="tags"))

    def dispatch_many(self, builder: WorkflowBuilder, payloads: Iterable[Any]) -> list[int]:
        """Starts a run per payload, all or none, in few statements; gives back their ids in order.

        Raises as `dispatch_workflow`; a builder with an idempotency key is refused.
        """
        if _builder(builder).key is not None:
            raise DefinitionError(
                f"workflow {builder.name!r} has the idempotency key {builder.key!r}, which names one run; "
                "dispatch it by itself, or leave the key out"
            )
        definition = builder.build(self.registry)
        checked = [self._checked(payload, f"payloads[{place}]") for place, payload in enumerate(payloads)]
        if not checked:
            return []
        door = self.door
        self.definitions.ensure(door, definition)
        made: list[tuple[list[int], int]] = []

        def unit(tx: Tx) -> list[int]:
            now_us = tx.now_us()
            ids = start_runs(tx, definition, checked, tags=builder.tags, now_us=now_us)
            made[:] = [(ids, now_us)]
            return ids

        def landed(tx: Tx) -> list[int] | None:
            return made[0][0] if made and load.was_started(tx, made[0][0][0], made[0][1]) else None

        return self._write(unit, landed=landed)

    def _start(
        self,
        definition: Definition,
        payload: Any,
        idempotency_key: str | None,
        connection: Connection | Session | scoped_session[Session] | None,
        tags: Sequence[str] = (),
    ) -> int:
        checked = self._checked(payload)
        door = self.door
        if connection is not None:
            with self._joined(connection) as tx:
                if door.dialect.writer_key() is None:
                    self.definitions.ensure(door, definition)
                else:
                    self.definitions.ensure_in(tx, definition)
                workflow_id = tx.reserve(1)[0]
                return start_run(
                    tx, definition, checked, workflow_id=workflow_id, idempotency_key=idempotency_key, tags=tags
                )
        self.definitions.ensure(door, definition)
        made: list[tuple[int, int]] = []

        def unit(tx: Tx) -> int:
            (workflow_id,), now_us = tx.reserve(1), tx.now_us()
            made[:] = [(workflow_id, now_us)]
            return start_run(
                tx,
                definition,
                checked,
                workflow_id=workflow_id,
                idempotency_key=idempotency_key,
                tags=tags,
                now_us=now_us,
            )

        def landed(tx: Tx) -> int | None:
            return made[0][0] if made and load.was_started(tx, *made[0]) else None

        return self._write(unit, landed=landed)

    def _checked(self, payload: Any, where: str = "payload") -> dict[str, Json]:
        return workflow_payload(payload, max_bytes=self.settings.max_value_bytes, where=where)

    def workflow_status(self, workflow_id: int) -> WorkflowState | None:
        """The run as it is now, or None for an unknown id."""
        if known_id(workflow_id, "workflow_id") is None:
            return None
        with self.door.reading() as connection:
            return workflows.workflow_status(connection, self._door.tables, workflow_id)

    def list_workflows(
        self,
        status: WorkflowStatus | str | Collection[WorkflowStatus | str] | None = None,
        name: str | None = None,
        parent_id: int | None = None,
        limit: int = 50,
        before_id: int | None = None,
        tag: str | None = None,
        error_kind: ErrorKind | str | None = None,
        older_than: timedelta | float | None = None,
        newer_than: timedelta | float | None = None,
    ) -> list[WorkflowState]:
        """Runs that meet every condition given, newest first, at most `limit`; `before_id` goes on after a page.

        Of several statuses a run has any. `older_than` and `newer_than` are ages since a run was created, in seconds or
        as a `timedelta`. Raises `DefinitionError` for a condition that cannot be right, an unknown status among them.
        """
        wanted = WorkflowFilter(status, name, parent_id, tag, error_kind, older_than, newer_than)
        now_us = self.door.now_us()
        with self.door.reading() as connection:
            return workflows.list_workflows(
                connection, self._door.tables, wanted, now_us=now_us, limit=limit, before_id=before_id
            )

    def wait(self, workflow_id: int, timeout: float | None = None) -> WorkflowState:
        """Waits until the run has ended and gives back how. It needs a worker: nothing is run here.

        Raises `WaitTimeout` after `timeout` seconds, `NotFoundError` for an unknown id.
        """
        limit = checked_timeout(timeout)
        end = None if limit is None else time.monotonic() + limit
        pause_s = WAIT_PAUSE_S[0]
        while True:
            state = self.workflow_status(workflow_id)
            if state is None:
                raise NotFoundError(f"no workflow has the id {workflow_id}")
            if state.status.is_terminal:
                return state
            if end is not None and time.monotonic() + pause_s > end:
                left = end - time.monotonic()
                if left <= 0:
                    raise WaitTimeout(
                        f"workflow {workflow_id} is still {state.status} after {timeout:g} s (step "
                        f"{state.current_step_name!r}); wait longer, or see what `queuety doctor` says"
                    )
                pause_s = left
            self._bell.wait(pause_s)
            pause_s = min(pause_s * 1.5, WAIT_PAUSE_S[1])


def _builder(given: Any) -> WorkflowBuilder:
    """What was given, if it is a builder. Raises `DefinitionError`."""
    if isinstance(given, WorkflowBuilder):
        return given
    what = f"an object of type {type(given).__name__}"
    raise DefinitionError(f"{what} is no workflow; give what workflow(name).then(…) gives back")
