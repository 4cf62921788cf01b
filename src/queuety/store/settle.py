"""Effects into rows: the one writer. It knows how a thing is stored and none of the rules that decided it.

Every write of an attempt carries the attempt's token. Were one of them not held any more, nothing of the transaction
may stay: it fails with `NotHeld` before it commits, and whoever opened it settles again without the stale ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from queuety.codec import encode
from queuety.errors import StoreError
from queuety.model import (
    AddJob,
    AddWorkflow,
    AppendHistory,
    BuryJob,
    ClearChunks,
    DropTimers,
    DropWork,
    Effect,
    FinishJob,
    HurryJobs,
    JobPhase,
    KeepGroup,
    KeepSignal,
    LetterKind,
    NewJob,
    RetryJob,
    Role,
    SaveWorkflow,
    Send,
    SetTimer,
    StartRun,
    TellWatchers,
    UseSignals,
    Watch,
    Workflow,
)
from queuety.store import letters, side
from queuety.store.door import Tx
from queuety.store.load import Held
from queuety.store.rows import ending_row, history_row, job_row, progress_row, workflow_row
from queuety.store.statements import WORKFLOW_COLUMNS

SMALL_STATE = 1024
"""Up to this many characters the snapshot is written at every boundary: the row is rewritten anyway."""

LARGE_STATE = 1_000_000
"""Above this many characters a new run's state is not sent beside its payload: MySQL's packet may not hold both."""

CHECKPOINT_EVERY = 256
"""After so many settled steps the state is kept beside the history, and as the snapshot: so few of them are folded to
know an earlier one, or the present one. Each costs what the state weighs; a state of 320 KB, 5 to 12 ms."""

STATE_AT = WORKFLOW_COLUMNS.index("state")


class NotHeld(Exception):
    """A job that was to be settled is no longer held by the token that it was claimed with."""


@dataclass(slots=True)
class Plan:
    """Effects sorted by the statement that will write them."""

    finished: list[FinishJob] = field(default_factory=list)
    buried: list[BuryJob] = field(default_factory=list)
    retried: list[RetryJob] = field(default_factory=list)
    dropped: list[DropWork] = field(default_factory=list)
    dropped_timers: list[DropTimers] = field(default_factory=list)
    hurried: list[HurryJobs] = field(default_factory=list)
    timers: list[SetTimer] = field(default_factory=list)
    letters: list[Send] = field(default_factory=list)
    watching: list[Watch | TellWatchers] = field(default_factory=list)
    history: list[AppendHistory] = field(default_factory=list)
    saved: list[SaveWorkflow] = field(default_factory=list)
    started: list[AddWorkflow] = field(default_factory=list)
    added: list[NewJob] = field(default_factory=list)
    beside: list[side.Beside] = field(default_factory=list)

    @classmethod
    def of(cls, effects: Iterable[Effect]) -> Plan:
        """Sorts the effects, keeping their order within each kind.

        Raises `StoreError` for a `StartRun`: who decides makes an `AddWorkflow` of it, and what starts that run.
        """
        plan = cls()
        places: dict[type, list[Any]] = {
            AppendHistory: plan.history,
            FinishJob: plan.finished,
            SaveWorkflow: plan.saved,
            RetryJob: plan.retried,
            BuryJob: plan.buried,
            DropWork: plan.dropped,
            HurryJobs: plan.hurried,
            SetTimer: plan.timers,
            Send: plan.letters,
            Watch: plan.watching,
            TellWatchers: plan.watching,
            AddWorkflow: plan.started,
            **dict.fromkeys((KeepSignal, UseSignals, KeepGroup, ClearChunks), plan.beside),
        }
        for effect in effects:
            place = places.get(type(effect))
            if place is not None:
                place.append(effect)
            elif isinstance(effect, AddJob):
                plan.added.append(effect.job)
            elif isinstance(effect, DropTimers):  # also those that this very transaction would set
                plan._forget(effect)
                plan.dropped_timers.append(effect)
            elif isinstance(effect, StartRun):
                raise StoreError(f"workflow {effect.workflow_id} is to be started, and nobody has decided how")
            else:
                raise StoreError(f"nobody has decided how a {type(effect).__name__} is written")
        return plan

    def _forget(self, drop: DropTimers) -> None:
        if drop.kind is LetterKind.TIMER:
            self.timers[:] = (timer for timer in self.timers if timer.workflow_id != drop.workflow_id)
        else:
            self.letters[:] = (one for one in self.letters if (one.to, one.kind) != (drop.workflow_id, drop.kind))

    @property
    def told(self) -> list[TellWatchers]:
        """The runs whose watchers are told of their end."""
        return [one for one in self.watching if isinstance(one, TellWatchers)]

    def has_due_letters(self, now_us: int) -> bool:
        """Whether it writes a timer or a letter that is due by now."""
        moments = [timer.due_us for timer in self.timers] + [letter.due_us for letter in self.letters]
        return bool(self.told) or any(due_us <= now_us for due_us in moments)


def write(tx: Tx, plan: Plan, held: Mapping[int, Held]) -> dict[int, Held]:
    """Writes all but the new jobs, and gives back the changed workflows as they are then stored.

    What goes is deleted first, then what comes is added.

    New jobs are added by whoever opened the transaction: a worker's claim may have them born leased.

    `held` is how the workflows were loaded; all of them must be locked. The transaction fails with `NotHeld` if an
    attempt is not held any more.
    """
    _close(tx, plan)
    for drop in plan.dropped:
        phase = JobPhase.COMPLETED if drop.is_settled else JobPhase.BURIED
        tx.cursor.execute(tx.statements.drop_jobs, [phase.value, drop.message, drop.now_us, drop.workflow_id])
    if plan.dropped or plan.dropped_timers:
        letters.drop_timers(tx, plan.dropped_timers, without_work=[drop.workflow_id for drop in plan.dropped])
    for hurry in plan.hurried:
        tx.cursor.execute(tx.statements.hurry_jobs, [hurry.now_us, hurry.workflow_id])
    if plan.beside:
        side.write(tx, plan.beside)
    grown = _append_history(tx, plan.history)
    stored = _save(tx, plan.saved, held, grown)
    if plan.started:
        add_workflows(tx, [(run.workflow, encode(run.payload)) for run in plan.started])
    if plan.timers or plan.letters or plan.watching:
        letters.send(tx, plan.timers, plan.letters, plan.watching)
    return stored


def add_jobs(tx: Tx, jobs: Sequence[NewJob], *, now_us: int) -> list[int]:
    """Adds jobs that nobody leases yet, ready or delayed by their due time; gives back their ids in order."""
    if not jobs:
        return []
    ids = tx.reserve(len(jobs))
    tx.statements.add_jobs(tx.cursor, [job_row(job_id, job, now_us) for job_id, job in zip(ids, jobs, strict=True)])
    return ids


def _close(tx: Tx, plan: Plan) -> None:
    """Ends the attempts, each by its token."""
    gone: list[tuple[int, int]] = []
    stay: list[tuple[Any, ...]] = []
    for done in plan.finished:
        job = done.job
        if job.role is Role.STEP:
            gone.append((job.id, job.token))
        else:
            row = (
                job.id,
                job.token,
                "completed",
                None,
                None,
                job.due_us,
                None,
                0,
                job.entries + 1,
                None,
                done.now_us,
                None,
            )
            stay.append(row)
    for end in plan.buried:
        job = end.job
        message = end.error.message
        stay.append(
            (job.id, job.token, "buried", None, None, job.due_us, None, 0, job.entries + 1, message, end.now_us, None)
        )
    for again in plan.retried:
        job = again.job
        later = again.due_us > again.now_us
        phase, wake_us = ("delayed", again.due_us) if later else ("ready", None)
        message = again.error.message
        stay.append(
            (job.id, job.token, phase, None, None, again.due_us, wake_us, 0, job.entries + 1, message, None, None)
        )
    if gone:
        tx.expect(tx.statements.delete_held_jobs(tx.cursor, gone), len(gone), NotHeld)
    if stay:
        tx.expect(tx.statements.close_jobs(tx.cursor, stay), len(stay), NotHeld)


def _append_history(tx: Tx, entries: Sequence[AppendHistory]) -> dict[int, int]:
    """Adds the rows; says by how many characters each run's deltas have grown."""
    grown: dict[int, int] = {}
    rows = []
    for entry in entries:
        row, size = history_row(entry)
        rows.append(row)
        if size:
            grown[entry.run_id] = grown.get(entry.run_id, 0) + size
    if rows:
        tx.statements.add_history(tx.cursor, rows)
    return grown


