"""The reference's source for what happened in a play."""

from __future__ import annotations

from collections import Counter

from queuety.model import Definition
from tests.support.definitions_at_random import Payload
from tests.unit.reference_kinds import Telling
from tests.unit.reference_play import Play
from tests.unit.reference_runs import Run
from tests.unit.reference_words import Mark, NothingMore


class Observed:
    """Marks in the order in which they came. `expected` is what each new run should have been started with."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.told: dict[int, Telling] = {}
        self._at: Counter[int] = Counter()
        self._drawn: Counter[tuple[int, int]] = Counter()
        self.expected: dict[int, tuple[Definition, Payload]] = {}

    def tell(self, run_id: int) -> Telling:
        """The run as the reference tells it."""
        if run_id not in self.told:
            paper = self.play.world.runs[run_id]
            self.told[run_id] = Telling(run_id, paper.definition, paper.payload, self).tell()
        return self.told[run_id]

    def next(self, run: Run) -> Mark:
        marks = self.play.logs[run.id]
        if self._at[run.id] == len(marks):
            raise NothingMore
        self._at[run.id] += 1
        return marks[self._at[run.id] - 1]

    def new_ids(self, run: Run, started: list[tuple[Definition, Payload]]) -> list[int]:
        if not started:
            return []
        ids = self.play.world.allotted.get((run.id, run.visit), [])
        first = self._drawn[run.id, run.visit]
        self._drawn[run.id, run.visit] += len(started)
        found = ids[first : first + len(started)]
        assert len(found) == len(started), "the reference starts runs where the engine does not"
        self.expected.update(zip(found, started, strict=True))
        return found

    def look_ahead(self, run: Run, ids: list[int]) -> None:
        """What is seen is seen: nothing to prepare."""

    def state_of(self, run_id: int) -> Payload:
        return self.tell(run_id).state

    def leaves_open(self, *, unless: bool) -> None:
        """What happened is not open."""
