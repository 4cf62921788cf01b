"""A store on paper for any number of runs: what the database would hold, what it answers, how it takes effects.

Decisions are made by `commands.deciding`, as in a worker; only the reading of facts is the world's own. Effects are
written in the store's order: closed jobs, drops, what is kept beside, history, rows of runs, new runs, letters, jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from queuety.commands import deciding
from queuety.engine.decide import decide
from queuety.model import (
    AddJob,
    AddWorkflow,
    AppendHistory,
    BuryJob,
    Definition,
    DropTimers,
    DropWork,
    Effect,
    Entry,
    Event,
    Failed,
    FinishJob,
    HurryJobs,
    Job,
    KeepGroup,
    KeepSignal,
    LetterKind,
    NewJob,
    RetryJob,
    Role,
    SaveWorkflow,
    Send,
    SetTimer,
    StartRun,
    Succeeded,
    TellWatchers,
    UseSignals,
    Watch,
    Workflow,
)
from queuety.model.needs import (
    Need,
    NeedGroup,
    NeedIds,
    NeedOpenJobs,
    NeedParts,
    NeedSignals,
    NeedStanding,
    NeedStates,
    NeedWatching,
    PartRow,
    Signal,
    Standing,
)
from queuety.store.letters import settled
from queuety.store.load import Letter
from queuety.worker.post import answers_for_missing
from tests.support.definitions_at_random import ROOTS, Payload
from tests.unit.reference_past import OWN, Past, open_jobs


@dataclass
class Open:
    """An open job: what was asked for, how many attempts are counted, who holds it."""

    id: int
    new: NewJob
    attempts: int
    due_us: int
    token: int | None = None


@dataclass
class Paper:
    """What is held of one run. `folded` is the payload with every delta so far.

    `transitions` and `cost` are what it had used up when it was forked off another one.
    """

    definition: Definition
    payload: Payload
    workflow: Workflow
    folded: Payload
    jobs: dict[int, Open] = field(default_factory=dict)
    rows: list[AppendHistory] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    watchers: dict[int, int] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    children: list[int] = field(default_factory=list)
    transitions: int = 0
    cost: int = 0


class World:
    """The runs by id, and the letters on their way (timers are letters to oneself), in the order of writing.

    `wastes_ids`: runs may turn out not to be startable once their ids are drawn.
    """

    wastes_ids = False

    def __init__(self, definitions: Mapping[str, Definition]) -> None:
        self.definitions = definitions  # by hash
        self.now_us = 1_000_000
        self.runs: dict[int, Paper] = {}
        self.letters: list[tuple[int, Letter]] = []  # due, letter
        self.allotted: dict[tuple[int, int], list[int]] = {}
        self.next_job = 1
        self.next_run = ROOTS[-1] + 1
        self.next_token = 1
        self.next_letter = 1
        self._drawn: dict[tuple[int, int], list[int]] = {}
        self._going_back: set[int] = set()
        self.forked: dict[int, int] = {}  # from which run

    # what is asked

    @contextmanager
    def answering(self) -> Iterator[None]:
        """While this lasts, `deciding` reads its facts here."""
        with mock.patch.object(deciding, "read_facts", lambda world, lacking, **_: world.facts(lacking)):
            yield

    def facts(self, lacking: Mapping[int, Collection[Need]]) -> dict[int, dict[Need, Any]]:
        return {run_id: {need: self._answer(run_id, need) for need in needs} for run_id, needs in lacking.items()}

    def _answer(self, run_id: int, need: Need) -> Any:
        paper = self.runs.get(run_id)
        match need:
            case NeedIds(visit, count):
                first = self.next_run + sum(len(ids) for ids in self._drawn.values())
                self._drawn.setdefault((run_id, visit), []).extend(range(first, first + count))
                return tuple(range(first, first + count))
            case NeedStanding(ids):
                return {one: self._standing(one) for one in ids if one in self.runs}
            case NeedStates(ids):
                return {one: self.runs[one].workflow.state for one in ids if one in self.runs}
            case NeedWatching(ids, visit):
                there = [one for one in ids if one in self.runs]
                return frozenset(one for one in there if self.runs[one].watchers.get(run_id) == visit)
        assert paper is not None, f"{need} of a run that is only being started"
        match need:
            case NeedSignals(name, after_seq, limit):
                found = [one for one in paper.signals if one.name == name and one.seq > after_seq]
                return tuple(found[:limit])
            case NeedGroup(name):
                return paper.groups.get(name)
            case NeedParts(visit, after_seq):
                rows = (row for row in paper.rows if row.visit == visit and row.seq > after_seq)
                return tuple(part for row in rows for part in _part_of(row))
            case NeedOpenJobs():
                jobs = ((one.new, one.due_us, one.token is not None) for one in paper.jobs.values())
                return open_jobs(jobs, self.now_us)
        assert isinstance(need, OWN), f"nobody here knows {need}"
        return Past(paper.payload, paper.rows, paper.workflow, paper.signals, paper.groups).answer(need)

    def _standing(self, run_id: int) -> Standing:
        workflow = self.runs[run_id].workflow
        return Standing.of(workflow.status, workflow.cleanup, workflow.error_message, workflow.runtime, workflow.ledger)

    # what happens

    def dispatch(self, roots: Iterable[tuple[int, Definition, Payload]]) -> None:
        """Start runs of their own, all in one transaction: those whose ids the definitions name are there or never."""
        started = [StartRun(run_id, definition, payload) for run_id, definition, payload in roots]
        self._drawn = {}
        rows, effects = deciding.start_all(self, started, now_us=self.now_us)  # type: ignore[arg-type]
        self.write([*rows, *effects])

    def happen(self, events: Mapping[int, Sequence[Event]]) -> list[Effect]:
        """Let things happen to runs, in one transaction. The engine is asked twice, and must say the same."""
        cases = [
            deciding.Case(paper.workflow, paper.definition, own)
            for run_id, own in sorted(events.items())
            for paper in [self.runs[run_id]]
        ]
        answers: list[list[Effect]] = []
        for _ in range(2):
            self._drawn = {}
            answers.append(deciding.decide_cases(self, cases, now_us=self.now_us))  # type: ignore[arg-type]
        assert answers[0] == answers[1]
        self.write(answers[0])
        return answers[0]

    def write(self, effects: Iterable[Effect]) -> None:
        effects = list(effects)
        started = {effect.workflow.id for effect in effects if isinstance(effect, AddWorkflow)}
        self._going_back = {
            one.run_id for one in effects if isinstance(one, AppendHistory) and one.entry is Entry.REWOUND
        }
        drawn = {one for ids in self._drawn.values() for one in ids}
        assert self.wastes_ids or drawn <= started, "an id was drawn for a run that is not started"
        for (run_id, visit), ids in self._drawn.items():
            self.allotted.setdefault((run_id, visit), []).extend(ids)
        self.next_run += len(drawn)
        # New runs before what belongs to them: on paper there is no row without its run.
        for sorts in (
            (AddWorkflow,),
            (FinishJob, BuryJob, RetryJob),
            (DropWork, DropTimers),
            (HurryJobs,),
            (KeepSignal,),
            (UseSignals, KeepGroup, AppendHistory, SaveWorkflow),
        ):
            for effect in effects:
                if isinstance(effect, sorts):
                    self._write(effect)
        for letter in self._posted(effects):
            if isinstance(letter, SetTimer):
                self._post(letter.workflow_id, letter.due_us, LetterKind.TIMER, letter.visit, None)
            else:
                self.send(letter)
        for effect in effects:
            if isinstance(effect, Watch):
                self.runs[effect.workflow_id].watchers[effect.waiter_id] = effect.visit
            elif isinstance(effect, TellWatchers):
                watchers = self.runs[effect.workflow_id].watchers
                for waiter, visit in sorted(watchers.items()):
                    self.send(settled(effect.workflow_id, waiter, visit, due_us=effect.now_us, is_done=effect.is_done))
                if effect.forgets:
                    watchers.clear()
            elif isinstance(effect, AddJob):
                new = effect.job
                assert new.workflow_id is not None
                self.runs[new.workflow_id].jobs[self.next_job] = Open(self.next_job, new, 0, new.due_us)
                self.next_job += 1

    @staticmethod
    def _posted(effects: Iterable[Effect]) -> list[SetTimer | Send]:
        """The timers that are set, then the letters that are sent, without those that are dropped again."""
        posted: list[SetTimer | Send] = []
        for effect in effects:
            if isinstance(effect, SetTimer | Send):
                posted.append(effect)
            elif isinstance(effect, DropTimers):
                posted = [one for one in posted if _key(one) != (effect.workflow_id, effect.kind)]
        return sorted(posted, key=lambda one: isinstance(one, Send))

    def _write(self, effect: Effect) -> None:
        match effect:
            case AddWorkflow(workflow, payload):
                assert workflow.id not in self.runs, "a run was started twice"
                definition = self.definitions[workflow.definition_hash]
                paper = Paper(definition, dict(payload), workflow, dict(payload))
                if workflow.id in self.forked:
                    origin = self.runs[self.forked[workflow.id]].workflow
                    paper.transitions, paper.cost = origin.transitions, (origin.ledger or {}).get("cost", 0)
                self.runs[workflow.id] = paper
                if workflow.parent_id is not None:
                    self.runs[workflow.parent_id].children.append(workflow.id)
            case FinishJob(job) | BuryJob(job):
                self._close(job)
            case RetryJob(job, due_us):
                held = self._close(job)
                self.runs[job.workflow_id or 0].jobs[job.id] = Open(job.id, held.new, job.attempt, due_us)
            case DropWork(run_id):
                jobs = self.runs[run_id].jobs
                for open_job in [one for one in jobs.values() if one.new.role is Role.STEP]:
                    del jobs[open_job.id]
                self._forget(run_id, LetterKind.TIMER)
            case DropTimers(run_id, kind):
                self._forget(run_id, kind)
            case HurryJobs(run_id, now_us):
                for held in self.runs[run_id].jobs.values():
                    if held.token is None:
                        held.due_us = min(held.due_us, now_us)
            case KeepSignal(run_id, seq, name, payload):
                paper = self.runs[run_id]
                assert seq not in {one.seq for one in paper.signals}, "a signal is kept twice"
                paper.signals = sorted((*paper.signals, Signal(seq, name, payload)), key=lambda one: one.seq)
                paper.used.discard(seq)  # given back
            case UseSignals(run_id, seqs):
                paper = self.runs[run_id]
                assert seqs, "nothing was used"
                if run_id not in self._going_back:  # who goes back may have again what it had then
                    assert set(seqs) <= {one.seq for one in paper.signals}, "a signal is used that is not there"
                    assert not paper.used.intersection(seqs), "a signal satisfies a second wait"
                paper.used.update(seqs)
                paper.signals = [one for one in paper.signals if one.seq not in seqs]
            case KeepGroup(run_id, name, ids):
                self.runs[run_id].groups.pop(name, None)
                if ids is not None:
                    self.runs[run_id].groups[name] = ids
            case AppendHistory():
                paper = self.runs[effect.run_id]
                paper.rows.append(effect)
                paper.folded.update(effect.changed or {})
                for key in effect.removed or ():
                    paper.folded.pop(key, None)
            case SaveWorkflow(workflow, was):
                paper = self.runs[workflow.id]
                assert was == paper.workflow
                paper.workflow = workflow

    def _close(self, job: Job) -> Open:
        held = self.runs[job.workflow_id or 0].jobs.pop(job.id, None)
        assert held is not None, "an effect for a job that is not there"
        assert held.token == job.token, "an effect for a job that is held by another token"
        return held

    def _forget(self, run_id: int, kind: LetterKind) -> None:
        self.letters = [entry for entry in self.letters if (entry[1].workflow_id, entry[1].kind) != (run_id, kind)]

    def send(self, letter: Send) -> None:
        self._post(letter.to, letter.due_us, letter.kind, letter.visit, letter.body)

    def _post(self, to: int, due_us: int, kind: LetterKind, visit: int | None, body: Any) -> None:
        self.letters.append((due_us, Letter(self.next_letter, to, kind, visit, body)))
        self.next_letter += 1

    def return_letters(self) -> None:
        """Answer the letters to runs that are not there."""
        lost = [letter for _, letter in self.letters if letter.workflow_id not in self.runs]
        if lost:
            self.letters = [entry for entry in self.letters if entry[1] not in lost]
            self.write(answers_for_missing(lost, now_us=self.now_us))

    # jobs in hand

    def claim(self, held: Open) -> Job:
        held.attempts += 1
        held.token = self.next_token
        self.next_token += 1
        new = held.new
        return Job(
            held.id, new.role, new.queue, new.priority, new.handler, held.attempts, new.max_attempts, held.token,
            held.due_us, 0, payload=new.payload, config=new.config, workflow_id=new.workflow_id,
            step_index=new.step_index, visit=new.visit, branch=new.branch,
        )  # fmt: skip

    def is_held(self, job: Job) -> bool:
        paper = self.runs[job.workflow_id or 0]
        return job.id in paper.jobs and paper.jobs[job.id].token == job.token

    def give_back(self, job: Job) -> None:
        """The process that held it is gone: nobody holds it, and the attempt does not count."""
        held = self.runs[job.workflow_id or 0].jobs[job.id]
        held.attempts -= 1
        held.token = None

    def is_late(self, event: Succeeded | Failed) -> bool:
        """Whether the engine itself, whatever the store would say, makes nothing of this result."""
        paper = self.runs[event.job.workflow_id or 0]
        decision = decide(paper.workflow, paper.definition, event, now_us=self.now_us)
        return decision.workflow is paper.workflow and decision.effects == ()

    def copy(self) -> World:
        """The same world once more, to try something in."""
        twin = copy(self)
        twin.letters, twin.allotted = list(self.letters), {key: list(ids) for key, ids in self.allotted.items()}
        twin.runs = {}
        for run_id, paper in self.runs.items():
            one = twin.runs[run_id] = copy(paper)
            one.jobs = {job_id: copy(held) for job_id, held in paper.jobs.items()}
            one.folded, one.groups, one.watchers = dict(paper.folded), dict(paper.groups), dict(paper.watchers)
            one.rows, one.signals, one.children = list(paper.rows), list(paper.signals), list(paper.children)
            one.used = set(paper.used)
        return twin


def _key(posted: SetTimer | Send) -> tuple[int, LetterKind]:
    if isinstance(posted, SetTimer):
        return posted.workflow_id, LetterKind.TIMER
    return posted.to, posted.kind


def as_written(world: World, run_id: int) -> tuple[Any, ...]:
    """All that is held of a run, and every letter, without the ids that jobs and letters got."""
    paper = world.runs[run_id]
    letters = sorted(
        (due_us, one.workflow_id, one.kind.value, one.visit or 0, repr(one.body)) for due_us, one in world.letters
    )
    jobs = [(held.new, held.attempts, held.due_us) for held in paper.jobs.values()]
    return paper.workflow, paper.rows, jobs, paper.signals, paper.groups, paper.watchers, letters


def _part_of(row: AppendHistory) -> list[PartRow]:
    """The row as one of several jobs that have ended for good, if it is one."""
    job = row.job
    if job is None or job.branch is None:
        return []
    if row.entry in (Entry.BRANCH, Entry.ITEM):
        output = (row.control or {}).get("_output")
        return [PartRow(row.seq, row.entry, job.branch, job.id, output=output)]
    if row.entry is Entry.FAILED and row.is_final and row.error is not None:
        return [PartRow(row.seq, row.entry, job.branch, job.id, error=row.error.message)]
    return []
