"""What the engine's tests are checked against: a store on paper, and the rules of a run told once more, plainly.

`World` does with effects what a store does, in the order by sort that `decide.py` allows, and looks after the laws that
hold after every event. `Reference` knows nothing of the engine: it is a run as the specification tells it, one mutable
object with one branch per rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from queuety.engine.decide import decide, decide_all, start
from queuety.engine.protocol import Facts
from queuety.engine.replay import fold
from queuety.errors import InvalidStateError
from queuety.model import (
    AddJob,
    AppendHistory,
    BuryJob,
    Command,
    Commanded,
    DeadlinePassed,
    Definition,
    DropTimers,
    DropWork,
    Due,
    Effect,
    Entry,
    ErrorInfo,
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
    Options,
    RetryJob,
    Role,
    SaveWorkflow,
    Send,
    SetTimer,
    Signalled,
    Span,
    StepSpec,
    Succeeded,
    UseSignals,
    Workflow,
    WorkflowStatus,
)
from queuety.model.needs import Lacking, Need, NeedGroup, NeedOpenJobs, NeedSignals, Signal
from tests.unit.reference_past import OWN, SETTLED, Past, open_jobs

Answer = TypeVar("Answer")

SECOND = 1_000_000
BOOM = ErrorInfo("boom", "ValueError")


def then(name: str, **options: Any) -> StepSpec:
    return StepSpec("single", name, HandlerRef(f"app:{name}"), Options(**options))


def delay(name: str, seconds: float) -> StepSpec:
    return StepSpec("delay", name, settings={"seconds": seconds})


def flow(*steps: StepSpec, **options: Any) -> Definition:
    return Definition("flow", steps, hash="f" * 64, **options)


class World:
    """One run and its work, in memory. Every event goes through `tell`, which checks what must always hold.

    `deadlines` are the letters that remind it of its deadline; `asked` is all that it had to know.
    """

    def __init__(self, definition: Definition, payload: dict[str, Any] | None = None, *, now_us: int = 0) -> None:
        self.definition = definition
        self.payload = payload or {}
        self.now_us = now_us
        self.open: dict[int, tuple[NewJob, int, int]] = {}  # id -> job, attempts so far, due
        self.held: dict[int, int] = {}  # id -> token
        self.buried: dict[int, str] = {}
        self.finished: list[int] = []
        self.timers: list[SetTimer] = []
        self.deadlines: list[Send] = []
        self.rows: list[AppendHistory] = []
        self.signals: list[Signal] = []
        self.groups: dict[str, tuple[int, ...]] = {}
        self.ids = 100
        self.told: list[Event] = []
        self.asked: list[Need] = []
        decision = self.informed(lambda facts: start(41, definition, self.payload, now_us=now_us, facts=facts))
        self.workflow: Workflow = decision.workflow
        self.write(decision.effects)
        self.check()

    # what a store does

    def informed(self, ask: Callable[[Facts], Answer]) -> Answer:
        """What is decided once everything that it takes was read."""
        facts: dict[Need, Any] = {}
        while True:
            try:
                return ask(facts)
            except Lacking as lacking:
                need = lacking.need
            assert need not in facts, "a need whose answer is there is not lacking"
            self.asked.append(need)
            facts[need] = self.answer(need)

    def answer(self, need: Need) -> Any:
        match need:
            case NeedSignals(name, after_seq, limit):
                fitting = [signal for signal in self.signals if signal.name == name and signal.seq > after_seq]
                return tuple(fitting[:limit])
            case NeedGroup(name):
                return self.groups.get(name)
            case NeedOpenJobs():
                jobs = ((new, due_us, job_id in self.held) for job_id, (new, _, due_us) in self.open.items())
                return open_jobs(jobs, self.now_us)
        assert isinstance(need, OWN), f"nothing here asks for {need}"
        return Past(self.payload, self.rows, self.workflow, self.signals, self.groups).answer(need)

    def write(self, effects: Iterable[Effect]) -> None:
        effects = list(effects)
        self.goes_back = any(isinstance(one, AppendHistory) and one.entry is Entry.REWOUND for one in effects)
        by_sort: list[tuple[type, ...]] = [
            (FinishJob, BuryJob, RetryJob),
            (DropWork,),
            (HurryJobs,),
            (AddJob, SetTimer, DropTimers, Send),
            (KeepSignal,),
            (UseSignals, KeepGroup),
        ]
        for sorts in [*by_sort, (AppendHistory, SaveWorkflow)]:
            for effect in effects:
                if isinstance(effect, sorts):
                    self._write(effect)

    def _write(self, effect: Effect) -> None:
        match effect:
            case FinishJob(job):
                self._close(job)
                self.finished.append(job.id)
            case BuryJob(job, error):
                self._close(job)
                self.buried[job.id] = error.message
            case RetryJob(job, due_us):
                new, _, _ = self._close(job)
                self.open[job.id] = (new, job.attempt, due_us)
            case DropWork(_, message):
                for job_id, (new, _, _) in list(self.open.items()):
                    if new.role is Role.STEP:
                        del self.open[job_id]
                        self.held.pop(job_id, None)
                        self.buried[job_id] = message
                self.timers = []
            case HurryJobs(_, now_us):
                for job_id, (new, attempts, due_us) in self.open.items():
                    if job_id not in self.held:
                        self.open[job_id] = (new, attempts, min(due_us, now_us))
            case AddJob(new):
                self.ids += 1
                self.open[self.ids] = (new, 0, new.due_us)
            case SetTimer():
                self.timers.append(effect)
            case DropTimers(_, kind):
                self.timers = [] if kind is LetterKind.TIMER else self.timers
                self.deadlines = [] if kind is LetterKind.DEADLINE else self.deadlines
            case Send(to, kind) if to == 41:
                assert kind is LetterKind.DEADLINE
                self.deadlines.append(effect)
            case KeepSignal(_, seq, name, payload):
                self.signals = sorted((*self.signals, Signal(seq, name, payload)), key=lambda signal: signal.seq)
            case UseSignals(_, seqs):
                there = {signal.seq for signal in self.signals}
                assert self.goes_back or set(seqs) <= there, "a signal is used that is not there"
                self.signals = [signal for signal in self.signals if signal.seq not in seqs]
            case KeepGroup(_, name, ids):
                self.groups.pop(name, None)
                if ids is not None:
                    self.groups[name] = ids
            case AppendHistory():
                self.rows.append(effect)
            case SaveWorkflow(workflow, was):
                assert was == self.workflow
                self.workflow = workflow

    def _close(self, job: Job) -> tuple[NewJob, int, int]:
        assert self.held.pop(job.id) == job.token, "an effect for a job that is not held by its token"
        return self.open.pop(job.id)

    def claim(self, role: Role = Role.STEP) -> Job:
        """Take the only open job of this role in hand."""
        ((job_id, (new, attempts, due_us)),) = [item for item in self.open.items() if item[1][0].role is role]
        self.ids += 1
        self.open[job_id] = (new, attempts + 1, due_us)
        self.held[job_id] = self.ids
        return Job(
            job_id, role, new.queue, new.priority, new.handler, attempts + 1, new.max_attempts, self.ids, due_us, 0,
            payload=new.payload, config=new.config, workflow_id=new.workflow_id, step_index=new.step_index,
            visit=new.visit, branch=new.branch,
        )  # fmt: skip

    # what happens to the run

    def tell(self, *events: Event) -> list[Effect]:
        """Let events happen in one turn. The engine is asked twice: the answers are equal, the question unchanged."""
        question = repr((self.workflow, self.definition, events))
        answers = [self._decided(events) for _ in range(2)]
        assert answers[0] == answers[1]
        assert question == repr((self.workflow, self.definition, events))
        was = self.workflow
        fired = {event.visit for event in events if isinstance(event, Due)}
        self.timers = [timer for timer in self.timers if timer.visit not in fired or timer.due_us > self.now_us]
        self.write(answers[0])
        self.told.extend(events)
        self.check(was)
        return answers[0]

    def _decided(self, events: tuple[Event, ...]) -> list[Effect]:
        workflow, definition, now_us = self.workflow, self.definition, self.now_us
        if len(events) > 1:
            return self.informed(lambda facts: decide_all(workflow, definition, events, now_us=now_us, facts=facts))
        decision = self.informed(lambda facts: decide(workflow, definition, events[0], now_us=now_us, facts=facts))
        effects = list(decision.effects)
        return effects if decision.workflow is workflow else [*effects, SaveWorkflow(decision.workflow, workflow)]

    def succeed(self, output: dict[str, Any] | None = None) -> list[Effect]:
        return self.tell(self.success(output))

    def success(self, output: dict[str, Any] | None = None, role: Role = Role.STEP) -> Succeeded:
        return Succeeded(self.claim(role), output or {}, Span(self.now_us, self.now_us, 1))

    def fail(self, error: ErrorInfo = BOOM, **how: Any) -> list[Effect]:
        return self.tell(self.failure(error, **how))

    def failure(self, error: ErrorInfo = BOOM, role: Role = Role.STEP, **how: Any) -> Failed:
        return Failed(self.claim(role), error, Span(self.now_us, self.now_us, 1), **how)

    def command(self, command: Command, actor: str | None = None, reason: str | None = None) -> list[Effect]:
        return self.tell(self.commanded(command, actor, reason))

    def commanded(self, command: Command, actor: str | None = None, reason: str | None = None) -> Commanded:
        self.ids += 1
        return Commanded(command, self.ids, actor, reason)

    def signal(self, name: str, payload: dict[str, Any] | None = None) -> list[Effect]:
        self.ids += 1
        return self.tell(Signalled(name, payload or {}, self.ids))

    def fire(self) -> list[Effect]:
        """Go on to the time of the next timer, and let it fire."""
        timer = min(self.timers, key=lambda timer: timer.due_us)
        self.now_us = max(self.now_us, timer.due_us)
        return self.tell(Due(timer.visit))

    def remind(self) -> list[Effect]:
        """Go on to the time of the next letter that reminds the run of its deadline, and open it."""
        letter = min(self.deadlines, key=lambda letter: letter.due_us)
        self.deadlines.remove(letter)
        self.now_us = max(self.now_us, letter.due_us)
        return self.tell(DeadlinePassed())

    # what must always hold

    def check(self, was: Workflow | None = None) -> None:
        workflow = self.workflow
        assert [row.seq for row in self.rows] == list(range(1, workflow.version + 1)), "version = number of rows"
        assert not [key for key in workflow.state if key.startswith("_")]
        folded = fold(self.payload, [(row.changed or {}, row.removed or ()) for row in self.rows])
        assert list(folded.items()) == list(workflow.state.items()), "the history folds to the state"
        steps = [new for new, _, _ in self.open.values() if new.role is Role.STEP]
        assert all(new.visit == workflow.visit and new.step_index == workflow.current_step for new in steps)
        current = [timer for timer in self.timers if timer.visit == workflow.visit]
        if workflow.status is WorkflowStatus.RUNNING:
            assert len(steps) + len(current) == 1, "a running run has exactly one thing outstanding"
        elif workflow.status is WorkflowStatus.PAUSED:
            if workflow.runtime == {"entered": False}:
                assert not steps, "a step that was not entered has no job"
            else:
                assert len(steps) + len(current) == 1
        else:
            assert not steps
            assert not current
        if workflow.status is WorkflowStatus.COMPLETED:
            assert workflow.current_step == workflow.total_steps
            assert workflow.completed_us is not None
        if workflow.status is WorkflowStatus.FAILED:
            why = (workflow.error_message, workflow.error_kind, workflow.failed_step, workflow.failed_us)
            assert None not in why
        if was is not None:
            assert workflow.visit >= was.visit
            assert workflow == was or workflow.version > was.version, "no change goes without a row"
            assert workflow.transitions - was.transitions == sum(map(is_settled, self.rows[was.version :]))

    def late(self) -> list[Event]:
        """Of what was told, whatever can only be late now: of another visit, or told to a run that has ended."""
        is_over = self.workflow.status.is_terminal
        return [
            event
            for event in self.told
            if (isinstance(event, Due) and (is_over or event.visit != self.workflow.visit))
            or (
                isinstance(event, Succeeded | Failed)
                and event.job.role is Role.STEP
                and (is_over or event.job.visit != self.workflow.visit)
            )
        ]


def is_settled(row: AppendHistory) -> bool:
    """Whether the row tells that a step was left."""
    return row.entry in SETTLED and row.changed is not None


@dataclass
class Reference:
    """A run by the book. `work` is what is outstanding: "job", "timer" or nothing."""

    definition: Definition
    state: dict[str, Any]
    now_us: int = 0
    status: str = "running"
    step: int = 0
    work: str | None = None
    due_us: int = 0
    attempts: int = 0
    settled: int = 0
    history: list[str] = field(default_factory=list)
    error: tuple[str, int] | None = None
    cleanup: str = "none"

    def __post_init__(self) -> None:
        self.enter()

    def enter(self) -> None:
        spec = self.definition.steps[self.step]
        self.attempts = 0
        if spec.kind == "single":
            self.work, self.due_us = "job", self.now_us
        elif spec.settings["seconds"] > 0:
            self.work, self.due_us = "timer", self.now_us + spec.settings["seconds"] * SECOND
        else:
            self.history.append("resumed")
            self.leave(self.step + 1)

    def leave(self, following: int) -> None:
        self.work, self.step = None, following
        self.settled += 1
        if following == len(self.definition.steps):
            self.status = "completed"
        elif self.status == "running":
            self.enter()

    def stop(self, kind: str) -> None:
        self.history.append("failed")
        self.status, self.work, self.error = "failed", None, (kind, self.step)

    def succeed(self, output: dict[str, Any]) -> None:
        target = output.get("_next_step")
        names = [spec.name for spec in self.definition.steps]
        if target is not None and target not in names:
            self.stop("DefinitionError")
            return
        self.history.append("completed")
        for key, value in output.items():
            if not key.startswith("_"):
                self.state[key] = value
        self.leave(self.step + 1 if target is None else names.index(target))

    def fail(self, *, is_final: bool, wish_us: int | None, jitter: float) -> None:
        options = self.definition.steps[self.step].options
        self.attempts += 1
        if is_final or self.attempts == (options.max_attempts or self.definition.max_attempts or 3):
            self.stop("StepFailed")
            return
        self.history.append("failed")
        if wish_us is not None:
            self.due_us = self.now_us + wish_us
        elif isinstance(options.backoff, tuple):
            seconds = [*options.backoff, *[options.backoff[-1]] * 9][self.attempts - 1]
            self.due_us = self.now_us + round(seconds * SECOND)
        else:
            self.due_us = self.now_us + round(2**self.attempts * (1 + jitter) * SECOND)

    def fire(self) -> None:
        self.now_us = max(self.now_us, self.due_us)
        self.history.append("resumed")
        self.leave(self.step + 1)

    def pause(self) -> bool:
        return self.command("paused", {"running"}, lambda: self.become("paused"))

    def resume(self) -> bool:
        def go_on() -> None:
            self.become("running")
            if self.work is None:
                self.enter()

        return self.command("continued", {"paused"}, go_on)

    def retry(self) -> bool:
        def go_on() -> None:
            self.become("running")
            self.error = None
            self.enter()

        return self.cleanup == "none" and self.command("retried", {"failed"}, go_on)

    def cancel(self) -> bool:
        def end() -> None:
            self.become("cancelled")
            self.work = None
            self.cleanup = "pending" if self.definition.on_cancel else self.cleanup

        return self.command("cancelled", {"running", "paused", "failed"}, end)

    def become(self, status: str) -> None:
        self.status = status

    def command(self, entry: str, allowed: set[str], act: Callable[[], None]) -> bool:
        """Whether the command was taken."""
        if self.status not in allowed:
            return False
        self.history.append(entry)
        act()
        return True

    def compare(self, world: World) -> None:
        workflow = world.workflow
        assert workflow.status == self.status
        assert workflow.current_step == self.step
        assert list(workflow.state.items()) == list(self.state.items())
        assert workflow.transitions == self.settled
        assert [str(row.entry) for row in world.rows] == self.history
        error = None if workflow.error_kind is None else (str(workflow.error_kind), workflow.failed_step)
        assert error == self.error
        assert workflow.cleanup == self.cleanup
        jobs = [entry for entry in world.open.values() if entry[0].role is Role.STEP]
        timers = [timer for timer in world.timers if timer.visit == workflow.visit]
        if self.work == "job":
            ((new, attempts, due_us),) = jobs
            assert (new.step_index, attempts, due_us) == (self.step, self.attempts, self.due_us)
        elif self.work == "timer":
            assert [timer.due_us for timer in timers] == [self.due_us]
        else:
            assert (jobs, timers) == ([], [])


def refused(act: Callable[[], object]) -> bool:
    """Whether the status forbids it."""
    try:
        act()
    except InvalidStateError:
        return True
    return False


def copied(world: World) -> World:
    """The same world once more, to try something in."""
    twin = object.__new__(World)
    for name, value in vars(world).items():
        setattr(twin, name, value.copy() if isinstance(value, list | dict) else value)
    twin.workflow = replace(world.workflow)
    return twin
