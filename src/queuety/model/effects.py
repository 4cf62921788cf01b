"""What is to be written, all of it in the transaction that read the event."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from queuety.model.definitions import Definition
from queuety.model.events import ErrorInfo, Span
from queuety.model.runs import Job, NewJob, Workflow
from queuety.model.words import LetterKind, State


@dataclass(frozen=True, slots=True)
class SaveWorkflow:
    """Write the workflow's row as it is now. `was` is what the row holds; the difference is what is written."""

    workflow: Workflow
    was: Workflow


@dataclass(frozen=True, slots=True)
class FinishJob:
    """Close the job as completed, if it is still held by this token."""

    job: Job
    now_us: int


@dataclass(frozen=True, slots=True)
class BuryJob:
    """Close the job as failed for good, if it is still held by this token."""

    job: Job
    error: ErrorInfo
    now_us: int


@dataclass(frozen=True, slots=True)
class RetryJob:
    """Put the job back for another attempt at `due_us`, if it is still held by this token."""

    job: Job
    due_us: int
    error: ErrorInfo
    now_us: int


@dataclass(frozen=True, slots=True)
class AddJob:
    """Add a job; the store gives it its id."""

    job: NewJob


@dataclass(frozen=True, slots=True)
class DropWork:
    """End every open handler's job of the run with this message, and forget its timers (messages to it stay).

    They are buried, but completed if `is_settled`: somebody has settled the step without them, so nothing has failed.
    """

    workflow_id: int
    message: str
    now_us: int
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Have `Due(visit)` happen to the run at `due_us`."""

    workflow_id: int
    visit: int
    due_us: int


@dataclass(frozen=True, slots=True)
class DropTimers:
    """Forget the run's timers, or its other letters to itself of this kind; messages to it stay."""

    workflow_id: int
    kind: LetterKind = LetterKind.TIMER


@dataclass(frozen=True, slots=True)
class HurryJobs:
    """Make ready what the run has that waits for its time: a back-off, a step's delay."""

    workflow_id: int
    now_us: int


@dataclass(frozen=True, slots=True)
class Send:
    """Tell another run something: a letter in its inbox, to be opened at `due_us`."""

    to: int
    kind: LetterKind
    due_us: int
    body: State | None = None
    visit: int | None = None


@dataclass(frozen=True, slots=True)
class Seed:
    """Where a run goes on that was forked off another: its name, the step, and what it has used up so far.

    `signals` are those that no wait has used, as name and payload in the order of arrival; `groups` the runs that were
    started under a name.
    """

    origin_id: int
    name: str
    step: int
    transitions: int
    ledger: State | None = None
    loops: State | None = None
    signals: tuple[tuple[str, State], ...] = ()
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()
    actor: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class StartRun:
    """Start a run under this new id, at its first step or where the seed says.

    Its parent, if it has one, is parked on it.
    """

    workflow_id: int
    definition: Definition
    payload: State
    parent_id: int | None = None
    parent_step: int | None = None
    seed: Seed | None = None


@dataclass(frozen=True, slots=True)
class AddWorkflow:
    """Add the row of a run that was started, with the payload that its deltas are folded over."""

    workflow: Workflow
    payload: State


@dataclass(frozen=True, slots=True)
class KeepSignal:
    """Keep a signal until a wait uses it. `seq` is that of the history row that tells of it: the order of arrival."""

    workflow_id: int
    seq: int
    name: str
    payload: State
    at_us: int


@dataclass(frozen=True, slots=True)
class UseSignals:
    """These signals have satisfied a wait; none of them satisfies another."""

    workflow_id: int
    seqs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KeepGroup:
    """Keep the ids of runs that a step has started under a name; a later group of the same name replaces it.

    None: there is no group of this name any more.
    """

    workflow_id: int
    name: str
    ids: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Watch:
    """Note that the run `waiter_id` wants to be told, for its `visit`, when the run `workflow_id` has ended."""

    workflow_id: int
    waiter_id: int
    visit: int


