"""What a kind of step may have to know before it can decide, beside the workflow: asked for when it turns out.

A need is a plain value; whoever calls `decide` reads what it names in the transaction that holds the workflow's lock
(`store/facts.py`) and hands it over as a fact under the need itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from queuety.model.definitions import HandlerRef
from queuety.model.effects import Entry
from queuety.model.words import CleanupStatus, State, WorkflowStatus


class Lacking(Exception):
    """Facts are needed, at least one, that were not read yet. Nothing was decided."""

    def __init__(self, *needs: Need) -> None:
        super().__init__(*needs)
        self.needs = needs

    @property
    def need(self) -> Need:
        """The first of them."""
        return self.needs[0]


@dataclass(frozen=True, slots=True)
class NeedIds:
    """`count` new ids for runs, ascending: `tuple[int, ...]`. The same for the same visit and purpose."""

    visit: int
    count: int


@dataclass(frozen=True, slots=True)
class NeedSignals:
    """The run's unused signals of this name that came after `after_seq`, first come first, at most `limit`:
    `tuple[Signal, ...]`."""

    name: str
    after_seq: int
    limit: int


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal that no wait has used. `seq` is the order of arrival within the run."""

    seq: int
    name: str
    payload: State


@dataclass(frozen=True, slots=True)
class NeedStanding:
    """How these runs stand: `Mapping[int, Standing]`; those that are not there are left out."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where another run stands, as last committed.

    `awaits`: it has told a run of its own to end, and that one is not clean yet. `is_compensated`: its steps have been
    undone, or are about to be, so that it cannot go on.
    """

    status: WorkflowStatus
    cleanup: CleanupStatus
    error_message: str | None = None
    awaits: bool = False
    is_compensated: bool = False

    @classmethod
    def of(
        cls,
        status: WorkflowStatus,
        cleanup: CleanupStatus,
        error_message: str | None,
        runtime: State | None,
        ledger: State | None,
    ) -> Standing:
        """How a run with these columns stands."""
        undo = (ledger or {}).get("undo") or {}
        awaits = status.is_terminal and bool((runtime or {}).get("awaits") or (ledger or {}).get("left"))
        return cls(status, cleanup, error_message, awaits, bool(undo.get("compensated")))

    @property
    def is_clean(self) -> bool:
        """True if nothing is left to clean up of the run, nor of the children that it has told to end."""
        return self.cleanup is not CleanupStatus.PENDING and not self.awaits


@dataclass(frozen=True, slots=True)
class NeedStates:
    """The public states of these runs: `Mapping[int, State]`; those that are not there are left out."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NeedGroup:
    """The ids of the group that a step of this run has started under this name: `tuple[int, ...]`, or None."""

    name: str


@dataclass(frozen=True, slots=True)
class NeedParts:
    """How the jobs of several of this visit have ended for good, with history rows above `after_seq`, in their order:
    `tuple[PartRow, ...]`."""

    visit: int
    after_seq: int


@dataclass(frozen=True, slots=True)
class PartRow:
    """One branch or item that has ended. `entry` is `branch` or `item` if it succeeded, else `failed`.

    `output` is what an item returned, `error` why it failed.
    """

    seq: int
    entry: Entry
    branch: int
    job_id: int
    output: State | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class NeedPast:
    """Where the run stood when this step last settled, or with `is_entry` when it was last entered: `Past`, or None.

    Steps are those of the present definition: what happened before a migration does not count.
    """

    step: int
    is_entry: bool = False


@dataclass(frozen=True, slots=True)
class Past:
    """The state as of a history row; 0 is the start.

    `used`, of a row that the run has gone back before since: the signals that had been used by then, by `seq`. Some of
    them may be free now. `groups`, by name: the runs that had been started by then, None where only later rows tell of
    such a group. One of which no row tells is as it is now.
    """

    seq: int
    state: State
    used: tuple[int, ...] = ()
    groups: tuple[tuple[str, tuple[int, ...] | None], ...] = ()


@dataclass(frozen=True, slots=True)
class NeedUndo:
    """The step to be undone next: `Undo`, or None. It is the last that has settled before the row `before_seq` and was
    not rewound; `steps` are those of the present definition that can be undone."""

    before_seq: int
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Undo:
    """A settled step that can be undone. `handler` is given if it settled under an earlier definition, whose index
    `step` then is."""

    seq: int
    step: int
    handler: HandlerRef | None = None


@dataclass(frozen=True, slots=True)
class NeedUsedSignals:
    """The signals that waits have used up in rows above `after_seq`: `tuple[Signal, ...]`, in order of arrival."""

    after_seq: int


@dataclass(frozen=True, slots=True)
class NeedBelongings:
    """What the run keeps beside itself: `Belongings`."""


@dataclass(frozen=True, slots=True)
class Belongings:
    """The signals that no wait has used, in order of arrival, and the groups of runs that it has started."""

    signals: tuple[Signal, ...]
    groups: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class NeedOpenJobs:
    """How many jobs the run has open: `OpenJobs`."""


@dataclass(frozen=True, slots=True)
class OpenJobs:
    """Handlers' jobs of a run that are not done: being run, waiting for their time, and the others."""

    leased: int
    delayed: int
    ready: int


@dataclass(frozen=True, slots=True)
class NeedWatching:
    """Which of these runs will tell this one, in this visit, when they end: `frozenset[int]`."""

    ids: tuple[int, ...]
    visit: int


Need = (
    NeedIds
    | NeedSignals
    | NeedStanding
    | NeedStates
    | NeedGroup
    | NeedParts
    | NeedPast
    | NeedUndo
    | NeedUsedSignals
    | NeedBelongings
    | NeedOpenJobs
    | NeedWatching
)