def _save(tx: Tx, saves: Sequence[SaveWorkflow], held: Mapping[int, Held], grown: Mapping[int, int]) -> dict[int, Held]:
    stored: dict[int, Held] = {}
    progress: list[tuple[Any, ...]] = []
    snapshots: list[tuple[Any, ...]] = []
    endings: list[tuple[Any, ...]] = []
    checkpoints: list[tuple[Any, ...]] = []
    for save in sorted(saves, key=lambda save: save.workflow.id):
        workflow, was = save.workflow, save.was
        before = held[workflow.id]
        delta_bytes = before.delta_bytes + grown.get(workflow.id, 0)
        text: str | None = None
        is_milestone = workflow.transitions // CHECKPOINT_EVERY != was.transitions // CHECKPOINT_EVERY
        if _needs_snapshot(before.state_bytes, delta_bytes) or (is_milestone and delta_bytes > 0):
            text = encode(workflow.state)
            snapshots.append((*progress_row(workflow, 0), text, workflow.version, len(text)))
            stored[workflow.id] = Held(workflow, len(text), 0, workflow.version)
        else:
            progress.append(progress_row(workflow, delta_bytes))
            stored[workflow.id] = Held(workflow, before.state_bytes, delta_bytes, before.state_version)
        if is_milestone:
            checkpoints.append((workflow.id, workflow.version, text or encode(workflow.state)))
        ending = ending_row(workflow)
        if ending != ending_row(was):
            endings.append(ending)
    if progress:
        tx.statements.save_progress(tx.cursor, progress)
    if snapshots:
        tx.statements.save_snapshot(tx.cursor, snapshots)
    if endings:
        tx.statements.save_ending(tx.cursor, endings)
    if checkpoints:
        tx.statements.keep_checkpoints(tx.cursor, checkpoints)
    return stored


