"""What a cluster is loaded with: runs of every kind of step, of each of which the end is known.

`CLUSTER_URL` is where a worker process (`tests.clusters.worker`) finds the database.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from queuety import (
    Fail,
    ForEachMode,
    Queuety,
    Settings,
    StreamingStep,
    WaitMode,
    WorkflowStatus,
    bind,
    errors,
    step,
)
from queuety.define.builder import WorkflowBuilder
from queuety.store import door as doors

State = dict[str, Any]
T = TypeVar("T")

LEASE_S = 4.0
CHUNKS = 10
ITEMS = 10
QUORUM = 7
UNSURE = "COMMIT OF UNKNOWN OUTCOME"
TAKEN_BACK = "COMMIT TAKEN BACK"

MANY = {"max_attempts": 1000, "backoff": [0]}
SETTINGS = Settings(
    lease_seconds=LEASE_S, idle_poll_seconds=0.2, network_timeout_seconds=6.0, connect_timeout_seconds=2.0
)

app = Queuety(os.environ.get("CLUSTER_URL", "sqlite://"), settings=SETTINGS)

_pause = threading.Event()


def _idle(most_s: float = 0.02) -> None:
    _pause.wait(random.random() * most_s)


@step(name="cluster.count", max_attempts=1000, backoff=[0])
def count(state: State) -> State:
    _idle()
    return {"count": state.get("count", 0) + 1}


@step(name="cluster.branch", max_attempts=1000, backoff=[0])
def branch(state: State, *, number: int) -> State:
    _idle()
    return {f"branch {number}": state.get(f"branch {number}", 0) + 1}


@step(name="cluster.item", max_attempts=1000, backoff=[0])
def item(state: State, item: int, index: int) -> State:
    _idle()
    return {"of": [item, index]}


@step(name="cluster.total", max_attempts=1000, backoff=[0])
def total(state: State, for_each: State) -> State:
    found = [result["output"]["of"] for result in for_each["results"] if result.get("output")]
    if not all(item == index + 100 for item, index in found) or len(found) < QUORUM:
        raise Fail(f"items were lost or mixed up: {found}")
    return {"out": "enough", "totals": state.get("totals", 0) + 1}


@step(name="cluster.undo", max_attempts=1000, backoff=[0])
def undo(state: State) -> None:
    _idle()


@step(name="cluster.fail")
def fail(state: State) -> None:
    raise Fail("as it should")


@step(name="cluster.enough", max_attempts=1000, backoff=[0])
def enough(state: State) -> bool:
    _idle(0.01)
    return bool(state["count"] >= 4)


class Write(StreamingStep):
    """Yields numbers, and fails if one that was kept is lost or doubled."""

    key = "written"

    def stream(self, state: State, existing_chunks: list[Any]) -> Iterator[Any]:
        if existing_chunks != list(range(len(existing_chunks))):
            raise Fail(f"a chunk was lost or doubled: {existing_chunks}")
        for number in range(len(existing_chunks), CHUNKS):
            _idle(0.01)
            yield number

    def on_complete(self, chunks: list[Any], state: State) -> State:
        if chunks != list(range(CHUNKS)):
            raise Fail(f"a chunk was lost or doubled: {chunks}")
        return {self.key: state.get(self.key, 0) + 1}

    def config(self) -> State:
        return dict(MANY)


class WriteBeside(Write):
    key = "beside"


Make = Callable[[Queuety], WorkflowBuilder]


def fan(app: Queuety) -> WorkflowBuilder:
    return (
        app.workflow("fan")
        .parallel([bind(branch, number=number) for number in range(5)])
        .for_each("items", item, "out", mode=ForEachMode.QUORUM, quorum=QUORUM, reducer=total)
        .then(count)
        .max_attempts(1000)
    )


def loop(app: Queuety) -> WorkflowBuilder:
    return (
        app.workflow("loop")
        .then(count, "count")
        .delay(seconds=0.05)
        .repeat_until("count", condition=enough)
        .parallel([bind(branch, number=number) for number in range(3)])
        .max_attempts(1000)
    )


def nest(app: Queuety) -> WorkflowBuilder:
    inner = app.workflow("inner").parallel([bind(branch, number=number) for number in range(3)]).max_attempts(1000)
    child = app.workflow("child").then(count).run_workflow("inner", inner).max_attempts(1000)
    return app.workflow("nest").run_workflow("child", child).then(count).max_attempts(1000)


def group(app: Queuety) -> WorkflowBuilder:
    order = app.workflow("order").then(count).max_attempts(1000)
    return (
        app.workflow("group")
        .start_workflows("orders", order, group_key="orders", inherit_state=False)
        .wait_for_workflow_group("orders", result_key="done")
        .then(count)
        .max_attempts(1000)
    )


def told(app: Queuety) -> WorkflowBuilder:
    """Waits for two signals, whoever sends them and whenever."""
    return (
        app.workflow("told")
        .then(count)
        .wait_for_signal("go", result_key="go")
        .then(count)
        .wait_for_signals(["left", "right"], mode=WaitMode.ALL, result_key="both")
        .then(count)
        .max_attempts(1000)
    )


def stream(app: Queuety) -> WorkflowBuilder:
    return (
        app.workflow("stream")
        .then(Write)
        .parallel([WriteBeside, bind(branch, number=0)])
        .then(count)
        .max_attempts(1000)
    )


def waits(app: Queuety) -> WorkflowBuilder:
    """Waits for the runs that its payload names, which others have started."""
    return (
        app.workflow("waits")
        .wait_for_workflows("first", WaitMode.QUORUM, "two", quorum=2)
        .wait_for_workflows("others", WaitMode.ALL, "all")
        .then(count)
        .max_attempts(1000)
    )


def undone(app: Queuety) -> WorkflowBuilder:
    """Fails, and is undone, the last step first."""
    return (
        app.workflow("undone")
        .then(count)
        .compensate_with(undo)
        .then(count)
        .compensate_with(undo)
        .then(fail)
        .compensate_on_failure()
        .max_attempts(1000)
    )


def late(app: Queuety) -> WorkflowBuilder:
    """Waits for what never comes, until its deadline."""
    return (
        app.workflow("late")
        .wait_for_signal("never")
        .must_complete_within(seconds=2)
        .on_deadline(undo)
        .max_attempts(1000)
    )


BRANCHES = {f"branch {number}": 1 for number in range(5)}
THREE = {f"branch {number}": 1 for number in range(3)}
GO, LEFT, RIGHT = {"said": "go"}, {"said": "left"}, {"said": "right"}
ORDERS = [{"n": number} for number in range(5)]
ITEMS_GIVEN = [100 + index for index in range(ITEMS)]

KINDS: dict[str, tuple[Make, State, State, list[int]]] = {
    "fan": (fan, {"items": ITEMS_GIVEN}, {**BRANCHES, "out": "enough", "totals": 1, "count": 1}, [0, 1, 2, 3]),
    "loop": (loop, {}, {**THREE, "count": 4}, [0, 1, 2] * 4 + [3]),
    "nest": (nest, {}, {**THREE, "count": 2}, [0, 1]),
    "group": (group, {"orders": ORDERS}, {"count": 1}, [0, 1, 2]),
    "told": (told, {}, {"count": 3, "go": GO, "both": {"left": LEFT, "right": RIGHT}}, [0, 1, 2, 3, 4]),
    "stream": (stream, {}, {"branch 0": 1, "written": 1, "beside": 1, "count": 1}, [0, 1, 2]),
    "waits": (waits, {}, {"count": 1}, [0, 1, 2]),
    "undone": (undone, {}, {"count": 2}, [0, 1]),
    "late": (late, {}, {}, []),
}
"""By name: the builder, the payload, the keys that are added to it, the steps that are left."""

CLEANED: dict[str, list[int | None]] = {"undone": [1, 0], "late": [None]}
"""Of those that fail, as they should: the steps that are cleaned up after, in this order."""


class Callers:
    """A program that dispatches and signals through several doors by turns."""

    def __init__(self, urls: Sequence[str], name: str = "caller") -> None:
        self.name = name
        self._stack = ExitStack()
        self.apps = [self._stack.enter_context(Queuety(url, settings=SETTINGS)) for url in urls]
        self.runs: list[tuple[int, str, State]] = []
        self.seen: Counter[str] = Counter()
        self._turn = 0
        self._key = 0
        self._signalled: set[int] = set()

    def close(self) -> None:
        self._stack.close()

    def through(self, ask: Callable[[Queuety], T]) -> T:
        """What it gives through the next door that answers; the other ones are tried for a minute."""
        end = time.monotonic() + 60
        self._turn += 1
        at = self._turn
        while True:
            try:
                return ask(self.apps[at % len(self.apps)])
            except errors.StoreUnavailable:
                self.seen["unavailable"] += 1
            except errors.NotFoundError:
                self.seen["not found"] += 1  # this node has not heard of the run yet
            if time.monotonic() > end:
                raise AssertionError("no node answers")
            at += 1
            _pause.wait(0.01)

    def dispatch(self, kind: str, **more: Any) -> int:
        make, payload, _, _ = KINDS[kind]
        given = {**payload, **more}
        self._key += 1
        key = f"{self.name} {self._key}"
        run = self.through(lambda app: make(app).idempotency_key(key).dispatch(given))
        self.runs.append((run, kind, given))
        return run

    def wave(self) -> None:
        """One run of each kind, one that waits for four of them, and signals through other doors than those."""
        runs = {kind: self.dispatch(kind) for kind in ("nest", "told", "fan", "group", "loop", "stream")}
        short = [runs["nest"], runs["group"], runs["stream"]]
        self.dispatch("undone")
        self.dispatch("late")
        for _ in range(2):
            self.dispatch("waits", first=short, others=[runs["fan"], runs["nest"], runs["told"]])
        self.signal(runs["told"], "go", GO)
        self.signal(runs["told"], "right", RIGHT)
        for run, kind, _ in self.runs[-40:]:
            if kind == "told" and run not in self._signalled and run != runs["told"]:
                self._signalled.add(run)
                self.signal(run, "left", LEFT)

    def rest(self) -> None:
        """The signals that are still to be sent."""
        for run, kind, _ in self.runs:
            if kind == "told" and run not in self._signalled:
                self._signalled.add(run)
                self.signal(run, "left", LEFT)

    def signal(self, run: int, name: str, data: State) -> None:
        self.through(lambda app: app.signal(run, name, data))


class Crew:
    """Several callers at once, each in a thread, for as long as the block runs; what has become of their runs."""

    def __init__(self, urls: Sequence[str], waves: int) -> None:
        self.callers = [Callers([*urls[n:], *urls[:n]], f"caller {n}") for n in range(max(2, len(urls)))]
        self._threads = [threading.Thread(target=self._work, args=(caller, waves)) for caller in self.callers]
        self._failed: list[BaseException] = []
        self.commits: list[str] = []
        self._told = ExitStack()
        self._told.enter_context(commits_told(self.commits.append))
        for thread in self._threads:
            thread.start()

    def _work(self, caller: Callers, waves: int) -> None:
        try:
            for _ in range(waves):
                caller.wave()
                _pause.wait(0.2)
            caller.rest()
        except BaseException as error:
            self._failed.append(error)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join()
        for caller in self.callers:
            caller.close()
        self._told.close()

    @property
    def unsure(self) -> int:
        """How many commits ended so that nobody knew whether they were done."""
        return sum(line.startswith(UNSURE) for line in self.commits)

    @property
    def works(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    @property
    def runs(self) -> list[tuple[int, str, State]]:
        return [run for caller in self.callers for run in caller.runs]

    @property
    def seen(self) -> Counter[str]:
        return sum((caller.seen for caller in self.callers), Counter())

    def ended(self, app: Queuety, within_s: float) -> list[str]:
        """Waits until no run goes on any more; what is wrong then, a line for each."""
        for thread in self._threads:
            thread.join()
        if self._failed:
            raise self._failed[0]
        end = time.monotonic() + within_s
        while (left := _going(app)) and time.monotonic() < end:
            _pause.wait(0.2)
        wrong = [f"stuck: {run.id} {run.name} {run.status} {app.why(run.id).answer}" for run in left]
        others = [run for run in app.list_workflows(limit=1_000_000) if run.status is not _end(run.name)]
        wrong += [f"not ended so: {run.id} {run.name} {run.status} {run.error_message}" for run in others]
        return wrong + [problem for run in self.runs for problem in _wrong(app, *run)]


def _end(kind: str) -> WorkflowStatus:
    return WorkflowStatus.FAILED if kind in CLEANED else WorkflowStatus.COMPLETED


def _going(app: Queuety) -> list[Any]:
    going = [status for status in WorkflowStatus if not status.is_terminal]
    cleaning = [run for run in app.list_workflows(WorkflowStatus.FAILED, limit=1_000_000) if not _is_clean(app, run.id)]
    return [*cleaning, *(run for status in going for run in app.list_workflows(status, limit=20))]


def _is_clean(app: Queuety, run: int) -> bool:
    found = app.workflow_status(run)
    return found is None or found.compensation_status != "pending"


def _wrong(app: Queuety, run: int, kind: str, given: State) -> Iterator[str]:
    _, _, added, steps = KINDS[kind]
    found = app.workflow_status(run)
    if found is None:
        yield f"lost: {run} {kind}"
        return
    if found.status is not _end(kind):
        return  # which was said
    state = dict(found.state)
    if kind == "fan" and isinstance(state.get("out"), dict):
        yield f"wrong: {run} {kind} was not reduced: {state}"
    if kind == "group":
        ids = state.pop("started_workflow_ids")
        done = state.pop("done")
        expected = {
            str(one): {**order, "start_item_index": index, "count": 1}
            for index, (one, order) in enumerate(zip(ids, ORDERS, strict=True))
        }
        if done != expected:
            yield f"wrong: {run} {kind} has taken over {done}"
    if kind == "waits":
        everyone, first = set(state.pop("all")), set(state.pop("two"))
        if everyone != set(map(str, given["others"])) or len(first) < 2 or not first <= set(map(str, given["first"])):
            yield f"wrong: {run} {kind} has not taken over what it waited for: {found.state}"
    if state != {**given, **added}:
        yield f"wrong: {run} {kind} {state}"
    events = app.workflow_timeline(run, limit=10_000)
    merged = [event.step_index for event in events if event.event == "step_completed"]
    cleaned = [event.step_index for event in events if event.event == "cleanup_completed"]
    if cleaned != CLEANED.get(kind, []):
        yield f"cleaned up wrongly: {run} {kind} {cleaned}"
    twice = Counter(merged) - Counter(steps)
    if twice:
        yield f"merged twice: {run} {kind} {merged}"


@contextmanager
def commits_told(say: Callable[[str], object]) -> Iterator[None]:
    """Tells of every COMMIT of this process that fails, and whether nobody knows if it was done."""
    usual = doors._AtCommit.__init__

    def told_of(self: Any, error: Exception) -> None:
        usual(self, error)
        say(f"{UNSURE if _is_unsure(error) else TAKEN_BACK}: {error!r}".replace("\n", " ")[:200])

    doors._AtCommit.__init__ = told_of  # type: ignore[method-assign]
    try:
        yield
    finally:
        doors._AtCommit.__init__ = usual  # type: ignore[method-assign]


def _is_unsure(error: Exception) -> bool:
    text = repr(getattr(error, "orig", None) or error)
    return not any(word in text for word in ("1213", "1205", "Deadlock", "deadlock"))
