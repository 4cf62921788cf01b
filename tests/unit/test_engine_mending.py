"""What operators do to a run: what each verb does, where it is refused, and that a refusal changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queuety.errors import ConstraintViolation, DefinitionError, InvalidStateError, SnapshotMissingError
from queuety.model import (
    AppendHistory,
    Branch,
    Cancel,
    ChildSettled,
    ClearChunks,
    Command,
    CompleteStep,
    Definition,
    DropTimers,
    Due,
    Entry,
    ErrorKind,
    Fork,
    Guards,
    HandlerRef,
    HurryJobs,
    LetterKind,
    Options,
    PatchState,
    Pause,
    Resume,
    RetryRun,
    Rewind,
    RunNow,
    Send,
    SkipStep,
    StartRun,
    StepSpec,
    WorkflowStatus,
)
from queuety.model.needs import Signal
from tests.unit.reference import SECOND, delay, flow, then
from tests.unit.several import Several
from tests.unit.stage import Stage

CHILD = Definition("child", (then("work"),), hash="c" * 64)
NEW = 9000


def undone(name: str) -> StepSpec:
    return StepSpec("single", name, HandlerRef(f"app:{name}"), compensation=HandlerRef(f"app:undo_{name}"))


def beside(*names: str) -> StepSpec:
    return StepSpec("parallel", "p", branches=tuple(Branch(HandlerRef(f"app:{name}")) for name in names))


def each(*, reducer: bool = False) -> StepSpec:
    settings = {"items_key": "items", "result_key": "out", "mode": "all"}
    last = HandlerRef("app:reduce") if reducer else None
    return StepSpec("for_each", "each", HandlerRef("app:item"), Options(), settings, reducer=last)


def until(count: int, target: str = "a", name: str = "r", **settings: Any) -> StepSpec:
    settings = {"until": True, "target": target, "state_key": "n", "expected": count, **settings}
    return StepSpec("repeat", name, settings=settings)


def signalled(*names: str, step: str = "wait", **settings: Any) -> StepSpec:
    return StepSpec("wait_for_signal", step, settings={"names": list(names or ("go",)), "mode": "all", **settings})


def waiting_for(*ids: int) -> StepSpec:
    settings = {"workflows": list(ids), "mode": "all", "keyed": True, "result_key": "got"}
    return StepSpec("wait_for_workflows", "others", settings=settings)


def starting() -> StepSpec:
    settings = {"items_key": "items", "result_key": "ids", "payload_key": "item", "inherit_state": False, "group": "g"}
    return StepSpec("start_workflows", "s", settings=settings, child=CHILD)


def within() -> StepSpec:
    return StepSpec("run_workflow", "w", child=CHILD)


def at(stage: Stage) -> tuple[str, int, dict[str, Any]]:
    """Where the run stands."""
    run = stage.workflow
    return str(run.status), run.current_step, dict(run.state)


def assert_refused(stage: Stage, command: Command, error: type[Exception], match: str) -> None:
    """Nothing at all has changed."""
    before = (stage.workflow, list(stage.rows), dict(stage.open), list(stage.timers), list(stage.sent))
    with pytest.raises(error, match=match):
        stage.command(command)
    assert before == (stage.workflow, stage.rows, stage.open, stage.timers, stage.sent)


# the matrix: every status, every verb


def running() -> Stage:
    stage = Stage(flow(undone("a"), then("b"), then("c"), compensates_on_failure=False))
    stage.succeed({"a": 1})
    return stage


def paused() -> Stage:
    stage = running()
    stage.command(Pause())
    return stage


def paused_between_steps() -> Stage:
    stage = paused()
    stage.succeed({"b": 1})
    return stage


def waiting_for_a_signal() -> Stage:
    stage = Stage(flow(then("a"), signalled(), then("c")))
    stage.succeed({"a": 1})
    return stage


def waiting_for_a_run() -> Stage:
    stage = Stage(flow(then("a"), waiting_for(7), then("c")))
    stage.stands(7, WorkflowStatus.RUNNING)
    stage.succeed({"a": 1})
    return stage


def delayed() -> Stage:
    stage = Stage(flow(then("a"), delay("d", 60), then("c")))
    stage.succeed({"a": 1})
    return stage


def backing_off() -> Stage:
    stage = running()
    stage.fail()
    return stage


def parked() -> Stage:
    stage = Stage(flow(then("a"), within(), then("c")))
    stage.succeed({"a": 1})
    return stage


def completed() -> Stage:
    stage = running()
    stage.succeed()
    stage.succeed()
    return stage


def failed() -> Stage:
    stage = running()
    stage.fail(is_final=True)
    return stage


def compensated() -> Stage:
    stage = Stage(flow(undone("a"), then("b"), then("c"), compensates_on_failure=True))
    stage.succeed({"a": 1})
    stage.fail(is_final=True)
    return stage


def cancelled() -> Stage:
    stage = running()
    stage.command(Cancel())
    return stage


STANDS: list[Callable[[], Stage]] = [
    running,
    paused,
    paused_between_steps,
    waiting_for_a_signal,
    waiting_for_a_run,
    delayed,
    backing_off,
    parked,
    completed,
    failed,
    compensated,
    cancelled,
]

GOES_BACK = dict.fromkeys((one.__name__ for one in STANDS), "running") | {"compensated": None, "cancelled": None}
IS_LEFT = GOES_BACK | {"completed": None, "paused": "paused", "paused_between_steps": "completed"}
BEFORE_A_WAIT: dict[str, str | None] = {
    "waiting_for_a_signal": "waiting_for_signal",
    "waiting_for_a_run": "waiting_for_workflows",
}
"""A run that goes back to before a wait waits again."""

VERBS: dict[str, tuple[Command, dict[str, str | None]]] = {
    "pause": (
        Pause(),
        {"running": "paused", "delayed": "paused", "backing_off": "paused", "parked": "paused"},
    ),
    "resume": (Resume(), {"paused": "running", "paused_between_steps": "running"}),
    "retry": (RetryRun(), {"failed": "running"}),
    "cancel": (
        Cancel(),
        {one.__name__: "cancelled" for one in STANDS if one not in (completed, cancelled)},
    ),
    "rewind": (Rewind(0), GOES_BACK | BEFORE_A_WAIT),
    "rewind to the last step": (Rewind(2), {"completed": "completed"}),
    "fork": (Fork(NEW), {one: "same" for one, how in GOES_BACK.items() if how and one != "completed"}),
    "fork at an earlier step": (Fork(NEW, at_step=0), {one: "same" for one, how in GOES_BACK.items() if how}),
    "skip": (SkipStep(), IS_LEFT),
    "complete": (CompleteStep({"made": 1}), IS_LEFT),
    "patch": (
        PatchState({"patched": 1}),
        {one: "same" for one, how in GOES_BACK.items() if how and one != "completed"},
    ),
    "run now": (RunNow(), {"delayed": "running", "backing_off": "running"}),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("stand", STANDS, ids=lambda stand: stand.__name__)
def test_what_each_verb_leads_to_in_each_status(stand: Callable[[], Stage], verb: str) -> None:
    command, leads_to = VERBS[verb]
    stage = stand()
    expected = leads_to.get(stand.__name__)
    before = stage.workflow
    if expected is None:
        expects_past = verb == "rewind to the last step" and stand not in (compensated, cancelled)
        assert_refused(stage, command, SnapshotMissingError if expects_past else InvalidStateError, "workflow 41")
        return
    stage.command(command)
    assert stage.workflow.status == (before.status if expected == "same" else expected)
    assert stage.workflow.version > before.version


def test_rewind_to_a_step_that_never_settled_is_missing_a_snapshot() -> None:
    for stand in (running, failed, waiting_for_a_signal):
        message = r"No recorded state found: workflow 41 has not settled step 2 \('c'\)"
        assert_refused(stand(), Rewind(2), SnapshotMissingError, message)


@pytest.mark.parametrize("command", [Rewind(-1), Rewind(3), Fork(NEW, at_step=-1), Fork(NEW, at_step=9), Rewind("no")])
def test_a_step_that_there_is_not_is_named(command: Command) -> None:
    assert_refused(running(), command, DefinitionError, "workflow 41 has no step .* it has 0 .'a'., 1 .'b'., 2 .'c'.")


# who and why


SAID: list[tuple[Callable[[], Stage], Command, Entry]] = [
    (running, Pause(), Entry.PAUSED),
    (paused, Resume(), Entry.CONTINUED),
    (failed, RetryRun(), Entry.RETRIED),
    (failed, RetryRun({"x": 1}), Entry.RETRIED),
    (running, Cancel(), Entry.CANCELLED),
    (running, Rewind(0), Entry.REWOUND),
    (running, Fork(NEW), Entry.FORKED),
    (running, SkipStep(), Entry.SKIPPED),
    (running, CompleteStep({"x": 1, "_next_step": "a"}), Entry.COMPLETED),
    (running, PatchState({"x": 1}), Entry.PATCHED),
    (delayed, RunNow(), Entry.HURRIED),
]


@pytest.mark.parametrize(("stand", "command", "entry"), SAID, ids=lambda one: getattr(one, "__name__", repr(one)))
def test_the_row_says_who_and_why(stand: Callable[[], Stage], command: Command, entry: Entry) -> None:
    for actor, reason, by in (
        ("ann", "it was wrong", {"actor": "ann", "reason": "it was wrong"}),
        ("ann", None, {"actor": "ann"}),
        (None, "late", {"reason": "late"}),
        (None, None, None),
    ):
        stage = stand()
        asked = stage.commanded(command, actor, reason)
        rows = [effect for effect in stage.tell(asked) if isinstance(effect, AppendHistory)]
        assert (rows[0].entry, rows[0].token, rows[0].job) == (entry, asked.operation, None)
        assert (rows[0].control or {}).get("_by") == by


# rewind


def test_a_rewind_goes_on_after_the_step_in_the_state_of_then() -> None:
    stage = Stage(flow(then("a"), then("b"), then("c"), then("d")), {"x": 0})
    stage.succeed({"a": 1})
    stage.succeed({"x": 2, "b": 1})
    stage.succeed({"c": 1})
    (job_id,) = stage.open
    visit, transitions = stage.workflow.visit, stage.workflow.transitions
    stage.command(Rewind(0))
    assert at(stage) == ("running", 1, {"x": 0, "a": 1})
    run = stage.workflow
    assert (run.visit, run.transitions) == (visit + 1, transitions), "what has been used up stays used up"
    assert stage.buried == {job_id: "Superseded by workflow rewind"}
    row = stage.rows[-1]
    assert (row.entry, row.changed, row.removed, row.step_index) == (Entry.REWOUND, {"x": 0}, ("b", "c"), 3)
    assert (row.control or {})["_rewound"] == {"to_step": 0, "to_seq": 1}
    stage.succeed({"b": 2})
    assert at(stage) == ("running", 2, {"x": 0, "a": 1, "b": 2})


def test_a_step_is_named_or_given_by_its_index() -> None:
    one, other = running(), running()
    one.command(Rewind("a"))
    other.command(Rewind(0))
    assert one.workflow == other.workflow


def test_what_is_said_is_merged_into_the_state_of_then() -> None:
    stage = Stage(flow(then("a"), then("b"), then("c")))
    stage.succeed({"a": 1})
    stage.succeed({"b": 1})
    stage.command(Rewind(0, with_state={"a": 5, "hint": None}))
    assert at(stage) == ("running", 1, {"a": 5, "hint": None})
    assert_refused(stage, Rewind(0, with_state={"_hidden": 1}), DefinitionError, "keys that start with _ are reserved")


def test_the_order_of_keys_is_that_of_the_history() -> None:
    """A key that was taken out and comes back stands last, as whoever folds the rows will find it."""
    stage = Stage(flow(then("a"), then("b"), then("c"), prune_after=1))
    stage.succeed({"a": 1, "kept": 1})
    stage.succeed({"kept": 2})
    stage.command(Rewind(0))
    assert list(stage.workflow.state) == ["kept", "a"]


def test_a_rewind_of_a_completed_run_revives_it() -> None:
    stage = completed()
    stage.command(Rewind(1))
    run = stage.workflow
    assert (run.status, run.current_step, run.completed_us) == ("running", 2, None)
    stage.succeed()
    assert stage.workflow.status == "completed"


def test_a_rewind_to_the_last_step_completes_the_run_at_once() -> None:
    stage = completed()
    stage.now_us = 7
    stage.command(Rewind(2, with_state={"x": 1}))
    run = stage.workflow
    assert (run.status, run.current_step, run.completed_us, run.state["x"], stage.open) == ("completed", 3, 7, 1, {})


def test_a_rewind_of_a_failed_run_forgets_its_failure() -> None:
    stage = failed()
    stage.command(Rewind(0))
    run = stage.workflow
    assert (run.error_message, run.error_kind, run.failed_step, run.failed_us) == (None, None, None, None)


@pytest.mark.parametrize("what", ["parallel", "for_each", "delay", "signal", "runs"])
def test_what_was_under_way_begins_anew(what: str) -> None:
    specs = {
        "parallel": beside("x", "y"),
        "for_each": each(),
        "delay": delay("d", 60),
        "signal": signalled("go", "on", timeout=60),
        "runs": waiting_for(7),
    }
    stage = Stage(flow(then("a"), specs[what], then("c")))
    stage.stands(7, WorkflowStatus.RUNNING)
    stage.succeed({"items": [1, 2]})
    first = stage.workflow.runtime
    if what in ("parallel", "for_each"):
        stage.tell(stage.good(0, {"x": 1}))
        late = stage.good(1, {"y": 1})
    elif what == "signal":
        stage.signal("go", {"early": 1})
    stage.now_us = SECOND
    stage.command(Rewind(0))
    kept = stage.workflow.runtime or {}
    if what in ("parallel", "for_each"):
        assert (kept["done"], stage.branches(), "x" in stage.workflow.state) == (0, [0, 1], False)
        assert stage.tell(late) == []
    elif what == "delay":
        assert (first, [timer.due_us for timer in stage.timers]) == ({"due_us": 60 * SECOND}, [61 * SECOND])
    elif what == "signal":
        assert kept == {"matched": ["go"], "due_us": 61 * SECOND}, "nobody had used it"
    else:
        assert [letter.visit for letter in stage.sent] == [2, 3]


def test_signals_that_later_steps_have_used_may_be_used_again() -> None:
    stage = Stage(flow(then("a"), signalled("go", step="w1"), signalled("go", step="w2"), then("d")))
    stage.signal("go", {"n": 1})
    stage.signal("go", {"n": 2})
    stage.signal("go", {"n": 3})
    stage.succeed()
    assert stage.workflow.current_step == 3
    stage.command(Rewind(1))
    assert at(stage) == ("running", 3, {"n": 2}), "the second wait has its signal again, and not the first one's"
    stage.command(Rewind(0))
    assert at(stage) == ("running", 3, {"n": 2})
    assert [signal.payload for signal in stage.signals] == [{"n": 3}]


def test_a_signal_is_given_back_once_however_often_it_was_used() -> None:
    stage = Stage(flow(then("a"), signalled(), then("c")))
    stage.signal("go")
    stage.succeed()
    for _ in range(3):
        stage.command(Rewind(0))
        assert stage.workflow.current_step == 2
    assert stage.signals == []


def back_before_a_wait() -> Stage:
    """The wait has used the signal, a step after it has settled, and the run has gone back before it."""
    stage = Stage(flow(then("a"), then("b"), signalled(step="w"), then("c"), then("d")))
    stage.signal("go", {"n": 1})
    for name in "abc":
        stage.succeed({name: 1})
    stage.command(Rewind(0))
    assert [signal.payload for signal in stage.signals] == [{"n": 1}]
    return stage


@pytest.mark.parametrize("again", [False, True])
def test_a_rewind_that_is_taken_back_has_its_signals_used_again(again: bool) -> None:
    stage = back_before_a_wait()
    if again:
        stage.succeed({"b": 2})
        assert (stage.workflow.current_step, stage.signals) == (3, [])
    stage.command(Rewind("c"))
    assert at(stage) == ("running", 4, {"a": 1, "b": 1, "n": 1, "c": 1})
    assert stage.signals == [], "the wait that counts again has used it"


def test_a_fork_of_what_was_taken_back_has_its_signals_used() -> None:
    stage = back_before_a_wait()
    there, here = fork_of(stage, at_step="d").seed, fork_of(stage).seed
    assert (there and there.signals, here and here.signals) == ((), (("go", {"n": 1}),))


def test_the_latest_time_that_a_step_has_settled_counts() -> None:
    stage = Stage(flow(then("a"), until(2), then("c")))
    stage.succeed({"n": 1, "first": 1})
    stage.succeed({"n": 2, "second": 1})
    stage.succeed({"c": 1})
    stage.command(Rewind(0))
    assert at(stage) == ("running", 2, {"n": 2, "first": 1, "second": 1})
    assert stage.workflow.transitions == 6, "the repeat after it was asked again"


def test_rounds_are_counted_anew_of_loops_after_the_step_and_of_the_one_that_it_is() -> None:
    steps = (then("a"), until(9, name="r", max_iterations=2), then("b"), until(9, "b", name="s"), then("c"))
    stage = Stage(flow(*steps))
    stage.succeed({"n": 1})
    assert stage.workflow.loops == {"1": 1}
    stage.command(Rewind(1))
    assert (stage.workflow.current_step, stage.workflow.loops) == (2, None)
    stage.succeed({"_next_step": "a"})
    stage.succeed({"n": 2})
    stage.succeed({"n": 2})
    assert (stage.workflow.current_step, stage.workflow.loops) == (0, {"1": 2})
    stage.succeed({"_next_step": "b"})
    stage.succeed({})
    assert stage.workflow.loops == {"1": 2, "3": 1}
    stage.command(Rewind(2))
    assert (stage.workflow.current_step, stage.workflow.loops) == (2, {"1": 2, "3": 1}), "asked again, it went back"
    stage.command(Rewind(0))
    assert (stage.workflow.current_step, stage.workflow.loops) == (0, {"1": 1}), "so did this one, for the first time"


def test_a_child_that_goes_on_is_told_to_end_and_nobody_waits_for_it() -> None:
    stage = parked()
    stage.command(Rewind(0))
    assert stage.sent == [Send(1000, LetterKind.CANCEL, 0, {"parent": 41})]
    assert (stage.workflow.runtime, [run.workflow_id for run in stage.started]) == ({"child": 1001}, [1000, 1001])
    stage.stands(1000, WorkflowStatus.COMPLETED, {"late": 1})
    assert stage.workflow.ledger == {"left": [1000]}
    stage.tell(ChildSettled(1000, WorkflowStatus.COMPLETED, is_clean=True))
    assert (stage.workflow.ledger, stage.workflow.runtime) == (None, {"child": 1001})
    assert stage.tell(ChildSettled(1000, WorkflowStatus.COMPLETED, is_clean=True)) == []


def test_what_a_streaming_step_had_yielded_is_forgotten() -> None:
    stage = running()
    assert ClearChunks(41, 2, None) in stage.command(Rewind(0))
    stage = Stage(flow(then("a"), beside("x", "y")))
    stage.succeed()
    cleared = [effect for effect in stage.command(Rewind(0)) if isinstance(effect, ClearChunks)]
    assert cleared == [ClearChunks(41, 2, None), ClearChunks(41, 2, 0), ClearChunks(41, 2, 1)]


def test_a_rewind_that_fails_at_once_has_failed_and_has_gone_back() -> None:
    stage = Stage(flow(then("a"), each(), then("c")))
    stage.succeed({"items": []})
    stage.command(Rewind(0, with_state={"items": 7}))
    assert at(stage) == ("failed", 1, {"items": 7})
    assert [row.entry for row in stage.rows[-2:]] == [Entry.REWOUND, Entry.FAILED]


# fork


def fork_of(stage: Stage, **how: Any) -> StartRun:
    """Fork the run: nothing else of it changes but that a row tells of it."""
    before, jobs = stage.workflow, dict(stage.open)
    stage.command(Fork(NEW, **how), "ann", "to try it")
    run, row = stage.workflow, stage.rows[-1]
    assert (row.entry, row.control) == (
        Entry.FORKED,
        {"_forked": {"to": NEW}, "_by": {"actor": "ann", "reason": "to try it"}},
    )
    assert (run.version, stage.open) == (before.version + 1, jobs)
    assert (run.status, run.state, run.visit, run.current_step) == (
        before.status, before.state, before.visit, before.current_step,
    )  # fmt: skip
    return stage.started[-1]


def test_a_fork_goes_on_from_here_with_what_has_been_used_up() -> None:
    stage = Stage(flow(then("a"), starting(), then("c"), until(5), guards=Guards(max_cost_units=99)), {"items": [1]})
    stage.now_us = 5 * SECOND
    stage.succeed({"n": 1, "_next_step": "s"})
    stage.succeed({})
    assert (stage.workflow.current_step, stage.workflow.loops) == (0, {"3": 1})
    stage.signal("later", {"k": 1})
    started = fork_of(stage, with_state={"n": 2})
    assert (started.workflow_id, started.payload, started.parent_id) == (
        NEW,
        {"items": [1], "n": 2, "ids": [1000]},
        None,
    )
    seed = started.seed
    assert seed is not None
    assert (seed.origin_id, seed.name, seed.step, seed.transitions) == (41, "flow_fork_5", 0, 4)
    assert (seed.ledger, seed.loops) == ({"cost": 2, "started": 1}, {"3": 1})
    assert (seed.signals, seed.groups) == ((("later", {"k": 1}),), (("g", (1000,)),))
    assert (seed.actor, seed.reason) == ("ann", "to try it")


def test_a_fork_of_an_earlier_step_begins_where_it_was_last_entered() -> None:
    stage = Stage(flow(then("a"), signalled(), then("c"), then("d")), {"x": 0})
    stage.succeed({"a": 1})
    stage.signal("other", {"n": 1})
    stage.signal("go", {"said": 1})
    stage.succeed({"c": 1})
    started = fork_of(stage, at_step=1)
    seed = started.seed
    assert seed is not None
    assert (started.payload, seed.step) == ({"x": 0, "a": 1}, 1)
    assert seed.signals == (("other", {"n": 1}), ("go", {"said": 1})), "what was used since is free again"
    assert fork_of(stage, at_step="c").payload == {"x": 0, "a": 1, "said": 1}
    assert fork_of(stage, at_step=0).payload == {"x": 0}
    assert fork_of(stage, at_step=3).payload == stage.workflow.state, "where it stands"
    assert_refused(waiting_for_a_signal(), Fork(NEW, at_step=2), SnapshotMissingError, "has not entered step 2")


def test_a_step_that_was_never_entered_or_lies_in_a_loop_is_told_apart() -> None:
    stage = Stage(flow(then("a"), then("jumped"), then("b"), until(2), then("end")))
    stage.succeed({"n": 1, "_next_step": "b"})
    stage.succeed({"b": 1})
    stage.succeed({"n": 2, "_next_step": "b"})
    assert fork_of(stage, at_step="a").payload == {"n": 1, "b": 1}, "its last visit was in the second round"
    assert_refused(stage, Fork(NEW, at_step="jumped"), SnapshotMissingError, "has not entered step 1")


def family_of(*steps: StepSpec, **how: Any) -> Several:
    world = Several()
    world.start(1, flow(*steps, **how), {"items": [1, 2]})
    return world


@pytest.mark.parametrize("what", ["paused", "failed", "for_each", "parallel", "signal", "child"])
def test_the_new_run_enters_the_step_by_itself(what: str) -> None:
    specs = {
        "paused": then("b"),
        "failed": then("b"),
        "for_each": each(),
        "parallel": beside("x", "y"),
        "signal": signalled(),
        "child": within(),
    }
    world = family_of(then("a"), specs[what], then("c"))
    world.signal(1, "later", {"n": 1})
    world.succeed(1, {"a": 1})
    if what == "paused":
        world.command(1, Pause())
    elif what == "failed":
        world.fail(1)
    world.command(1, Fork(NEW))
    run, paper = world[NEW], world.runs[NEW]
    assert (run.name, run.current_step, run.visit, run.state) == ("flow_fork_0", 1, 1, {"items": [1, 2], "a": 1})
    assert (run.parent_id, run.idempotency_key, run.error_message) == (None, None, None)
    assert run.status == ("waiting_for_signal" if what == "signal" else "running")
    assert [str(row.entry) for row in paper.rows][:2] == ["forked", "signalled"]
    assert (paper.rows[0].control, [signal.name for signal in paper.signals]) == (
        {"_forked": {"from": 1}},
        ["later"],
    )
    if what in ("paused", "failed"):
        assert [(job.handler, job.visit) for job in paper.jobs] == [("app:b", 1)]
    elif what in ("for_each", "parallel"):
        assert [job.branch for job in paper.jobs] == [0, 1]
    elif what == "child":
        assert world[(run.runtime or {})["child"]].parent_id == NEW


def test_a_fork_has_used_up_what_its_origin_had() -> None:
    steps = (then("a"), until(9, max_iterations=2), then("end"))
    world = family_of(*steps, guards=Guards(max_transitions=99, max_cost_units=3), prune_after=5)
    world.succeed(1, {"n": 1})
    world.succeed(1, {"n": 2})
    world.command(1, Fork(NEW))
    run, origin = world[NEW], world[1]
    assert (run.transitions, run.loops, run.ledger) == (4, {"1": 2}, {"cost": 2, "writers": {"n": 0}})
    assert (origin.transitions, origin.loops, origin.ledger) == (run.transitions, run.loops, run.ledger)
    world.succeed(NEW, {"n": 3})
    assert (run.status, world[NEW].error_kind) == ("running", ErrorKind.CONSTRAINT_VIOLATION), "no third round"


def test_a_fork_finds_the_signals_and_groups_that_it_was_given() -> None:
    settings = {"group": "g", "mode": "all", "keyed": True}
    world = family_of(starting(), then("b"), signalled(), StepSpec("wait_for_workflows", "w", settings=settings))
    world.signal(1, "go", {"said": 1})
    world.command(1, Fork(NEW))
    world.succeed(NEW)
    run = world[NEW]
    assert (run.status, run.state["said"], run.runtime) == ("waiting_for_workflows", 1, {"ids": [2, 3]})


def test_a_fork_is_not_started_where_its_state_would_break_a_limit() -> None:
    world = family_of(then("a"), then("b"), guards=Guards(max_state_bytes=40))
    with pytest.raises(ConstraintViolation, match="max_state_bytes=40"):
        world.command(1, Fork(NEW, with_state={"text": "x" * 40}))
    assert list(world.runs) == [1]


# skip and complete


def test_a_step_that_is_skipped_is_left_as_it_is() -> None:
    stage = Stage(flow(then("a"), then("b")))
    (job_id,) = stage.open
    stage.command(SkipStep())
    assert at(stage) == ("running", 1, {})
    row = stage.rows[-1]
    assert (row.entry, row.changed, row.removed, row.step_index) == (Entry.SKIPPED, {}, (), 0)
    assert (stage.buried, stage.workflow.transitions, stage.workflow.visit) == ({job_id: "Step skipped"}, 1, 2)


def test_a_result_that_somebody_enters_is_merged_and_may_steer() -> None:
    stage = Stage(flow(then("a"), then("b"), then("c")))
    (job_id,) = stage.open
    stage.command(CompleteStep({"x": 1, "_next_step": "c", "_secret": 2}))
    assert at(stage) == ("running", 2, {"x": 1})
    row = stage.rows[-1]
    assert (row.entry, row.job, row.control) == (Entry.COMPLETED, None, {"_next_step": "c"})
    assert stage.buried == {job_id: "Step completed by hand"}
    assert_refused(stage, CompleteStep({"_next_step": "nowhere"}), DefinitionError, "_next_step 'nowhere'")


@pytest.mark.parametrize("command", [SkipStep(), CompleteStep({})])
def test_a_late_result_of_what_was_left_changes_nothing(command: Command) -> None:
    stage = Stage(flow(then("a"), then("b")))
    late = stage.success({"x": 1})
    stage.command(command)
    assert stage.tell(late) == []


@pytest.mark.parametrize("command", [SkipStep(), CompleteStep({})])
def test_the_last_step_completes_the_run(command: Command) -> None:
    for pause in (False, True):
        stage = Stage(flow(then("a")))
        if pause:
            stage.command(Pause())
        stage.command(command)
        assert (stage.workflow.status, stage.workflow.completed_us, stage.open) == ("completed", 0, {})


@pytest.mark.parametrize("command", [SkipStep(), CompleteStep({})])
def test_a_paused_run_stays_paused(command: Command) -> None:
    stage = paused()
    stage.command(command)
    assert (stage.workflow.status, stage.workflow.current_step, stage.open) == ("paused", 2, {})
    assert stage.workflow.runtime == {"entered": False}
    stage.command(command)
    assert stage.workflow.status == "completed"


@pytest.mark.parametrize("command", [SkipStep(), CompleteStep({})])
def test_a_failed_run_goes_on_after_the_step_that_failed(command: Command) -> None:
    stage = failed()
    stage.command(command)
    run = stage.workflow
    assert (run.status, run.current_step, run.error_message, run.failed_step) == ("running", 2, None, None)


@pytest.mark.parametrize("what", ["parallel", "for_each", "delay", "signal", "repeat", "child"])
def test_a_step_of_any_kind_can_be_left(what: str) -> None:
    specs = {
        "parallel": beside("x", "y"),
        "for_each": each(),
        "delay": delay("d", 60),
        "signal": signalled(timeout=60),
        "repeat": StepSpec("repeat", "r", HandlerRef("app:ready"), settings={"until": True, "target": "a"}),
        "child": within(),
    }
    stage = Stage(flow(then("a"), specs[what], then("c")))
    stage.succeed({"items": [1, 2]})
    if what in ("parallel", "for_each"):
        stage.tell(stage.good(0, {"x": 1}))
    stage.command(CompleteStep({"made": 1}))
    merged = {"x": 1} if what == "parallel" else {}
    assert at(stage) == ("running", 2, {"items": [1, 2], **merged, "made": 1})
    assert (stage.branches(), stage.timers) == ([None], [])
    cancels = [Send(1000, LetterKind.CANCEL, 0, {"parent": 41})] if what == "child" else []
    assert [letter for letter in stage.sent if letter.kind is LetterKind.CANCEL] == cancels


def test_a_repeat_that_is_left_counts_its_rounds_anew() -> None:
    stage = Stage(flow(then("a"), until(9, max_iterations=1), then("c")))
    stage.succeed({"n": 1})
    stage.succeed({"n": 1})
    assert (stage.workflow.error_kind, stage.workflow.loops) == (ErrorKind.CONSTRAINT_VIOLATION, {"1": 1})
    stage.command(SkipStep())
    assert (stage.workflow.status, stage.workflow.current_step, stage.workflow.loops) == ("running", 2, None)


@pytest.mark.parametrize(
    ("meant", "is_it"),
    [
        (SkipStep(visit=2), True),
        (SkipStep(visit=1), False),
        (SkipStep(step=1), True),
        (SkipStep(step="b"), True),
        (SkipStep(step=0), False),
        (CompleteStep({}, visit=3), False),
        (CompleteStep({}, visit=2, step="b"), True),
    ],
)
def test_the_step_that_was_meant_is_left_and_no_other(meant: Command, is_it: bool) -> None:
    stage = running()
    if is_it:
        stage.command(meant)
        assert stage.workflow.current_step == 2
    else:
        assert_refused(stage, meant, InvalidStateError, "workflow 41 is running and at step 1 .'b'. by now, not")


@pytest.mark.parametrize("meant", [SkipStep(), SkipStep(step="a"), CompleteStep({}, visit=1)])
def test_no_step_is_left_of_a_run_that_has_ended(meant: Command) -> None:
    stage = Stage(flow(then("a")))
    stage.succeed({"a": 1})
    assert_refused(
        stage, meant, InvalidStateError, "workflow 41 is completed; it cannot be moved past a step .one that"
    )


# budgets refuse by hand what they would refuse a step


@pytest.mark.parametrize(
    ("guards", "command", "message"),
    [
        (Guards(max_transitions=1), SkipStep(), "max_transitions=1; this would be transition 2"),
        (Guards(max_transitions=1), CompleteStep({"x": 1}), "max_transitions=1"),
        (Guards(max_state_bytes=10), CompleteStep({"x": "much too long"}), "max_state_bytes=10"),
        (Guards(max_state_bytes=10), PatchState({"x": "much too long"}), "max_state_bytes=10"),
        (Guards(max_state_bytes=10), Rewind(0, {"x": "much too long"}), "max_state_bytes=10"),
    ],
)
@pytest.mark.parametrize("paused", [False, True])
def test_a_limit_refuses_what_it_would_refuse_a_step(
    guards: Guards, command: Command, message: str, paused: bool
) -> None:
    stage = Stage(flow(then("a"), then("b"), guards=guards))
    stage.succeed({"a": 1})
    if paused:
        stage.command(Pause())
    assert_refused(stage, command, ConstraintViolation, message)


def test_a_limit_refuses_a_retry_with_too_large_a_state() -> None:
    stage = Stage(flow(then("a"), guards=Guards(max_state_bytes=10)))
    stage.fail(is_final=True)
    assert_refused(stage, RetryRun({"x": "much too long"}), ConstraintViolation, "max_state_bytes=10")
    stage.command(RetryRun({"x": 1}))
    assert at(stage) == ("running", 0, {"x": 1})


def test_what_is_done_by_hand_is_a_transition_and_costs_nothing() -> None:
    stage = Stage(flow(then("a"), then("b"), then("c"), guards=Guards(max_transitions=2, max_cost_units=1)))
    stage.command(SkipStep())
    stage.command(CompleteStep({}))
    assert (stage.workflow.transitions, stage.workflow.ledger) == (2, None)
    stage.succeed()
    assert stage.workflow.error_kind is ErrorKind.CONSTRAINT_VIOLATION


def test_what_is_taken_out_makes_room_for_what_is_set() -> None:
    stage = Stage(flow(then("a"), guards=Guards(max_state_bytes=20)), {"old": "0123456789"})
    stage.command(PatchState({"new": "0123456789"}, removed=("old",)))
    assert stage.workflow.state == {"new": "0123456789"}


# patch


def test_a_patch_changes_the_state_and_nothing_else() -> None:
    stage = Stage(flow(then("a")), {"x": 0, "y": 0, "z": 0})
    before, jobs = stage.workflow, dict(stage.open)
    stage.command(PatchState({"y": {"deep": 1}, "new": None}, removed=("x",)))
    assert list(stage.workflow.state.items()) == [("y", {"deep": 1}), ("z", 0), ("new", None)]
    row = stage.rows[-1]
    assert (row.entry, row.changed, row.removed) == (Entry.PATCHED, {"y": {"deep": 1}, "new": None}, ("x",))
    assert (stage.open, stage.workflow.visit, stage.workflow.transitions) == (jobs, before.visit, 0)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (PatchState({}), "there is nothing to change"),
        (PatchState({"_x": 1}), "keys that start with _ are reserved"),
        (PatchState({}, removed=("nothing",)), "no key 'nothing' that could be removed"),
        (PatchState({"a": 2}, removed=("a",)), "no key 'a' that could be removed"),
    ],
)
def test_a_patch_that_makes_no_sense_is_refused(command: Command, message: str) -> None:
    assert_refused(running(), command, DefinitionError, message)


@pytest.mark.parametrize("command", [PatchState({"items": []}), PatchState({}, removed=("items",))])
def test_the_list_of_a_for_each_that_is_under_way_is_held(command: Command) -> None:
    stage = Stage(flow(each(reducer=True), then("c")), {"items": [1, 2], "x": 1})
    assert_refused(stage, command, InvalidStateError, "in the middle of step 0, which works on the key 'items'")
    stage.command(PatchState({"out": "free yet"}))
    stage.tell(stage.good(0))
    stage.tell(stage.bad(1))
    assert_refused(stage, command, InvalidStateError, "works on the key 'items'")
    assert_refused(stage, RetryRun({"items": []}), InvalidStateError, "works on the key 'items'")
    stage.command(RetryRun({"x": 2}))
    stage.tell(stage.good(1))
    assert_refused(stage, PatchState({"out": 1}), InvalidStateError, "works on the key 'out'")
    stage.tell(stage.good(None))
    stage.command(command)
    assert stage.workflow.state.get("items", []) == []


def test_a_list_that_no_job_goes_by_is_not_held() -> None:
    stage = Stage(flow(then("a"), each(), then("c")), {"items": 7})
    stage.succeed()
    assert stage.workflow.status == "failed"
    stage.command(RetryRun({"items": [1]}))
    assert stage.branches() == [0]
    stage = Stage(flow(then("a"), each(), then("c")), {"items": [1]})
    stage.command(Pause())
    stage.succeed()
    stage.command(PatchState({"items": [1, 2]}))
    stage.command(Resume())
    assert stage.branches() == [0, 1]


def test_a_patch_wakes_a_wait_whose_signal_fits_now() -> None:
    stage = Stage(flow(signalled(correlation_key="order", timeout=60), then("b")), {"order": 1})
    stage.signal("go", {"order": 2})
    assert stage.workflow.status == "waiting_for_signal"
    stage.command(PatchState({"other": 1}))
    assert stage.workflow.status == "waiting_for_signal"
    effects = stage.command(PatchState({"order": 2}))
    assert at(stage) == ("running", 1, {"order": 2, "other": 1})
    assert (stage.signals, stage.timers, DropTimers(41) in effects) == ([], [], True)
    assert [row.entry for row in stage.rows[-2:]] == [Entry.PATCHED, Entry.RESUMED]


def test_a_patch_may_also_take_a_match_away() -> None:
    stage = Stage(flow(signalled("go", "on", correlation_key="order", timeout=60)), {"order": 1})
    stage.signal("go", {"order": 1})
    assert stage.workflow.runtime == {"matched": ["go"], "due_us": 60 * SECOND}
    stage.command(PatchState({"order": 2}))
    assert stage.workflow.runtime == {"matched": [], "due_us": 60 * SECOND}
    stage.signal("on", {"order": 2})
    assert stage.workflow.status == "waiting_for_signal"
    stage.signal("go", {"order": 2})
    assert stage.workflow.status == "completed"


def test_a_wait_that_a_patch_makes_break_a_limit_fails() -> None:
    definition = flow(signalled(correlation_key="o"), guards=Guards(max_state_bytes=20))
    stage = Stage(definition, {"o": 1})
    stage.signal("go", {"o": 2, "text": "much too long"})
    stage.command(PatchState({"o": 2}))
    assert (stage.workflow.status, stage.workflow.state) == ("failed", {"o": 2})
    assert [signal.seq for signal in stage.signals] == [2]


@pytest.mark.parametrize("stand", [paused, paused_between_steps, delayed, parked, failed, waiting_for_a_run])
def test_a_patch_leaves_everything_else_of_a_run_as_it_stands(stand: Callable[[], Stage]) -> None:
    stage = stand()
    before, timers = stage.workflow, list(stage.timers)
    stage.command(PatchState({"new": 1}))
    run = stage.workflow
    assert (run.status, run.runtime, run.current_step, run.error_message, stage.timers) == (
        before.status, before.runtime, before.current_step, before.error_message, timers,
    )  # fmt: skip


def test_who_wrote_a_key_that_is_taken_out_is_forgotten() -> None:
    stage = Stage(flow(then("a"), then("b"), then("c"), prune_after=9))
    stage.succeed({"x": 1, "y": 1})
    stage.command(PatchState({}, removed=("x",)))
    stage.succeed({})
    assert stage.workflow.ledger == {"writers": {"y": 0}}


# retry with state


def test_a_retry_with_state_goes_on_with_what_was_put_right() -> None:
    stage = failed()
    stage.command(RetryRun({"a": 5, "new": 1}))
    assert at(stage) == ("running", 1, {"a": 5, "new": 1})
    row = stage.rows[-1]
    assert (row.entry, row.changed) == (Entry.RETRIED, {"a": 5, "new": 1})
    assert_refused(failed(), RetryRun({"_x": 1}), DefinitionError, "keys that start with _ are reserved")


def test_a_retry_with_state_looks_at_the_wait_again() -> None:
    stage = Stage(flow(then("a"), waiting_for(7), then("c")))
    stage.stands(7, WorkflowStatus.FAILED)
    stage.succeed()
    assert stage.workflow.error_kind is ErrorKind.WAIT_UNSATISFIABLE
    settings = {"workflows": "ids", "mode": "all", "keyed": True, "result_key": "got"}
    stage = Stage(flow(then("a"), StepSpec("wait_for_workflows", "w", settings=settings), then("c")))
    stage.stands(7, WorkflowStatus.COMPLETED, {"by": 7})
    stage.succeed()
    assert stage.workflow.error_kind is ErrorKind.WAIT_UNSATISFIABLE
    stage.command(RetryRun({"ids": [7]}))
    assert at(stage) == ("running", 2, {"ids": [7], "got": {"7": {"by": 7}}})


def test_a_retry_with_an_empty_state_is_a_retry() -> None:
    stage = failed()
    stage.command(RetryRun({}))
    assert (stage.rows[-1].entry, stage.rows[-1].changed) == (Entry.RETRIED, None)


# run now


def test_a_delay_is_cut_short() -> None:
    for pause in (False, True):
        stage = delayed()
        if pause:
            stage.command(Pause())
        effects = stage.command(RunNow())
        assert (stage.workflow.current_step, stage.timers, DropTimers(41) in effects) == (2, [], True)
        assert [row.entry for row in stage.rows[-2:]] == [Entry.HURRIED, Entry.RESUMED]
        assert stage.workflow.status == ("paused" if pause else "running")


def test_a_timer_of_the_delay_that_was_cut_short_means_nothing() -> None:
    stage = delayed()
    visit = stage.workflow.visit
    stage.command(RunNow())
    stage.now_us = 60 * SECOND
    assert stage.tell(Due(visit)) == []


def test_a_back_off_and_a_steps_delay_are_cut_short() -> None:
    stage = backing_off()
    ((new, attempts, due_us),) = stage.open.values()
    assert (attempts, due_us) == (1, 2 * SECOND)
    stage.now_us = SECOND
    assert HurryJobs(41, SECOND) in stage.command(RunNow())
    assert list(stage.open.values()) == [(new, 1, SECOND)]
    stage = Stage(flow(then("a", delay_s=60)))
    stage.command(RunNow())
    assert [due_us for _, _, due_us in stage.open.values()] == [0]


def test_so_is_the_back_off_of_a_cleanup() -> None:
    stage = compensated()
    stage.tell(stage.failure(role=next(new.role for new, _, _ in stage.open.values())))
    stage.command(RunNow())
    assert [due_us for _, _, due_us in stage.open.values()] == [0]
    assert_refused(stage, RunNow(), InvalidStateError, "nothing of it waits for a time")


def test_the_step_after_a_delay_that_was_cut_short_keeps_its_own() -> None:
    stage = Stage(flow(delay("d", 60), then("b", delay_s=30)))
    stage.command(RunNow())
    assert [due_us for _, _, due_us in stage.open.values()] == [30 * SECOND]


@pytest.mark.parametrize("stand", [running, waiting_for_a_signal, waiting_for_a_run, parked, failed, completed])
def test_where_nothing_waits_for_a_time_it_is_refused(stand: Callable[[], Stage]) -> None:
    assert_refused(stand(), RunNow(), InvalidStateError, "nothing of it waits for a time that could be cut short")


def test_a_job_in_hand_is_not_hurried() -> None:
    stage = running()
    stage.claim()
    assert_refused(stage, RunNow(), InvalidStateError, "nothing of it waits")


# pauses and repairs


def test_a_repair_during_a_pause_and_a_resume_after_it_run_nothing_twice() -> None:
    for command in (SkipStep(), CompleteStep({"b": 1})):
        stage = paused()
        stage.command(command)
        stage.command(Resume())
        assert ([new.handler for new, _, _ in stage.open.values()], stage.workflow.current_step) == (["app:c"], 2)
    stage = paused()
    stage.command(Rewind(0))
    assert_refused(stage, Resume(), InvalidStateError, "only a paused workflow can")
    assert [new.handler for new, _, _ in stage.open.values()] == ["app:b"]


def test_what_watches_a_run_hears_of_each_of_its_ends() -> None:
    """Rewound after it had completed, it tells who has asked since; skipped to its end, it tells as well."""
    world = Several()
    world.start(1, flow(then("a"), then("b")))
    world.start(2, flow(waiting_for(1), then("end")))
    world.deliver()
    world.fail(1)
    world.deliver()
    assert world[2].status == "failed"
    world.command(1, SkipStep())
    world.command(2, RetryRun())
    world.deliver()
    assert world[2].status == "waiting_for_workflows"
    world.command(1, CompleteStep({"b": 1}))
    world.deliver()
    assert (world[2].status, world[2].state) == ("running", {"got": {"1": {"b": 1}}})


def test_a_child_that_is_repaired_takes_its_parent_along() -> None:
    for command in (SkipStep(), CompleteStep({}), Rewind(0)):
        world = Several()
        world.start(1, flow(StepSpec("run_workflow", "w", child=flow(then("a"), then("b"))), then("end")))
        world.succeed(2)
        world.fail(2)
        world.deliver()
        assert world[1].error_kind is ErrorKind.CHILD_FAILED
        world.command(2, command)
        world.deliver()
        if isinstance(command, Rewind):
            assert (world[1].status, world[1].current_step) == ("running", 0)
            world.succeed(2)
            world.deliver()
        assert (world[2].status, world[1].status, world[1].current_step) == ("completed", "running", 1)


def test_a_parent_that_leaves_its_child_behind_is_not_revived_by_it() -> None:
    for command in (SkipStep(), Rewind(0)):
        world = Several()
        world.start(1, flow(then("first"), StepSpec("run_workflow", "w", child=flow(then("a"))), then("end")))
        world.succeed(1)
        world.fail(2)
        world.deliver()
        world.command(1, command)
        world.deliver()
        step = world[1].current_step
        world.command(2, RetryRun())
        world.succeed(2, {"late": 1})
        world.deliver()
        assert (world[2].status, world[1].status, world[1].current_step) == ("completed", "running", step)
        assert "late" not in world[1].state


def test_signals_that_come_first_are_there_for_who_goes_back() -> None:
    stage = waiting_for_a_signal()
    stage.signal("go", {"n": 1})
    assert stage.workflow.current_step == 2
    stage.signal("go", {"n": 2})
    stage.command(Rewind(0))
    assert (stage.workflow.state["n"], stage.signals) == (1, [Signal(5, "go", {"n": 2})])
