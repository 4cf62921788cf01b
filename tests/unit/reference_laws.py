"""What holds after every event, whatever happens: the appendix of the specification, and the laws of `decide.py`."""

from __future__ import annotations

from collections.abc import Iterable

from queuety.model import AppendHistory, Entry, ErrorKind, LetterKind, Role, Workflow, WorkflowStatus
from tests.unit.reference_past import SETTLED, Past
from tests.unit.reference_words import size_of
from tests.unit.reference_world import Paper, World

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
"""Where one event may lead from each status. A failed run goes on only if it is asked to (`check_change`), and so does
a completed one."""

BY_COMMAND = (Entry.RETRIED, Entry.REWOUND, Entry.SKIPPED, Entry.COMPLETED)
"""Rows with which people have a run go on; the last if it is theirs."""


def check_change(was: Workflow, paper: Paper, *, is_one: bool) -> None:
    """Between two looks at a run. `is_one`: one event lies between them."""
    now = paper.workflow
    new = paper.rows[was.version :]
    rewinds = [row for row in new if row.entry is Entry.REWOUND]
    assert now == was or now.version > was.version, "no change goes without a row"
    assert now.visit >= was.visit
    assert now.visit - was.visit <= now.transitions - was.transitions + len(rewinds)
    assert now.transitions >= was.transitions, "what has been used up was given back"
    if was.status is FAILED and now.status is not FAILED:
        is_ended = any(row.entry is Entry.CANCELLED for row in new)
        assert is_ended or _was_asked_to_go_on(new), "a failed run went on by itself"
    if was.status is PAUSED and now.status in (RUNNING, FOR_SIGNAL, FOR_WORKFLOWS):
        went_on = any(row.entry in (Entry.CONTINUED, Entry.RETRIED, Entry.REWOUND) for row in new)
        assert went_on, "a paused run went on by itself"
    if is_one and was.status is not FAILED and not rewinds:
        assert now.status in NEXT[was.status], f"{was.status} became {now.status}"
    if was.status is CANCELLED or (was.status is COMPLETED and not rewinds):
        assert (now.status, now.state, now.current_step) == (was.status, was.state, was.current_step)


def _was_asked_to_go_on(rows: Iterable[AppendHistory]) -> bool:
    """Somebody has, or the run's parent or child (whose wish has no operation of its own)."""
    return any(
        row.job is None and row.entry in BY_COMMAND and (row.token > 0 or row.entry is Entry.RETRIED) for row in rows
    )


def check_run(world: World, paper: Paper) -> None:
    """What holds for each run by itself."""
    workflow = paper.workflow
    assert [row.seq for row in paper.rows] == list(range(1, workflow.version + 1)), "the version counts the rows"
    assert list(paper.folded.items()) == list(workflow.state.items()), "the history folds to the state"
    assert not [key for key in workflow.state if key.startswith("_")], "a control value became public"
    settled = [row for row in paper.rows if row.entry in SETTLED and row.changed is not None]
    assert workflow.transitions == paper.transitions + len(settled), "a transition for each step that was settled"
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
    _check_limits(paper)
    _check_deadline(world, workflow)


def _check_limits(paper: Paper) -> None:
    """No limit is ever passed, and what counts is what was done."""
    guards, workflow = paper.definition.guards, paper.workflow
    ledger = workflow.ledger or {}
    if guards is None:
        assert "cost" not in ledger
        return
    used = {
        "max_transitions": workflow.transitions,
        "max_state_bytes": size_of(dict(workflow.state)),
        "max_cost_units": ledger.get("cost", 0),
        "max_started_workflows": ledger.get("started", 0),
    }
    for name, count in used.items():
        most = getattr(guards, name)
        assert most is None or count <= most, f"{name}={most}, and {count} were used"
    spent = sum(_cost(paper, row) for row in paper.rows if row.entry in DONE and row.job is not None)
    assert ledger.get("cost", 0) == paper.cost + spent, "cost units are those of what was done"


def _cost(paper: Paper, row: AppendHistory) -> int:
    """What the job has cost that has completed; conditions and reducers are free."""
    spec = paper.definition.steps[row.step_index or 0]
    branch = None if row.job is None else row.job.branch
    if spec.kind == "repeat" or (spec.kind == "for_each" and branch is None):
        return 0
    options = spec.branches[branch].options if spec.branches and branch is not None else spec.options
    return 1 if options.cost_units is None else options.cost_units


def _check_deadline(world: World, workflow: Workflow) -> None:
    """Whoever has a deadline is reminded of it, unless it came while the run was paused or had failed."""
    due_us = workflow.deadline_us
    letters = [due for due, one in world.letters if (one.workflow_id, one.kind) == (workflow.id, LetterKind.DEADLINE)]
    if due_us is None or workflow.status in (COMPLETED, CANCELLED):
        assert not letters, "a letter will lie there for ever"
    elif workflow.status in (PAUSED, FAILED):
        assert letters or world.now_us >= due_us
    else:
        assert letters, "nobody reminds the run of its deadline"
    assert all(due >= (due_us or 0) for due in letters)


