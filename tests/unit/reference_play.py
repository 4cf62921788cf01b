"""A story acted out in the world on paper, in an order that a tape of bytes says, and what was seen of it.

Two bytes are a move: what sort of thing happens next, and which of those that may. When the tape is over, `drain` lets
everything happen that still can. `logs` is what happened to each run, in that order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from queuety.engine.cleanup import is_compensated
from queuety.engine.kinds import kind_of
from queuety.errors import ConstraintViolation, DefinitionError, InvalidStateError, SnapshotMissingError
from queuety.model import (
    BuryJob,
    Cancel,
    ChildRevived,
    ChildSettled,
    Command,
    Commanded,
    CompleteStep,
    DeadlinePassed,
    DependencySettled,
    Due,
    Effect,
    Entry,
    ErrorInfo,
    Event,
    Failed,
    FinishJob,
    Fork,
    Job,
    PatchState,
    Pause,
    Resume,
    RetryJob,
    RetryRun,
    Rewind,
    Role,
    RunNow,
    Signalled,
    SkipStep,
    Span,
    State,
    Succeeded,
    Told,
    Use,
    Workflow,
    WorkflowStatus,
)
from queuety.store.load import Letter
from queuety.worker.post import event_of
from tests.support.definitions_at_random import ROOTS, Place, Story, every_definition, fails_now, returned
from tests.unit.reference_foretold import TooLong
from tests.unit.reference_laws import check_change, check_goes_on, check_rests, check_run
from tests.unit.reference_words import Mark
from tests.unit.reference_world import Open, World, as_written

MOST_EVENTS = 500
MOST_RUNS = 60

REFUSALS = (InvalidStateError, SnapshotMissingError, DefinitionError, ConstraintViolation)
"""What a command may be refused with: nothing is changed then."""

BY_HAND: tuple[dict[str, Any], ...] = ({"a": 5}, {"c": 2}, {"items": [3]}, {"by_hand": "x" * 30}, {"k": None})
"""What people put into a state."""

GENTLE: tuple[str, ...] = ("pause", "resume", "resume")
ROUGH: tuple[str, ...] = ("pause", "pause", "resume", "resume", "retry", "retry", "retry", "cancel")
MENDING = ("rewind", "rewind", "rewind", "fork", "skip", "complete", "patch", "patch", "hurry", "retry with")
REPAIRS = (*MENDING, "rewind", "pause", "pause", "pause", "resume", "retry", "retry", "cancel")


@dataclass
class Play:
    """What happens. Without `is_rough` nobody cancels or retries; `batches`: several events at once, or each alone.
    With `repairs` people also do what operators do.

    `deaths` says, in turn, how often a job's process dies before one lives to report (all of them do when it is empty,
    except those that the tape kills).
    """

    story: Story
    tape: bytes
    is_rough: bool = True
    batches: bool = True
    repairs: bool = False
    deaths: bytes = b""
    hands: list[Succeeded | Failed] = field(default_factory=list)
    late: list[Succeeded | Failed] = field(default_factory=list)
    logs: dict[int, list[Mark]] = field(default_factory=dict)
    failures: Counter[tuple[int, int, Place]] = field(default_factory=Counter)
    sent: Counter[int] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    operation: int = 1000
    events: int = 0
    claims: int = 0
    marks_seen: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        definitions = every_definition(self.story.roots)
        self.world = World({one.hash: one for one in definitions})
        self.world.wastes_ids = any(one.guards is not None for one in definitions)

    def act(self) -> Play:
        """All of it: the start, the tape, and whatever can still happen; then also for those that were paused.

        Nothing happens where the runs break a limit as they start. What has failed is retried up to twice, by the
        length of the tape.
        """
        with self.world.answering():
            try:
                self.world.dispatch(zip(ROOTS, self.story.roots, self.story.payloads, strict=False))
            except ConstraintViolation:
                return self
            self._open_logs({}, {})
            self.check({})
            for sort, which in zip(self.tape[::2], self.tape[1::2], strict=False):
                self.move(sort, which)
            self.drain()
            while paused := self.those("paused"):
                self.command(paused[0], "resume")
                self.drain()
            for _ in range(len(self.tape) % 3 if self.is_rough else 0):
                for run_id in self.those("failed"):
                    self.command(run_id, "retry")
                self.drain()
        return self

    # what may happen

    def move(self, sort: int, which: int) -> None:
        """Two bytes of the tape."""
        sort %= 16
        if sort == 15:
            if self.late:
                self.come_late(self.late[which % len(self.late)])
        elif sort == 14 and self.hands:
            self.kill(self.hands[which % len(self.hands)])
        elif sort in (11, 12, 13) or (self.repairs and sort in (1, 2, 3)):
            names = REPAIRS if self.repairs else ROUGH if self.is_rough else GENTLE
            name = names[which % len(names)]
            wanted = {"resume": "paused", "retry": "failed", "retry with": "failed"}
            fitting = self.those(None if name in ("rewind", "patch", "fork") else wanted.get(name, "running"))
            runs = fitting if fitting and which % 5 else self.those()
            self.command(runs[(which // len(names)) % len(runs)], name, which + self.events)
        elif sort in (7, 8, 9, 10) and self.batches:
            self.batch(which, most_runs=1 if sort < 10 else 3)
        else:
            self.one(which)

    def one(self, which: int) -> None:
        """One of the things that may happen by themselves."""
        jobs, letters = self.claimable(), self.due()
        choices: list[tuple[Any, Any]] = [(self.claim, held) for held in jobs]
        choices += [(self.report, hand) for hand in self.hands]
        choices += [(self.deliver, letter) for letter in letters]
        choices += [(self.send_next, run_id) for run_id in self.unsent()]
        choices += [(self.advance, moment) for moment in self.moments()[:1]]
        if choices:
            act, what = choices[which % len(choices)]
            act(what)

    def those(self, status: str | None = None) -> list[int]:
        """The runs with this status, or all."""
        runs = self.world.runs.items()
        return sorted(run_id for run_id, paper in runs if status in (None, paper.workflow.status))

    def claimable(self) -> list[Open]:
        jobs = [held for paper in self.world.runs.values() for held in paper.jobs.values()]
        return [held for held in jobs if held.token is None and held.due_us <= self.world.now_us]

    def due(self) -> list[Letter]:
        return [letter for due_us, letter in self.world.letters if due_us <= self.world.now_us]

    def unsent(self) -> list[int]:
        runs = self.world.runs.items()
        return [one for one, paper in runs if self.sent[one] < len(self.story.signals[paper.definition.name])]

    def moments(self) -> list[int]:
        """When something comes due that is not yet, earliest first."""
        jobs = [held.due_us for paper in self.world.runs.values() for held in paper.jobs.values()]
        return sorted(due for due in (*jobs, *(due for due, _ in self.world.letters)) if due > self.world.now_us)

    def drain(self) -> None:
        """Let everything happen that still can, and see that nothing stands still without a reason."""
        while True:
            if self.hands:
                self.report(self.hands[0])
            elif jobs := self.claimable():
                self.claim(jobs[0])
            elif letters := self.due():
                self.deliver(letters[0])
            elif unsent := self.unsent():
                self.send_next(unsent[0])
            elif moments := self.moments():
                self.advance(moments[0])
            else:
                break
        for paper in self.world.runs.values():
            check_rests(self.world, paper)

    # what happens

    def claim(self, held: Open) -> None:
        """Take the job in hand and run its handler, on the state as it is now; not for the first time if one died."""
        self.claims += 1
        for _ in range(self.deaths[self.claims % len(self.deaths)] % 3 if self.deaths else 0):
            self.run(held)
            self.kill(self.hands[-1])
        self.run(held)

    def run(self, held: Open) -> None:
        job = self.world.claim(held)
        paper = self.world.runs[job.workflow_id or 0]
        config = dict(job.config or {})
        span = Span(self.world.now_us, self.world.now_us, 1)
        place, failures = self._place(job), self.failures[job.workflow_id or 0, job.visit or 0, self._place(job)]
        if fails_now(config, place, failures):
            error = ErrorInfo(f"{job.handler} fails at {place}", "ValueError")
            self.hands.append(Failed(job, error, span, is_final=bool(config.get("final"))))
            return
        arguments: Sequence[Any] = ()
        if job.role is Role.STEP:
            spec = paper.definition.steps[job.step_index or 0]
            task = kind_of(spec).task(spec, job, paper.workflow.state)
            assert (task.handler.name, task.handler.config) == (job.handler, job.config)
            assert (task.use is Use.REDUCER) is (place == "reducer")
            arguments = task.arguments
        self.marks_seen[job.token] = len(self.logs[job.workflow_id or 0])
        self.hands.append(Succeeded(job, returned(config, dict(paper.workflow.state), *arguments), span))

    def report(self, result: Succeeded | Failed) -> None:
        self.happen({result.job.workflow_id or 0: [result]})

    def deliver(self, letter: Letter) -> None:
        self.happen({letter.workflow_id: [letter]})

    def send_next(self, run_id: int) -> None:
        self.happen({run_id: [self._next_signal(run_id)]})

    def advance(self, moment: int) -> None:
        self.world.now_us = moment

    def kill(self, result: Succeeded | Failed) -> None:
        """The process is gone before it could say what came of the job."""
        self.hands.remove(result)
        if self.world.is_held(result.job):
            self.world.give_back(result.job)
            self.seen["a kill"] += 1
        self.late.append(result)

    def come_late(self, result: Succeeded | Failed) -> None:
        """The store lets nobody in who does not hold the job; nor does the engine, where the run has moved on."""
        workflow = self.world.runs[result.job.workflow_id or 0].workflow
        assert not self.world.is_held(result.job)
        if result.job.role is Role.STEP and (workflow.status.is_terminal or workflow.visit != result.job.visit):
            assert self.world.is_late(result), "a late result changes something"
            self.seen["a late result"] += 1

    def command(self, run_id: int, name: str, which: int = 0) -> None:
        self.operation += 1
        before, command = self.world.runs[run_id].workflow, self._command(run_id, name, which)
        if isinstance(command, Fork):
            self.world.forked[command.new_id] = run_id
        try:
            self.happen({run_id: [Commanded(command, self.operation)]})
            self.seen[name] += 1
        except REFUSALS as error:
            assert self.world.runs[run_id].workflow is before
            self.seen[f"{name}: {type(error).__name__}"] += 1
            mark = replace(self._mark("refused", self.standing()), given=command, error=type(error).__name__)
            self._log(run_id, replace(mark, delayed=self._has_delayed(run_id)))

    def _command(self, run_id: int, name: str, which: int) -> Command:
        """The command of this name; what goes with it depends on `which`."""
        definition = self.world.runs[run_id].definition
        step = which % (len(definition.steps) + (which % 11 == 0))
        given = BY_HAND[which % len(BY_HAND)] if which % 3 == 0 else None
        match name:
            case "pause":
                return Pause()
            case "resume":
                return Resume()
            case "retry":
                return RetryRun()
            case "cancel":
                return Cancel()
            case "retry with":
                return RetryRun(BY_HAND[which % len(BY_HAND)])
            case "rewind":
                return Rewind(step, given)
            case "fork":
                self.world.next_run += 1
                return Fork(self.world.next_run - 1, None if which % 2 else step, given)
            case "skip":
                return SkipStep()
            case "complete":
                names = [None, None, *(spec.name for spec in definition.steps), "nowhere"]
                wish = names[which % len(names)]
                return CompleteStep({**(given or {}), "done_by": which % 5, **({"_next_step": wish} if wish else {})})
            case "patch":
                keys = sorted(self.world.runs[run_id].workflow.state)
                removed = (keys[which % len(keys)],) if keys and which % 4 == 0 else ()
                return PatchState({} if removed and which % 8 else BY_HAND[which % len(BY_HAND)], removed)
            case "hurry":
                return RunNow()
        raise AssertionError(f"nobody asks a run to {name}")

    def _has_delayed(self, run_id: int) -> bool:
        jobs = self.world.runs[run_id].jobs.values()
        return any(held.token is None and held.due_us > self.world.now_us for held in jobs)

    def batch(self, which: int, *, most_runs: int) -> None:
        """Several events in one transaction, for one run or for several; every other time all jobs report at once."""
        for held in self.claimable() if which % 2 else []:
            self.claim(held)
        waiting: dict[int, list[Any]] = {}
        for result in self.hands:
            waiting.setdefault(result.job.workflow_id or 0, []).append(result)
        for letter in self.due():
            waiting.setdefault(letter.workflow_id, []).append(letter)
        if which % 5 == 4:
            for run_id in self.unsent():
                waiting.setdefault(run_id, []).append(self._next_signal(run_id))
        runs = sorted((run_id for run_id in waiting if run_id in self.world.runs), key=lambda one: -len(waiting[one]))
        if not runs:
            return self.one(which)
        start = 0 if most_runs == 1 and which % 3 else which % len(runs)
        chosen = {run_id: _turned(waiting[run_id], which // 3) for run_id in runs[start : start + most_runs]}
        self.seen["several at once"] += 1
        return self.happen(chosen)

    def happen(self, what: dict[int, list[Any]]) -> None:
        """Results, letters, signals and commands, each given as such; letters and hands are theirs no more after it."""
        self.events += 1
        if self.events > MOST_EVENTS or len(self.world.runs) > MOST_RUNS:
            raise TooLong
        events: dict[int, list[Event]] = {}
        letters = [one for own in what.values() for one in own if isinstance(one, Letter)]
        for run_id, own in what.items():
            if run_id not in self.world.runs:
                continue
            told: list[Event | None] = [event_of(one) if isinstance(one, Letter) else one for one in own]
            assert None not in told, "a letter makes no sense"
            events[run_id] = [one for one in told if one is not None and self._is_let_in(one)]
        was = {run_id: self.world.runs[run_id].workflow for run_id in events}
        standing, states = self.standing(), self.states()
        delayed = {run_id for run_id in events if self._has_delayed(run_id)}
        twin = self.world.copy() if len(events) == 1 and any(len(own) > 1 for own in events.values()) else None
        effects = self.world.happen(events)
        self.world.letters = [entry for entry in self.world.letters if entry[1] not in letters]
        self.world.return_letters()
        self._open_logs(standing, states)
        for run_id, own in events.items():
            for event in own:
                mark = replace(self._mark("", standing), states=states, delayed=run_id in delayed)
                self._note(run_id, event, effects, mark)
        results = [one for own in what.values() for one in own if isinstance(one, Succeeded | Failed)]
        self.hands = [hand for hand in self.hands if hand not in results]
        self._let_go(self.world, results, effects)
        self.late += results
        if twin is not None and len(twin.runs) == len(self.world.runs):
            self._compare_one_by_one(twin, letters, *events.items())
        self.check(was, is_one=all(len(own) == 1 for own in events.values()))

    def _is_let_in(self, event: Event) -> bool:
        """The store lets in the result of a job that is held, and everything else."""
        return not isinstance(event, Succeeded | Failed) or self.world.is_held(event.job)

    def _let_go(self, world: World, results: Iterable[Succeeded | Failed], effects: Iterable[Effect]) -> None:
        """A job whose result led to nothing goes, as in a turn, or it would be recovered for ever."""
        closed = _closed(effects)
        for result in results:
            if result.job.id not in closed and world.is_held(result.job):
                del world.runs[result.job.workflow_id or 0].jobs[result.job.id]

    def _compare_one_by_one(self, twin: World, letters: list[Letter], happened: tuple[int, list[Event]]) -> None:
        """Several events in one transaction mean the same as one after the other, each in its own.

        Not compared where runs were started: one transaction cannot see yet that a run has ended as it began.
        """
        run_id, events = happened
        for event in events:
            if not isinstance(event, Succeeded | Failed):
                twin.happen({run_id: [event]})
            elif twin.is_held(event.job):
                self._let_go(twin, [event], twin.happen({run_id: [event]}))
        twin.letters = [entry for entry in twin.letters if entry[1] not in letters]
        twin.return_letters()
        assert as_written(twin, run_id) == as_written(self.world, run_id), "a batch is not its events"

    def check(self, was: dict[int, Any], *, is_one: bool = True) -> None:
        for run_id, before in was.items():
            check_change(before, self.world.runs[run_id], is_one=is_one)
        for paper in self.world.runs.values():
            check_run(self.world, paper)
            check_goes_on(self.world, paper)

    # what is seen of it

    def standing(self) -> dict[int, str]:
        return {run_id: _standing(paper.workflow) for run_id, paper in self.world.runs.items()}

    def states(self) -> dict[int, State]:
        return {run_id: paper.workflow.state for run_id, paper in self.world.runs.items()}

    def _mark(self, what: str, standing: dict[int, str]) -> Mark:
        return Mark(what, self.world.now_us, standing, self.states())

    def _open_logs(self, standing: dict[int, str], states: dict[int, State]) -> None:
        """Of the runs that were started just now, and who are there for each other."""
        new = sorted(self.world.runs.keys() - self.logs.keys())
        standing.update(dict.fromkeys(new, "running"))
        for run_id in new:
            self._log(run_id, replace(self._mark("start", standing), states=states))

    def _log(self, run_id: int, mark: Mark) -> None:
        self.logs.setdefault(run_id, []).append(mark)

    def _note(self, run_id: int, event: Event, effects: Iterable[Effect], mark: Mark) -> None:
        match event:
            case Succeeded() | Failed():
                if event.job.id not in _closed(effects):
                    return
                place = self._place(event.job)
                if isinstance(event, Failed):
                    self.failures[run_id, event.job.visit or 0, place] += 1
                if event.job.role is Role.CLEANUP:
                    if event.job.id in _closed(effects, for_good=True):
                        self._log(run_id, replace(mark, what="cleaned"))
                    return
                seen = self.marks_seen.get(event.job.token)
                mark = replace(mark, what="report", visit=event.job.visit, place=place, seen=seen)
            case Commanded(command):
                mark = replace(mark, what="asked", given=command)
            case DeadlinePassed():
                mark = replace(mark, what="deadline")
            case Signalled(name, payload):
                self.sent[run_id] += 1
                mark = replace(mark, what="signal", signal=(name, dict(payload)))
            case Due(visit):
                mark = replace(mark, what="due", visit=visit)
            case DependencySettled(other, visit):
                mark = replace(mark, what="settled", visit=visit, id=other)
            case ChildSettled(child):
                mark = replace(mark, what="child", id=child)
            case ChildRevived(child):
                mark = replace(mark, what="revived", id=child)
            case Told(command):
                mark = replace(mark, what="told", command="cancel" if isinstance(command, Cancel) else "retry")
            case _:
                return
        self._log(run_id, mark)

    def _place(self, job: Job) -> Place:
        if job.role is Role.CLEANUP:
            rows = self.world.runs[job.workflow_id or 0].rows
            ends = sum(row.entry is Entry.FAILED and row.is_final and row.job is None for row in rows)
            return f"cleanup {job.payload} of end {ends}"
        spec = self.world.runs[job.workflow_id or 0].definition.steps[job.step_index or 0]
        return "reducer" if job.branch is None and spec.kind == "for_each" else job.branch

    def _next_signal(self, run_id: int) -> Signalled:
        self.operation += 1
        name, payload = self.story.signals[self.world.runs[run_id].definition.name][self.sent[run_id]]
        return Signalled(name, payload, self.operation)


def _standing(workflow: Workflow) -> str:
    is_undone = workflow.status is WorkflowStatus.FAILED and is_compensated(workflow.ledger)
    return "undone" if is_undone else workflow.status.value


def _closed(effects: Iterable[Effect], *, for_good: bool = False) -> set[int]:
    sorts = FinishJob | BuryJob if for_good else FinishJob | BuryJob | RetryJob
    return {effect.job.id for effect in effects if isinstance(effect, sorts)}


def _turned(things: list[Any], which: int) -> list[Any]:
    """At most four of these, beginning somewhere, in this order or the other."""
    start = which % len(things)
    chosen = [*things[start:], *things[:start]][:4]
    return chosen[::-1] if (which // 7) % 2 else chosen
