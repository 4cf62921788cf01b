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
    cost_units: int | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """One of several handlers that a step runs side by side. Its options are complete: the step's fill them up."""

    handler: HandlerRef
    options: Options = Options()


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step of a definition. `settings` holds what only the step's kind understands, as JSON.

    `handler` is the step's own: of each item in a for-each, of the condition in a repeat. `child` is the definition of
    the runs that it starts. `compensation` undoes it, after the run has ended, once it has completed.
    """

    kind: str
    name: str
    handler: HandlerRef | None = None
    options: Options = Options()
    settings: State = field(default_factory=dict)
    branches: tuple[Branch, ...] = ()
    reducer: HandlerRef | None = None
    child: Definition | None = None
    compensation: HandlerRef | None = None


@dataclass(frozen=True, slots=True)
class Guards:
    """What a run may use up at most; exactly so much is fine. None is no limit. What counts: section 9.1 of the
    specification. Bytes are those of the public state, encoded, after merging and pruning."""

    max_transitions: int | None = None
    max_for_each_items: int | None = None
    max_state_bytes: int | None = None
    max_cost_units: int | None = None
    max_started_workflows: int | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    """What a workflow does, as data. Immutable; `hash` is 64 lowercase hex digits over its JSON form.

    `prune_after`: once a step has settled, the keys that were last written so many steps or more before it are taken
    out of the state. `deadline_s`: a run that has not ended so many seconds after its start fails. `guards` is None
    where nothing is limited.
    """

    name: str
    steps: tuple[StepSpec, ...]
    queue: str | None = None
    priority: Priority | None = None
    max_attempts: int | None = None
    version: str | None = None
    on_cancel: HandlerRef | None = None
    hash: str = ""
    on_deadline: HandlerRef | None = None
    deadline_s: float | None = None
    compensates_on_failure: bool = False
    prune_after: int | None = None
    guards: Guards | None = None

    @property
    def compensated(self) -> tuple[int, ...]:
        """The indices of the steps that can be undone."""
        return tuple(index for index, spec in enumerate(self.steps) if spec.compensation is not None)

    def step_index(self, name: object) -> int | None:
        """The 0-based index of the step with exactly this name, or None."""
        for index, spec in enumerate(self.steps):
            if spec.name == name:
                return index
        return None
