"""What a reader needs to know of a definition: the names of its steps and how their jobs are run.

Read from the stored JSON and not through `define`: a process that only looks may lack the handlers' code, and a
definition may name a kind of step that this version does not know.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from queuety.codec import decode
from queuety.define.wire import LIMITS, RUN_HANDLERS
from queuety.errors import PayloadError
from queuety.model import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, Priority
from queuety.store.queries import definitions
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

UNNAMED_KIND: Final = "single"
"""The kind of a step whose entry names none."""

FOR_EACH: Final = "for_each"
PARALLEL: Final = "parallel"
WAIT_FOR_SIGNAL: Final = "wait_for_signal"
WAIT_FOR_WORKFLOWS: Final = "wait_for_workflows"
RUN_WORKFLOW: Final = "run_workflow"
DELAY: Final = "delay"
REPEAT: Final = "repeat"

HELD: Final = frozenset({DELAY, WAIT_FOR_SIGNAL, WAIT_FOR_WORKFLOWS, RUN_WORKFLOW})
"""Kinds of steps at which a run stands still until something comes; it then resumes."""


@dataclass(frozen=True, slots=True)
class JobOutline:
    """What a step's job is added with. `handler` is None where the entry names none."""

    handler: str | None
    queue: str
    priority: Priority
    max_attempts: int


@dataclass(frozen=True, slots=True)
class StepOutline:
    """One step: its name, its kind, and what its jobs are added with.

    `own` is the job of the step itself, of each item in a for-each; `reducer` the one that runs after the items.
    `undo` is the name of the handler that undoes it. `entry` is the step as it stands in the definition.
    """

    name: str
    kind: str
    own: JobOutline
    branches: tuple[JobOutline, ...]
    reducer: JobOutline | None
    undo: str | None
    entry: Mapping[str, Any]

    def job(self, branch: int | None) -> JobOutline:
        """The job of this branch or item; without one that of the step, in a for-each its reducer's."""
        if branch is None:
            return self.reducer or self.own
        return self.branches[branch] if branch < len(self.branches) else self.own

    @property
    def handlers(self) -> set[str]:
        """All that may run for it."""
        jobs = (self.own, *self.branches, *([] if self.reducer is None else [self.reducer]))
        return {name for name in (*(job.handler for job in jobs), self.undo) if name is not None}


@dataclass(frozen=True, slots=True)
class Outline:
    """A definition as far as readers go.

    `queue` is where jobs wait that say nothing else. `cleaning` names the handlers that clean up after the end, by
    `on_cancel` and `on_deadline`; `limits` is what a run may use up at most, by the names of the definition.
    """

    version: str | None = None
    steps: tuple[StepOutline, ...] = ()
    queue: str = DEFAULT_QUEUE
    cleaning: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)

    def step(self, index: int | None) -> StepOutline | None:
        """The step with this index; None for no index, one past the end, or a definition that is not there."""
        return self.steps[index] if index is not None and 0 <= index < len(self.steps) else None

    def has_handler(self, name: str) -> bool:
        """Whether this handler may run for it: in a step, to undo one, or after the end."""
        return name in self.cleaning.values() or any(name in step.handlers for step in self.steps)


def outlines(connection: Connection, tables: Tables, hashes: Collection[str]) -> dict[str, Outline]:
    """The outline of each of these definitions by its hash; an empty one for what the database does not have."""
    found = definitions.bodies(connection, tables, hashes)
    return {hash_: outline_of(found[hash_]) if hash_ in found else Outline() for hash_ in hashes}


def all_outlines(connection: Connection, tables: Tables) -> dict[str, Outline]:
    """The outline of every definition by its hash."""
    return {hash_: outline_of(body) for hash_, body in definitions.all_bodies(connection, tables).items()}


def users_of(connection: Connection, tables: Tables, handler: str) -> frozenset[str]:
    """The hashes of all definitions whose runs may have run this handler, now or before they changed their definition.

    A run changes it to another one of the same workflow's only, so all of a workflow's count if one of them does.
    """
    names = definitions.names(connection, tables)
    using = {
        names.get(hash_) for hash_, outline in all_outlines(connection, tables).items() if outline.has_handler(handler)
    }
    return frozenset(hash_ for hash_, name in names.items() if name in using)


@lru_cache(maxsize=512)
def outline_of(body: str) -> Outline:
    """The outline of a definition's JSON text; an empty one where nobody can read it."""
    try:
        definition: Mapping[str, Any] = decode(body)
    except PayloadError:
        return Outline()
    return Outline(
        version=definition.get("version"),
        steps=tuple(_step(entry, index, definition) for index, entry in enumerate(definition["steps"])),
        queue=definition.get("queue") or DEFAULT_QUEUE,
        cleaning={key: name for key in RUN_HANDLERS if (name := handler_name(definition.get(key))) is not None},
        limits={key: definition[key] for key in LIMITS if definition.get(key) is not None},
    )


def _step(entry: Mapping[str, Any], index: int, definition: Mapping[str, Any]) -> StepOutline:
    named = entry.get("handler", entry.get("condition"))
    reducer = entry.get("reducer")
    return StepOutline(
        name=entry.get("name", str(index)),
        kind=entry.get("type", UNNAMED_KIND),
        own=_job(named, entry, definition),
        branches=tuple(_branch(branch, entry, definition) for branch in entry.get("branches", ())),
        reducer=None if reducer is None else _job(reducer, entry, definition),
        undo=handler_name(entry.get("compensation")),
        entry=entry,
    )


def _branch(branch: Any, entry: Mapping[str, Any], definition: Mapping[str, Any]) -> JobOutline:
    """A branch stands alone as a handler, or as one with options of its own."""
    if not isinstance(branch, Mapping):
        return _job(branch, entry, definition)
    return _job(branch.get("handler"), {**entry, **branch}, definition)


def _job(handler: Any, entry: Mapping[str, Any], definition: Mapping[str, Any]) -> JobOutline:
    """The entry's own options, then the workflow's, then the usual ones."""
    priority = _first(entry, definition, "priority")
    return JobOutline(
        handler=handler_name(handler),
        queue=_first(entry, definition, "queue") or DEFAULT_QUEUE,
        priority=Priority.LOW if priority is None else _priority(priority),
        max_attempts=_first(entry, definition, "max_attempts") or DEFAULT_MAX_ATTEMPTS,
    )


def _first(entry: Mapping[str, Any], definition: Mapping[str, Any], key: str) -> Any:
    value = entry.get(key)
    return definition.get(key) if value is None else value


def _priority(value: int | str) -> Priority:
    return Priority[value.upper()] if isinstance(value, str) else Priority(value)


def handler_name(handler: Any) -> str | None:
    """The name of a handler, which stands alone or beside its configuration; None if there is none."""
    name = handler.get("handler") if isinstance(handler, Mapping) else handler
    return name if isinstance(name, str) else None