def _needs_snapshot(state_bytes: int, delta_bytes: int) -> bool:
    """True when the deltas outweigh the snapshot, or both are small.

    >>> _needs_snapshot(300, 200), _needs_snapshot(300_000, 5_000), _needs_snapshot(300_000, 300_001)
    (True, False, True)
    """
    return delta_bytes > 0 and (state_bytes + delta_bytes <= SMALL_STATE or delta_bytes > state_bytes)


def add_workflows(tx: Tx, runs: Sequence[tuple[Workflow, str]]) -> None:
    """Adds the rows of new runs, each with the text of its payload."""
    rows = [_new_row(workflow, payload) for workflow, payload in runs]
    tx.statements.add_workflows(tx.cursor, [row for row, _ in rows])
    _copy_payloads(tx, [row[0] for row, is_copied in rows if is_copied])


def add_keyed_workflow(tx: Tx, workflow: Workflow, payload: str) -> bool:
    """Adds the row of a run with an idempotency key; False, and nothing is added, if the key is taken."""
    columns = (*WORKFLOW_COLUMNS, "payload")
    statements = tx.statements
    values = ", ".join([statements.parameter] * len(columns))
    row, is_copied = _new_row(workflow, payload)
    tx.cursor.execute(
        f"INSERT INTO {statements.workflows} ({', '.join(columns)}) VALUES ({values}){statements.bulk.or_leave('id')}",
        row,
    )
    # The count of rows does not tell on MySQL: one that is left as it is counts as found.
    tx.cursor.execute(f"SELECT 1 FROM {statements.workflows} WHERE id = {statements.parameter}", [workflow.id])
    is_new = tx.cursor.fetchone() is not None
    _copy_payloads(tx, [workflow.id] if is_new and is_copied else [])
    return is_new


def _new_row(workflow: Workflow, payload: str) -> tuple[tuple[Any, ...], bool]:
    """The row, and whether its state is left out for the database to copy it from the payload."""
    state = payload if workflow.version == 0 else encode(workflow.state)
    is_copied = len(state) > LARGE_STATE and state == payload
    row = (*workflow_row(workflow, state), payload)
    return ((*row[:STATE_AT], "", *row[STATE_AT + 1 :]) if is_copied else row), is_copied


def _copy_payloads(tx: Tx, ids: Sequence[int]) -> None:
    if ids:
        tx.statements.change_among(tx.cursor, f"UPDATE {tx.statements.workflows} SET state = payload", "id", ids)
