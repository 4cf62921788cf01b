"""Several runs on paper that write letters to each other: a store in memory that answers what the engine must know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from queuety.engine.decide import decide, decide_all, start
from queuety.engine.replay import fold
from queuety.model import (
    AddJob,
    AppendHistory,
    BuryJob,
    Cancel,
    ChildRevived,
    ChildSettled,
    ClearChunks,
    Command,
    Commanded,
    DeadlinePassed,
    Definition,
    DependencySettled,
    DropTimers,
    DropWork,
    Due,
    Effect,
    Entry,
    Event,
    Failed,
    FinishJob,
    HandlerRef,
    HurryJobs,
    Job,
    KeepGroup,
    KeepSignal,
    LetterKind,
    NewJob,
    RetryRun,
    Role,
    SaveWorkflow,
    Send,
    SetTimer,
    Signalled,
    Span,
    StartRun,
    Subscribed,
    Succeeded,
    TellWatchers,
    Told,
    UseSignals,
    Watch,
    Workflow,
    WorkflowStatus,
)
from queuety.model.needs import (
    Lacking,
    Need,
    NeedGroup,
    NeedIds,
    NeedOpenJobs,
    NeedSignals,
    NeedStanding,
    NeedStates,
    NeedWatching,
    Signal,
    Standing,
)
from tests.unit.reference import BOOM
from tests.unit.reference_past import OWN, Past, open_jobs

UNDO = HandlerRef("app:undo")


@dataclass
class Paper:
    """What a store holds of one run."""

    definition: Definition
    payload: dict[str, Any]
    workflow: Workflow
    rows: list[AppendHistory] = field(default_factory=list)
    jobs: list[NewJob] = field(default_factory=list)
    timers: list[SetTimer] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    watchers: dict[int, int] = field(default_factory=dict)
    letters: list[Send] = field(default_factory=list)

    def check(self) -> None:
        """The laws that hold for every run, always."""
        assert [row.seq for row in self.rows] == list(range(1, self.workflow.version + 1)), "version = number of rows"
        folded = fold(self.payload, [(row.changed or {}, row.removed or ()) for row in self.rows])
        assert list(folded.items()) == list(self.workflow.state.items()), "the history folds to the state"
        assert not [key for key in self.workflow.state if key.startswith("_")]
        if self.workflow.status.is_terminal:
            assert not [job for job in self.jobs if job.role is Role.STEP], "a run that is over has no open job"


class Several:
    """Runs by their ids. `letters` is every letter ever written, `needs` all that was asked for, both in order."""

    def __init__(self) -> None:
        self.runs: dict[int, Paper] = {}
        self.now_us = 0
        self.letters: list[Send] = []
        self.needs: list[Need] = []
        self.told: list[TellWatchers] = []
        self.tokens = 500

    def __getitem__(self, run_id: int) -> Workflow:
        return self.runs[run_id].workflow

    # what happens

    def start(self, run_id: int, definition: Definition, payload: dict[str, Any] | None = None, **how: Any) -> Workflow:
        facts: dict[Need, Any] = {}
        decision = None
        while decision is None:
            try:
                decision = start(run_id, definition, payload or {}, now_us=self.now_us, facts=facts, **how)
            except Lacking as lack:
                facts[lack.need] = self.answer(run_id, lack.need)
        self.runs[run_id] = Paper(definition, dict(payload or {}), decision.workflow)
        self.write(run_id, decision.effects)
        self.runs[run_id].check()
        return decision.workflow

    def tell(self, run_id: int, *events: Event) -> list[Effect]:
        """Let events happen in one turn; a single one is decided both ways, which must agree."""
        paper = self.runs[run_id]
        was, facts = paper.workflow, dict[Need, Any]()
        effects = None
        while effects is None:
            try:
                effects = decide_all(was, paper.definition, events, now_us=self.now_us, facts=facts)
            except Lacking as lack:
                facts[lack.need] = self.answer(run_id, lack.need)
        if len(events) == 1:
            decision = decide(was, paper.definition, events[0], now_us=self.now_us, facts=facts)
            saved = [SaveWorkflow(decision.workflow, was)] if decision.workflow is not was else []
            assert effects == [*decision.effects, *saved]
        self.write(run_id, effects)
        now = paper.workflow
        assert now == was or now.version > was.version, "no change goes without a row"
        paper.check()
        return effects

    def signal(self, run_id: int, name: str, payload: dict[str, Any] | None = None) -> list[Effect]:
        self.tokens += 1
        return self.tell(run_id, Signalled(name, payload or {}, self.tokens))

    def command(self, run_id: int, command: Command) -> list[Effect]:
        self.tokens += 1
        return self.tell(run_id, Commanded(command, self.tokens))

    def succeed(self, run_id: int, output: dict[str, Any] | None = None) -> list[Effect]:
        return self.tell(run_id, Succeeded(self.claim(run_id), output or {}, Span(0, 0, 1)))

    def fail(self, run_id: int) -> list[Effect]:
        return self.tell(run_id, Failed(self.claim(run_id), BOOM, Span(0, 0, 1), is_final=True))

    def clean(self, run_id: int) -> list[Effect]:
        return self.tell(run_id, Succeeded(self.claim(run_id, Role.CLEANUP), {}, Span(0, 0, 1)))

    def claim(self, run_id: int, role: Role = Role.STEP) -> Job:
        (new,) = [job for job in self.runs[run_id].jobs if job.role is role]
        self.runs[run_id].jobs.remove(new)
        self.tokens += 1
        return Job(
            self.tokens, role, new.queue, new.priority, new.handler, 1, new.max_attempts, self.tokens, 0, 0,
            payload=new.payload, workflow_id=run_id, step_index=new.step_index, visit=new.visit, branch=new.branch,
        )  # fmt: skip

    def fire(self, run_id: int) -> list[Effect]:
        """Go on to the time of the run's next timer, and let it fire."""
        timer = min(self.runs[run_id].timers, key=lambda timer: timer.due_us)
        self.runs[run_id].timers.remove(timer)
        self.now_us = max(self.now_us, timer.due_us)
        return self.tell(run_id, Due(timer.visit))

    def open(self, run_id: int) -> list[Send]:
        """Have the run open all letters that are due for it, in one turn; they are given back."""
        letters = self._due(run_id)
        paper = self.runs[run_id]
        paper.letters = [letter for letter in paper.letters if letter not in letters]
        if letters:
            self.tell(run_id, *map(event_of, letters))
        return letters

    def deliver(self, *, backwards: bool = False) -> None:
        """Have letters opened until none is due, by one run after the other."""
        while waiting := [run_id for run_id in self.runs if self._due(run_id)]:
            self.open(max(waiting) if backwards else min(waiting))

    def _due(self, run_id: int) -> list[Send]:
        return [letter for letter in self.runs[run_id].letters if letter.due_us <= self.now_us]

    # what a store does

    def answer(self, run_id: int, need: Need) -> Any:
        self.needs.append(need)
        paper = self.runs.get(run_id)
        match need:
            case NeedIds(_, count):
                return tuple(max(run_id, *self.runs, 0) + 1 + number for number in range(count))
            case NeedSignals(name, after_seq, limit):
                kept = paper.signals if paper else []
                return tuple(one for one in kept if one.name == name and one.seq > after_seq)[:limit]
            case NeedStanding(ids):
                there = [self[one] for one in ids if one in self.runs]
                return {
                    one.id: Standing.of(one.status, one.cleanup, one.error_message, one.runtime, one.ledger)
                    for one in there
                }
            case NeedStates(ids):
                return {one: self[one].state for one in ids if one in self.runs}
            case NeedGroup(name):
                return paper.groups.get(name) if paper else None
            case NeedWatching(ids, visit):
                return frozenset(
                    one for one in ids if one in self.runs and self.runs[one].watchers.get(run_id) == visit
                )
        assert paper is not None, f"{need} of a run that is only being started"
        if isinstance(need, NeedOpenJobs):
            return open_jobs(((job, job.due_us, False) for job in paper.jobs), self.now_us)
        assert isinstance(need, OWN), f"nobody here asks for {need}"
        return Past(paper.payload, paper.rows, paper.workflow, paper.signals, paper.groups).answer(need)

    def write(self, run_id: int, effects: Iterable[Effect]) -> None:
        paper, effects = self.runs[run_id], list(effects)
        goes_back = any(isinstance(one, AppendHistory) and one.entry is Entry.REWOUND for one in effects)
        for effect in effects:
            match effect:
                case ClearChunks():
                    pass  # nothing streams here
                case FinishJob() | BuryJob():
                    pass  # `claim` has taken it out
                case DropWork():
                    paper.jobs = [job for job in paper.jobs if job.role is not Role.STEP]
                    paper.timers = []
                case AddJob(job):
                    paper.jobs.append(job)
                case SetTimer():
                    paper.timers.append(effect)
                case HurryJobs(_, now_us):
                    paper.jobs = [replace(job, due_us=min(job.due_us, now_us)) for job in paper.jobs]
                case DropTimers(_, LetterKind.TIMER):
                    paper.timers = []
                case DropTimers(_, kind):
                    paper.letters = [letter for letter in paper.letters if letter.kind is not kind]
                case AppendHistory():
                    paper.rows.append(effect)
                case SaveWorkflow(workflow, was):
                    assert was == paper.workflow
                    paper.workflow = workflow
                case KeepSignal(_, seq, name, payload):
                    kept = (*paper.signals, Signal(seq, name, payload))
                    paper.signals = sorted(kept, key=lambda signal: signal.seq)
                case UseSignals(_, seqs):
                    there = {signal.seq for signal in paper.signals}
                    assert goes_back or set(seqs) <= there, "no signal is used twice"
                    paper.signals = [signal for signal in paper.signals if signal.seq not in seqs]
                case KeepGroup(_, name, ids):
                    paper.groups.pop(name, None)
                    if ids is not None:
                        paper.groups[name] = ids
                case Watch(_, waiter_id, visit):
                    paper.watchers[waiter_id] = visit
                case TellWatchers(forgets=forgets, is_done=is_done):
                    self.told.append(effect)
                    body = {"id": run_id, "is_done": True} if is_done else {"id": run_id}
                    for waiter_id, visit in paper.watchers.items():
                        self.post(Send(waiter_id, LetterKind.SETTLED, self.now_us, body, visit))
                    paper.watchers = {} if forgets else paper.watchers
                case Send():
                    self.post(effect)
                case StartRun(child, definition, payload, parent_id, parent_step, seed):
                    origin = {"parent_id": parent_id, "parent_step": parent_step, "seed": seed}
                    self.start(child, definition, dict(payload), **origin)
                case _:
                    raise AssertionError(f"nobody here writes {effect}")

    def post(self, letter: Send) -> None:
        """A run that is not there cannot answer; whoever asked it to tell is told at once."""
        self.letters.append(letter)
        if letter.to in self.runs:
            self.runs[letter.to].letters.append(letter)
        elif letter.kind is LetterKind.SUBSCRIBE:
            asked = event_of(letter)
            assert isinstance(asked, Subscribed)
            self.post(Send(asked.waiter_id, LetterKind.SETTLED, self.now_us, {"id": letter.to}, asked.visit))

    def sent(self, kind: LetterKind, to: int) -> list[dict[str, Any]]:
        """What letters of this kind have said to a run, in order."""
        return [dict(letter.body or {}) for letter in self.letters if (letter.kind, letter.to) == (kind, to)]

    def entries(self, run_id: int) -> list[str]:
        return [str(row.entry) for row in self.runs[run_id].rows]


def event_of(letter: Send) -> Event:
    body, visit = letter.body or {}, letter.visit or 0
    match letter.kind:
        case LetterKind.SUBSCRIBE:
            return Subscribed(body["waiter"], visit)
        case LetterKind.SETTLED:
            return DependencySettled(body["id"], visit, bool(body.get("is_done")))
        case LetterKind.CHILD:
            return ChildSettled(body["id"], WorkflowStatus(body["status"]), body["is_clean"])
        case LetterKind.REVIVED:
            return ChildRevived(body["id"])
        case LetterKind.CANCEL:
            return Told(Cancel(), body["parent"])
        case LetterKind.RETRY:
            return Told(RetryRun(), body["parent"])
        case LetterKind.DEADLINE:
            return DeadlinePassed()
        case LetterKind.TIMER:
            raise AssertionError("timers are no letters here")
