"""The rules of a run told once more, plainly: a second opinion that knows nothing of the engine.

`Run` goes from its first step to its end, and `reference_kinds.Telling` has one method for each kind of step, as the
specification says it (sections 5 to 7). Where it cannot go on by itself, it asks for the next thing that happened
(`Mark`); which that is says its source:

- `reference_observed.Observed` gives back what happened in a world, in that order. So whatever legitimately depends on
  the order (which branch was the last, who was first, whether the time was over before the signal came, what people
  asked for in between) is followed and not guessed. What a mark means is decided here alone: a mark says that the job
  of branch 1 has reported, and not what it said, nor what follows.
- `reference_foretold.Foretold` makes up one order (signals first, then each job in turn) and notes if another one could
  have led elsewhere (`is_open`). As long as it could not, every schedule must come to what is told here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from queuety.model import (
    Cancel,
    CompleteStep,
    Definition,
    Fork,
    HandlerRef,
    Options,
    PatchState,
    Pause,
    Resume,
    RetryRun,
    Rewind,
    RunNow,
    SkipStep,
    State,
    StepSpec,
)
from tests.support.definitions_at_random import Payload, Place, fails_now, returned
from tests.unit.reference_means import Entered, Means, Pending, Seed, Settled
from tests.unit.reference_words import (
    OVER,
    Cancelled,
    Failing,
    Left,
    Mark,
    NothingMore,
    Report,
    Rewound,
    public,
)


class Source(Protocol):
    """Who knows what happens next, and how others came out."""

    def next(self, run: Run) -> Mark: ...

    def new_ids(self, run: Run, started: list[tuple[Definition, Payload]]) -> list[int]: ...

    def not_started(self, ids: list[int]) -> None: ...

    def forked(self, run: Run, new_id: int, payload: Payload, seed: Seed) -> None: ...

    def state_of(self, run: Run, run_id: int) -> Payload: ...

    def look_ahead(self, run: Run, ids: list[int]) -> None: ...

    def leaves_open(self, *, unless: bool) -> None: ...


@dataclass
class Visit:
    """What one visit of a step keeps when the run fails and is retried.

    `last` is the job that would have settled the step: it has to be run again if the step was not left. `holds` are the
    keys that nobody may change by hand.
    """

    done: dict[Place, Payload] = field(default_factory=dict)
    failures: dict[Place, int] = field(default_factory=dict)
    is_settled: bool = False
    child: int | None = None
    follows: bool = False
    is_again: bool = False
    last: Place = None
    holds: frozenset[str] = frozenset()
    is_delaying: bool = False
    due_us: int | None = None


class Run:
    """One run. `status` and the rest are as the run ended, or as far as it came. The kinds are `Telling`'s."""

    def __init__(
        self, run_id: int, definition: Definition, payload: Payload, source: Source, seed: Seed | None = None
    ) -> None:
        self.id = run_id
        self.definition = definition
        self.state = dict(payload)
        self.source = source
        self.status = "running"
        self.step = 0
        self.visit = 0
        self.transitions = 0
        self.error: tuple[str, str | None, int] | None = None
        self.means = Means(definition)
        self.cleanup = "none"
        self.cleanups: list[tuple[str, Payload | None]] = []  # handlers, with the state of then; None: of the end
        self.is_compensated = False
        self.uncleaned = 0  # handlers that are still to be called
        self.arrived: list[tuple[str, Payload]] = []
        self.used: frozenset[int] = frozenset()  # of those that have arrived, by number
        self.jumps: dict[int, int] = {}
        self.groups: dict[str, list[int]] = {}
        self.journal: list[Settled] = []
        self.entered: dict[int, Entered] = {}
        self.kept = Visit()
        self.pending = Pending()
        self.now_us = 0
        self.deadline_us: float | None = None
        self.around: dict[int, str] = {}
        self.states: dict[int, State] = {}
        self.open: dict[Place, int] = {}  # the jobs that may report, and the attempts each has had
        self.due_us: int | None = None
        self.trail: list[Payload] = []  # the states, by how many marks there had been
        if seed is not None:
            self._sow(seed)

    def _sow(self, seed: Seed) -> None:
        self.step, self.transitions = seed.step, seed.transitions
        self.means.cost, self.means.started = seed.cost, seed.started
        self.means.writers, self.means.given = dict(seed.writers), set(seed.given)
        self.jumps, self.groups, self.arrived = dict(seed.jumps), dict(seed.groups), list(seed.signals)

    @property
    def signals(self) -> list[tuple[str, Payload]]:
        """Those that no wait has used, as they came."""
        return [signal for number, signal in enumerate(self.arrived) if number not in self.used]

    def tell(self) -> Self:
        try:
            self._begin()
            if self.definition.deadline_s is not None:
                self.deadline_us = self.now_us + self.definition.deadline_s * 1_000_000
            while True:
                try:
                    self._go_through()
                except Rewound as back:
                    self._go_back(back)
        except NothingMore:
            pass
        except Cancelled:
            self._cancel()
        return self

    # from step to step

    def _go_through(self) -> None:
        steps = self.definition.steps
        while self.step < len(steps):
            self.visit += 1
            self.kept = Visit()
            self.entered[self.step] = Entered(dict(self.state), self.used)
            try:
                while self.status == "paused":  # a paused run does not enter the next step
                    self.hear()
                self._settle(steps[self.step])
            except Left as left:
                self.pending = Pending(jumps=0)
                self._start_anew()
                self._leave(left.changes, left.following, is_skipped=left.is_skipped)
        self.status = "completed"
        while True:
            self.hear()

    def _settle(self, spec: StepSpec) -> None:
        """Go on until the step is settled, over failures and retries."""
        while True:
            self.open, self.due_us, self.pending = {}, None, Pending()
            try:
                output = getattr(self, f"_{spec.kind}")(spec)
                self._leave(public(output), self.following(output.get("_next_step")))
                return
            except Failing as failing:
                if failing.kind == "ConstraintViolation":
                    self.source.leaves_open(unless=spec.kind not in ("parallel", "for_each", "start_workflows"))
                self.source.not_started(self.pending.ids)
                self.kept.done.pop(self.kept.last, None)
                self._fail(failing)
                failed = failing
            self._await_retry(failed)
            self.kept.is_again, self.kept.last = True, None

    def _leave(self, changes: Payload, following: int, *, is_skipped: bool = False) -> None:
        """Leave the step, if no limit forbids it, in one go."""
        pending = self.pending
        self.state = self.means.left(self.state, changes, self.step, self.transitions, pending)
        self.transitions += 1
        self.used |= pending.using
        if pending.jumps is not None:
            self.jumps = {**self.jumps, self.step: pending.jumps}
        if pending.group is not None:
            self.groups = {**self.groups, pending.group[0]: pending.group[1]}
        self.journal.append(Settled(self.step, dict(self.state), self.used, can_be_undone=not is_skipped))
        self.step = following
        self.open, self.due_us = {}, None
        if self.status != "paused":
            self.status = "running"

    def following(self, wish: Any) -> int:
        names = [spec.name for spec in self.definition.steps]
        if wish is None:
            return self.step + 1
        if wish not in names:
            raise Failing("DefinitionError")
        return names.index(wish)

    def _fail(self, failing: Failing) -> None:
        self.open, self.due_us = {}, None
        self.status = "failed"
        self.error = (failing.kind, failing.message, self.step)
        handlers = [self.definition.on_deadline] if failing.kind == "DeadlineExceeded" else []
        self._clean_up(handlers, compensates=self.definition.compensates_on_failure)

    def _await_retry(self, failing: Failing) -> None:
        """A failed run goes on when somebody says so, or when the child goes on whose end had ended it."""
        while self.status == "failed":
            mark = self.hear()
            is_mine = mark.what == "revived" and mark.id == self.kept.child
            if is_mine and failing.kind in ("ChildFailed", "ChildCancelled") and self._may_go_on:
                self.kept.follows = True
                self.status = "running"
        self._start_anew()

    @property
    def _may_go_on(self) -> bool:
        """Nothing of a failed run was undone, and nothing is still to be called."""
        return not self.is_compensated and not self.uncleaned

    def _start_anew(self) -> None:
        """What is known of the end goes: a run whose steps were not undone may end once more."""
        self.error = None
        if not self.is_compensated:
            self.cleanup = "none"

    def _cancel(self) -> None:
        self.status = "cancelled"
        self._clean_up([self.definition.on_cancel], compensates=True)
        try:
            while True:
                self.hear()
        except NothingMore:
            pass

    def _clean_up(self, handlers: Iterable[HandlerRef | None], *, compensates: bool) -> None:
        """Steps are undone, the last first, but never twice; then come the run's own handlers."""
        todo: list[tuple[HandlerRef, Payload | None]] = []
        if compensates and not self.is_compensated:
            todo += [(undo, entry.state) for undo, entry in self._undoable()]
            self.is_compensated = bool(todo)
        todo += [(handler, None) for handler in handlers if handler is not None]
        self.uncleaned += len(todo)
        budget = self.definition.max_attempts or 3
        for handler, state in todo:
            self.cleanups.append((handler.name, state))
            is_done = (handler.config or {}).get("fails", 0) < budget
            self.cleanup = "completed" if is_done and self.cleanup != "failed" else "failed"

    def _undoable(self) -> list[tuple[HandlerRef, Settled]]:
        """What has settled and was not rewound, backwards."""
        found: list[tuple[HandlerRef, Settled]] = []
        place = len(self.journal) - 1
        while place >= 0:
            entry = self.journal[place]
            undo = self.definition.steps[entry.step].compensation
            if entry.back_to is not None:
                place = entry.back_to
                continue
            if entry.can_be_undone and undo is not None:
                found.append((undo, entry))
            place -= 1
        return found

    def _go_back(self, back: Rewound) -> None:
        entry = self.journal[back.place]
        self.journal.append(Settled(entry.step, {}, frozenset(), back_to=back.place))
        self.means.writers = self.means.rewritten(self.state, entry.state, entry.step)
        self.state = {**entry.state, **back.with_state}
        self.used = entry.used
        self.jumps = {step: count for step, count in self.jumps.items() if step < entry.step}
        self.step, self.status = entry.step + 1, "running"
        self._start_anew()
        self.open, self.due_us, self.kept = {}, None, Visit()
        if self.step == len(self.definition.steps):
            self.visit += 1

    # what happens

    def _begin(self) -> Mark:
        self.trail.append(dict(self.state))
        mark = self.source.next(self)
        self.now_us, self.around, self.states = mark.now_us, mark.standing, mark.states
        return mark

    def hear(self) -> Mark:
        """The next thing that may mean something to the step. What is the same for every step is done here."""
        while True:
            mark = self._begin()
            if mark.what == "signal":
                self.arrived.append(mark.signal)
            elif mark.what == "cleaned":
                self.uncleaned -= 1
            elif mark.what in ("asked", "refused"):
                self._obey(mark)
            elif mark.what == "told":
                self._obey_parent(mark.command)
            elif mark.what == "deadline":
                is_over = self.deadline_us is not None and self.now_us >= self.deadline_us
                if is_over and self.status not in (*OVER, "paused"):
                    raise Failing("DeadlineExceeded")
            elif (mark.what in ("due", "settled") and mark.visit != self.visit) or (
                mark.what == "child" and mark.id != self.kept.child
            ):
                continue  # of an earlier visit, of another child
            elif mark.what == "report":
                assert self.status in ("running", "paused"), f"a job of a run that is {self.status} has reported"
                assert mark.visit == self.visit, f"a job of visit {mark.visit} has reported in visit {self.visit}"
                assert mark.place in self.open, f"job {mark.place} has reported, only {self.open} are open"
            return mark

    def _obey(self, mark: Mark) -> None:
        """The matrix of 7.1, and what belongs to it."""
        allowed = self._allows(mark)
        is_unsure = isinstance(mark.given, Fork) and mark.error == "ConstraintViolation"
        assert is_unsure or allowed is (mark.what == "asked"), f"{mark.given} of a run that is {self.status}: {mark}"
        if mark.what == "asked":
            self._do(mark)

    def _allows(self, mark: Mark) -> bool:
        command, is_clean = mark.given, self._may_go_on
        is_over = self.status in ("completed", "cancelled")
        match command:
            case Pause():
                return self.status == "running"
            case Resume():
                return self.status == "paused"
            case Cancel():
                return not is_over
            case RetryRun(with_state):
                return self.status == "failed" and is_clean and self._can_merge(with_state or {}, ())
            case Rewind(to_step, with_state):
                place = self._settled_at(to_step)
                if self.status == "cancelled" or not is_clean or place is None:
                    return False
                return self.is_small({**self.journal[place].state, **(with_state or {})})
            case Fork(_, None):
                return not is_over and not self.is_compensated
            case Fork(_, at_step):
                return self.status != "cancelled" and not self.is_compensated and at_step in self.entered
            case SkipStep():
                return not is_over and is_clean and self._may_leave({}, None)
            case CompleteStep(output):
                return not is_over and is_clean and self._may_leave(public(dict(output)), output.get("_next_step"))
            case PatchState(changes, removed):
                is_sound = bool(changes or removed) and all(key in self.state and key not in changes for key in removed)
                return not is_over and is_clean and is_sound and self._can_merge(changes, removed)
            case RunNow():
                return mark.delayed or (self.kept.is_delaying and self.status not in OVER)
        raise AssertionError(f"nobody asks for {command}")

    def _do(self, mark: Mark) -> None:
        match mark.given:
            case Pause():
                self.status = "paused"
            case Resume():
                self.status = "running"
            case Cancel():
                raise Cancelled
            case RetryRun(with_state):
                self._merge_by_hand(with_state or {}, ())
                self.status = "running"
            case Rewind(to_step, with_state):
                place = self._settled_at(to_step)
                assert place is not None
                raise Rewound(place, dict(with_state or {}))
            case Fork(new_id, at_step, with_state):
                self._fork(new_id, at_step, dict(with_state or {}))
            case SkipStep():
                raise Left({}, self.step + 1, is_skipped=True)
            case CompleteStep(output):
                raise Left(public(dict(output)), self.following(output.get("_next_step")), is_skipped=False)
            case PatchState(changes, removed):
                self._merge_by_hand(changes, removed)

    def _settled_at(self, step: Any) -> int | None:
        """Where in the journal the step has settled last."""
        places = [place for place, entry in enumerate(self.journal) if entry.step == step and entry.back_to is None]
        return max(places, default=None)

    def is_small(self, state: Payload) -> bool:
        try:
            self.means.check_bytes(state)
        except Failing:
            return False
        return True

    def _may_leave(self, changes: Payload, wish: Any) -> bool:
        twin = Means(
            self.definition, self.means.cost, self.means.started, dict(self.means.writers), set(self.means.given)
        )
        try:
            self.following(wish)
            twin.left(self.state, changes, self.step, self.transitions, Pending())
        except Failing:
            return False
        return True

    def _can_merge(self, changes: Any, removed: Collection[str]) -> bool:
        left = {key: value for key, value in self.state.items() if key not in removed}
        is_held = bool(self.kept.holds.intersection((*changes, *removed)))
        return not is_held and (not changes or self.is_small({**left, **changes}))

    def _merge_by_hand(self, changes: Any, removed: Collection[str]) -> None:
        left = {key: value for key, value in self.state.items() if key not in removed}
        self.means.wrote(left, dict(changes), self.step)
        self.state = {**left, **changes}

    def _fork(self, new_id: int, at_step: Any, with_state: Payload) -> None:
        means = self.means
        step, state, used, jumps, writers = self.step, self.state, self.used, self.jumps, means.writers
        if at_step is not None:
            then = self.entered[at_step]
            step, state, used = at_step, then.state, then.used
            jumps = {place: count for place, count in self.jumps.items() if place < step}
            writers = means.rewritten(self.state, state, step - 1)
        free = tuple(signal for number, signal in enumerate(self.arrived) if number not in used)
        seed = Seed(
            step, self.transitions, means.cost, means.started, writers, frozenset(means.given), jumps, self.groups, free
        )
        self.source.forked(self, new_id, {**state, **with_state}, seed)

    def _obey_parent(self, command: str) -> None:
        if command == "cancel" and self.status not in OVER:
            raise Cancelled
        if command == "retry" and self.status == "failed" and self._may_go_on:
            self.status = "running"

    def execute(self, places: Collection[Place], handlers: dict[Place, HandlerRef], *arguments: Any) -> Report:
        """Wait for one of these jobs to report: what it returned, or that it has failed for good."""
        while True:
            mark = self.hear()
            if mark.what != "report":
                continue
            place = mark.place
            assert place in places
            handler = handlers[place]
            config = dict(handler.config or {})
            failures = self.kept.failures.get(place, 0)
            if not fails_now(config, place, failures):
                del self.open[place]
                given = (arguments[0][place], place) if isinstance(place, int) and arguments else arguments
                seen = self.state if mark.seen is None else self.trail[mark.seen]
                return Report(place, returned(config, seen, *given), None, self.cost_of(place))
            self.kept.failures[place] = failures + 1
            self.open[place] += 1
            if config.get("final") or self.open[place] >= self.budget(place):
                del self.open[place]
                return Report(place, {}, f"{handler.name} fails at {place}")

    def _options(self, place: Place) -> Options:
        spec = self.definition.steps[self.step]
        return spec.branches[place].options if spec.branches and isinstance(place, int) else spec.options

    def budget(self, place: Place) -> int:
        return self._options(place).max_attempts or self.definition.max_attempts or 3

    def cost_of(self, place: Place) -> int:
        """What a handler costs; conditions and reducers nothing."""
        if place == "reducer" or self.definition.steps[self.step].kind == "repeat":
            return 0
        units = self._options(place).cost_units
        return 1 if units is None else units

    def ask_for(self, places: Iterable[Place]) -> None:
        self.open = dict.fromkeys(places, 0)
