"""What a kind of step may say, told by kinds that exist only here: the engine names none."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import queuety.engine
from queuety.engine import kinds
from queuety.engine.decide import decide, decide_all, start
from queuety.engine.jobs import own_task, step_job
from queuety.engine.protocol import Fail, Leave, Run, Stay, Verdict
from queuety.errors import DefinitionError
from queuety.model import (
    AddJob,
    AppendHistory,
    DropWork,
    Due,
    Entry,
    ErrorInfo,
    ErrorKind,
    Event,
    Failed,
    FinishJob,
    HandlerRef,
    Job,
    Priority,
    RetryRun,
    Role,
    SetTimer,
    Span,
    State,
    StepSpec,
    Succeeded,
    WorkflowStatus,
)
from queuety.model.needs import Lacking, NeedGroup
from tests.unit.reference import World, flow, then

LOST = ErrorInfo("nothing to wait for", "WaitUnsatisfiable", kind=ErrorKind.WAIT_UNSATISFIABLE)


class Made:
    NAME = "made"
    task = staticmethod(own_task)

    def __init__(self, enter: Callable[[Run], Verdict], resume: Callable[[Run, Event], Verdict]) -> None:
        self.enter = enter
        self.resume = resume


def no_resume(run: Run, event: Event) -> Verdict:
    raise AssertionError(f"{event} reached a step that does not wait")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., StepSpec]:
    def make(enter: Callable[[Run], Verdict], resume: Callable[[Run, Event], Verdict] = no_resume) -> StepSpec:
        monkeypatch.setitem(kinds.KINDS, "made", Made(enter, resume))
        return StepSpec("made", "made", HandlerRef("app:made"))

    return make


def test_a_kind_that_fails_on_entry_does_not_undo_the_step_before_it(made: Callable[..., StepSpec]) -> None:
    world = World(flow(then("a"), made(lambda _: Fail(LOST))))
    world.succeed({"x": 1})
    run = world.workflow
    assert [(row.entry, row.step_index, row.is_final) for row in world.rows] == [
        (Entry.COMPLETED, 0, False),
        (Entry.FAILED, 1, True),
    ]
    assert (run.status, run.error_kind, run.failed_step) == ("failed", "WaitUnsatisfiable", 1)
    assert (run.state, run.transitions, world.finished) == ({"x": 1}, 1, [101])


def test_a_kind_may_wait_under_a_status_of_its_own(made: Callable[..., StepSpec]) -> None:
    waiting = WorkflowStatus.WAITING_FOR_SIGNAL
    step = made(
        lambda _: Stay((), {"got": []}, waiting),
        lambda run, _: Leave({"kept": dict(run.workflow.runtime or {})}),
    )
    decision = start(41, flow(step, then("b")), {}, now_us=0)
    assert (decision.workflow.status, decision.workflow.runtime, decision.effects) == (waiting, {"got": []}, ())
    after = decide(decision.workflow, flow(step, then("b")), Due(1), now_us=0).workflow
    assert (after.status, after.current_step, after.state, after.runtime) == ("running", 1, {"kept": {"got": []}}, None)


def test_a_kind_asks_for_what_it_must_know_and_gets_it(made: Callable[..., StepSpec]) -> None:
    need = NeedGroup("agents")
    step = made(lambda run: Leave({"seen": run.read(need)}))
    with pytest.raises(Lacking) as lacking:
        start(41, flow(step), {}, now_us=0)
    assert lacking.value.need == need
    decision = start(41, flow(step), {}, now_us=0, facts={need: (7, 8)})
    assert decision.workflow.state == {"seen": (7, 8)}


def test_nothing_is_decided_while_a_fact_is_lacking(made: Callable[..., StepSpec]) -> None:
    step = made(lambda run: Leave({"seen": run.read(NeedGroup("agents"))}))
    world = World(flow(then("a"), step))
    before = world.workflow
    event = world.success({"x": 1})
    with pytest.raises(Lacking):
        decide(before, world.definition, event, now_us=0)
    assert world.workflow == before
    after = decide(before, world.definition, event, now_us=0, facts={NeedGroup("agents"): None}).workflow
    assert (after.status, after.state) == ("completed", {"x": 1, "seen": None})


def test_what_a_step_supersedes_is_dropped_before_what_it_asks_for_next(made: Callable[..., StepSpec]) -> None:
    def enter(run: Run) -> Verdict:
        return Stay(tuple(AddJob(step_job(run, branch=branch)) for branch in range(3)), {"open": 3})

    def resume(run: Run, _: Event) -> Verdict:
        return Stay((AddJob(step_job(run, branch=9)),), {"open": 1}, supersedes="not needed any more")

    definition = flow(made(enter, resume))
    begun = start(41, definition, {}, now_us=0)
    jobs = [
        Job(100 + n, Role.STEP, "default", Priority.LOW, "app:made", 1, 3, n, 0, 0,
            workflow_id=41, step_index=0, visit=1, branch=n)
        for n in range(3)
    ]  # fmt: skip
    events = [Succeeded(job, {}, Span(0, 0, 1)) for job in jobs]
    effects = decide_all(begun.workflow, definition, events, now_us=5)
    assert effects[0] == FinishJob(jobs[0], 5)
    assert [effect for effect in effects if isinstance(effect, DropWork)] == [DropWork(41, "not needed any more", 5)]
    assert [effect.job.branch for effect in effects if isinstance(effect, AddJob)] == [9]
    assert len([effect for effect in effects if isinstance(effect, AppendHistory)]) == 1, "the others came too late"


def test_a_branch_that_fails_for_good_need_not_fail_the_run(made: Callable[..., StepSpec]) -> None:
    def enter(run: Run) -> Verdict:
        return Stay((AddJob(step_job(run, handler=HandlerRef("app:branch"), branch=4)),), {"failed": 0})

    def resume(run: Run, event: Event) -> Verdict:
        if isinstance(event, Failed):
            again = AddJob(step_job(run, branch=5))
            return Stay((again,), {"failed": 1})
        assert isinstance(event, Succeeded)
        return Leave({"failed": (run.workflow.runtime or {})["failed"]}, {"_next_step": None})

    world = World(flow(made(enter, resume)))
    ((new, _, _),) = world.open.values()
    assert (new.handler, new.branch) == ("app:branch", 4)
    world.fail(is_final=True)
    assert world.buried == {101: "boom"}
    assert (world.workflow.status, world.workflow.version, world.workflow.runtime) == ("running", 1, {"failed": 1})
    assert (world.rows[-1].entry, world.rows[-1].is_final, world.rows[-1].changed) == (Entry.FAILED, True, None)
    ((new, _, _),) = world.open.values()
    assert (new.handler, new.branch) == ("app:made", 5)


def test_what_a_kind_adds_as_it_leaves_is_written(made: Callable[..., StepSpec]) -> None:
    step = made(lambda run: Leave({"x": 1}, {"_note": 1}, (SetTimer(run.workflow.id, 99, run.now_us),)))
    decision = start(41, flow(step, then("b")), {}, now_us=5)
    assert SetTimer(41, 99, 5) in decision.effects
    assert decision.workflow.state == {"x": 1}


def test_a_jump_on_entry_may_loop_for_ever_but_not_in_one_turn(made: Callable[..., StepSpec]) -> None:
    world = World(flow(made(lambda _: Leave({}, {"_next_step": "made"}))))
    assert len(world.timers) == 1
    seen = world.workflow.version
    world.fire()
    assert world.workflow.version > seen


def test_a_retry_gives_a_kind_what_its_visit_had_kept(made: Callable[..., StepSpec]) -> None:
    asked: list[tuple[bool, State | None]] = []

    def enter(run: Run) -> Verdict:
        asked.append((run.is_retry, run.workflow.runtime))
        return Stay((AddJob(step_job(run)),), {"done": [1]})

    world = World(flow(made(enter, lambda *_: Fail(LOST))))
    world.fail(is_final=True)
    assert world.workflow.runtime == {"done": [1]}
    world.command(RetryRun())
    assert asked[0] == (False, None)
    assert asked[1:] == [(True, {"done": [1]})] * 2, "the world asks twice"


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(DefinitionError, match=r"step 'x' is of kind 'teleport'.*single, delay"):
        start(41, flow(StepSpec("teleport", "x")), {}, now_us=0)


def test_only_the_kinds_name_themselves() -> None:
    room = Path(queuety.engine.__file__).parent
    names = re.compile("|".join(f'"{name}"' for name in kinds.KINDS))
    texts = {path.name: path.read_text() for path in room.glob("*.py")}
    assert "decide.py" in texts
    assert [name for name, text in texts.items() if names.search(text)] == []
