"""What holds after every event, whatever happens: the appendix of the specification, and the laws of `decide.py`."""

from __future__ import annotations

from queuety.model import Entry, LetterKind, Role, Workflow, WorkflowStatus
from tests.unit.reference_world import Paper, World

SETTLING = (Entry.COMPLETED, Entry.RESUMED, Entry.FAILED)
DONE = (Entry.COMPLETED, Entry.BRANCH, Entry.ITEM)

RUNNING, PAUSED = WorkflowStatus.RUNNING, WorkflowStatus.PAUSED
FAILED, CANCELLED, COMPLETED = WorkflowStatus.FAILED, WorkflowStatus.CANCELLED, WorkflowStatus.COMPLETED
FOR_SIGNAL, FOR_WORKFLOWS = WorkflowStatus.WAITING_FOR_SIGNAL, WorkflowStatus.WAITING_FOR_WORKFLOWS

NEXT = {
    RUNNING: set(WorkflowStatus),
    PAUSED: set(WorkflowStatus),
    FOR_SIGNAL: set(WorkflowStatus) - {PAUSED},
    FOR_WORKFLOWS: set(WorkflowStatus) - {PAUSED},
    COMPLETED: {COMPLETED},
    CANCELLED: {CANCELLED},
}
"""Where one event may lead from each status. A failed run goes on only if it is asked to (`check_change`)."""


def check_change(was: Workflow, paper: Paper, *, is_one: bool) -> None:
    """Between two looks at a run. `is_one`: one event lies between them."""
    now = paper.workflow
    new = paper.rows[was.version :]
    assert now == was or now.version > was.version, "no change goes without a row"
    assert now.visit >= was.visit
    assert now.visit - was.visit <= now.transitions - was.transitions
    if was.status is FAILED and now.status is not FAILED:
        assert any(row.entry in (Entry.RETRIED, Entry.CANCELLED) for row in new), "a failed run went on by itself"
    if was.status is PAUSED and now.status in (RUNNING, FOR_SIGNAL, FOR_WORKFLOWS):
        assert any(row.entry in (Entry.CONTINUED, Entry.RETRIED) for row in new), "a paused run went on by itself"
    if is_one and was.status is not FAILED:
        assert now.status in NEXT[was.status], f"{was.status} became {now.status}"
    if was.status in (COMPLETED, CANCELLED):
        assert (now.status, now.state, now.current_step) == (was.status, was.state, was.current_step)


def check_run(world: World, paper: Paper) -> None:
    """What holds for each run by itself."""
    workflow = paper.workflow
    assert [row.seq for row in paper.rows] == list(range(1, workflow.version + 1)), "the version counts the rows"
    assert list(paper.folded.items()) == list(workflow.state.items()), "the history folds to the state"
    assert not [key for key in workflow.state if key.startswith("_")], "a control value became public"
    settled = [row for row in paper.rows if row.entry in SETTLING and row.changed is not None]
    assert workflow.transitions == len(settled), "a transition for each step that was settled"
    done = [(row.visit, row.job.step_index, row.job.branch) for row in paper.rows if row.entry in DONE and row.job]
    assert len(done) == len(set(done)), "one completed row for each job of a visit"
    jobs = [held.new for held in paper.jobs.values() if held.new.role is Role.STEP]
    assert all((new.visit, new.step_index) == (workflow.visit, workflow.current_step) for new in jobs)
    assert len({new.branch for new in jobs}) == len(jobs), "no branch has two open jobs"
    if workflow.status.is_terminal or workflow.status in (FOR_SIGNAL, FOR_WORKFLOWS):
        assert not jobs, f"a run that is {workflow.status} has jobs"
    timers = [letter for _, letter in world.letters if letter.workflow_id == workflow.id and letter.kind == "timer"]
    assert not (timers and workflow.status.is_terminal), "a run that has ended has timers"
    assert all(letter.visit == workflow.visit for letter in timers), "a timer of an earlier visit is left"
    assert workflow.status is not COMPLETED or workflow.current_step == workflow.total_steps
    if workflow.status is FAILED:
        why = (workflow.error_message, workflow.error_kind, workflow.failed_step, workflow.failed_us)
        assert None not in why, "a failed run says why"
    _check_cleanup(world, paper)


def _check_cleanup(world: World, paper: Paper) -> None:
    """Children first: who has told a child to end cleans up once nothing is left of it."""
    workflow = paper.workflow
    open_jobs = [held for held in paper.jobs.values() if held.new.role is Role.CLEANUP]
    has_begun = bool(open_jobs) or workflow.cleanup in ("completed", "failed")
    assert len(open_jobs) <= 1
    assert not open_jobs or workflow.cleanup == "pending"
    if workflow.cleanup == "pending" and not open_jobs:
        assert workflow.runtime, "a cleanup that waits for nothing and has no job"
    if workflow.status is CANCELLED and has_begun and paper.children:
        last = world.runs[paper.children[-1]]
        was_revived = any(row.entry is Entry.RETRIED for row in last.rows)  # by whom is its own affair
        assert last.workflow.status.is_terminal or was_revived, "a child is active while its parent cleans up"


