"""Each kind of step told once more, as one goes through it: see `reference_runs`."""

from __future__ import annotations

from typing import Any, NoReturn

from queuety.model import Definition, HandlerRef, RunNow, StepSpec
from tests.support.definitions_at_random import Payload, Place, fails_now
from tests.unit.reference_means import Pending
from tests.unit.reference_runs import Run
from tests.unit.reference_words import (
    LOOSE,
    OVER,
    Failing,
    are_apart,
    handler_of,
    is_same,
    is_written_alike,
    items_at,
    public,
    signal_output,
)


class Telling(Run):
    """A method for each kind, by its name: it returns what is merged and where to go, or raises `Failing`."""

    def _single(self, spec: StepSpec) -> Payload:
        self.ask_for([None])
        report = self.execute([None], {None: handler_of(spec)})
        if report.error is not None:
            raise Failing("StepFailed", report.error)
        self.pending.cost = report.cost
        return report.output

    def _delay(self, spec: StepSpec) -> Payload:
        """Until its time has come, or somebody does not want to wait for it. A retry waits as long as the first time"""
        if self.kept.due_us is None:
            self.kept.due_us = self.now_us + spec.settings["seconds"] * 1_000_000
        self.due_us = self.kept.due_us
        while self.now_us < self.due_us:
            self.kept.is_delaying = True
            mark = self.hear()
            while mark.what != "due":
                if mark.what == "asked" and isinstance(mark.given, RunNow):
                    return {}
                mark = self.hear()
        return {}

    def _parallel(self, spec: StepSpec) -> Payload:
        """Every branch is merged as it comes; the first that fails for good takes the run with it."""
        done, guards = self.kept.done, self.definition.guards
        handlers: dict[Place, HandlerRef] = {index: branch.handler for index, branch in enumerate(spec.branches)}
        is_measured = guards is not None and guards.max_state_bytes is not None
        self.source.leaves_open(unless=are_apart(spec) and not is_measured)
        self.ask_for([index for index in handlers if index not in done])
        while len(done) < len(spec.branches):
            report = self.execute(handlers, handlers)
            if report.error is not None:
                self.source.leaves_open(unless=False)
                raise Failing("StepFailed", report.error)
            if len(done) == len(spec.branches) - 1:
                self.pending.cost = report.cost
                return public(report.output)
            self.state = self.means.merged(self.state, public(report.output), self.step, report.cost)
            done[report.place] = report.output
        return {}

    def _for_each(self, spec: StepSpec) -> Payload:
        """Items until enough have succeeded; then the reducer, which may fail and be retried by itself."""
        settings = spec.settings
        if not self.kept.is_settled:
            aggregate = {settings["result_key"]: self._items(spec)}
            if spec.reducer is None:
                return aggregate
            self.state = self.means.merged(self.state, aggregate, self.step, self.pending.cost)
            self.pending, self.kept.last = Pending(), None
            self.kept.is_settled = True
            self.kept.holds = frozenset({settings["items_key"], settings["result_key"]})
        assert spec.reducer is not None
        self.ask_for(["reducer"])
        report = self.execute(["reducer"], {"reducer": spec.reducer}, self.state[settings["result_key"]])
        if report.error is not None:
            raise Failing("StepFailed", report.error)
        return report.output

    def _items(self, spec: StepSpec) -> Payload:
        """The aggregate; what the last item costs is still to be paid, and it is run again if the step is not left."""
        settings, done, guards = spec.settings, self.kept.done, self.definition.guards
        items = self._items_at(settings["items_key"])
        if items is None:
            raise Failing("ForEachUnsatisfiable")
        mode, total = settings["mode"], len(items)
        if not self.kept.holds:
            self.means.check_items(total)
        needed = {"all": total, "first_success": 1, "quorum": settings.get("quorum", 0)}[mode]
        if needed > total:
            raise Failing("ForEachUnsatisfiable")
        self.kept.holds = frozenset({settings["items_key"]}) if total else frozenset()
        handler = handler_of(spec)
        survivors = [index for index in range(total) if not self._dies(handler, index)]
        is_paid = guards is not None and guards.max_cost_units is not None
        is_certain = needed == total == len(survivors) or (needed > len(survivors) and not is_paid)
        self.source.leaves_open(unless=is_certain or needed == 0)
        lost: dict[Place, str] = {}  # failures before a retry are forgotten
        handlers: dict[Place, HandlerRef] = dict.fromkeys(range(total), handler)
        self.ask_for([index for index in range(total) if index not in done])
        while len(done) < needed:
            report = self.execute(handlers, handlers, items)
            if report.error is None:
                if len(done) == needed - 1:
                    self.pending.cost, self.kept.last = report.cost, report.place
                else:
                    self.means.merged(self.state, {}, self.step, report.cost)
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
        attempts = 1 if config.get("final") else self.budget(index)
        return fails_now(config, index, attempts - 1)

    def _repeat(self, spec: StepSpec) -> Payload:
        settings = spec.settings
        if spec.handler is None:
            matched = is_same(self.state.get(settings["state_key"]), settings["expected"])
        else:
            self.ask_for([None])
            report = self.execute([None], {None: spec.handler})
            if report.error is not None:
                raise Failing("StepFailed", report.error)
            matched = report.output["_matched"]
        if matched is settings["until"]:
            self.pending.jumps = 0
            return {}
        if self.jumps.get(self.step, 0) >= settings["max_iterations"]:
            raise Failing("ConstraintViolation")
        self.pending.jumps = self.jumps.get(self.step, 0) + 1
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
        self.pending.using = frozenset(chosen.values())
        return signal_output(settings, {name: self.arrived[number][1] for name, number in chosen.items()})

    def _chosen(self, settings: Any) -> dict[str, int]:
        """By name in the configured order, which signals satisfy the wait; none if it is not satisfied."""
        fitting: dict[str, int] = {}
        for number, (name, payload) in enumerate(self.arrived):
            if number in self.used:
                continue
            if name in settings["names"] and name not in fitting and self._fits(settings, payload):
                fitting[name] = number
        if settings["mode"] == "any" and fitting:
            first = min(fitting, key=fitting.__getitem__)
            fitting = {first: fitting[first]}
        elif len(fitting) < len(settings["names"]):
            return {}
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
            while self.hear().what != "settled":
                pass
        self.source.leaves_open(unless=len(completed) == needed)
        chosen = completed[:1] if settings["mode"] == "any" else completed
        states = {one: self.source.state_of(self, one) for one in chosen}
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

    def _items_at(self, key: str) -> list[Any] | None:
        """The items; taken from an aggregate, they are values that came about in the order in which jobs did."""
        source = self.state.get(key)
        self.source.leaves_open(unless=not isinstance(source, dict) or LOOSE.isdisjoint(source))
        return items_at(self.state, key)

    def _start_workflows(self, spec: StepSpec) -> Payload:
        settings, child = spec.settings, spec.child
        assert child is not None
        items = self._items_at(settings["items_key"])
        if items is None:
            raise Failing("StepFailed")
        self.means.check_started(len(items))
        payloads: list[tuple[Definition, Payload]] = []
        for index, item in enumerate(items):
            payload = dict(self.state) if settings["inherit_state"] else {}
            payload.pop(settings["items_key"], None)
            payload.pop(settings["result_key"], None)
            payload.update(public(item) if isinstance(item, dict) else {settings["payload_key"]: item})
            payloads.append((child, {**payload, "start_item_index": index}))
        ids = self.pending.ids = self.source.new_ids(self, payloads)
        self.pending.started = len(ids)
        if "group" in settings:
            self.pending.group = settings["group"], ids
        return {settings["result_key"]: ids}

    def _run_workflow(self, spec: StepSpec) -> Payload:
        """Parked on one child; a retry asks a failed child to go on, and replaces only one that cannot."""
        assert spec.child is not None
        child, follows = self.kept.child, self.kept.follows
        self.kept.follows = False
        must_wait = False
        if child is None or (not follows and self._standing(child) in ("cancelled", "undone")):
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
                state = self.source.state_of(self, child)  # what it has left as it was, it has not written
                same = [key for key in state if key in self.state and is_written_alike(state[key], self.state[key])]
                return {key: value for key, value in state.items() if key not in same}
            else:
                self._child_is_lost(child, how)

    def _child_is_lost(self, child: int, how: str) -> NoReturn:
        raise Failing("ChildCancelled" if how == "cancelled" else "ChildFailed", f"because of {child}")
