"""Waits for signals: which signal satisfies which wait, what of it becomes state, and what happens if none comes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuety.engine.facts import SIGNALS_AT_ONCE
from queuety.engine.matching import is_subset
from queuety.model import (
    Cancel,
    Commanded,
    Definition,
    DropTimers,
    Due,
    Entry,
    ErrorKind,
    KeepSignal,
    Pause,
    Resume,
    RetryRun,
    SetTimer,
    Signalled,
    StepSpec,
    UseSignals,
    WorkflowStatus,
)
from queuety.model.needs import NeedSignals
from tests.unit.reference import SECOND, delay, flow, then
from tests.unit.several import Several

WAITING = WorkflowStatus.WAITING_FOR_SIGNAL
DECISION: dict[str, Any] = {"human": "decision", "outcomes": {"approved": "yes", "rejected": "no"}}


def wait(*names: str, mode: str = "all", step: str = "w", **settings: Any) -> StepSpec:
    return StepSpec("wait_for_signal", step, settings={"names": list(names), "mode": mode, **settings})


def begun(*steps: StepSpec, payload: dict[str, Any] | None = None) -> Several:
    world = Several()
    world.start(41, flow(*steps), payload)
    return world


def is_taken(payload: Any, state: dict[str, Any] | None = None, **settings: Any) -> bool:
    world = begun(wait("go", **settings), payload=state)
    world.signal(41, "go", payload)
    return world[41].status is WorkflowStatus.COMPLETED


def test_a_wait_stands_still_until_its_signal_comes() -> None:
    world = begun(wait("go", result_key="got"), then("b"), payload={"x": 1})
    run = world[41]
    assert (run.status, run.runtime, run.current_step) == (WAITING, {"matched": []}, 0)
    (row,) = world.runs[41].rows
    waiting = {"wait_type": "signal", "waiting_for": ["go"], "wait_mode": "all"}
    assert (row.entry, row.control, row.changed) == (Entry.WAITING, {"_waiting": waiting}, None)
    effects = world.signal(41, "go", {"by": "ann", "_trace": 1})
    assert effects[0] == KeepSignal(41, 2, "go", {"by": "ann", "_trace": 1}, 0)
    assert UseSignals(41, (2,)) in effects
    run = world[41]
    assert (run.status, run.current_step, run.transitions, run.runtime) == ("running", 1, 1, None)
    assert run.state == {"x": 1, "got": {"by": "ann", "_trace": 1}}
    assert world.entries(41) == ["waiting", "signalled", "resumed"]
    assert world.runs[41].signals == []


def test_a_signal_that_came_before_is_taken_without_waiting() -> None:
    world = begun(then("a"), wait("go"))
    world.signal(41, "go", {"n": 1})
    world.signal(41, "go", {"n": 2})
    world.succeed(41)
    assert world[41].status is WorkflowStatus.COMPLETED
    assert world[41].state == {"n": 1}
    assert world.entries(41) == ["signalled", "signalled", "completed", "resumed"]
    assert [signal.payload for signal in world.runs[41].signals] == [{"n": 2}]


def test_two_waits_in_one_decision_take_two_signals() -> None:
    world = begun(then("a"), wait("go", result_key="one"), wait("go", step="v", result_key="two"), then("b"))
    for number in (1, 2, 3):
        world.signal(41, "go", {"n": number})
    world.succeed(41)
    assert world[41].state == {"one": {"n": 1}, "two": {"n": 2}}
    assert [signal.seq for signal in world.runs[41].signals] == [3]


def test_two_waits_in_one_decision_never_share_a_signal() -> None:
    world = begun(then("a"), wait("go"), wait("go", step="v"))
    world.signal(41, "go")
    world.succeed(41)
    assert (world[41].status, world[41].current_step) == (WAITING, 2)


def test_signals_of_one_turn_serve_the_waits_in_order() -> None:
    world = begun(wait("go", result_key="one"), wait("go", step="v", result_key="two"))
    world.tell(41, Signalled("go", {"n": 1}, 71), Signalled("go", {"n": 2}, 72))
    assert world[41].state == {"one": {"n": 1}, "two": {"n": 2}}
    assert world[41].status is WorkflowStatus.COMPLETED


def test_a_loop_waits_for_a_signal_of_its_own_each_time() -> None:
    world = begun(wait("go", result_key="got"), then("again"))
    world.signal(41, "go", {"n": 1})
    world.succeed(41, {"_next_step": "w"})
    assert world[41].status is WAITING
    world.signal(41, "go", {"n": 2})
    assert world[41].state == {"got": {"n": 2}}


def test_all_takes_the_earliest_of_each_and_stays_with_them() -> None:
    world = begun(wait("a", "b", result_key="got"))
    world.signal(41, "b", {"n": 1})
    assert (world[41].status, world[41].runtime) == (WAITING, {"matched": ["b"]})
    world.signal(41, "b", {"n": 2})
    assert world[41].runtime == {"matched": ["b"]}
    assert len(world.runs[41].signals) == 2, "what is matched is not used before the wait is satisfied"
    world.signal(41, "a", {"n": 3})
    assert world[41].state == {"got": {"a": {"n": 3}, "b": {"n": 1}}}
    assert list(world[41].state["got"]) == ["a", "b"]
    assert [signal.payload for signal in world.runs[41].signals] == [{"n": 2}]
    assert world.entries(41).count("waiting") == 1


def test_any_takes_the_earliest_to_arrive_not_the_first_configured() -> None:
    world = begun(then("x"), wait("a", "b", mode="any", result_key="got"))
    world.signal(41, "b", {"n": 1})
    world.signal(41, "a", {"n": 2})
    world.succeed(41)
    assert world[41].state == {"got": {"b": {"n": 1}}}
    assert [signal.name for signal in world.runs[41].signals] == ["a"]


def test_payloads_are_merged_in_the_configured_order_without_reserved_keys() -> None:
    world = begun(wait("a", "b"))
    world.signal(41, "b", {"x": "b", "y": "b", "_next_step": "w"})
    world.signal(41, "a", {"x": "a", "z": "a", "_": 1})
    assert list(world[41].state.items()) == [("x", "b"), ("z", "a"), ("y", "b")]
    assert world[41].status is WorkflowStatus.COMPLETED


@pytest.mark.parametrize(("name", "outcome"), [("yes", "approved"), ("no", "rejected")])
def test_a_decision_says_how_it_went(name: str, outcome: str) -> None:
    world = begun(wait("yes", "no", mode="any", result_key="d", **DECISION))
    world.signal(41, name, {"why": "so", "_": 1})
    assert world[41].state == {"d": {"outcome": outcome, "signal": name, "data": {"why": "so", "_": 1}}}


def test_a_decision_without_a_key_is_merged_and_no_payload_decides_otherwise() -> None:
    world = begun(wait("yes", "no", mode="any", **DECISION))
    world.signal(41, "no", {"why": "so", "decision_outcome": "approved", "_": 1})
    assert world[41].state == {"decision_outcome": "rejected", "decision_signal": "no", "why": "so"}


def test_a_pattern_lets_only_some_signals_through() -> None:
    world = begun(wait("go", match_payload={"order": {"id": 7}}, result_key="got"))
    for payload in ({}, {"order": 7}, {"order": {"id": "7"}}, {"order": {"id": True}}, {"id": 7}):
        world.signal(41, "go", payload)
    assert (world[41].status, world[41].runtime) == (WAITING, {"matched": []})
    world.signal(41, "go", {"order": {"id": 7, "sum": 1}})
    assert world[41].state == {"got": {"order": {"id": 7, "sum": 1}}}
    assert len(world.runs[41].signals) == 5


def test_a_correlation_wants_the_key_on_both_sides_with_the_same_value() -> None:
    assert is_taken({"order": {"b": 1, "a": 2}}, {"order": {"a": 2, "b": 1}}, correlation_key="order")
    assert is_taken({"order": None}, {"order": None}, correlation_key="order")
    assert not is_taken({"order": "7"}, {"order": 7}, correlation_key="order")
    assert not is_taken({"order": 1}, {"order": True}, correlation_key="order")
    assert not is_taken({}, {"order": None}, correlation_key="order")
    assert not is_taken({"order": None}, {}, correlation_key="order")
    assert not is_taken({}, {}, correlation_key="order")


def test_names_are_compared_exactly() -> None:
    world = begun(wait("go"))
    for name in ("Go", "go ", "gö", ""):
        world.signal(41, name)
    assert world[41].status is WAITING


def test_a_wait_reads_nothing_again_for_signals_that_it_ignores() -> None:
    world = begun(wait("go", match_payload={"n": -1}))
    asked = len(world.needs)
    for number in range(3 * SIGNALS_AT_ONCE):
        world.signal(41, "go", {"n": number})
        world.signal(41, "other", {"n": -1})
    assert len(world.needs) == asked
    assert world.entries(41).count("waiting") == 1
    world.signal(41, "go", {"n": -1})
    assert world[41].status is WorkflowStatus.COMPLETED
    assert len(world.runs[41].signals) == 6 * SIGNALS_AT_ONCE


def test_a_wait_that_takes_any_payload_reads_one_signal_of_each_name() -> None:
    world = begun(then("a"), wait("go", "on"))
    for _ in range(5):
        world.signal(41, "go")
    world.succeed(41)
    assert world.needs == [NeedSignals("go", 0, 1), NeedSignals("on", 0, 1)]


def test_a_wait_with_a_pattern_finds_a_signal_behind_many_others() -> None:
    world = begun(then("a"), wait("go", match_payload={"n": 120}))
    for number in range(130):
        world.signal(41, "go", {"n": number})
    world.succeed(41)
    assert (world[41].status, world[41].state) == ("completed", {"n": 120})


def test_a_signal_while_paused_is_kept_and_the_wait_evaluated_on_resuming() -> None:
    world = begun(then("a"), wait("go"))
    world.command(41, Pause())
    world.succeed(41)
    world.signal(41, "go", {"n": 1})
    assert (world[41].status, world[41].current_step, len(world.runs[41].signals)) == ("paused", 1, 1)
    world.command(41, Resume())
    assert (world[41].status, world[41].state) == ("completed", {"n": 1})


# time


def test_a_wait_fails_when_its_time_is_over() -> None:
    world = begun(wait("go", "on", timeout=90))
    assert world.runs[41].timers == [SetTimer(41, 1, 90 * SECOND)]
    world.signal(41, "on")
    assert world[41].runtime == {"matched": ["on"], "due_us": 90 * SECOND}
    world.fire(41)
    run = world[41]
    assert (run.status, run.error_kind, run.failed_step) == ("failed", ErrorKind.WAIT_TIMEOUT, 0)
    assert run.error_message == "step 'w' of workflow 41 has waited 90 s for signal 'go', in vain"
    assert [signal.name for signal in world.runs[41].signals] == ["on"], "nothing was used"


@pytest.mark.parametrize(("mode", "words"), [("all", "for the signals 'a', 'b'"), ("any", "for any of the signals")])
def test_the_message_of_a_timeout_names_what_did_not_come(mode: str, words: str) -> None:
    world = begun(wait("a", "b", mode=mode, timeout=0.5))
    world.fire(41)
    assert words in str(world[41].error_message)


def test_the_message_of_a_timeout_stays_short() -> None:
    world = begun(wait(*(f"{number}" * 200 for number in range(500)), timeout=1))
    world.fire(41)
    message = str(world[41].error_message)
    assert "490 others" in message
    assert len(message) < 2000


def test_a_timeout_may_lead_to_another_step() -> None:
    world = begun(wait("go", timeout=1, on_timeout="late", result_key="got"), then("b"), then("late"))
    world.fire(41)
    run = world[41]
    assert (run.status, run.current_step, run.transitions, run.state) == ("running", 2, 1, {})
    assert world.runs[41].rows[-1].control == {"_next_step": "late"}
    world.signal(41, "go")
    assert len(world.runs[41].signals) == 1, "it came too late"


def test_a_signal_in_time_forgets_the_timer() -> None:
    world = begun(wait("go", timeout=60), delay("d", 5))
    effects = world.signal(41, "go")
    assert effects.index(DropTimers(41)) < effects.index(SetTimer(41, 2, 5 * SECOND))
    assert world.runs[41].timers == [SetTimer(41, 2, 5 * SECOND)]
    assert world.tell(41, Due(1)) == []


def test_no_timer_is_forgotten_that_was_never_set() -> None:
    world = begun(wait("go"), delay("d", 5))
    assert DropTimers(41) not in world.signal(41, "go")
    world = begun(then("a"), wait("go", timeout=60), delay("d", 5))
    world.signal(41, "go")
    assert DropTimers(41) not in world.succeed(41)


def test_a_signal_in_the_turn_of_the_timeout_wins() -> None:
    for events in ([Signalled("go", {}, 7), Due(1)], [Signalled("go", {}, 7)]):
        world = begun(wait("go", timeout=1))
        world.now_us = SECOND
        world.tell(41, *events)
        assert world[41].status is WorkflowStatus.COMPLETED


def test_a_timeout_looks_once_more_for_what_is_there() -> None:
    world = begun(wait("go", timeout=1))
    for effect in world.signal(41, "no"):
        if isinstance(effect, KeepSignal):
            world.runs[41].signals[0] = type(world.runs[41].signals[0])(effect.seq, "go", {"n": 1})
    world.fire(41)
    assert (world[41].status, world[41].state) == ("completed", {"n": 1})


def test_a_timer_that_fires_too_early_is_set_again() -> None:
    world = begun(wait("go", timeout=60))
    before = world[41]
    assert world.tell(41, Due(1)) == [SetTimer(41, 1, 60 * SECOND)]
    assert world[41] is before


def test_a_timer_means_nothing_to_a_wait_without_timeout() -> None:
    world = begun(wait("go"))
    assert world.tell(41, Due(1)) == []


def test_signals_do_not_lengthen_the_time() -> None:
    world = begun(wait("a", "b", timeout=60))
    world.now_us = 30 * SECOND
    effects = world.signal(41, "a")
    assert not [effect for effect in effects if isinstance(effect, SetTimer)]
    assert world[41].runtime == {"matched": ["a"], "due_us": 60 * SECOND}


def test_a_retry_waits_anew_as_long_as_the_first_time() -> None:
    world = begun(wait("a", "b", timeout=60))
    world.signal(41, "a", {"n": 1})
    world.fire(41)
    world.now_us = 100 * SECOND
    world.command(41, RetryRun())
    run = world[41]
    assert (run.status, run.visit, run.runtime) == (WAITING, 1, {"matched": ["a"], "due_us": 160 * SECOND})
    assert world.runs[41].timers == [SetTimer(41, 1, 160 * SECOND)]
    assert world.entries(41) == ["waiting", "signalled", "failed", "retried", "waiting"]
    world.signal(41, "b", {"m": 2})
    assert (world[41].status, world[41].state) == ("completed", {"n": 1, "m": 2})


def test_a_signal_that_came_after_the_failure_satisfies_the_retry() -> None:
    world = begun(wait("go", timeout=60), then("b"))
    world.fire(41)
    world.signal(41, "go", {"n": 1})
    assert (world[41].status, len(world.runs[41].signals)) == ("failed", 1)
    effects = world.command(41, RetryRun())
    assert (world[41].status, world[41].state, world[41].current_step) == ("running", {"n": 1}, 1)
    assert DropTimers(41) not in effects


def test_a_wait_can_be_cancelled() -> None:
    world = begun(wait("go", timeout=60))
    world.command(41, Cancel())
    assert (world[41].status, world[41].runtime, world.runs[41].timers) == ("cancelled", None, [])
    world.signal(41, "go")
    assert (world[41].status, len(world.runs[41].signals)) == ("cancelled", 1)


# the laws, at random

payloads = st.dictionaries(st.sampled_from("kn"), st.sampled_from([1, 2, True, "1"]), max_size=2)
signals = st.lists(st.tuples(st.sampled_from("abc"), payloads), max_size=12)


@st.composite
def waits(draw: st.DrawFn) -> StepSpec:
    names = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True))
    settings: dict[str, Any] = {"match_payload": draw(payloads)} if draw(st.booleans()) else {}
    if draw(st.booleans()):
        settings["correlation_key"] = "k"
    if draw(st.booleans()):
        settings["timeout"] = 60
    return wait(*names, mode=draw(st.sampled_from(["all", "any"])), **settings)


def wanted(settings: Any, state: dict[str, Any], stored: list[tuple[int, str, Any]]) -> dict[str, tuple[int, Any]]:
    """What a wait takes of the signals that are stored, by the book; nothing if it is not satisfied."""

    def fits(payload: Any) -> bool:
        key = settings.get("correlation_key")
        same = key is None or (key in payload and key in state and repr(payload[key]) == repr(state[key]))
        return same and is_subset(settings.get("match_payload", {}), payload)

    fitting = [(seq, name, payload) for seq, name, payload in stored if name in settings["names"] and fits(payload)]
    if settings["mode"] == "any":
        return {name: (seq, payload) for seq, name, payload in fitting[:1]}
    first = {name: (seq, payload) for seq, name, payload in reversed(fitting)}
    ordered = {name: first[name] for name in settings["names"] if name in first}
    return ordered if len(ordered) == len(settings["names"]) else {}


@given(st.lists(waits(), min_size=1, max_size=3), signals, st.integers(0, 12), payloads)
def test_waits_take_what_the_book_says(
    steps: list[StepSpec], sent: list[tuple[str, Any]], early: int, state: dict[str, Any]
) -> None:
    """Signals before the wait and after, over several waits: which are used, what is merged, what is left."""
    named = [StepSpec(step.kind, f"w{place}", settings=step.settings) for place, step in enumerate(steps)]
    world = Several()
    world.start(41, flow(then("first"), *named), state)
    expected, stored, place = dict(state), list[tuple[int, str, Any]](), -1
    for number, (name, payload) in enumerate([*sent, ("end", {})]):
        if number == min(early, len(sent)):
            world.succeed(41)
            place = 0
        world.signal(41, name, payload)
        seq = next(row.seq for row in reversed(world.runs[41].rows) if row.entry is Entry.SIGNALLED)
        stored.append((seq, name, payload))
        while 0 <= place < len(named) and (taken := wanted(named[place].settings, expected, stored)):
            for _, merged in taken.values():
                expected |= merged
            stored = [one for one in stored if one[0] not in {seq for seq, _ in taken.values()}]
            place += 1
    assert repr(world[41].state) == repr(expected)
    assert [(signal.seq, signal.name, signal.payload) for signal in world.runs[41].signals] == stored
    assert world[41].current_step == place + 1
    assert world[41].status == ("completed" if place == len(named) else WAITING)


@given(waits(), signals, st.data())
def test_a_batch_of_signals_is_as_good_as_one_after_the_other(
    step: StepSpec, sent: list[tuple[str, Any]], data: st.DataObject
) -> None:
    definition: Definition = flow(step, wait("a", step="v"), then("end"))
    one_by_one, at_once = Several(), Several()
    events: list[Any] = [Signalled(name, payload, 900 + number) for number, (name, payload) in enumerate(sent)]
    if data.draw(st.booleans()):
        events.insert(data.draw(st.integers(0, len(events))), Commanded(Cancel(), 990))
    for world in (one_by_one, at_once):
        world.start(41, definition, {"k": 1})
    for event in events:
        one_by_one.tell(41, event)
    at_once.tell(41, *events)
    assert at_once[41] == one_by_one[41]
    assert at_once.runs[41].rows == one_by_one.runs[41].rows
    assert at_once.runs[41].signals == one_by_one.runs[41].signals
    assert at_once.runs[41].timers == one_by_one.runs[41].timers
