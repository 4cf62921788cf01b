"""What a user writes, as data."""

from __future__ import annotations

from dataclasses import dataclass, field

from queuety.model.words import Priority, State


@dataclass(frozen=True, slots=True)
class HandlerRef:
    """A handler by name, with the configuration that `bind` gave it."""

    name: str
    config: State | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """How a handler's jobs are run; None means that the next level decides.

    The levels, first wins: the step's entry (or the dispatch call), the handler, the workflow, `Settings`.
    `backoff` is a name or exact seconds per failure; `retry_on` and `give_up_on` are `module:qualname` of exceptions.
    """

    queue: str | None = None
    priority: Priority | None = None
    max_attempts: int | None = None
    backoff: str | tuple[float, ...] | None = None
    timeout_s: float | None = None
    retry_on: tuple[str, ...] | None = None
    give_up_on: tuple[str, ...] | None = None
    delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """One of several handlers that a step runs side by side. Its options are complete: the step's fill them up."""

    handler: HandlerRef
    options: Options = Options()


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step of a definition. `settings` holds what only the step's kind understands, as JSON.

    `handler` is the step's own: of each item in a for-each, of the condition in a repeat. `child` is the definition of
    the runs that it starts.
    """

    kind: str
    name: str
    handler: HandlerRef | None = None
    options: Options = Options()
    settings: State = field(default_factory=dict)
    branches: tuple[Branch, ...] = ()
    reducer: HandlerRef | None = None
    child: Definition | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    """What a workflow does, as data. Immutable; `hash` is 64 lowercase hex digits over its JSON form."""

    name: str
    steps: tuple[StepSpec, ...]
    queue: str | None = None
    priority: Priority | None = None
    max_attempts: int | None = None
    version: str | None = None
    on_cancel: HandlerRef | None = None
    hash: str = ""

    def step_index(self, name: object) -> int | None:
        """The 0-based index of the step with exactly this name, or None."""
        for index, spec in enumerate(self.steps):
            if spec.name == name:
                return index
        return None
