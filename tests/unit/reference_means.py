"""What a run uses up, and what it keeps in mind of its own past, told plainly: the reference's books."""

from __future__ import annotations

from dataclasses import dataclass, field

from queuety.model import Definition
from tests.unit.reference_words import Failing, Payload, size_of


@dataclass(frozen=True)
class Settled:
    """A step has settled, in this state, with these signals used by then; or, with `back_to`, the run has gone back.

    `back_to` is the place in the journal after which nothing up to here counts any more.
    """

    step: int
    state: Payload
    used: frozenset[int]
    can_be_undone: bool = True
    back_to: int | None = None


@dataclass(frozen=True)
class Entered:
    """How the run was when it came to a step, and who had written what by then is not known any more."""

    state: Payload
    used: frozenset[int]


@dataclass(frozen=True)
class Seed:
    """What a fork begins with."""

    step: int
    transitions: int
    cost: int
    started: int
    writers: dict[str, int]
    given: frozenset[str]
    jumps: dict[int, int]
    groups: dict[str, list[int]]
    signals: tuple[tuple[str, Payload], ...]


@dataclass
class Pending:
    """What leaving the step would do beside merging: it is done when the step is left, and not before."""

    cost: int = 0
    jumps: int | None = None
    using: frozenset[int] = frozenset()
    started: int = 0
    group: tuple[str, list[int]] | None = None
    ids: list[int] = field(default_factory=list)


@dataclass
class Means:
    """The limits of a run and what it has used up of them; by key, who has written it last."""

    definition: Definition
    cost: int = 0
    started: int = 0
    writers: dict[str, int] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)

    def merged(self, state: Payload, changes: Payload, step: int, cost: int) -> Payload:
        """The state with what one of several jobs has brought; it is counted. Raises `Failing` before anything is."""
        after = {**state, **changes}
        if changes:
            self.check_bytes(after)
        self._check_cost(cost)
        self.wrote(state, changes, step)
        self._pay(cost)
        return after

    def left(self, state: Payload, changes: Payload, step: int, transitions: int, pending: Pending) -> Payload:
        """The state after the step was left, pruned; all is counted. Raises `Failing` before anything is."""
        after, writers, given = {**state, **changes}, dict(self.writers), set(self.given)
        self.wrote(state, changes, step)
        if self.definition.prune_after is not None:
            oldest = step - self.definition.prune_after
            after = {key: value for key, value in after.items() if self.writers.get(key, oldest + 1) > oldest}
            self.writers = {key: one for key, one in self.writers.items() if key in after}
        try:
            guards = self.definition.guards
            if guards is not None and guards.max_transitions is not None and transitions + 1 > guards.max_transitions:
                raise Failing("ConstraintViolation")
            self.check_bytes(after)
            self._check_cost(pending.cost)
        except Failing:
            self.writers, self.given = writers, given
            raise
        self._pay(pending.cost)
        if self.definition.guards is not None or self.definition.prune_after is not None:
            self.started += pending.started
        return after

    def wrote(self, state: Payload, changes: Payload, step: int) -> None:
        """Keys that nobody had written were given to the run; nobody keeps books where nothing is pruned."""
        if self.definition.prune_after is None:
            return
        self.given |= {key for key in changes if key in state and key not in self.writers}
        self.writers |= dict.fromkeys(changes, step)

    def rewritten(self, now: Payload, then: Payload, step: int) -> dict[str, int]:
        """Who has written the keys of an earlier state: the step of then, or one after it that has written since."""
        given = self.given | {key for key in now if key not in self.writers}
        return {key: max(self.writers.get(key, 0), step, 0) for key in then if key not in given}

    def check_bytes(self, state: Payload) -> None:
        guards = self.definition.guards
        if guards is not None and guards.max_state_bytes is not None and size_of(state) > guards.max_state_bytes:
            raise Failing("ConstraintViolation")

    def check_items(self, count: int) -> None:
        guards = self.definition.guards
        if guards is not None and guards.max_for_each_items is not None and count > guards.max_for_each_items:
            raise Failing("ConstraintViolation")

    def check_started(self, count: int) -> None:
        guards = self.definition.guards
        most = None if guards is None else guards.max_started_workflows
        if count and most is not None and self.started + count > most:
            raise Failing("ConstraintViolation")

    def _check_cost(self, cost: int) -> None:
        guards = self.definition.guards
        if guards is not None and guards.max_cost_units is not None and self.cost + cost > guards.max_cost_units:
            raise Failing("ConstraintViolation")

    def _pay(self, cost: int) -> None:
        if self.definition.guards is not None:
            self.cost += cost
