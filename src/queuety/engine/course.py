"""The course of a run: a step is left, the next one entered, an attempt repeated, the run completed or failed.

A `Course` is a decision in the making. It lives for one call of `decide` and names no kind of step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from queuety.engine import bounds, cleanup
from queuety.engine.faults import FAULTS, refusal, undecidable
from queuety.engine.glance import child_of, done_by, is_open_work, no_such_step
from queuety.engine.kinds import kind_of
from queuety.engine.moved import moved, settled
from queuety.engine.output import noted_of
from queuety.engine.protocol import Facts, Fail, Leave, Part, Run, Stay, Verdict, answer_to
from queuety.engine.retry import next_due_us
from queuety.errors import ConstraintViolation, DefinitionError
from queuety.model import (
    AppendHistory,
    BuryJob,
    ClearChunks,
    Commanded,
    Definition,
    DropWork,
    Effect,
    Entry,
    ErrorInfo,
    ErrorKind,
    Event,
    Failed,
    FinishJob,
    LetterKind,
    RetryJob,
    Send,
    SetTimer,
    Signalled,
    State,
    Succeeded,
    Workflow,
    WorkflowStatus,
)
from queuety.model.needs import Need

Attempt = Succeeded | Failed

NOT_ENTERED: Final[State] = {"entered": False}
"""The runtime of a step that is current and was not entered: the run was paused, or the turn was long enough."""

STEPS_AT_ONCE: Final = 100
"""How many steps may be left as soon as they are entered before the run goes on in a transaction of its own."""

_ENGINE: Final = 0
"""The token of history rows that neither an attempt nor a command wrote."""

_FAULTS_OF_CHILD: Final = frozenset({ErrorKind.CHILD_FAILED, ErrorKind.CHILD_CANCELLED})

RUNNING: Final = WorkflowStatus.RUNNING
PAUSED: Final = WorkflowStatus.PAUSED


class Course:
    """A workflow as it stands, and what is to be written so far.

    With `is_new` it is only being started: a fault of it is raised, and there will be no such run.
    """

    __slots__ = ("_is_new", "definition", "effects", "facts", "has_dropped", "now_us", "workflow")

    def __init__(
        self, workflow: Workflow, definition: Definition, *, now_us: int, facts: Facts, is_new: bool = False
    ) -> None:
        self._is_new = is_new
        self.workflow = workflow
        self.definition = definition
        self.now_us = now_us
        self.facts = facts
        self.effects: list[Effect] = []
        self.has_dropped = False

    @property
    def is_entered(self) -> bool:
        """False while the current step is current only by name: nothing of it is outstanding."""
        return self.workflow.runtime != NOT_ENTERED

    def run(self, *, is_retry: bool = False) -> Run:
        """The workflow at its current step, as kinds look at it."""
        workflow = self.workflow
        spec = self.definition.steps[workflow.current_step]
        return Run(workflow, self.definition, spec, self.now_us, self.facts, is_retry, self.effects)

    def read(self, need: Need) -> Any:
        """What the need asks for, as `Run.read` gives it. Raises `Lacking` if it was not read yet."""
        return answer_to(need, self.facts)

    @staticmethod
    def said(event: Commanded | Signalled) -> dict[str, Any]:
        """Who has asked for it and why, as a row's control; empty if nobody said."""
        by = {"actor": event.actor, "reason": event.reason}
        known = {key: value for key, value in by.items() if value is not None}
        return {"_by": known} if known else {}

    def apply(self, verdict: Verdict, attempt: Attempt | None = None) -> None:
        """Do what the current step's kind has decided; `attempt` is what it decided about, if it was one."""
        if isinstance(verdict, Leave):
            if self._left(verdict, attempt):
                self.go_on()
        elif isinstance(verdict, Stay):
            self._stay(verdict, attempt)
        else:
            self._fail(verdict, attempt)

    def hear(self, event: Event, attempt: Attempt | None = None) -> None:
        """Let the current step's kind decide about something that happened to it; `attempt` is it, if it was one."""
        run = self.run()
        kind = kind_of(run.spec)
        try:
            verdict = kind.resume(run, event)
        except FAULTS as error:
            verdict = self._fault(error)
        self.apply(verdict, attempt)

    def enter(self, *, is_retry: bool = False) -> None:
        """Enter the current step, and the steps after it for as long as each is left at once."""
        if not self.is_entered:
            self.workflow = replace(self.workflow, runtime=None)
        self.apply(self._entered(is_retry=is_retry))

    def _entered(self, *, is_retry: bool = False) -> Verdict:
        """What entering the current step means."""
        run = self.run(is_retry=is_retry)
        kind = kind_of(run.spec)
        try:
            return kind.enter(run)
        except FAULTS as error:
            return self._fault(error)

    def _fault(self, error: Exception) -> Fail:
        """A fault of the kind fails the run here: what was left before is not undone. That of a new run is raised."""
        if self._is_new:
            raise error
        return Fail(undecidable(error))

    def repeat(self, attempt: Failed) -> bool:
        """Put the job back for another attempt, if it has one left."""
        workflow = self.workflow
        spec = self.definition.steps[workflow.current_step]
        backoff = kind_of(spec).task(spec, attempt.job, workflow.state).options.backoff
        due_us = next_due_us(attempt, backoff, now_us=self.now_us)
        if due_us is None:
            return False
        self.effects.append(RetryJob(attempt.job, due_us, attempt.error, self.now_us))
        self.record(Entry.FAILED, attempt, error=attempt.error)
        self.workflow = replace(workflow, version=workflow.version + 1)
        return True

    def drop(self, message: str, *, is_settled: bool = False) -> None:
        """Take back everything that is open, also what this very turn has asked for; `is_settled` as in `DropWork`.

        An attempt that is decided about later in this turn has lost its job: whatever came of it is late.
        """
        self.has_dropped = True
        self.effects = [effect for effect in self.effects if not is_open_work(effect)]
        self.effects.append(DropWork(self.workflow.id, message, self.now_us, is_settled))

    def abandon_child(self) -> int | None:
        """Tell the run that this one is parked on to end; its id, or None if there is none."""
        child = child_of(self.workflow)
        if child is not None:
            self.effects.append(Send(child, LetterKind.CANCEL, self.now_us, {"parent": self.workflow.id}))
        return child

    def fail(self, verdict: Fail, attempt: Attempt | None = None) -> None:
        """Fail the run where it stands; what it has open is buried, and a run that it is parked on told to end."""
        error = verdict.error
        self.drop(error.message)
        child = verdict.after if error.kind in _FAULTS_OF_CHILD else self.abandon_child()
        self.record(Entry.FAILED, attempt, control=verdict.control, error=error, is_final=True)
        workflow = self.workflow
        self.workflow = replace(
            workflow,
            status=WorkflowStatus.FAILED,
            version=workflow.version + 1,
            error_message=error.message,
            error_kind=error.kind,
            failed_step=workflow.current_step,
            failed_us=self.now_us,
        )
        then = "on_deadline" if error.kind is ErrorKind.DEADLINE_EXCEEDED else None
        cleanup.begin(self, compensates=self.definition.compensates_on_failure, then=then, child=child)

    def note_since(self, was: Workflow) -> None:
        """Append a row that means nothing to people, if the workflow has changed since and no row says so."""
        if self.workflow is not was and self.workflow.version == was.version:
            self.record(Entry.NOTED)
            self.workflow = replace(self.workflow, version=was.version + 1)

    def record(
        self,
        entry: Entry,
        attempt: Attempt | None = None,
        *,
        token: int = _ENGINE,
        changed: State | None = None,
        removed: tuple[str, ...] = (),
        control: State | None = None,
        error: ErrorInfo | None = None,
        is_final: bool = False,
    ) -> None:
        """Append the row of the attempt, or else of the current step; the caller raises the version.

        A job that cleans up belongs to no step, and so does its row.
        """
        workflow, job, span = self.workflow, None, None
        step_index: int | None = workflow.current_step
        if attempt is not None:
            job, span = attempt.job, attempt.span
            step_index, token = job.step_index, job.token
            if isinstance(attempt, Succeeded):
                trace = attempt.output.get("_queuety_trace")
                if trace is not None and "_queuety_trace" not in (control or {}):  # of a condition, say
                    control = {**(control or {}), "_queuety_trace": trace}
                if attempt.chunks:
                    control = {**(control or {}), "_chunks": list(attempt.chunks)}
            elif attempt.trace:
                control = {**(control or {}), "_queuety_trace": attempt.trace}
        self.effects.append(
            AppendHistory(
                workflow.id,
                workflow.version + 1,
                entry,
                self.now_us,
                token,
                job,
                span,
                step_index,
                workflow.visit,
                changed,
                None if changed is None else removed,
                control,
                error,
                is_final,
            )
        )

    def go_on(self) -> None:
        """Enter the step that has become current, if the run is running, and those after it that are left at once."""
        for _ in range(STEPS_AT_ONCE):
            if self.workflow.status is not RUNNING:
                return
            verdict = self._entered()
            if not isinstance(verdict, Leave):
                self.apply(verdict)
                return
            if not self._left(verdict, None):
                return
        if self.workflow.status is RUNNING:
            self.workflow = replace(self.workflow, runtime=NOT_ENTERED)
            self.effects.append(SetTimer(self.workflow.id, self.workflow.visit, self.now_us))

    def _left(self, verdict: Leave, attempt: Attempt | None) -> bool:
        """Whether the step could be left; the run has failed at it otherwise, and nothing of it was merged."""
        try:
            self.leave(verdict, attempt)
        except (ConstraintViolation, DefinitionError) as error:
            if self._is_new and isinstance(error, ConstraintViolation):
                raise
            self._fail(Fail(refusal(error), verdict.control), attempt)
            return False
        return True

    def leave(
        self, verdict: Leave, attempt: Attempt | None = None, *, entry: Entry | None = None, token: int = _ENGINE
    ) -> None:
        """Settle the current step; the next one is not entered yet. `entry` and `token` are those of a command's row.

        Raises `ConstraintViolation` for a limit that it would break and `DefinitionError` for a `_next_step` that is
        none; nothing has changed then.
        """
        control = verdict.control
        wish = control.get("_next_step") if control is not None else None
        following = self.workflow.current_step + 1 if wish is None else self.definition.step_index(wish)
        if following is None:
            raise DefinitionError(no_such_step(self.run(), wish))
        changes, ledger = verdict.changes, self.workflow.ledger
        removed: tuple[str, ...] = ()
        if bounds.is_bounded(self.definition):
            merged = {**(verdict.part.changes or {}), **changes} if verdict.part is not None else changes
            boundary = bounds.leaving(self.workflow, self.definition, merged, done_by(attempt), verdict.effects)
            removed, ledger = boundary.removed, boundary.ledger
        if verdict.effects and (noted := noted_of(verdict.effects)):
            control = {**(control or {}), **noted}
        self._close(attempt)
        if verdict.supersedes is not None:
            self.drop(verdict.supersedes)
        if verdict.part is not None:
            self._take_part(verdict.part, attempt)
            self.record(Entry.COMPLETED, changed=changes, removed=removed, control=control)
        else:
            self._record_outcome(attempt, changes, control, entry, removed=removed, token=token)
        self.effects.extend(verdict.effects)
        if verdict.jumps is not None:
            self.workflow = replace(self.workflow, loops=self._loops(verdict.jumps))
        state = self.workflow.state
        if changes or removed:
            state = {**state, **changes}
            for key in removed:
                state.pop(key, None)
        self.workflow = settled(self.workflow, following, state, ledger, now_us=self.now_us, paused_runtime=NOT_ENTERED)

    def _loops(self, jumps: int) -> State | None:
        """The jumps of every repeat step, the current one's being these."""
        loops = {**(self.workflow.loops or {}), str(self.workflow.current_step): jumps}
        return {step: count for step, count in loops.items() if count} or None

    def _take_part(self, part: Part, attempt: Attempt | None) -> None:
        """Record something that does not settle the step, and merge what it brings."""
        was = self.workflow
        state = self._record_part(part, attempt)
        self.workflow = moved(was, was.version + 1, state, was.status, was.runtime, was.ledger)

    def _record_part(self, part: Part, attempt: Attempt | None) -> State:
        """Append the row of a part; gives back the state with what it brings."""
        self._record_outcome(attempt, part.changes, part.control, part.entry)
        state = self.workflow.state
        return {**state, **part.changes} if part.changes else state

    def _stay(self, verdict: Stay, attempt: Attempt | None) -> None:
        was = self.workflow
        version, state, ledger = was.version, was.state, was.ledger
        if (verdict.part is not None or attempt is not None) and bounds.is_bounded(self.definition):
            changes = verdict.part.changes if verdict.part is not None else None
            try:
                ledger = bounds.merging(was, self.definition, changes or {}, done_by(attempt)).ledger
            except ConstraintViolation as error:
                self._fail(Fail(refusal(error)), attempt)
                return
        if attempt is not None:
            self._close(attempt)
        if verdict.part is not None:
            state = self._record_part(verdict.part, attempt)
            version += 1
        elif attempt is not None:
            self._record_outcome(attempt, None, None)
            version += 1
        if verdict.supersedes is not None:
            self.drop(verdict.supersedes)
        self.effects.extend(verdict.effects)
        status = verdict.status or was.status
        if version != was.version or status is not was.status or verdict.runtime != was.runtime:
            self.workflow = moved(was, version, state, status, verdict.runtime, ledger)

    def _fail(self, verdict: Fail, attempt: Attempt | None) -> None:
        if isinstance(attempt, Failed) and attempt.error is not verdict.error:
            # The last of several jobs has failed, and the step with it, for a reason of its own.
            self._stay(Stay(runtime=self.workflow.runtime), attempt)
            attempt = None
        if attempt is not None:
            self.effects.append(BuryJob(attempt.job, verdict.error, self.now_us))
        self.fail(verdict, attempt)

    def _close(self, attempt: Attempt | None) -> None:
        if isinstance(attempt, Succeeded):
            job = attempt.job
            self.effects.append(FinishJob(job, self.now_us))
            if attempt.chunks and job.visit is not None:
                self.effects.append(ClearChunks(self.workflow.id, job.visit, job.branch))
        elif attempt is not None:
            self.effects.append(BuryJob(attempt.job, attempt.error, self.now_us))

    def _record_outcome(
        self,
        attempt: Attempt | None,
        changes: State | None,
        control: State | None,
        entry: Entry | None = None,
        *,
        removed: tuple[str, ...] = (),
        token: int = _ENGINE,
    ) -> None:
        """Append the row of what its step has taken; `changes` is None where the step goes on."""
        error = attempt.error if isinstance(attempt, Failed) else None
        if error is not None:
            entry = Entry.FAILED
        entry = entry or (Entry.RESUMED if attempt is None else Entry.COMPLETED)
        self.record(
            entry,
            attempt,
            token=token,
            changed=changes,
            removed=removed,
            control=control,
            error=error,
            is_final=error is not None,
        )
