"""A store on paper for steps with many jobs, and for runs that start others: `World` with answers to what kinds ask.

Every event goes through `tell` as there; what a kind must know is read from what was written, as a store would.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from queuety.engine.replay import fold
from queuety.model import (
    AppendHistory,
    CleanupStatus,
    Definition,
    Effect,
    Entry,
    ErrorInfo,
    Failed,
    Job,
    Role,
    Send,
    Span,
    StartRun,
    State,
    Succeeded,
    WorkflowStatus,
)
from queuety.model.needs import Need, NeedIds, NeedParts, NeedStanding, NeedStates, NeedWatching, PartRow, Standing
from tests.unit.reference import BOOM, World, is_settled


class Stage(World):
    """One run, its jobs by branch, and how other runs stand: `others`, as a test sets it.

    `sent` is what it has told others, `watched` are those that will tell it of their end.
    """

    def __init__(self, definition: Definition, payload: dict[str, Any] | None = None, *, now_us: int = 0) -> None:
        self.next_run = 1000
        self.started: list[StartRun] = []
        self.sent: list[Send] = []
        self.others: dict[int, tuple[Standing, State]] = {}
        self.watched: frozenset[int] = frozenset()
        super().__init__(definition, payload, now_us=now_us)

    # what a store does

    def answer(self, need: Need) -> Any:
        match need:
            case NeedIds(_, count):
                return tuple(range(self.next_run, self.next_run + count))
            case NeedParts(visit, after_seq):
                rows = (row for row in self.rows if row.visit == visit and row.seq > after_seq)
                return tuple(part for row in rows for part in part_of(row))
            case NeedStanding(ids):
                return {one: self.others[one][0] for one in ids if one in self.others}
            case NeedStates(ids):
                return {one: self.others[one][1] for one in ids if one in self.others}
            case NeedWatching(ids):
                return self.watched.intersection(ids)
        return super().answer(need)

    def write(self, effects: Iterable[Effect]) -> None:
        effects = list(effects)
        super().write(effects)
        for effect in effects:
            match effect:
                case StartRun(workflow_id):
                    self.started.append(effect)
                    self.next_run = workflow_id + 1
                    self.stands(workflow_id, WorkflowStatus.RUNNING)
                case Send(to) if to != 41:
                    self.sent.append(effect)

    def stands(
        self,
        workflow_id: int,
        status: WorkflowStatus,
        state: State | None = None,
        error: str | None = None,
        cleanup: CleanupStatus = CleanupStatus.NONE,
        *,
        awaits: bool = False,
        is_compensated: bool = False,
    ) -> None:
        """Let another run stand like this from now on."""
        self.others[workflow_id] = (Standing(status, cleanup, error, awaits, is_compensated), state or {})

    def copy(self) -> Stage:
        """The same once more, to try something in."""
        twin = object.__new__(Stage)
        for name, value in vars(self).items():
            setattr(twin, name, value.copy() if isinstance(value, list | dict) else value)
        twin.workflow = replace(self.workflow)
        return twin

    # what happens to the run

    def branches(self) -> list[int | None]:
        """Which jobs are open, in the order in which they were asked for."""
        return [new.branch for new, _, _ in self.open.values() if new.role is Role.STEP]

    def take(self, branch: int | None) -> Job:
        """Take the one open job of this branch in hand."""
        found = [
            (job_id, *entry)
            for job_id, entry in self.open.items()
            if entry[0].branch == branch and job_id not in self.held
        ]
        ((job_id, new, attempts, due_us),) = found
        self.ids += 1
        self.open[job_id] = (new, attempts + 1, due_us)
        self.held[job_id] = self.ids
        return Job(
            job_id, new.role, new.queue, new.priority, new.handler, attempts + 1, new.max_attempts, self.ids, due_us, 0,
            payload=new.payload, config=new.config, workflow_id=new.workflow_id, step_index=new.step_index,
            visit=new.visit, branch=new.branch,
        )  # fmt: skip

    def good(self, branch: int | None, output: dict[str, Any] | None = None) -> Succeeded:
        return Succeeded(self.take(branch), output or {}, Span(self.now_us, self.now_us, 1))

    def bad(self, branch: int | None, error: ErrorInfo = BOOM, *, is_final: bool = True) -> Failed:
        return Failed(self.take(branch), error, Span(self.now_us, self.now_us, 1), is_final)

    # what must always hold

    def check(self, was: Any = None) -> None:
        workflow = self.workflow
        assert [row.seq for row in self.rows] == list(range(1, workflow.version + 1)), "version = number of rows"
        assert not [key for key in workflow.state if key.startswith("_")]
        folded = fold(self.payload, [(row.changed or {}, row.removed or ()) for row in self.rows])
        assert list(folded.items()) == list(workflow.state.items()), "the history folds to the state"
        steps = [new for new, _, _ in self.open.values() if new.role is Role.STEP]
        assert all(new.visit == workflow.visit and new.step_index == workflow.current_step for new in steps)
        assert len({new.branch for new in steps}) == len(steps), "no branch has two open jobs"
        timers = [timer for timer in self.timers if timer.visit == workflow.visit]
        if workflow.status.is_terminal:
            assert (steps, timers) == ([], [])
        else:
            kept = workflow.runtime or {}
            waits = workflow.status in (WorkflowStatus.WAITING_FOR_SIGNAL, WorkflowStatus.WAITING_FOR_WORKFLOWS)
            assert steps or timers or "child" in kept or kept == {"entered": False} or waits, "the run is stranded"
            assert not (steps and waits), "a run that waits has no job"
        if workflow.status is WorkflowStatus.FAILED:
            assert None not in (workflow.error_message, workflow.error_kind, workflow.failed_step, workflow.failed_us)
        if was is not None:
            assert workflow == was or workflow.version > was.version, "no change goes without a row"
            assert workflow.transitions - was.transitions == sum(map(is_settled, self.rows[was.version :]))

    def told_of(self) -> list[tuple[Entry, int | None]]:
        """The history so far: what each row tells of, and the branch of its job."""
        return [(row.entry, None if row.job is None else row.job.branch) for row in self.rows]


def part_of(row: AppendHistory) -> list[PartRow]:
    """The row as one of several jobs that have ended for good, if it is one."""
    job = row.job
    if job is None or job.branch is None:
        return []
    if row.entry in (Entry.BRANCH, Entry.ITEM):
        output = (row.control or {}).get("_output")
        return [PartRow(row.seq, row.entry, job.branch, job.id, output=output)]
    if row.entry is Entry.FAILED and row.is_final and row.error is not None:
        return [PartRow(row.seq, row.entry, job.branch, job.id, error=row.error.message)]
    return []
