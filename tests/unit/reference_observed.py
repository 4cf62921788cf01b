"""The reference's source for what happened in a play."""

from __future__ import annotations

from collections import Counter

from queuety.model import Definition
from tests.support.definitions_at_random import Payload
from tests.unit.reference_kinds import Telling
from tests.unit.reference_means import Seed
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
        self._seeds: dict[int, Seed] = {}

    def tell(self, run_id: int) -> Telling:
        """The run as the reference tells it; of a fork, its origin was told of before."""
        if run_id not in self.told:
            if run_id in self.play.world.forked:
                self.tell(self.play.world.forked[run_id])
            paper = self.play.world.runs[run_id]
            seed = self._seeds.get(run_id)
            self.told[run_id] = Telling(run_id, paper.definition, paper.payload, self, seed).tell()
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

    def not_started(self, ids: list[int]) -> None:
        for run_id in ids:
            del self.expected[run_id]

    def forked(self, run: Run, new_id: int, payload: Payload, seed: Seed) -> None:
        self.expected[new_id] = run.definition, payload
        self._seeds[new_id] = seed

    def look_ahead(self, run: Run, ids: list[int]) -> None:
        """What is seen is seen: nothing to prepare."""

    def state_of(self, run: Run, run_id: int) -> Payload:
        """As it was then: a run that has completed may have been rewound since."""
        return dict(run.states[run_id])

    def leaves_open(self, *, unless: bool) -> None:
        """What happened is not open."""
