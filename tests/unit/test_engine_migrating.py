"""Moving a run to another definition: what is safe, what is asked for, what is refused, and what it comes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from queuety import step
from queuety import workflow as described
from queuety.define.builder import WorkflowBuilder
from queuety.engine.migrating import Move, MoveVerdict, assess
from queuety.engine.pairing import is_from_place, paired
from queuety.errors import InvalidStateError
from queuety.model import (
    Branch,
    Cancel,
    CleanupStatus,
    Command,
    Commanded,
    Definition,
    DropTimers,
    Effect,
    Entry,
    ErrorInfo,
    Event,
    Failed,
    HandlerRef,
    LetterKind,
    Migrate,
    Options,
    Pause,
    Resume,
    RetryRun,
    Role,
    SaveWorkflow,
    Send,
    Signalled,
    Span,
    StepSpec,
    Succeeded,
    Workflow,
    WorkflowStatus,
)
from queuety.model.needs import Need, NeedOpenJobs, OpenJobs
from queuety.worker.post import event_of
from tests.conftest import PROOF
from tests.unit.reference_world import Open, Paper, World

RUN = 10_000_001
SECOND = 1_000_000
SAFE, NEEDS_MAP, BLOCKED = MoveVerdict.SAFE, MoveVerdict.NEEDS_MAP, MoveVerdict.BLOCKED


@step
def handled(state: dict[str, Any]) -> None: ...


@step
def handled_item(state: dict[str, Any], item: Any, index: int) -> None: ...


EVERY_DEFAULT: list[Callable[[WorkflowBuilder], WorkflowBuilder]] = [
    lambda builder: builder.then(handled),
    lambda builder: builder.parallel([handled]),
    lambda builder: builder.for_each("items", handled_item),
    lambda builder: builder.repeat_until("first", "done"),
    lambda builder: builder.repeat_while("first", "done"),
    lambda builder: builder.run_workflow("inner", described("inner").then(handled)),
    lambda builder: builder.start_workflows("items", described("inner").then(handled)),
    lambda builder: builder.start_agents("items", described("inner").then(handled)),
    lambda builder: builder.delay(seconds=1),
    lambda builder: builder.wait_for_signal("go"),
    lambda builder: builder.wait_for_signals(["go"]),
    lambda builder: builder.wait_for_signals(["go", "on"]),
    lambda builder: builder.wait_for_approval(),
    lambda builder: builder.wait_for_input(),
    lambda builder: builder.wait_for_decision(),
    lambda builder: builder.wait_for_workflow("id"),
    lambda builder: builder.wait_for_workflows("ids"),
    lambda builder: builder.wait_for_workflow_group("group"),
    lambda builder: builder.wait_for_agents(),
    lambda builder: builder.wait_for_agent_group(),
]
"""Each method of the builder that adds a step, without a name for it."""


def then(name: str, handler: str | None = None, **more: Any) -> StepSpec:
    return StepSpec("single", name, HandlerRef(f"app:{handler or name}"), **more)


def delay(name: str, seconds: float = 60) -> StepSpec:
    return StepSpec("delay", name, settings={"seconds": seconds})


def wait(name: str, signal: str = "go", **more: Any) -> StepSpec:
    return StepSpec("wait_for_signal", name, settings={"names": [signal], "mode": "all", **more})


def parallel(name: str, *handlers: str) -> StepSpec:
    return StepSpec("parallel", name, branches=tuple(Branch(HandlerRef(f"app:{one}")) for one in handlers))


def each(name: str, handler: str | None = None) -> StepSpec:
    settings = {"items_key": "items", "result_key": f"r_{name}", "mode": "all"}
    return StepSpec("for_each", name, HandlerRef(f"app:{handler or name}"), settings=settings)


def again(name: str, target: str, **more: Any) -> StepSpec:
    return StepSpec(
        "repeat", name, settings={"until": True, "target": target, "state_key": "ok", "expected": 1, **more}
    )


def inner(name: str, *steps: StepSpec, child: str = "child") -> StepSpec:
    return StepSpec("run_workflow", name, child=flow(*steps, name=child))


def flow(*steps: StepSpec, name: str = "flow", **more: Any) -> Definition:
    """A definition whose hash tells it from every other one of these tests."""
    return Definition(name, steps, hash=f"{abs(hash(repr((name, steps, more)))):064x}", **more)


class Moving(World):
    """The world on paper, in which a run may change its definition; one run, `RUN`, is looked at."""

    def __init__(self, definition: Definition, payload: dict[str, Any] | None = None, *others: Definition) -> None:
        children = [spec.child for spec in definition.steps if spec.child is not None]
        super().__init__({one.hash: one for one in (definition, *others, *children)})
        self.operation = 0
        self.effects: list[Effect] = []
        with self.answering():
            self.dispatch([(RUN, definition, payload or {})])

    def _answer(self, run_id: int, need: Need) -> Any:
        if not isinstance(need, NeedOpenJobs):
            return super()._answer(run_id, need)
        jobs = [held for held in self.runs[run_id].jobs.values() if held.new.role is Role.STEP]
        leased = sum(held.token is not None for held in jobs)
        delayed = sum(held.token is None and held.due_us > self.now_us for held in jobs)
        return OpenJobs(leased, delayed, len(jobs) - leased - delayed)

    def write(self, effects: Iterable[Effect]) -> None:
        """As there; what was written last is kept."""
        self.effects = list(effects)
        super().write(self.effects)

    def _write(self, effect: Any) -> None:
        super()._write(effect)
        if isinstance(effect, SaveWorkflow):
            self.runs[effect.workflow.id].definition = self.definitions[effect.workflow.definition_hash]

    @property
    def paper(self) -> Paper:
        return self.runs[RUN]

    @property
    def run(self) -> Workflow:
        return self.paper.workflow

    @property
    def step(self) -> str:
        return self.paper.definition.steps[self.run.current_step].name

    def tell(self, *events: Event, run_id: int = RUN) -> None:
        with self.answering():
            self.happen({run_id: events})

    def command(self, command: Command) -> None:
        self.operation += 1
        self.tell(Commanded(command, self.operation, "ann"))

    def signal(self, name: str = "go") -> None:
        self.operation += 1
        self.tell(Signalled(name, {}, self.operation))

    def assess(self, new: Definition, step_map: Mapping[str, str] | None = None) -> Move:
        known = self._answer(RUN, NeedOpenJobs())
        return assess(self.run, self.paper.definition, new, step_map or {}, open_jobs=known, now_us=self.now_us)

    def move(self, new: Definition, step_map: Mapping[str, str] | None = None) -> Move:
        """Moves the run, and sees that it is as was said before."""
        for one in (new, *(spec.child for spec in new.steps if spec.child is not None)):
            self.definitions = {**self.definitions, one.hash: one}
        move, was = self.assess(new, step_map), self.run
        self.command(Migrate(new, step_map or {}))
        assert move.verdict is SAFE
        assert self.run.definition_hash == new.hash
        assert self.run.total_steps == len(new.steps)
        row = next(row for row in self.paper.rows[was.version :] if row.entry is Entry.MIGRATED)
        told = (row.control or {})["_migrated"]
        assert (told["from"], told["to"], told["to_step"]) == (was.definition_hash, new.hash, move.to_step)
        assert (told["from_step"], told["keeps_visit"]) == (was.current_step, move.keeps_visit)
        return move

    # work

    def jobs(self) -> list[Open]:
        return [held for held in self.paper.jobs.values() if held.token is None and held.due_us <= self.now_us]

    def take(self) -> Succeeded:
        """The first job that may be run, in hand."""
        return Succeeded(self.claim(self.jobs()[0]), {}, Span(self.now_us, self.now_us, 1))

    def succeed(self) -> None:
        self.tell(self.take())

    def fail(self, *, is_final: bool = True) -> None:
        job = self.take().job
        self.tell(Failed(job, ErrorInfo("boom", "ValueError"), Span(self.now_us, self.now_us, 1), is_final))

    def act(self, which: int) -> bool:
        """One of the things that may happen by themselves in any run; False if nothing may."""
        jobs = [held for paper in self.runs.values() for held in paper.jobs.values()]
        ready = [held for held in jobs if held.token is None and held.due_us <= self.now_us]
        letters = [letter for due_us, letter in self.letters if due_us <= self.now_us]
        waiting = [one for one, paper in self.runs.items() if paper.workflow.status == "waiting_for_signal"]
        moments = [held.due_us for held in jobs] + [due_us for due_us, _ in self.letters]
        moments = [moment for moment in moments if moment > self.now_us]
        count = len(ready) + len(letters) + len(waiting)
        if not count:
            if not moments:
                return False
            self.now_us = min(moments)
            return True
        which %= count
        if which < len(ready):
            held = ready[which]
            done = Succeeded(self.claim(held), {}, Span(self.now_us, self.now_us, 1))
            self.tell(done, run_id=held.new.workflow_id or 0)
        elif which < len(ready) + len(letters):
            letter = letters[which - len(ready)]
            self.letters = [entry for entry in self.letters if entry[1] is not letter]
            happened = event_of(letter)
            assert happened is not None
            self.tell(happened, run_id=letter.workflow_id)
        else:
            self.operation += 1
            self.tell(Signalled("go", {}, self.operation), run_id=waiting[which - len(ready) - len(letters)])
        return True

    def finish(self) -> None:
        """Everything that may happen does, until the run is over."""
        for _ in range(1_000):
            if self.run.status is WorkflowStatus.PAUSED:
                self.command(Resume())
            elif self.run.status is WorkflowStatus.FAILED:
                self.command(RetryRun())
            if not self.act(0):
                break
        assert self.run.status is WorkflowStatus.COMPLETED, self.run

    def settled(self) -> list[str]:
        """The steps that have settled, by the names that they had then."""
        names: list[str] = []
        definition = self.first
        for row in self.paper.rows:
            if row.entry is Entry.MIGRATED:
                definition = self.definitions[(row.control or {})["_migrated"]["to"]]
            elif row.entry.settles:
                names.append(definition.steps[row.step_index or 0].name)
        return names

    @property
    def first(self) -> Definition:
        """The definition that the run has begun with."""
        moved = [row.control or {} for row in self.paper.rows if row.entry is Entry.MIGRATED]
        return self.definitions[moved[0]["_migrated"]["from"]] if moved else self.paper.definition


OLD = flow(then("a"), then("b"), then("c"))


# where it stands


def test_a_step_that_stays_where_it_is_keeps_its_job() -> None:
    world = Moving(OLD)
    world.succeed()
    before, held = world.run, dict(world.paper.jobs)
    move = world.move(flow(then("a", "a2"), then("b"), then("x"), then("c")))
    assert (move.to_step, move.keeps_visit) == (1, True)
    assert move.reason == "step 'b' is the same there, and its jobs go on as they were"
    assert world.paper.jobs == held
    assert (world.run.visit, world.run.version) == (before.visit, before.version + 1)
    world.finish()
    assert world.settled() == ["a", "b", "x", "c"]


def test_a_step_that_is_being_run_goes_on_if_it_stays_where_it_is() -> None:
    world = Moving(OLD)
    running = world.take()
    assert world.move(flow(then("a"), then("c"))).keeps_visit
    world.tell(running)
    assert world.step == "c"
    world.finish()
    assert world.settled() == ["a", "c"]


def test_a_job_that_nobody_runs_is_replaced_where_its_step_moves() -> None:
    world = Moving(OLD)
    world.succeed()
    visit = world.run.visit
    move = world.move(flow(then("x"), then("a"), then("b"), then("c")))
    assert (move.to_step, move.keeps_visit) == (2, False)
    moved = "step 'b' starts over in a new visit: it has moved from 1 to 2"
    assert move.reason == f"{moved}; it is past step 'x', new there"
    (held,) = world.paper.jobs.values()
    assert (held.new.step_index, held.new.visit, world.run.visit) == (2, visit + 1, visit + 1)
    world.finish()
    assert world.settled() == ["a", "b", "c"]


def test_a_job_of_a_step_that_does_something_else_now_is_replaced() -> None:
    world = Moving(OLD)
    move = world.move(flow(then("a", "new_a"), then("b"), then("c")))
    assert move.reason == "step 'a' starts over in a new visit: what it does has changed"
    (held,) = world.paper.jobs.values()
    assert held.new.handler == "app:new_a"


@pytest.mark.parametrize(
    "new",
    [flow(then("x"), then("a"), then("b")), flow(then("a", "new_a"), then("b"))],
    ids=["moved", "changed"],
)
def test_a_step_that_is_being_run_is_not_taken_away(new: Definition) -> None:
    world = Moving(OLD)
    running = world.take()
    move = world.assess(new)
    assert move.verdict is BLOCKED
    assert "step 'a' is being run" in move.reason
    assert "pause the run and try again when the step has settled" in move.reason
    before = world.run
    with pytest.raises(InvalidStateError, match=r"workflow 10000001 \('flow'\) cannot be moved to .*, blocked: "):
        world.command(Migrate(new))
    assert world.run is before
    world.command(Pause())
    world.tell(running)
    assert world.move(new).reason.startswith("step 'b' has not begun")
    world.finish()
    assert world.settled() == ["a", "b"]


def test_how_a_step_is_run_and_undone_may_change_under_its_job() -> None:
    world = Moving(OLD)
    world.take()
    tuned = then("a", options=Options(timeout_s=5, max_attempts=9), compensation=HandlerRef("app:undo"))
    assert world.move(flow(tuned, then("b"))).keeps_visit


def test_a_job_is_replaced_if_it_would_wait_in_a_queue_of_before() -> None:
    world = Moving(OLD)
    new = flow(then("a", options=Options(queue="fast")), then("b"))
    assert world.assess(new).reason == "step 'a' starts over in a new visit: its jobs wait in another queue there"
    running = world.take()
    assert world.assess(new).verdict is BLOCKED
    world.tell(running)
    world.move(flow(*OLD.steps, queue="slow"))
    (held,) = world.paper.jobs.values()
    assert held.new.queue == "slow"


def test_a_delay_keeps_its_time_wherever_its_step_is() -> None:
    world = Moving(flow(delay("d"), then("b")))
    assert "it goes on as it was" in world.move(flow(then("x"), delay("d"), then("b"))).reason
    world.now_us += 60 * SECOND
    world.act(0)
    assert (world.step, world.settled()) == ("b", ["d"])


def test_a_delay_that_has_another_length_starts_over() -> None:
    world = Moving(flow(delay("d", 60), then("b")))
    world.now_us += 50 * SECOND
    assert not world.move(flow(delay("d", 20), then("b"))).keeps_visit
    assert [due_us for due_us, _ in world.letters] == [world.now_us + 20 * SECOND], "the old timer is gone"


def test_a_wait_that_starts_over_finds_what_has_come() -> None:
    old = flow(StepSpec("wait_for_signal", "w", settings={"names": ["go", "more"], "mode": "all"}), then("b"))
    world = Moving(old)
    world.signal("go")
    assert not world.move(flow(wait("w", "go", timeout=5), then("b"))).keeps_visit
    assert (world.step, world.paper.used) == ("b", {2})


def test_a_wait_that_was_on_its_way_elsewhere_keeps_its_signals() -> None:
    world = Moving(flow(wait("w"), then("b")))
    assert world.move(flow(then("x"), wait("w"), then("b"))).keeps_visit
    assert world.run.status is WorkflowStatus.WAITING_FOR_SIGNAL
    world.signal()
    assert world.step == "b"


def test_the_child_of_a_step_goes_on_under_its_own_definition() -> None:
    world = Moving(flow(inner("i", then("x")), then("b")))
    (child,) = world.paper.children
    assert world.move(flow(then("new"), inner("i", then("x"), then("y")), then("b"))).keeps_visit
    world.finish()
    assert world.paper.children == [child]
    assert world.settled() == ["i", "b"]


def test_the_child_of_a_step_that_runs_another_workflow_is_cancelled() -> None:
    world = Moving(flow(inner("i", then("x")), then("b")))
    (child,) = world.paper.children
    move = world.move(flow(inner("i", then("x"), child="other"), then("b")))
    assert move.reason.endswith(f"workflow {child}, its child, is cancelled")
    assert [letter.workflow_id for _, letter in world.letters if letter.kind is LetterKind.CANCEL] == [child]
    world.finish()
    assert len(world.paper.children) == 2
    assert world.settled() == ["i", "b"]


@pytest.mark.parametrize("step", [parallel("p", "one", "two"), each("p")], ids=["parallel", "for_each"])
def test_parts_that_have_completed_hold_a_step_where_it_is(step: StepSpec) -> None:
    world = Moving(flow(step, then("b")), {"items": [1, 2]})
    moved = flow(then("x"), step, then("b"))
    assert not world.assess(moved).keeps_visit, "nothing of it is lost yet"
    world.succeed()
    move = world.assess(moved)
    assert move.verdict is BLOCKED
    assert "parts of step 'p' have completed, and it has moved from 0 to 1" in move.reason
    assert world.move(flow(step, then("x"), then("b"))).keeps_visit, "where it is it goes on"
    world.finish()
    assert world.settled() == ["p", "x", "b"]
    assert sum(row.entry in (Entry.BRANCH, Entry.ITEM) for row in world.paper.rows) == 2


def test_a_step_of_another_kind_has_to_be_asked_for() -> None:
    world = Moving(flow(then("a"), wait("w"), then("c")))
    world.succeed()
    new = flow(then("a"), then("w"), then("c"))
    move = world.assess(new)
    assert move.verdict is NEEDS_MAP
    assert "step 'w' is of kind wait_for_signal and has begun; there it is of kind single" in move.reason
    assert not world.move(new, {"w": "w"}).keeps_visit
    assert world.run.status is WorkflowStatus.RUNNING
    world.finish()
    assert world.settled() == ["a", "w", "c"]


# names


def test_a_step_that_is_gone_needs_a_map() -> None:
    world = Moving(OLD)
    world.succeed()
    new = flow(then("a"), then("b2", "b"), then("c"))
    assert world.assess(new) == Move(
        NEEDS_MAP,
        "there is no step 'b' (step 'b2' does the same); say in the step map which one it is, or at which one to go on",
    )
    assert world.assess(new, {"b": "nowhere"}).verdict is NEEDS_MAP
    assert (
        world.move(new, {"b": "b2"}).reason
        == "step 'b' (there 'b2') is the same there, and its jobs go on as they were"
    )
    world.finish()
    assert world.settled() == ["a", "b2", "c"]


def test_a_step_that_is_gone_may_be_left_for_a_later_one() -> None:
    world = Moving(OLD)
    world.succeed()
    assert not world.move(flow(then("a"), then("c")), {"b": "c"}).keeps_visit
    world.finish()
    assert world.settled() == ["a", "c"]


def test_a_name_that_comes_from_the_place_is_no_name() -> None:
    old = flow(then("0", "a"), then("1", "b"), wait("wait_for_go"), then("3", "c"))
    new = flow(then("0", "x"), then("1", "a"), then("2", "b"), wait("wait_for_go"), then("4", "c"))
    world = Moving(old)
    world.succeed()
    move = world.assess(new)
    assert move.verdict is NEEDS_MAP
    assert move.reason.startswith("step '1' is named by its place, where another step is now (step '2' does the same)")
    assert world.move(new, {"1": "2"}).to_step == 2
    world.succeed()
    assert world.move(old, {"wait_for_go": "wait_for_go"}).keeps_visit
    world.finish()
    assert world.settled() == ["0", "2", "wait_for_go", "3"]


def test_what_stays_at_its_place_may_go_without_a_name() -> None:
    world = Moving(flow(then("0", "a"), delay("delay_0"), then("2", "b")))
    world.succeed()
    assert world.move(flow(then("0", "a"), delay("delay_0"), then("2", "x"), then("3", "b"))).keeps_visit


def test_the_second_of_two_waits_makes_the_first_one_doubtful() -> None:
    old, new = (
        flow(wait("wait_for_go", result_key="r")),
        flow(wait("wait_for_go"), wait("wait_for_go_2", result_key="r")),
    )
    assert paired(old, new).places == (None,)
    assert paired(old, flow(wait("wait_for_go", timeout=9))).places == (0,)


@pytest.mark.parametrize("add", EVERY_DEFAULT)
def test_every_default_name_is_known_that_comes_from_the_place(add: Any) -> None:
    """What is called otherwise with another step before it, or with the same before it, is known for that."""

    def names(*before: Any) -> list[str]:
        builder: WorkflowBuilder = described("w").delay(seconds=1, step_name="first")
        for one in (*before, add):
            one(builder)
        definition = builder.delay(seconds=1, step_name="last").build()
        return [spec.name for spec in definition.steps[len(before) + 1 : -1]]

    (name,) = names()
    (with_another,) = names(lambda builder: builder.delay(seconds=1))
    (with_its_like,) = names(add)
    assert is_from_place(name) or name == with_another
    assert is_from_place(with_its_like)


def test_a_step_that_was_done_is_not_done_again_unless_somebody_says_so() -> None:
    world = Moving(OLD)
    world.succeed()
    new = flow(then("b"), then("a"), then("c"))
    move = world.assess(new)
    assert (move.verdict, move.to_step) == (NEEDS_MAP, 0)
    assert move.reason == (
        "the run would do step 'a' again: before step 'b' here, after it there; map it to itself (a=a) if it is to"
    )
    world.move(new, {"a": "a"})
    world.finish()
    assert world.settled() == ["a", "b", "a", "c"]


def test_a_step_that_is_still_to_be_done_is_not_left_out_unless_somebody_says_so() -> None:
    world = Moving(OLD)
    world.succeed()
    new = flow(then("a"), then("c"), then("b"))
    move = world.assess(new)
    assert move.verdict is NEEDS_MAP
    assert move.reason == (
        "the run would leave out step 'c': after step 'b' here, before it there; map it to itself (c=c) if it is to"
    )
    world.move(new, {"c": "c"})
    world.finish()
    assert world.settled() == ["a", "b"]


# counts and times


def test_rounds_follow_their_step() -> None:
    old = flow(then("a"), again("r", "a", max_iterations=3), then("b"))
    world = Moving(old)
    world.succeed()
    world.succeed()
    assert world.run.loops == {"1": 2}
    assert world.move(flow(then("x"), then("a"), again("r", "a", max_iterations=5), then("b"))).to_step == 1
    assert world.run.loops == {"2": 2}
    renamed = flow(then("a2", "a"), again("r2", "a2", max_iterations=5))
    assert world.move(renamed, {"a": "a2", "r": "r2"}).reason.endswith("it has moved from 1 to 0")
    assert world.run.loops == {"1": 2}
    move = world.move(flow(then("a2", "a"), then("z")))
    assert move.reason.endswith("; rounds are counted anew of step 'r2'")
    assert world.run.loops is None


def test_a_loop_whose_target_was_renamed_is_the_same_loop() -> None:
    world = Moving(flow(then("a"), again("r", "a"), wait("w")), {"ok": 2})
    asked = StepSpec("repeat", "r", HandlerRef("app:enough"), settings={"until": True, "target": "a"})
    world = Moving(flow(then("a"), asked))
    world.succeed()
    world.take()
    there = replace(asked, settings={"until": True, "target": "z"})
    assert world.assess(flow(then("z", "a"), there)).verdict is BLOCKED
    assert world.assess(flow(then("z", "a"), there), {"a": "z"}).keeps_visit


def test_keys_stay_as_old_as_they_are() -> None:
    old = flow(then("a"), then("b"), then("c"), prune_after=5)
    world = Moving(old)
    for key in ("one", "two"):
        world.tell(replace(world.take(), output={key: 1}))
    assert world.run.ledger == {"writers": {"one": 0, "two": 1}}
    world.move(flow(then("x"), then("y"), then("b"), then("c"), prune_after=5))
    assert world.run.ledger == {"writers": {"one": 1, "two": 2}}, "one was two steps ago, and is"
    world.move(old)
    assert world.run.ledger == {"writers": {"one": 0, "two": 1}}


def test_what_could_be_undone_is_remembered() -> None:
    old = flow(then("a", compensation=HandlerRef("app:undo", {"k": 1})), then("b"))
    world = Moving(old)
    world.succeed()
    world.move(flow(then("b")))
    row = world.paper.rows[-1]
    assert row.entry is Entry.MIGRATED
    assert row.step_index == 1, "the step of the definition that it leaves"
    assert (row.control or {})["_by"] == {"actor": "ann"}
    assert (row.control or {})["_migrated"]["compensations"] == {"0": {"name": "app:undo", "config": {"k": 1}}}
    assert world.run.ledger == {"moved": True}


def test_another_deadline_counts_from_the_start_of_the_run() -> None:
    world = Moving(flow(then("a"), then("b"), deadline_s=60))
    began_us = world.now_us
    world.now_us += 30 * SECOND
    world.move(flow(then("a"), then("b"), deadline_s=90))
    assert world.run.deadline_us == began_us + 90 * SECOND
    letter = Send(RUN, LetterKind.DEADLINE, began_us + 90 * SECOND)
    assert [one for one in world.effects if isinstance(one, Send | DropTimers)] == [
        DropTimers(RUN, LetterKind.DEADLINE),
        letter,
    ]
    move = world.assess(flow(then("a"), then("b"), deadline_s=20))
    assert (move.verdict, move.reason) == (BLOCKED, "there a run has 20 s from its start, and those are over")
    world.move(flow(then("a")))
    assert world.run.deadline_us is None


# status


def test_a_failed_run_is_moved_and_retried_there() -> None:
    world = Moving(OLD)
    world.succeed()
    world.fail()
    new = flow(then("x"), then("a"), then("b"), then("c"))
    move = world.move(new)
    assert move.reason.startswith("step 'b' has failed; a retry goes on with it there")
    assert (world.run.status, world.run.failed_step, world.run.current_step) == (WorkflowStatus.FAILED, 2, 2)
    world.finish()
    assert world.settled() == ["a", "b", "c"]


def test_a_failed_step_that_was_mended_starts_over_at_the_retry() -> None:
    world = Moving(OLD)
    world.fail()
    visit = world.run.visit
    assert not world.move(flow(then("a", "mended"), then("b"))).keeps_visit
    assert (world.run.status, world.paper.jobs) == (WorkflowStatus.FAILED, {})
    world.command(RetryRun())
    (held,) = world.paper.jobs.values()
    assert (held.new.handler, held.new.visit) == ("app:mended", visit + 1)


def test_what_has_completed_of_a_failed_step_is_kept_if_it_is_the_same_there() -> None:
    step = parallel("p", "one", "two")
    world = Moving(flow(step, then("b")))
    world.succeed()
    world.fail()
    assert world.assess(flow(parallel("p", "one", "mended"))).verdict is BLOCKED
    assert world.move(flow(then("x"), step, then("b"))).keeps_visit
    world.command(RetryRun())
    assert [held.new.branch for held in world.paper.jobs.values()] == [1]
    world.finish()
    assert world.settled() == ["p", "b"]


def test_a_paused_run_stays_paused() -> None:
    world = Moving(OLD)
    world.command(Pause())
    world.move(flow(then("a", "new_a"), then("b")))
    assert (world.run.status, world.run.runtime, world.paper.jobs) == (WorkflowStatus.PAUSED, {"entered": False}, {})
    world.finish()
    assert world.settled() == ["a", "b"]


def test_a_step_that_has_not_begun_may_be_anything_there() -> None:
    world = Moving(OLD)
    world.command(Pause())
    world.succeed()
    assert world.move(flow(then("a"), wait("b"), then("c"))).reason == "step 'b' has not begun"
    world.command(Resume())
    assert world.run.status is WorkflowStatus.WAITING_FOR_SIGNAL


@pytest.mark.parametrize(
    ("change", "new", "reason"),
    [
        ({}, OLD, "it is under this definition already"),
        ({}, flow(then("a"), name="other"), "it is a run of workflow 'flow', and that is a definition of 'other'"),
        ({"status": WorkflowStatus.COMPLETED, "current_step": 3}, flow(then("a")), "it is completed"),
        ({"status": WorkflowStatus.CANCELLED}, flow(then("a")), "it is cancelled"),
        (
            {"status": WorkflowStatus.FAILED, "cleanup": CleanupStatus.PENDING},
            flow(then("a")),
            "it is failed, and what follows from that has begun (compensation_status pending)",
        ),
        ({"current_step": 3}, flow(then("a")), "its definition has no step 3"),
    ],
)
def test_what_cannot_be_moved_says_why(change: dict[str, Any], new: Definition, reason: str) -> None:
    run = replace(Moving(OLD).run, **change)
    assert assess(run, OLD, new, {}) == Move(BLOCKED, reason)


def test_a_migration_is_undone_by_one_back() -> None:
    world = Moving(OLD)
    world.succeed()
    new = flow(then("a"), then("x"), then("b"), then("c"))
    world.move(new)
    world.move(OLD)
    world.finish()
    assert world.settled() == ["a", "b", "c"]
    assert [row.entry for row in world.paper.rows].count(Entry.MIGRATED) == 2


def test_a_cancelled_run_is_not_moved() -> None:
    world = Moving(OLD)
    world.command(Cancel())
    with pytest.raises(InvalidStateError, match="blocked: it is cancelled"):
        world.command(Migrate(flow(then("a"))))


# at random

KINDS = ("single", "single", "delay", "wait", "parallel", "each", "inner")


@st.composite
def steps(draw: st.DrawFn, name: str) -> StepSpec:
    """A step that settles by itself once whatever it waits for has come."""
    kind = draw(st.sampled_from(KINDS))
    handler = draw(st.sampled_from([name, name, "shared"]))
    match kind:
        case "delay":
            return delay(name, draw(st.sampled_from([0, 5, 9])))
        case "wait":
            return wait(name)
        case "parallel":
            return parallel(name, *(f"{handler}{number}" for number in range(draw(st.integers(1, 3)))))
        case "each":
            return each(name, handler)
        case "inner":
            return inner(name, then("x"), child=draw(st.sampled_from(["child", "child", "other"])))
    return then(name, handler)


NAMES = [f"s{number}" for number in range(8)] + [str(number) for number in range(3)]


@st.composite
def edits(draw: st.DrawFn) -> tuple[Definition, Definition, dict[str, str]]:
    """A definition, one that was edited, and a map of what was renamed, or of only some of that."""
    names = draw(st.permutations(NAMES))
    count = draw(st.integers(2, 6))
    old = [draw(steps(name)) for name in names[:count]]
    fresh = names[count:]
    new, renamed = list(old), {}
    for number in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(new)))
        edit = draw(st.sampled_from(["insert", "insert", "remove", "rename", "swap", "change"]))
        if edit == "insert" and fresh:
            new.insert(at, draw(steps(fresh.pop())))
        elif at == len(new):
            continue
        elif edit == "remove" and len(new) > 1:
            del new[at]
        elif edit == "rename" and fresh:
            name = fresh.pop()
            if draw(st.booleans()):
                renamed[new[at].name] = name
            new[at] = replace(new[at], name=name)
        elif edit == "swap":
            new[at], new[0] = new[0], new[at]
        elif edit == "change":
            new[at] = draw(steps(new[at].name)) if number % 2 else replace(new[at], options=Options(queue="other"))
    there = {spec.name for spec in new}
    return flow(*old), flow(*new, version="2"), {one: name for one, name in renamed.items() if name in there}


@settings(
    max_examples=2_000 if PROOF else 250, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    edits(), st.lists(st.integers(0, 99), max_size=25), st.sampled_from(["", "pause", "fail", "hold"]), st.booleans()
)
def test_what_is_safe_is_done_and_the_run_goes_through(
    edited: tuple[Definition, Definition, dict[str, str]], tape: list[int], before: str, goes_back: bool
) -> None:
    old, new, step_map = edited
    world = Moving(old, {"items": [1, 2]}, new)
    for which in tape:
        world.act(which)
    in_hand = None
    if world.run.status is WorkflowStatus.RUNNING and before == "pause":
        world.command(Pause())
        world.act(0)
    elif world.jobs() and before == "fail":
        world.fail()
    elif world.jobs() and before == "hold":
        in_hand = world.take()
    was = world.run
    move = world.assess(new, step_map)
    event(f"{move.verdict} {'keeps' if move.keeps_visit else 'anew' if move.to_step is not None else ''}")
    if move.verdict is not SAFE:
        with pytest.raises(InvalidStateError):
            world.command(Migrate(new, step_map))
        assert world.run is was
        return
    assert move.to_step is not None
    settled = world.settled()
    places = paired(old, new, step_map).places
    world.move(new, step_map)
    if in_hand is not None:
        assert move.keeps_visit, "what is in hand is not taken away"
        world.tell(in_hand)
    definition, to_step = new, move.to_step
    if goes_back and in_hand is None and world.run.current_step == to_step and not world.run.status.is_terminal:
        back = world.assess(old, {there: name for name, there in step_map.items()})
        event(f"back: {back.verdict}")
        if back.verdict is SAFE and back.to_step is not None:
            settled = world.settled()
            world.move(old, {there: name for name, there in step_map.items()})
            definition, to_step = old, back.to_step
    world.finish()
    assert world.settled() == settled + [spec.name for spec in definition.steps[to_step:]]
    check_parts(world)
    if definition is new:
        for index, place in enumerate(places):
            if place is not None and old.steps[index].name not in step_map:
                is_done, is_to_be_done = index < was.current_step, place >= to_step
                assert is_done != is_to_be_done, "a step is done twice, or never"


def check_parts(world: Moving) -> None:
    """No part of a step is merged twice in one visit."""
    parts = [
        (row.visit, row.job.branch)
        for row in world.paper.rows
        if row.job is not None and row.entry in (Entry.BRANCH, Entry.ITEM)
    ]
    assert len(parts) == len(set(parts))
