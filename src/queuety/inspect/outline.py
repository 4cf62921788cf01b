"""What a reader needs to know of a definition: the names of its steps and how their jobs are run.

Read from the stored JSON and not through `define`: a process that only looks may lack the handlers' code, and a
definition may name a kind of step that this version does not know.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from queuety.codec import decode
from queuety.model import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, Priority
from queuety.store.queries import definitions
from queuety.store.schema import Tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

UNNAMED_KIND: Final = "single"
"""The kind of a step whose entry names none."""


@dataclass(frozen=True, slots=True)
class StepOutline:
    """One step: its name, its kind, its handler's name (None if it has none), and what its jobs are added with."""

    name: str
    kind: str
    handler: str | None
    queue: str
    priority: Priority
    max_attempts: int


@dataclass(frozen=True, slots=True)
class Outline:
    """A definition as far as readers go."""

    version: str | None = None
    steps: tuple[StepOutline, ...] = ()

    def step(self, index: int | None) -> StepOutline | None:
        """The step with this index; None for no index, one past the end, or a definition that is not there."""
        return self.steps[index] if index is not None and 0 <= index < len(self.steps) else None


def outlines(connection: Connection, tables: Tables, hashes: Collection[str]) -> dict[str, Outline]:
    """The outline of each of these definitions by its hash; an empty one for what the database does not have."""
    found = definitions.bodies(connection, tables, hashes)
    return {hash_: outline_of(found[hash_]) if hash_ in found else Outline() for hash_ in hashes}


def all_outlines(connection: Connection, tables: Tables) -> dict[str, Outline]:
    """The outline of every definition by its hash."""
    return {hash_: outline_of(body) for hash_, body in definitions.all_bodies(connection, tables).items()}


@lru_cache(maxsize=512)
def outline_of(body: str) -> Outline:
    """The outline of a definition's JSON text."""
    definition: Mapping[str, Any] = decode(body)
    return Outline(
        version=definition.get("version"),
        steps=tuple(_step(entry, index, definition) for index, entry in enumerate(definition["steps"])),
    )


def _step(entry: Mapping[str, Any], index: int, definition: Mapping[str, Any]) -> StepOutline:
    """The step's own options, then the workflow's, then the usual ones."""
    priority = _first(entry, definition, "priority")
    return StepOutline(
        name=entry.get("name", str(index)),
        kind=entry.get("type", UNNAMED_KIND),
        handler=_handler(entry),
        queue=_first(entry, definition, "queue") or DEFAULT_QUEUE,
        priority=Priority.LOW if priority is None else _priority(priority),
        max_attempts=_first(entry, definition, "max_attempts") or DEFAULT_MAX_ATTEMPTS,
    )


def _first(entry: Mapping[str, Any], definition: Mapping[str, Any], key: str) -> Any:
    value = entry.get(key)
    return definition.get(key) if value is None else value


def _priority(value: int | str) -> Priority:
    return Priority[value.upper()] if isinstance(value, str) else Priority(value)


def _handler(entry: Mapping[str, Any]) -> str | None:
    """The handler's name, which stands alone or beside its configuration."""
    found = entry.get("handler")
    name = found.get("handler") if isinstance(found, Mapping) else found
    return name if isinstance(name, str) else None
