"""The rules of a run told once more, plainly: a second opinion that knows nothing of the engine.

`Telling` goes through one run from its first step to its end, one method a kind of step, as the specification says
it (sections 5 to 7). Where it cannot go on by itself, it asks for the next thing that happened (`Mark`); which that
is says its source:

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
from typing import Any, NoReturn, Protocol

from queuety.model import Definition, HandlerRef, Options, StepSpec
from tests.support.definitions_at_random import Payload, Place, fails_now, returned
from tests.unit.reference_words import (
    OVER,
    Cancelled,
    Failing,
    Mark,
    NothingMore,
    Report,
    are_apart,
    handler_of,
    is_same,
    items_at,
    public,
    signal_output,
)


class Source(Protocol):
    """Who knows what happens next, and how others came out."""

    def next(self, run: Telling) -> Mark: ...

    def new_ids(self, run: Telling, started: list[tuple[Definition, Payload]]) -> list[int]: ...

    def state_of(self, run_id: int) -> Payload: ...

    def look_ahead(self, run: Telling, ids: list[int]) -> None: ...

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


class Telling:
    """One run. `status` and the rest are as the run ended, or as far as it came."""

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

    def tell(self) -> Telling:
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

    def _execute(self, places: Collection[Place], handlers: dict[Place, HandlerRef], *arguments: Any) -> Report:
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
            if config.get("final") or self.open[place] >= self._budget(place):
                del self.open[place]
                return Report(place, {}, f"{handler.name} fails at {place}")

    def _budget(self, place: Place) -> int:
        spec = self.definition.steps[self.step]
        options: Options = spec.branches[place].options if spec.branches and isinstance(place, int) else spec.options
        return options.max_attempts or self.definition.max_attempts or 3

    def _ask_for(self, places: Iterable[Place]) -> None:
        self.open = dict.fromkeys(places, 0)

    # the kinds

    def _single(self, spec: StepSpec) -> Payload:
        self._ask_for([None])
        report = self._execute([None], {None: handler_of(spec)})
        if report.error is not None:
            raise Failing("StepFailed", report.error)
        return report.output

    def _delay(self, spec: StepSpec) -> Payload:
        self.due_us = self.now_us + spec.settings["seconds"] * 1_000_000
        while self.now_us < self.due_us:
            while self.hear().what != "due":
                pass
        return {}

    def _parallel(self, spec: StepSpec) -> Payload:
        """Every branch is merged as it comes; the first that fails for good takes the run with it."""
        done = self.kept.done
        handlers: dict[Place, HandlerRef] = {index: branch.handler for index, branch in enumerate(spec.branches)}
        self.source.leaves_open(unless=are_apart(spec))
        self._ask_for([index for index in handlers if index not in done])
        while len(done) < len(spec.branches):
            report = self._execute(handlers, handlers)
            if report.error is not None:
                self.source.leaves_open(unless=False)
                raise Failing("StepFailed", report.error)
            done[report.place] = report.output
            self.state.update(public(report.output))
        return {}

    def _for_each(self, spec: StepSpec) -> Payload:
        """Items until enough have succeeded; then the reducer, which may fail and be retried by itself."""
        key = spec.settings["result_key"]
        if not self.kept.is_settled:
            self.state[key], is_last = self._items(spec), spec.reducer is None
            if is_last:
                return {}
            self.kept.is_settled = True
        assert spec.reducer is not None
        self._ask_for(["reducer"])
        report = self._execute(["reducer"], {"reducer": spec.reducer}, self.state[key])
        if report.error is not None:
            raise Failing("StepFailed", report.error)
        return report.output

    def _items(self, spec: StepSpec) -> Payload:
        settings, done = spec.settings, self.kept.done
        items = items_at(self.state, settings["items_key"])
        if items is None:
            raise Failing("ForEachUnsatisfiable")
        mode, total = settings["mode"], len(items)
        needed = {"all": total, "first_success": 1, "quorum": settings.get("quorum", 0)}[mode]
        if needed > total:
            raise Failing("ForEachUnsatisfiable")
        handler = handler_of(spec)
        survivors = [index for index in range(total) if not self._dies(handler, index)]
        is_certain = needed == total == len(survivors) or needed > len(survivors)
        self.source.leaves_open(unless=is_certain or needed == 0)
        lost: dict[Place, str] = {}  # failures before a retry are forgotten
        handlers: dict[Place, HandlerRef] = dict.fromkeys(range(total), handler)
        self._ask_for([index for index in range(total) if index not in done])
        while len(done) < needed:
            report = self._execute(handlers, handlers, items)
            if report.error is None:
                done[report.place] = public(report.output)
                continue
            lost[report.place] = report.error
            if mode == "all":
                raise Failing("StepFailed", report.error)
            if total - len(lost) < needed:
                raise Failing("ForEachUnsatisfiable")
        results = {
            index: {"index": index, "item": item, "output": done[index]}
            for index, item in enumerate(items)
            if index in done
        }
        return {
            "mode": mode,
            "quorum": settings.get("quorum"),
            "total": total,
            "succeeded": len(done),
            "failed": len(lost),
            "settled": True,
            "winner": next((results[index] for index in done if isinstance(index, int)), None),
            "results": list(results.values()),
            "failures": [
                {"index": index, "item": items[index], "error_message": lost[index]}
                for index in range(total)
                if index in lost
            ],
        }

    def _dies(self, handler: HandlerRef, index: int) -> bool:
        config = dict(handler.config or {})
        attempts = 1 if config.get("final") else self._budget(index)
        return fails_now(config, index, attempts - 1)

    def _repeat(self, spec: StepSpec) -> Payload:
        settings = spec.settings
        if spec.handler is None:
            matched = is_same(self.state.get(settings["state_key"]), settings["expected"])
        else:
            self._ask_for([None])
            report = self._execute([None], {None: spec.handler})
            if report.error is not None:
                raise Failing("StepFailed", report.error)
            matched = report.output["_matched"]
        if matched is settings["until"]:
            self.jumps[self.step] = 0
            return {}
        if self.jumps.get(self.step, 0) == settings["max_iterations"]:
            raise Failing("ConstraintViolation")
        self.jumps[self.step] = self.jumps.get(self.step, 0) + 1
        return {"_next_step": settings["target"]}

    def _wait_for_signal(self, spec: StepSpec) -> Payload:
        """The earliest fitting signals that nobody has used, of each name or at all; used once the wait is over."""
        settings = spec.settings
        if "timeout" in settings:
            self.due_us = self.now_us + settings["timeout"] * 1_000_000
        is_over = False
        while not (chosen := self._chosen(settings)):
            if is_over and "on_timeout" in settings:
                return {"_next_step": settings["on_timeout"]}
            if is_over:
                raise Failing("WaitTimeout")
            self.status = "waiting_for_signal"
            mark = self.hear()
            is_over = mark.what == "due" and self.due_us is not None and mark.now_us >= self.due_us
        self.source.leaves_open(unless="timeout" not in settings)
        self.signals = [signal for number, signal in enumerate(self.signals) if number not in chosen.values()]
        return signal_output(settings, {name: self._used[name] for name in chosen})

    def _chosen(self, settings: Any) -> dict[str, int]:
        """By name in the configured order, which signals satisfy the wait; none if it is not satisfied."""
        fitting: dict[str, int] = {}
        for number, (name, payload) in enumerate(self.signals):
            if name in settings["names"] and name not in fitting and self._fits(settings, payload):
                fitting[name] = number
        if settings["mode"] == "any" and fitting:
            first = min(fitting, key=fitting.__getitem__)
            fitting = {first: fitting[first]}
        elif len(fitting) < len(settings["names"]):
            return {}
        self._used = {name: self.signals[number][1] for name, number in fitting.items()}
        return {name: fitting[name] for name in settings["names"] if name in fitting}

    def _fits(self, settings: Any, payload: Payload) -> bool:
        wanted, key = settings.get("match_payload") or {}, settings.get("correlation_key")
        if any(name not in payload or not is_same(payload[name], value) for name, value in wanted.items()):
            return False
        return key is None or (key in payload and key in self.state and is_same(payload[key], self.state[key]))

    def _wait_for_workflows(self, spec: StepSpec) -> Payload:
        """Until enough runs have completed, or too many are lost. Which those are is settled at the entry."""
        settings = spec.settings
        ids = self._ids(settings)
        self.source.look_ahead(self, ids)
        needed = {"all": len(ids), "any": 1, "quorum": settings.get("quorum", 0)}[settings["mode"]]
        while True:
            completed = [one for one in ids if self._standing(one) == "completed"]
            active = [one for one in ids if self._standing(one) not in (*OVER, "absent")]
            if len(completed) + len(active) < needed:
                raise Failing("WaitUnsatisfiable")
            if len(completed) >= needed:
                break
            self.status = "waiting_for_workflows"
            while self.hear().what not in ("settled", "signal", "due"):
                pass
        self.source.leaves_open(unless=len(completed) == needed)
        chosen = completed[:1] if settings["mode"] == "any" else completed
        states = {one: self.source.state_of(one) for one in chosen}
        if "result_key" not in settings:
            return {key: value for state in states.values() for key, value in state.items()}
        if not settings["keyed"]:
            return {settings["result_key"]: next(iter(states.values()), {})}
        return {settings["result_key"]: {str(one): state for one, state in states.items()}}

    def _ids(self, settings: Any) -> list[int]:
        if "group" in settings:
            if settings["group"] not in self.groups:
                raise Failing("WaitUnsatisfiable")
            named: Any = self.groups[settings["group"]]
        elif isinstance(settings["workflows"], str):
            if settings["workflows"] not in self.state:
                raise Failing("WaitUnsatisfiable")
            named = self.state[settings["workflows"]]
        else:
            named = settings["workflows"]
        ids: list[int] = []
        for one in named if isinstance(named, list | tuple) else [named]:
            number = int(one) if isinstance(one, str) and one.isdecimal() else one
            if type(number) is not int or number < 1 or number == self.id:
                raise Failing("WaitUnsatisfiable")
            if number not in ids:
                ids.append(number)
        if len(ids) > 1 and not settings["keyed"]:
            raise Failing("WaitUnsatisfiable")
        return ids

    def _standing(self, run_id: int) -> str:
        """How another run stands as last committed; one that is started in the same transaction is running."""
        return self.around.get(run_id, "absent")

    def _start_workflows(self, spec: StepSpec) -> Payload:
        settings, child = spec.settings, spec.child
        assert child is not None
        items = items_at(self.state, settings["items_key"])
        if items is None:
            raise Failing("StepFailed")
        payloads: list[tuple[Definition, Payload]] = []
        for index, item in enumerate(items):
            payload = dict(self.state) if settings["inherit_state"] else {}
            payload.pop(settings["items_key"], None)
            payload.pop(settings["result_key"], None)
            payload.update(public(item) if isinstance(item, dict) else {settings["payload_key"]: item})
            payloads.append((child, {**payload, "start_item_index": index}))
        ids = self.source.new_ids(self, payloads)
        if "group" in settings:
            self.groups[settings["group"]] = ids
        return {settings["result_key"]: ids}

    def _run_workflow(self, spec: StepSpec) -> Payload:
        """Parked on one child; a retry asks a failed child to go on, and replaces only one that cannot."""
        assert spec.child is not None
        child, follows = self.kept.child, self.kept.follows
        self.kept.follows = False
        must_wait = False
        if child is None or (not follows and self._standing(child) == "cancelled"):
            child = self.kept.child = self.source.new_ids(self, [(spec.child, dict(self.state))])[0]
        elif not follows and self._standing(child) == "failed":
            must_wait = True  # it was asked to go on, and still stands as it did
        self.source.look_ahead(self, [child])
        while True:
            how = self._standing(child)
            if must_wait or how not in OVER:
                while self.hear().what != "child":
                    pass
                must_wait = False
            elif how == "completed":
                return self.source.state_of(child)
            else:
                self._child_is_lost(child, how)

    def _child_is_lost(self, child: int, how: str) -> NoReturn:
        raise Failing("ChildFailed" if how == "failed" else "ChildCancelled", f"because of {child}")