@dataclass(frozen=True, slots=True)
class TellWatchers:
    """Tell all that watch the run that it has ended. `forgets` says whether they are forgotten: not where the run has
    failed, since it may go on and end again. `is_done`: it has completed."""

    workflow_id: int
    now_us: int
    forgets: bool = True
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class ClearChunks:
    """Delete what a streaming step has yielded in this visit; its history row keeps it. `branch` as in its job."""

    workflow_id: int
    visit: int
    branch: int | None


class Entry(StrEnum):
    """What a history row tells of.

    `branch` and `item` are one of several jobs of a step that have completed (what an item returned is not merged: it
    stands in `control` under `_output`). `waiting`: the run has begun to wait, for what says `_waiting` in `control`.
    `resumed`: a step without a handler has settled; `_used` are the signals that it has used up, by `seq`, `_groups`
    the ids of the runs that it has started, by the name of their group (in a fork, those that it began with).
    `signalled`: a signal has arrived, `_signal` in `control` is `{"name", "payload"}`. `noted`: something of the step's
    own progress, which means nothing to people. `cleaned`, `uncleaned`: an attempt to undo a step or to run a handler
    after the end, well or not.

    What people have asked for has `_by` in `control`, `{"actor", "reason"}`, as far as they said. `completed` without a
    job: somebody has supplied the output. `skipped`: the step was left as it was. `rewound`: the run went back,
    `_rewound` is `{"to_step", "to_seq"}`; rows after `to_seq` up to this one count no more. `patched`: the state was
    changed by hand. `hurried`: what only time held back was let go. `forked`: `_forked` is `{"to": id}` in the one and
    `{"from": id}` in the other. `migrated`: `_migrated` is `{"from", "to": hashes, "from_step", "to_step", "step_map",
    "keeps_visit", "why", "compensations": {step index: handler}}`, of the steps that could be undone under the old
    definition. `replayed`: the run was imported, `_replayed` says from what.
    """

    COMPLETED = "completed"
    BRANCH = "branch"
    ITEM = "item"
    WAITING = "waiting"
    SIGNALLED = "signalled"
    NOTED = "noted"
    FAILED = "failed"
    RESUMED = "resumed"
    PAUSED = "paused"
    CONTINUED = "continued"
    RETRIED = "retried"
    CANCELLED = "cancelled"
    CLEANED = "cleaned"
    UNCLEANED = "uncleaned"
    SKIPPED = "skipped"
    REWOUND = "rewound"
    PATCHED = "patched"
    HURRIED = "hurried"
    FORKED = "forked"
    MIGRATED = "migrated"
    REPLAYED = "replayed"

    @property
    def settles(self) -> bool:
        """True where the row tells that its step was left."""
        return self in _SETTLING


_SETTLING = frozenset({Entry.COMPLETED, Entry.RESUMED, Entry.SKIPPED})


@dataclass(frozen=True, slots=True)
class AppendHistory:
    """One row of the run's history; `seq` counts from 1 and equals the workflow's version after it.

    `changed` holds the keys that the boundary set in the public state and `removed` those that it took out (the
    delta: folding all deltas over the payload gives the state); `control` the `_` keys that the handler returned, or
    that the entry has (`Entry`), `_chunks` being all that a streaming step has yielded.
    `token` is the attempt's lease token, or the operation id of a command.
    """

    run_id: int
    seq: int
    entry: Entry
    at_us: int
    token: int
    job: Job | None = None
    span: Span | None = None
    step_index: int | None = None
    visit: int | None = None
    changed: State | None = None
    removed: tuple[str, ...] | None = None
    control: State | None = None
    error: ErrorInfo | None = None
    is_final: bool = False


Effect = (
    SaveWorkflow
    | FinishJob
    | BuryJob
    | RetryJob
    | AddJob
    | DropWork
    | SetTimer
    | DropTimers
    | HurryJobs
    | Send
    | StartRun
    | AddWorkflow
    | KeepSignal
    | UseSignals
    | KeepGroup
    | Watch
    | TellWatchers
    | ClearChunks
    | AppendHistory
)
