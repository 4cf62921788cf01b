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

from queuety.model import Definition, HandlerRef, Options, StepSpec
from tests.support.definitions_at_random import Payload, Place, fails_now, returned
from tests.unit.reference_words import OVER, Cancelled, Failing, Mark, NothingMore, Report, public


class Source(Protocol):
    """Who knows what happens next, and how others came out."""

    def next(self, run: Run) -> Mark: ...

    def new_ids(self, run: Run, started: list[tuple[Definition, Payload]]) -> list[int]: ...

    def state_of(self, run_id: int) -> Payload: ...

    def look_ahead(self, run: Run, ids: list[int]) -> None: ...

    def leaves_open(self, *, unless: bool) -> None: ...


@dataclass
class Visit:
    """What one visit of a step keeps when the run fails and is retried."""

    done: dict[Place, Payload] = field(default_factory=dict)
    failures: dict[Place, int] = field(default_factory=dict)
    is_settled: bool = False
    child: int | None = None
    follows: bool = False
    is_again: bool = False


class Run:
    """One run. `status` and the rest are as the run ended, or as far as it came. The kinds are `Telling`'s."""

    def __init__(self, run_id: int, definition: Definition, payload: Payload, source: Source) -> None:
        self.id = run_id
        self.definition = definition
        self.state = dict(payload)
        self.source = source
        self.status = "running"
        self.step = 0
        self.visit = 0
        self.transitions = 0
        self.error: tuple[str, str | None, int] | None = None
        self.cleanup = "none"
        self.signals: list[tuple[str, Payload]] = []  # that no wait has used, as they came
        self.jumps: dict[int, int] = {}
        self.groups: dict[str, list[int]] = {}
        self.kept = Visit()
        self.now_us = 0
        self.around: dict[int, str] = {}
        self.open: dict[Place, int] = {}  # the jobs that may report, and the attempts each has had
        self.due_us: int | None = None

    def tell(self) -> Self:
        try:
            self._begin(self.source.next(self))
            self._go_through()
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
            while self.status == "paused":  # a paused run does not enter the next step
                self.hear()
            changes, following = self._settle(steps[self.step])
            self.state.update(changes)
            self.transitions += 1
            self.step = following
            self.open, self.due_us = {}, None
            if self.status != "paused":
                self.status = "running"
        self.status = "completed"
        while True:
            self.hear()

    def _settle(self, spec: StepSpec) -> tuple[Payload, int]:
        """Go on until the step is settled, over failures and retries: what it merges, and what follows."""
        while True:
            self.open, self.due_us = {}, None
            try:
                output = getattr(self, f"_{spec.kind}")(spec)
                return public(output), self._following(output.get("_next_step"))
            except Failing as failing:
                self._fail(failing)
                self._await_retry(failing)
                self.kept.is_again = True

    def _following(self, wish: Any) -> int:
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

    def _await_retry(self, failing: Failing) -> None:
        """A failed run goes on when somebody says so, or when the child goes on whose end had ended it."""
        while self.status == "failed":
            mark = self.hear()
            is_mine = mark.what == "revived" and mark.id == self.kept.child
            if is_mine and failing.kind in ("ChildFailed", "ChildCancelled"):
                self.kept.follows = True
                self.status = "running"
        self.error = None

    def _cancel(self) -> None:
        self.status = "cancelled"
        undo = self.definition.on_cancel
        if undo is not None:
            budget = self.definition.max_attempts or 3
            self.cleanup = "completed" if (undo.config or {}).get("fails", 0) < budget else "failed"
        try:
            while True:
                self.hear()
        except NothingMore:
            pass

    # what happens

    def _begin(self, mark: Mark) -> None:
        self.now_us, self.around = mark.now_us, mark.standing

    def hear(self) -> Mark:
        """The next thing that may mean something to the step. What is the same for every step is done here."""
        while True:
            mark = self.source.next(self)
            self._begin(mark)
            if mark.what == "signal":
                self.signals.append(mark.signal)
            elif mark.what in ("asked", "refused"):
                self._obey(mark)
            elif mark.what == "told":
                self._obey_parent(mark.command)
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
        """The matrix of 7.1."""
        allowed = {
            "pause": self.status == "running",
            "resume": self.status == "paused",
            "retry": self.status == "failed" and self.cleanup == "none",
            "cancel": self.status not in ("completed", "cancelled"),
        }[mark.command]
        assert allowed is (mark.what == "asked"), f"{mark.command} of a run that is {self.status} was {mark.what}"
        if not allowed:
            return
        if mark.command == "cancel":
            raise Cancelled
        self.status = "paused" if mark.command == "pause" else "running"

    def _obey_parent(self, command: str) -> None:
        if command == "cancel" and self.status not in OVER:
            raise Cancelled
        if command == "retry" and self.status == "failed":
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
                return Report(place, returned(config, self.state, *given), None)
            self.kept.failures[place] = failures + 1
            self.open[place] += 1
            if config.get("final") or self.open[place] >= self.budget(place):
                del self.open[place]
                return Report(place, {}, f"{handler.name} fails at {place}")

    def budget(self, place: Place) -> int:
        spec = self.definition.steps[self.step]
        options: Options = spec.branches[place].options if spec.branches and isinstance(place, int) else spec.options
        return options.max_attempts or self.definition.max_attempts or 3

    def ask_for(self, places: Iterable[Place]) -> None:
        self.open = dict.fromkeys(places, 0)
