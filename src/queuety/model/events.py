"""What happens to a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from queuety.model.definitions import Definition
from queuety.model.runs import Job
from queuety.model.words import ErrorKind, Json, State, WorkflowStatus


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """What went wrong in an attempt, already made safe to store: valid text of bounded length, whatever was raised."""

    message: str
    type_name: str
    traceback: str | None = None
    kind: ErrorKind = ErrorKind.STEP_FAILED


@dataclass(frozen=True, slots=True)
class Span:
    """When and by whom an attempt was run. `owner` names the process's incarnation, for display only."""

    started_us: int
    finished_us: int
    owner: int


@dataclass(frozen=True, slots=True)
class Succeeded:
    """A handler returned. `output` is checked JSON; its `_` keys are control values.

    `chunks` is all that a streaming step has yielded, over all attempts of its visit; None for any other handler.
    """

    job: Job
    output: State
    span: Span
    chunks: tuple[Json, ...] | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt failed. `is_final`: no further attempt, whatever is left. `retry_after_us` is the handler's own wish.

    `jitter` is the share by which the back-off is lengthened, drawn at random outside the engine. `trace` is what the
    handler had noted for the history until then.
    """

    job: Job
    error: ErrorInfo
    span: Span
    is_final: bool = False
    retry_after_us: int | None = None
    jitter: float = 0.0
    trace: State | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """A timer has fired for the visit that set it."""

    visit: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Let what runs finish, start nothing new."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on after a pause."""


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The time that the run had from its start is over."""


@dataclass(frozen=True, slots=True)
class RetryRun:
    """Go on after a failure, at the step that failed, with fresh attempts; `with_state` is merged into the state."""

    with_state: State | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the run now."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """Go back to where this step (index or name) had last settled, and on from there.

    `with_state` is merged into that state.
    """

    to_step: int | str
    with_state: State | None = None


@dataclass(frozen=True, slots=True)
class Fork:
    """Start a run of its own under this new id that goes on from here, or with `at_step` from where that step was last
    entered; `with_state` is merged into its state."""

    new_id: int
    at_step: int | str | None = None
    with_state: State | None = None


@dataclass(frozen=True, slots=True)
class SkipStep:
    """Leave the current step as it is, its work given up, and go on with the next.

    `visit` and `step` (index or name) are those that whoever asks has in mind: of two who ask at once one is refused.
    """

    visit: int | None = None
    step: int | str | None = None


@dataclass(frozen=True, slots=True)
class CompleteStep:
    """Settle the current step with this output, as if its handler had returned it; its work is given up.

    `visit` and `step` as in `SkipStep`.
    """

    output: State
    visit: int | None = None
    step: int | str | None = None


@dataclass(frozen=True, slots=True)
class PatchState:
    """Set these keys of the state and take those out, and nothing else."""

    changes: State
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunNow:
    """Wait no longer for what only time holds back: a delay, a back-off."""


@dataclass(frozen=True, slots=True)
class Migrate:
    """Go on under this definition; `step_map` says which steps of the old one are called otherwise, old name to new."""

    definition: Definition
    step_map: Mapping[str, str] = field(default_factory=dict)


Command = Pause | Resume | RetryRun | Cancel | Rewind | Fork | SkipStep | CompleteStep | PatchState | RunNow | Migrate


@dataclass(frozen=True, slots=True)
class Commanded:
    """Somebody asked for something. `operation` is made by the caller and unique: a repeated one is not done twice.

    `actor` and `reason` say who and why, for the history.
    """

    command: Command
    operation: int
    actor: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Signalled:
    """Somebody has sent a signal. `payload` is checked JSON; the rest as for `Commanded`."""

    name: str
    payload: State
    operation: int
    actor: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The run `waiter_id` wants to be told, for its `visit`, when this one has ended."""

    waiter_id: int
    visit: int


@dataclass(frozen=True, slots=True)
class DependencySettled:
    """A run that this one waits for has ended, or is not there. `visit` is the one that asked to be told.

    `is_done` is True if it is known to have completed; a run that has may be alive again by now.
    """

    id: int
    visit: int
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class ChildSettled:
    """A child run has ended. `is_clean`: nothing of it is left to clean up, nor of its own children."""

    id: int
    status: WorkflowStatus
    is_clean: bool


@dataclass(frozen=True, slots=True)
class ChildRevived:
    """A child run goes on after a failure."""

    id: int


@dataclass(frozen=True, slots=True)
class Told:
    """The parent run wants this one to do something; where the status forbids it, the parent is told how it stands."""

    command: Cancel | RetryRun
    parent_id: int


Event = (
    Succeeded
    | Failed
    | Due
    | DeadlinePassed
    | Commanded
    | Signalled
    | Subscribed
    | DependencySettled
    | ChildSettled
    | ChildRevived
    | Told
)