def check_goes_on(world: World, paper: Paper) -> None:
    """A run that is not over has something that brings it on: a job, a timer, a letter, another run, or a person."""
    workflow = paper.workflow
    runtime = workflow.runtime or {}
    jobs = [held for held in paper.jobs.values() if held.new.role is Role.STEP]
    mine = [letter for _, letter in world.letters if letter.workflow_id == workflow.id]
    timers = [letter for letter in mine if letter.kind is LetterKind.TIMER]
    active = [child for child in paper.children if not world.runs[child].workflow.status.is_terminal]
    if workflow.status.is_terminal:
        if runtime.get("awaits"):
            _check_awaits(world, workflow, runtime["child"])
        return
    assert len(active) <= 1, "two active children of one parent"
    if runtime == {"entered": False}:
        assert not jobs
        assert workflow.status is PAUSED or timers
    elif "child" in runtime:
        child = runtime["child"]
        assert active in ([], [child]), "an active child that nobody is parked on"
        asked = any(
            letter.workflow_id == child and letter.kind in (LetterKind.RETRY, LetterKind.CANCEL)
            for _, letter in world.letters
        )
        told = any(letter.kind in (LetterKind.CHILD, LetterKind.REVIVED) for letter in mine)
        assert active or asked or told, "parked on a child that will never tell of its end"
    elif workflow.status in (RUNNING, PAUSED):
        assert active == []
        assert jobs or timers, "a running run is stranded"
    elif workflow.status is FOR_SIGNAL:
        _check_signal_wait(paper)
    else:
        _check_workflow_wait(world, paper)


def _check_awaits(world: World, workflow: Workflow, child_id: int) -> None:
    child = world.runs[child_id].workflow
    on_their_way = any(
        (letter.workflow_id, letter.kind) in ((child_id, LetterKind.CANCEL), (workflow.id, LetterKind.CHILD))
        for _, letter in world.letters
    )
    is_at_it = child.status is CANCELLED and (child.cleanup == "pending" or (child.runtime or {}).get("awaits"))
    assert on_their_way or is_at_it, "a cleanup waits for a child that will not tell"


def _check_signal_wait(paper: Paper) -> None:
    """No wait stands while what is kept would satisfy it."""
    settings = paper.definition.steps[paper.workflow.current_step].settings
    if settings.get("match_payload") or settings.get("correlation_key"):
        return  # the reference looks at those
    there = {signal.name for signal in paper.signals} & set(settings["names"])
    assert not there if settings["mode"] == "any" else there < set(settings["names"])


def _check_workflow_wait(world: World, paper: Paper) -> None:
    """Of each run that is waited for and has not told of its end, something will tell."""
    me = paper.workflow
    for other in (me.runtime or {})["ids"]:
        there = world.runs.get(other)
        letters = [letter for _, letter in world.letters if letter.visit == me.visit]
        asks = any(
            letter.kind is LetterKind.SUBSCRIBE and letter.workflow_id == other and letter.body["waiter"] == me.id
            for letter in letters
        )
        tells = any(
            letter.kind is LetterKind.SETTLED and letter.workflow_id == me.id and letter.body["id"] == other
            for letter in letters
        )
        watches = there is not None and there.watchers.get(me.id) == me.visit
        if there is not None and not there.workflow.status.is_terminal:
            assert asks or tells or watches, f"run {other} will end and not tell run {me.id}"
            assert not watches or there.workflow.is_watched, f"run {other} does not know that it is watched"


def check_rests(world: World, paper: Paper) -> None:
    """Once nothing more can happen: the run is over, or paused, or waits for something that has not come."""
    workflow = paper.workflow
    child = (workflow.runtime or {}).get("child")
    assert not paper.jobs, "a job is left"
    assert workflow.cleanup != "pending", "a cleanup never came"
    if workflow.status is RUNNING:
        assert child is not None, "a run stands still"
        assert not world.runs[child].workflow.status.is_terminal, "a run stands still, its child has ended"
    elif workflow.status is FOR_WORKFLOWS:
        ids = (workflow.runtime or {})["ids"]
        standing = [world.runs[one].workflow.status for one in ids if one in world.runs]
        settings = paper.definition.steps[workflow.current_step].settings
        needed = {"all": len(ids), "any": 1, "quorum": settings.get("quorum", 0)}[settings["mode"]]
        completed = sum(status is COMPLETED for status in standing)
        possible = completed + sum(not status.is_terminal for status in standing)
        assert completed < needed <= possible, "a wait is decided and stands"
