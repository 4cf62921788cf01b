"""What the engine and the kinds of steps say to each other: a `Run` to look at, a verdict in return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol

from queuety.model import (
    Definition,
    Effect,
    Entry,
    ErrorInfo,
    Event,
    HandlerRef,
    Job,
    Json,
    Options,
    State,
    StepSpec,
    Use,
    Workflow,
    WorkflowStatus,
)
from queuety.model.needs import Lacking, Need

Facts = Mapping[Need, Any]
"""What was read for the run, under its lock, by the need that it answers."""

NO_FACTS: Final[Facts] = MappingProxyType({})


def answer_to(need: Need, facts: Facts) -> Any:
    """What the need asks for. Raises `Lacking` if it was not read, or the error that stands for the answer."""
    try:
        answer = facts[need]
    except KeyError:
        raise Lacking(need) from None
    if isinstance(answer, Exception):
        raise answer
    return answer


@dataclass(frozen=True, slots=True)
class Run:
    """A workflow at the step in question. `workflow.current_step` is the index of `spec`.

    `is_retry`: the run goes on after a failure in the same visit; `workflow.runtime` is what the visit had kept then.
    `pending` are the effects that this very decision has led to so far: no fact that was read shows them.
    """

    workflow: Workflow
    definition: Definition
    spec: StepSpec
    now_us: int
    facts: Facts
    is_retry: bool = False
    pending: Sequence[Effect] = ()

    def read(self, need: Need) -> Any:
        """What the need asks for; typed readers stand in `facts`. Raises `Lacking` if it was not read yet.

        Whoever calls `decide` then reads what is lacking, in the same transaction, and has it decided anew. Raises the
        error that stands for an answer that cannot be had.
        """
        return answer_to(need, self.facts)

    def expect(self, needs: Iterable[Need]) -> None:
        """Has all of these read at once that were not read yet. Raises `Lacking`.

        A fact that is asked for alone costs a statement and the whole decision once more.
        """
        lacking = [need for need in needs if need not in self.facts]
        if lacking:
            raise Lacking(*lacking)


@dataclass(frozen=True, slots=True)
class Part:
    """A history row of something that does not settle the step: one of several jobs has ended, a wait has begun.

    It tells of the attempt that was decided about, if it was one. `changes` are merged at once.
    """

    entry: Entry
    changes: State | None = None
    control: State | None = None


@dataclass(frozen=True, slots=True)
class Stay:
    """The step goes on. `runtime` is what the visit keeps from now on; `status` what people see, None for no change.

    `supersedes` is the message with which what the step had open before is buried, None if that goes on.
    """

    effects: tuple[Effect, ...] = ()
    runtime: State | None = None
    status: WorkflowStatus | None = None
    part: Part | None = None
    supersedes: str | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """The step is settled: merge `changes` (public keys only) and go on, where `_next_step` in `control` says so.

    With a `part` the attempt has a row of its own before that of the step. `supersedes` is the message with which what
    the step still has open is buried, None if it has nothing open but timers that its effects drop. `jumps` is how
    often this repeat step has now jumped, 0 once it falls through; None for a step of another kind.
    """

    changes: State = field(default_factory=dict)
    control: State | None = None
    effects: tuple[Effect, ...] = ()
    part: Part | None = None
    supersedes: str | None = None
    jumps: int | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """The step cannot be settled: the run fails here, and everything it still has open is dropped.

    `after` is the child run that is still being cleaned up after: what follows from the failure comes after that.
    """

    error: ErrorInfo
    control: State | None = None
    after: int | None = None


Verdict = Stay | Leave | Fail


@dataclass(frozen=True, slots=True)
class Task:
    """What a job of a step runs: the handler, what it is called as, what it gets beside the state.

    `shared` is the key of a large list in the state that all jobs of the step may read and none may change.
    """

    handler: HandlerRef
    options: Options
    use: Use = Use.STEP
    arguments: tuple[Json, ...] = ()
    shared: str | None = None


class Kind(Protocol):
    """A kind of step: a module in `kinds/` with these names. How to add one stands there."""

    @property
    def NAME(self) -> str: ...

    def task(self, spec: StepSpec, job: Job, state: State, /) -> Task: ...

    def enter(self, run: Run) -> Verdict: ...

    def resume(self, run: Run, event: Event) -> Verdict: ...

    def held(self, run: Run, /) -> frozenset[str]: ...