def check_undone(paper: Paper) -> None:
    """What was undone, and what is being: every step that has settled and was not rewound, once, the last one first."""
    told = [row.job.payload for row in paper.rows if row.job is not None and _is_last_attempt(row)]
    told += [held.new.payload for held in paper.jobs.values() if held.new.role is Role.CLEANUP]
    done = [payload["seq"] for payload in told if payload and "seq" in payload]
    past = Past(paper.payload, paper.rows, paper.workflow, paper.signals, paper.groups)
    live = [row for row in past.settled_rows(paper.workflow.version + 1) if row.entry is not Entry.SKIPPED]
    can = [row.seq for row in live if row.step_index in paper.definition.compensated]
    assert done == can[::-1][: len(done)], "each once, in reverse order"
    if done and paper.workflow.cleanup in ("completed", "failed"):
        assert len(done) == len(can), "all of them"
    for payload in told:
        if payload and "seq" in payload:
            assert paper.rows[payload["seq"] - 1].step_index == payload["step"]
    handlers = [payload["handler"] for payload in told if payload and "handler" in payload]
    missed = [row for row in paper.rows if row.error is not None and row.error.kind is ErrorKind.DEADLINE_EXCEEDED]
    assert handlers.count("on_deadline") <= len(missed), "a run's own handler is called once for each end"
    assert handlers.count("on_cancel") <= 1
    assert "on_cancel" not in handlers[:-1], "a run's own handler is called before what comes first"
    assert not done or {"handler": "on_cancel"} not in told[:-1], "steps are undone first"


def _is_last_attempt(row: AppendHistory) -> bool:
    return row.entry is Entry.CLEANED or (row.entry is Entry.UNCLEANED and row.is_final)


def _check_cleanup(world: World, paper: Paper) -> None:
    """Children first: who has told a child to end cleans up once nothing is left of it."""
    workflow = paper.workflow
    open_jobs = [held for held in paper.jobs.values() if held.new.role is Role.CLEANUP]
    has_begun = bool(open_jobs) or workflow.cleanup in ("completed", "failed")
    assert len(open_jobs) <= 1
    assert not open_jobs or workflow.cleanup == "pending"
    is_parked = bool((workflow.runtime or {}).get("awaits"))
    left = (workflow.ledger or {}).get("left", [])
    assert not is_parked or workflow.status.is_terminal
    awaits = is_parked or (bool(left) and workflow.status.is_terminal)
    if workflow.cleanup == "pending" and not open_jobs:
        assert awaits, "a cleanup that waits for nothing and has no job"
    assert not (open_jobs and awaits), "a run cleans up before its child has"
    for child in left:
        _check_awaits(world, workflow, child)
    if workflow.status is CANCELLED and has_begun and paper.children:
        last = world.runs[paper.children[-1]]
        is_left = _is_left_behind(world, last)
        assert last.workflow.status.is_terminal or is_left, "a child is active while its parent cleans up"
    check_undone(paper)


def _is_left_behind(world: World, child: Paper) -> bool:
    """Whether it was told to end and has not heard yet, or goes on because somebody wants it to."""
    is_told = any(
        letter.workflow_id == child.workflow.id and letter.kind is LetterKind.CANCEL for _, letter in world.letters
    )
    return is_told or _was_asked_to_go_on(child.rows)


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
    own = runtime.get("child")
    left = [child for child in active if child != own]
    assert all(_is_left_behind(world, world.runs[child]) for child in left), "an active child that nobody is parked on"
    active = [child for child in active if child == own]
    if runtime == {"entered": False}:
        assert not jobs
        assert workflow.status is PAUSED or timers
    elif "child" in runtime:
        child = runtime["child"]
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
    waits_itself = (child.runtime or {}).get("awaits") or (child.ledger or {}).get("left")
    is_at_it = child.cleanup == "pending" or waits_itself or not child.status.is_terminal
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
    me, forgetful = paper.workflow, []
    has_news = False
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
        has_news = has_news or asks or tells or watches
        if there is not None and not there.workflow.status.is_terminal:
            assert not watches or there.workflow.is_watched, f"run {other} does not know that it is watched"
            if not (asks or tells or watches):
                forgetful.append(there)
    # One that had completed and was rewound is asked again once another one tells of its end.
    for there in forgetful:
        was_rewound = any(row.entry is Entry.REWOUND for row in there.rows)
        assert was_rewound, f"run {there.workflow.id} will end and not tell run {me.id}"
        assert has_news, f"nothing will wake run {me.id}"


def check_rests(world: World, paper: Paper) -> None:
    """Once nothing more can happen: the run is over, or paused, or waits for something that has not come."""
    workflow = paper.workflow
    child = (workflow.runtime or {}).get("child")
    assert not paper.jobs, "a job is left"
    if workflow.cleanup == "pending":
        assert not world.runs[child or 0].workflow.status.is_terminal, "a cleanup never came"
    if workflow.deadline_us is not None and workflow.status is not PAUSED:
        assert workflow.status.is_terminal, "a deadline was missed"
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
