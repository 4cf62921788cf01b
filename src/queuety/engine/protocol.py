"""What the engine and the kinds of steps say to each other: a `Run` to look at, a verdict in return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol

from queuety.model import Definition, Effect, ErrorInfo, Event, State, StepSpec, Workflow, WorkflowStatus

Facts = Mapping[str, Any]
"""What kinds asked to be read before deciding, by the name in their `NEEDS`."""

NO_FACTS: Final[Facts] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Run:
    """A workflow at the step in question. `workflow.current_step` is the index of `spec`.

    `is_retry`: the run goes on after a failure in the same visit; `workflow.runtime` is what the visit had kept then.
    """

    workflow: Workflow
    definition: Definition
    spec: StepSpec
    now_us: int
    facts: Facts
    is_retry: bool = False


@dataclass(frozen=True, slots=True)
class Stay:
    """The step goes on. `runtime` is what the visit keeps from now on; `status` what people see, None for no change."""

    effects: tuple[Effect, ...] = ()
    runtime: State | None = None
    status: WorkflowStatus | None = None


@dataclass(frozen=True, slots=True)
class Leave:
    """The step is settled: merge `changes` (public keys only) and go on, where `_next_step` in `control` says so."""

    changes: State = field(default_factory=dict)
    control: State | None = None
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class Fail:
    """The step cannot be settled: the run fails here, and everything it still has open is dropped."""

    error: ErrorInfo
    control: State | None = None


Verdict = Stay | Leave | Fail


class Kind(Protocol):
    """A kind of step: a module in `kinds/` with these names. How to add one stands there."""

    @property
    def NAME(self) -> str: ...

    @property
    def NEEDS(self) -> frozenset[str]: ...

    def enter(self, run: Run) -> Verdict: ...

    def resume(self, run: Run, event: Event) -> Verdict: ...
