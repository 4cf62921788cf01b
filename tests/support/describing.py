"""Workflows of every kind of step, by chance: what a user might describe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from queuety.define.builder import WorkflowBuilder, workflow
from queuety.define.marks import HandlerLike, bind, step
from queuety.define.options import HandlerOptions
from queuety.define.wire import LIMITS
from queuety.model import ForEachMode, Priority, WaitMode


@step(queue="theirs", max_attempts=2)
def one_step(state: dict[str, Any], limit: int = 1) -> None: ...


@step
def one_item(state: dict[str, Any], item: Any, index: int, limit: int = 1) -> None: ...


@step
def one_reducer(state: dict[str, Any], for_each: dict[str, Any], limit: int = 1) -> None: ...


@step(timeout=7)
def one_condition(state: dict[str, Any], limit: int = 1) -> bool:
    return True


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6).filter(str.strip)
KEYS = TEXTS.filter(lambda text: not text.startswith("_"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)


def handlers(function: Callable[..., Any]) -> st.SearchStrategy[HandlerLike]:
    """The function, plain or with a configuration."""
    return st.just(function) | st.builds(lambda limit: bind(function, limit=limit), st.integers(1, 3))


@st.composite
def builders(draw: st.DrawFn, *, levels: int = 2) -> WorkflowBuilder:
    """A builder with up to five steps of any kind; those of its children stand at most `levels` below."""
    builder = workflow(draw(TEXTS))
    for _ in range(draw(st.integers(1, 5))):
        draw(st.sampled_from(CALLS if levels else CALLS[:-1]))(draw, builder, levels)
        if draw(st.integers(0, 3)) == 0:
            builder.compensate_with(draw(handlers(one_step)))
    names = [spec.name for spec in builder.build().steps]
    if draw(st.booleans()):
        builder.wait_for_signal(draw(TEXTS), timeout=draw(st.floats(0.001, 9)), on_timeout=draw(st.sampled_from(names)))
    if draw(st.booleans()):
        builder.on_queue("q").with_priority(draw(st.sampled_from(Priority))).version("v").on_cancel(
            draw(handlers(one_step))
        )
    for option in draw(st.lists(st.sampled_from(RUN_OPTIONS), max_size=4, unique=True)):
        option(draw, builder)
    return builder


def _limit(draw: st.DrawFn, builder: WorkflowBuilder) -> None:
    limit = draw(st.sampled_from(LIMITS))
    getattr(builder, limit)(draw(st.integers(1, 2**63 - 1)))


def _deadline(draw: st.DrawFn, builder: WorkflowBuilder) -> None:
    builder.must_complete_within(draw(st.floats(1, 9)), days=draw(st.integers(0, 9)))
    if draw(st.booleans()):
        builder.on_deadline(draw(handlers(one_step)))


def _prune(draw: st.DrawFn, builder: WorkflowBuilder) -> None:
    builder.prune_state_after(draw(st.integers(1, 9)))


def _compensate_on_failure(draw: st.DrawFn, builder: WorkflowBuilder) -> None:
    builder.compensate_on_failure()


RUN_OPTIONS = [_limit, _deadline, _prune, _compensate_on_failure]


def _then(draw: st.DrawFn, builder: WorkflowBuilder, levels: int) -> None:
    options: HandlerOptions = {"max_attempts": draw(st.integers(1, 3))}
    if draw(st.booleans()):
        options["cost_units"] = draw(st.integers(0, 3))
    builder.then(draw(handlers(one_step)), **options)


def _delay(draw: st.DrawFn, builder: WorkflowBuilder, levels: int) -> None:
    builder.delay(draw(st.integers(0, 9) | st.floats(0, 9)))


def _parallel(draw: st.DrawFn, builder: WorkflowBuilder, levels: int) -> None:
    builder.parallel(draw(st.lists(handlers(one_step) | handlers(one_condition), min_size=1, max_size=3)))


def _for_each(draw: st.DrawFn, builder: WorkflowBuilder, levels: int) -> None:
    mode = draw(st.sampled_from(ForEachMode))
    builder.for_each(
        draw(KEYS),
        draw(handlers(one_item) | handlers(one_step)),
        draw(st.none() | KEYS),
        mode,
        draw(st.integers(1, 3)) if mode is ForEachMode.QUORUM else None,
        draw(st.none() | handlers(one_reducer)),
    )


def _repeat(draw: st.DrawFn, builder: WorkflowBuilder, levels: int) -> None:
    if not builder._steps:
        builder.then(one_step)
    repeat = draw(st.sampled_from([builder.repeat_until, builder.repeat_while]))
    target = draw(st.sampled_from([spec.name for spec in builder._steps]))
    limit = draw(st.none() | st.integers(1, 9))
    if draw(st.booleans()):
        repeat(target, draw(KEYS), draw(JSON), max_iterations=limit)
    else:
        repeat(target, condition=draw(handlers(one_condition)), max_iterations=limit)


def _wait_for_signals(draw: st.DrawFn, builder: WorkflowBuilder, levels: int) -> None:
    builder.wait_for_signals(
        draw(st.lists(TEXTS, min_size=1, max_size=3)),
        draw(st.sampled_from([WaitMode.ALL, WaitMode.ANY])),
        draw(st.none() | KEYS),
        match_payload=draw(st.none() | st.dictionaries(TEXTS, JSON, max_size=2)),
        correlation_key=draw(st.none() | KEYS),
    )


def _wait_for_people(draw: st.DrawFn, builder: WorkflowBuilder, levels: int) -> None:
    signal = draw(TEXTS.filter(lambda name: name.strip() != "rejected"))
    timeout = draw(st.none() | st.integers(1, 9))
    kind = draw(st.integers(0, 2))
    if kind == 0:
        builder.wait_for_approval(signal, timeout=timeout)
    elif kind == 1:
        builder.wait_for_input(signal, timeout=timeout)
    else:
        builder.wait_for_decision(signal, timeout=timeout)


def _wait_for_workflows(draw: st.DrawFn, builder: WorkflowBuilder, levels: int) -> None:
    result_key = draw(st.none() | KEYS)
    if draw(st.booleans()):
        builder.wait_for_workflow(draw(st.integers(1, 2**63 - 1) | KEYS), result_key)
        return
    mode = draw(st.sampled_from(WaitMode))
    quorum = 1 if mode is WaitMode.QUORUM else None
    if draw(st.booleans()):
        builder.wait_for_workflow_group(draw(KEYS), mode, quorum, result_key)
    else:
        builder.wait_for_workflows(draw(st.lists(st.integers(1, 9), min_size=1) | KEYS), mode, result_key, None, quorum)


def _start(draw: st.DrawFn, builder: WorkflowBuilder, levels: int) -> None:
    child = draw(builders(levels=levels - 1))
    if draw(st.booleans()):
        builder.run_workflow(draw(TEXTS), child)
    else:
        builder.start_workflows(draw(KEYS), child, inherit_state=draw(st.booleans()), group_key=draw(st.none() | KEYS))


CALLS = [
    _then,
    _delay,
    _parallel,
    _for_each,
    _repeat,
    _wait_for_signals,
    _wait_for_people,
    _wait_for_workflows,
    _start,
]
