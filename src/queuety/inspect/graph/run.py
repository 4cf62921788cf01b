"""What a picture tells of a run: how often each step was settled, which way it has come, where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from queuety.model import CleanupStatus, Definition, WorkflowStatus


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What the history has of a step, of all its visits together.

    `settled` counts how often it was left, `failures` its failed attempts, `parts` the branches or items that have
    completed. `attempt` is the last failed attempt of the present visit. `undone` and `not_undone` count how its
    compensation has ended.
    """

    settled: int = 0
    was_skipped: bool = False
    failures: int = 0
    parts: int = 0
    attempt: int = 0
    undone: int = 0
    not_undone: int = 0


NOTHING = StepFacts()


@dataclass(frozen=True, slots=True)
class Child:
    """A run that a step of this one has run, the latest. `run` is None where nobody has looked into it."""

    id: int
    status: WorkflowStatus
    run: RunFacts | None = None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run as its row and its history have it.

    `moves` counts how often the run went from one step to another, by their indices; the last one leads to where it is.
    `runtime` is what its present visit keeps, `loops` how often each repeat step has gone back, by its index.
    `cleaned` says of the run's own handlers how they have ended: True for well. `origin` says what the run began as, if
    not at its first step: a line for people, and the step. `is_pruned`: the first rows of its history are gone.
    """

    id: int
    definition: Definition
    status: WorkflowStatus
    current_step: int
    failed_step: int | None = None
    cleanup: CleanupStatus = CleanupStatus.NONE
    error_message: str | None = None
    steps: Mapping[int, StepFacts] = field(default_factory=dict)
    moves: Mapping[tuple[int, int], int] = field(default_factory=dict)
    runtime: Mapping[str, Any] = field(default_factory=dict)
    loops: Mapping[int, int] = field(default_factory=dict)
    children: Mapping[int, Child] = field(default_factory=dict)
    cleaned: Mapping[str, bool] = field(default_factory=dict)
    origin: tuple[str, int] | None = None
    is_pruned: bool = False

    def step(self, index: int) -> StepFacts:
        """What the history has of this step."""
        return self.steps.get(index, NOTHING)
