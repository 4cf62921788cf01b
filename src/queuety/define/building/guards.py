"""What a run may use up at most."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from queuety.define.building.draft import Draft
from queuety.define.forms.form import read_count
from queuety.model import Guards


class Limits(Draft):
    """Limits of the run, each an integer, 1 or above; exactly so much is fine.

    A step that goes beyond one fails the run at once, with `ConstraintViolation`, and what it returned is not merged.
    Runs that a run starts have limits of their own. `workflow_status` shows the limits and what was used of them.
    """

    def max_transitions(self, limit: int) -> Self:
        """Lets at most so many steps settle, of whatever kind; in a loop each visit counts."""
        return self._limit("max_transitions", limit)

    def max_for_each_items(self, limit: int) -> Self:
        """Lets the list of a for-each step have at most so many items; each step is looked at by itself."""
        return self._limit("max_for_each_items", limit)

    def max_state_bytes(self, limit: int) -> Self:
        """Lets the public state, as JSON in UTF-8, have at most so many bytes, at the start and after each step."""
        return self._limit("max_state_bytes", limit)

    def max_cost_units(self, limit: int) -> Self:
        """Lets the handlers that have completed cost at most so much in all: each its `cost_units`, 1 if not given."""
        return self._limit("max_cost_units", limit)

    def max_started_workflows(self, limit: int) -> Self:
        """Lets `start_workflows` and `start_agents` start at most so many runs in all; `run_workflow` counts not."""
        return self._limit("max_started_workflows", limit)

    def _limit(self, key: str, limit: int) -> Self:
        count = read_count(limit, f"workflow {self._name!r}: {key}")
        return self._set(guards=replace(self._run.guards or Guards(), **{key: count}))
