"""Runs that stand wherever a run can: at every kind of step, in every status. For what must hold of all of them.

Each story starts a run, brings it there and gives back its id. Stories are independent of each other, and use a clock
that only they move. `END` says what must be done so that a run that goes on from there ends well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from queuety import ForEachMode, Queuety, StreamingStep, WaitMode, current, step
from queuety.define.builder import WorkflowBuilder
from queuety.testing import ManualClock

State = dict[str, Any]
Story = Callable[[Queuety, ManualClock], int]

HARD: State = {
    "nul": "x\0y",
    "\0key": 1,
    "emoji": "😀🏳️‍🌈",
    "": "empty key",
    "quotes": "'\"`\\%s :name {} \n\r\t\x1f\x7f\u2028",
    "minus zero": -0.0,
    "tiny": 5e-324,
    "huge": 1.7976931348623157e308,
    "integer float": 1.0,
    "integer": 1,
    "big": 2**63 - 1,
    "small": -(2**63),
    "true": True,
    "null": None,
    "nothing": [{}, [], "", 0, False],
    "order": {"b": 1, "a": 2, "c": {"z": 0, "y": 1}},
}
"""Values that other formats change."""

STORIES: dict[str, Story] = {}


def story(function: Story) -> Story:
    STORIES[function.__name__] = function
    return function


@step
def work(state: State) -> State:
    return {"worked": state.get("worked", 0) + 1}


@step(backoff=[60])
def stumbles(state: State) -> State:
    """Fails the first time in every run that it is not told otherwise."""
    if current().attempt == 1 and not state.get("steady"):
        raise ValueError("not yet: 😀")
    return {"stood": True}


@step(max_attempts=1)
def fails(state: State) -> State:
    if not state.get("mended"):
        raise ValueError("broken")
    return {"mended_now": True}


@step
def hard(state: State) -> State:
    return HARD


@step
def large(state: State) -> State:
    return {"text": "ä" * 2000}


@step(backoff=[60])
def item(state: State, item: Any, index: int) -> State:
    if item == "bad" and current().attempt == 1:
        raise ValueError("a bad item")
    return {"twice": [item, index]}


@step
def reducer(state: State, results: State) -> State:
    return {"count": results["succeeded"]}


@step
def enough(state: State) -> bool:
    return bool(state["worked"] >= 3)


@step
def undo(state: State) -> None:
    """Undoes nothing."""


@step
def files(state: State) -> State:
    here = current()
    for key, content in {
        "null": None,
        "false": False,
        "zero": 0,
        "empty": "",
        "object": {"b": 1.0, "a": "x\0y"},
    }.items():
        here.put_artifact(key, content, metadata={"about": key})
    here.put_artifact("page", "<h1>😀</h1>\n", kind="text/html")
    here.put_artifact("bytes", bytes(range(256)), kind="binary")
    return {"filed": True}


class Write(StreamingStep):
    def config(self) -> State:
        return {"backoff": [60]}

    def stream(self, state: State, existing_chunks: list[Any]) -> Iterator[Any]:
        for chunk in ["a", None, {"n": 1.0}, "d"][len(existing_chunks) :]:
            if chunk == "d" and current().attempt == 1 and not state.get("steady"):
                raise ConnectionError("hung up")
            yield chunk

    def on_complete(self, chunks: list[Any], state: State) -> State:
        return {"written": chunks}


def _run(app: Queuety, builder: WorkflowBuilder, payload: State | None = None, *, jobs: int | None = None) -> int:
    """A run that has gone as far as it does, or so many jobs far. Other runs of the database stay where they are."""
    run = app.dispatch_workflow(builder.on_queue(builder.name), payload)
    app.run_until_idle(builder.name, max_jobs=jobs)
    return run


@story
def fresh(app: Queuety, clock: ManualClock) -> int:
    return _run(app, app.workflow("fresh").then(work).tag("b", "a"), {"given": HARD}, jobs=0)


@story
def between_steps(app: Queuety, clock: ManualClock) -> int:
    return _run(app, app.workflow("between").then(hard).then(large).then(work).then(work), {"a": 1}, jobs=2)


@story
def backing_off(app: Queuety, clock: ManualClock) -> int:
    return _run(app, app.workflow("backing").then(work).then(stumbles, "second"))


@story
def delayed(app: Queuety, clock: ManualClock) -> int:
    return _run(app, app.workflow("delayed").then(work).delay(hours=1).then(work))


@story
def in_parallel(app: Queuety, clock: ManualClock) -> int:
    return _run(app, app.workflow("parallel").parallel([work, stumbles, Write]))


@story
def over_items(app: Queuety, clock: ManualClock) -> int:
    builder = app.workflow("items").for_each("list", item, mode=ForEachMode.QUORUM, quorum=3, result_key="all")
    return _run(app, builder, {"list": ["a", "bad", None, "bad"]})


@story
def over_items_paused(app: Queuety, clock: ManualClock) -> int:
    run = _run(app, app.workflow("items_paused").for_each("list", item, result_key="all"), {"list": ["a", "bad"]})
    app.pause_workflow(run)
    return run


@story
def reducing(app: Queuety, clock: ManualClock) -> int:
    builder = app.workflow("reducing").for_each("list", item, reducer=reducer, result_key="all")
    return _run(app, builder, {"list": [1, 2]}, jobs=2)


@story
def looping(app: Queuety, clock: ManualClock) -> int:
    builder = app.workflow("looping").then(work, "again").repeat_until("again", condition=enough)
    return _run(app, builder, jobs=3)


@story
def looping_by_key(app: Queuety, clock: ManualClock) -> int:
    builder = app.workflow("key").then(work, "again").delay(hours=1).repeat_until("again", "worked", 3)
    run = _run(app, builder)
    clock.advance(hours=1)
    app.run_until_idle("key")
    return run


@story
def having_started_others(app: Queuety, clock: ManualClock) -> int:
    child = app.workflow("started").then(work)
    builder = app.workflow("starting").start_workflows("list", child, group_key="them").then(work).then(work)
    return _run(app, builder, {"list": [1, {"own": 2}]}, jobs=1)


@story
def parked_on_a_child(app: Queuety, clock: ManualClock) -> int:
    child = app.workflow("inner").on_queue("outer").then(work).wait_for_signal("inner")
    return _run(app, app.workflow("outer").run_workflow("inner", child).then(work))


@story
def waiting_for_signals(app: Queuety, clock: ManualClock) -> int:
    builder = app.workflow("signals").wait_for_signals(["one", "go"], result_key="got", timeout=86_400)
    run = _run(app, builder)
    app.signal(run, "one", {"n": 1.0, "emoji": "😀"})
    app.signal(run, "other", {"kept": [None]})
    return run


@story
def waiting_for_an_approval(app: Queuety, clock: ManualClock) -> int:
    return _run(app, app.workflow("approval").then(work).wait_for_approval("go"))


@story
def waiting_for_workflows(app: Queuety, clock: ManualClock) -> int:
    others = [_run(app, app.workflow("other").wait_for_signal("go")) for _ in range(2)]
    builder = app.workflow("waiting").wait_for_workflows("them", mode=WaitMode.ANY, result_key="won")
    return _run(app, builder, {"them": others})


@story
def streaming(app: Queuety, clock: ManualClock) -> int:
    return _run(app, app.workflow("streaming").then(work).then(Write, "write"))


@story
def paused_before_a_step(app: Queuety, clock: ManualClock) -> int:
    run = _run(app, app.workflow("paused").then(work).then(work), jobs=0)
    app.pause_workflow(run, actor="Ann", reason="wait")
    app.run_until_idle("paused")
    return run


@story
def paused_at_a_wait(app: Queuety, clock: ManualClock) -> int:
    run = _run(app, app.workflow("paused_wait").then(work).wait_for_signal("go"), jobs=0)
    app.pause_workflow(run)
    app.run_until_idle("paused_wait")
    return run


@story
def completed(app: Queuety, clock: ManualClock) -> int:
    builder = app.workflow("completed").then(hard).then(files).then(Write, "write").then(work)
    builder.version("v2").idempotency_key("once").tag("done")
    return _run(app, builder, {"steady": True, **HARD})


@story
def pruned(app: Queuety, clock: ManualClock) -> int:
    builder = app.workflow("pruned").then(hard).then(large).then(work).then(stumbles, "late")
    builder.prune_state_after(2).max_transitions(50).max_cost_units(9).max_state_bytes(50_000)
    return _run(app, builder, {"kept": 1})


@story
def failed(app: Queuety, clock: ManualClock) -> int:
    return _run(app, app.workflow("failed").then(work).then(fails, "breaks").then(work))


@story
def failed_over_items(app: Queuety, clock: ManualClock) -> int:
    builder = app.workflow("failed_items").for_each("list", strict_item, result_key="all")
    return _run(app, builder, {"list": ["a", "bad", "c"]})


@story
def failed_with_its_child(app: Queuety, clock: ManualClock) -> int:
    child = app.workflow("failing_inner").on_queue("failing_outer").then(fails)
    return _run(app, app.workflow("failing_outer").then(work).run_workflow("inner", child))


@story
def failed_and_compensated(app: Queuety, clock: ManualClock) -> int:
    builder = app.workflow("compensated").then(work).compensate_with(undo).then(fails).compensate_on_failure()
    return _run(app, builder)


@story
def failed_and_not_yet_compensated(app: Queuety, clock: ManualClock) -> int:
    builder = app.workflow("half").then(work).compensate_with(undo).then(fails).compensate_on_failure()
    return _run(app, builder, jobs=2)


@story
def cancelled(app: Queuety, clock: ManualClock) -> int:
    run = _run(app, app.workflow("cancelled").then(work).wait_for_signal("go").on_cancel(undo))
    app.cancel_workflow(run, reason="over")
    app.run_until_idle("cancelled")
    return run


@story
def cancelled_and_not_yet_clean(app: Queuety, clock: ManualClock) -> int:
    run = _run(app, app.workflow("unclean").then(work).wait_for_signal("go").on_cancel(undo))
    app.cancel_workflow(run)
    return run


@story
def over_its_deadline(app: Queuety, clock: ManualClock) -> int:
    builder = app.workflow("late").then(work).wait_for_signal("go").must_complete_within(minutes=1)
    run = _run(app, builder)
    clock.advance(minutes=2)
    app.run_until_idle("late")
    return run


@story
def rewound(app: Queuety, clock: ManualClock) -> int:
    builder = app.workflow("rewound").then(work, "first").wait_for_signal("go", result_key="got").then(work).then(work)
    run = _run(app, builder)
    app.signal(run, "go", {"n": 1})
    app.run_until_idle("rewound", max_jobs=1)
    app.rewind_workflow(run, 0, actor="Ann", with_state={"mended": 1})
    return run


@story
def forked(app: Queuety, clock: ManualClock) -> int:
    run = _run(app, app.workflow("forked").then(work).then(work).then(work), jobs=2)
    return int(app.fork_workflow(run, 1, reason="look"))


@story
def patched(app: Queuety, clock: ManualClock) -> int:
    run = _run(app, app.workflow("patched").then(work).then(work, "next").then(work), {"old": 1}, jobs=1)
    app.patch_state(run, {"new": 1.0}, remove=["old"], actor="Ann", reason="mend")
    app.skip_step(run)
    return run


@step(max_attempts=1)
def strict_item(state: State, item: Any, index: int) -> State:
    if item == "bad" and not state.get("mended"):
        raise ValueError("a bad item")
    return {"twice": [item, index]}
