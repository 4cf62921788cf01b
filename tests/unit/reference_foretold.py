"""What must come of runs whatever the schedule: the reference with an order that it makes up."""

from __future__ import annotations

from queuety.model import Definition
from tests.support.definitions_at_random import ROOTS, Payload, Story
from tests.unit.reference_kinds import Telling
from tests.unit.reference_means import Seed
from tests.unit.reference_runs import Run
from tests.unit.reference_words import Mark, NothingMore

LONGEST = 400


class TooLong(Exception):
    """The story goes on for longer than a test wants to follow."""


class Foretold:
    """All runs of a story, each told to its end before whoever waits for it goes on.

    `is_open`: another order could lead elsewhere. Not open are: which of its own jobs comes when, where no two branches
    set one key and none dies; when a signal comes, without a timeout; who of those that are waited for ends first, if
    as many complete as are needed. `names` says how each run came about: its parent's name, the visit, its number.
    """

    def __init__(self, story: Story) -> None:
        self.story = story
        self.is_open = False
        self.names = {run_id: f"root{number}" for number, run_id in enumerate(ROOTS[: len(story.roots)])}
        self.runs: dict[int, Telling] = {}
        self.marks = 0
        self._unsent: dict[int, list[tuple[str, Payload]]] = {}
        self._unfinished: set[int] = set()
        for run_id, definition, payload in zip(ROOTS, story.roots, story.payloads, strict=False):
            self._add(run_id, definition, payload)
        while untold := [run_id for run_id in self.runs if run_id not in self._told]:
            self._tell(untold[0])

    @property
    def _told(self) -> set[int]:
        return {run_id for run_id, run in self.runs.items() if run.visit} - self._unfinished

    def _add(self, run_id: int, definition: Definition, payload: Payload) -> None:
        self.is_open = self.is_open or definition.deadline_s is not None  # how much time has passed by then?
        self.runs[run_id] = Telling(run_id, definition, payload, self)
        self._unsent[run_id] = list(self.story.signals[definition.name])

    def _tell(self, run_id: int) -> None:
        self._unfinished.add(run_id)
        self.runs[run_id].tell()
        self._unfinished.discard(run_id)

    def _standing(self) -> dict[int, str]:
        told = self._told
        return {run_id: how_it_stands(run) if run_id in told else "running" for run_id, run in self.runs.items()}

    def next(self, run: Run) -> Mark:
        self.marks += 1
        if self.marks > LONGEST:
            raise TooLong
        now_us, standing = run.now_us, self._standing()
        if run.visit == 0:
            return Mark("start", now_us, standing, {})
        if self._unsent[run.id]:
            return Mark("signal", now_us, standing, {}, signal=self._unsent[run.id].pop(0))
        if run.open:
            return Mark("report", now_us, standing, {}, run.visit, next(iter(run.open)))
        if run.due_us is not None:
            return Mark("due", max(now_us, run.due_us), standing, {}, run.visit)
        raise NothingMore

    def new_ids(self, run: Run, started: list[tuple[Definition, Payload]]) -> list[int]:
        ids = []
        for number, (definition, payload) in enumerate(started):
            run_id = 20_000_000 + len(self.runs)
            self.names[run_id] = f"{self.names[run.id]}/{run.visit}.{number}"
            self._add(run_id, definition, payload)
            ids.append(run_id)
        if len(self.runs) > LONGEST // 8:
            raise TooLong
        return ids

    def not_started(self, ids: list[int]) -> None:
        for run_id in ids:
            del self.names[run_id], self.runs[run_id], self._unsent[run_id]

    def forked(self, run: Run, new_id: int, payload: Payload, seed: Seed) -> None:
        raise AssertionError("nobody forks a run here")

    def look_ahead(self, run: Run, ids: list[int]) -> None:
        for run_id in ids:
            if run_id in self._unfinished:
                self.is_open = True  # they wait for each other
            elif run_id in self.runs and run_id not in self._told:
                self._tell(run_id)
        run.around = self._standing()

    def state_of(self, run: Run, run_id: int) -> Payload:
        return self.runs[run_id].state

    def leaves_open(self, *, unless: bool) -> None:
        self.is_open = self.is_open or not unless


def how_it_stands(run: Run) -> str:
    return "undone" if run.status == "failed" and run.is_compensated else run.status
