"""Waits for other runs: which are meant, when the wait is decided, what is merged, and who is asked to tell."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuety.model import (
    Cancel,
    CleanupStatus,
    Due,
    Entry,
    ErrorKind,
    KeepGroup,
    LetterKind,
    RetryRun,
    Rewind,
    Send,
    StepSpec,
    WorkflowStatus,
)
from queuety.model.needs import NeedStanding, NeedStates, Standing
from tests.unit.reference import flow, then
from tests.unit.several import Several

WAITING = WorkflowStatus.WAITING_FOR_WORKFLOWS
ONE = flow(then("a"))
ME = 41


def wait(workflows: Any = None, mode: str = "all", *, keyed: bool = True, step: str = "w", **settings: Any) -> StepSpec:
    named = settings if workflows is None else {"workflows": workflows, **settings}
    return StepSpec("wait_for_workflows", step, settings={"mode": mode, "keyed": keyed, **named})


def world_of(*others: int) -> Several:
    """These runs, each about to do its only step."""
    world = Several()
    for other in others:
        world.start(other, ONE)
    return world


def end(world: Several, run_id: int, how: str) -> None:
    if how == "completed":
        world.succeed(run_id, {"by": run_id, f"k{run_id}": True})
    elif how == "failed":
        world.fail(run_id)
    else:
        world.command(run_id, Cancel())


def waiting(world: Several, *steps: StepSpec, payload: dict[str, Any] | None = None) -> Several:
    world.start(ME, flow(*steps), payload)
    return world


def why(world: Several) -> str:
    run = world[ME]
    assert (run.status, run.error_kind, run.failed_step) == ("failed", ErrorKind.WAIT_UNSATISFIABLE, 0)
    assert run.error_message is not None
    assert run.error_message.startswith(f"step 'w' of workflow {ME} waits in vain: ")
    return run.error_message.partition("in vain: ")[2]


def test_a_wait_asks_every_active_run_to_tell_and_stands_still() -> None:
    world = waiting(world_of(7, 9), wait([9, 7]))
    run = world[ME]
    assert (run.status, run.runtime, run.current_step) == (WAITING, {"ids": [9, 7]}, 0)
    (row,) = world.runs[ME].rows
    told = {"wait_type": "workflow", "waiting_for": ["9", "7"], "wait_mode": "all"}
    assert (row.entry, row.control, row.changed) == (Entry.WAITING, {"_waiting": told}, None)
    assert world.letters == [
        Send(9, LetterKind.SUBSCRIBE, 0, {"waiter": ME}, 1),
        Send(7, LetterKind.SUBSCRIBE, 0, {"waiter": ME}, 1),
    ]


def test_only_runs_that_may_complete_yet_are_asked() -> None:
    """One that has failed can be retried."""
    world = world_of(7, 8, 9)
    end(world, 7, "completed")
    end(world, 8, "failed")
    waiting(world, wait([7, 8, 9, 10], mode="any", result_key="got", quorum=None))
    assert world[ME].status is WorkflowStatus.COMPLETED, "one of any has completed"
    world = world_of(7, 8, 9)
    end(world, 7, "cancelled")
    end(world, 8, "failed")
    waiting(world, wait([7, 8, 9, 10], mode="any"))
    assert [letter.to for letter in world.letters] == [8, 9]


def test_what_has_already_come_about_is_not_waited_for() -> None:
    world = world_of(7, 8)
    end(world, 8, "completed")
    end(world, 7, "completed")
    waiting(world, wait([8, 7], result_key="got"), then("b"))
    run = world[ME]
    assert (run.status, run.current_step, run.transitions, world.letters) == ("running", 1, 1, [])
    assert list(run.state["got"].items()) == [("8", {"by": 8, "k8": True}), ("7", {"by": 7, "k7": True})]
    assert world.entries(ME) == ["resumed"]


def test_all_goes_on_with_the_last_one() -> None:
    world = waiting(world_of(7, 8), wait([8, 7], result_key="got"), then("b"))
    world.deliver()
    end(world, 7, "completed")
    world.deliver()
    assert (world[ME].status, world.entries(ME)) == (WAITING, ["waiting"])
    end(world, 8, "completed")
    world.deliver()
    assert world[ME].status is WorkflowStatus.RUNNING
    assert list(world[ME].state["got"]) == ["8", "7"]
    assert world.entries(ME) == ["waiting", "resumed"]


@pytest.mark.parametrize(("how", "fate"), [("failed", "workflow 8 has failed (boom)"), ("cancelled", "was cancelled")])
def test_all_fails_with_the_first_that_is_lost(how: str, fate: str) -> None:
    world = waiting(world_of(7, 8, 9), wait([7, 8, 9]))
    world.deliver()
    end(world, 8, how)
    world.deliver()
    assert why(world).startswith("all 3 must complete, but workflow 8 ")
    assert fate in why(world)
    assert world[7].status is WorkflowStatus.RUNNING


def test_a_run_that_is_not_there_is_lost() -> None:
    world = waiting(world_of(7), wait([7, 99]))
    assert why(world) == "all 2 must complete, but workflow 99 is not there"
    assert world.letters == []
    world = waiting(world_of(7), wait([99, 7], mode="any"))
    assert world[ME].status is WAITING


def test_any_takes_the_first_completed_as_listed() -> None:
    world = world_of(7, 8, 9)
    end(world, 9, "completed")
    end(world, 8, "completed")
    waiting(world, wait([7, 8, 9], mode="any", result_key="got"))
    assert world[ME].state == {"got": {"8": {"by": 8, "k8": True}}}


def test_any_fails_only_when_none_is_left() -> None:
    world = waiting(world_of(7, 8), wait([7, 8], mode="any"))
    world.deliver()
    end(world, 7, "failed")
    world.deliver()
    assert world[ME].status is WAITING
    end(world, 8, "cancelled")
    world.deliver()
    assert why(world) == "1 of 2 must complete, but workflow 7 has failed (boom), workflow 8 was cancelled"


def test_a_quorum_takes_all_that_have_completed_by_then() -> None:
    world = waiting(world_of(7, 8, 9, 10), wait([10, 9, 8, 7], mode="quorum", quorum=2, result_key="got"))
    world.deliver()
    for other in (7, 8, 10):
        end(world, other, "completed")
    world.deliver()
    assert list(world[ME].state["got"]) == ["10", "8", "7"]


def test_a_quorum_fails_as_soon_as_it_cannot_be_reached() -> None:
    world = waiting(world_of(7, 8, 9), wait([7, 8, 9], mode="quorum", quorum=2))
    world.deliver()
    end(world, 7, "failed")
    world.deliver()
    assert world[ME].status is WAITING
    end(world, 8, "failed")
    world.deliver()
    assert why(world).startswith("2 of 3 must complete, but workflow 7 has failed (boom), workflow 8")


def test_states_are_merged_as_listed_where_no_key_is_given() -> None:
    world = world_of(7, 8)
    end(world, 7, "completed")
    end(world, 8, "completed")
    waiting(world, wait([8, 7]), payload={"by": 0})
    assert list(world[ME].state.items()) == [("by", 7), ("k8", True), ("k7", True)]


def test_the_wait_for_one_run_gives_its_state_itself() -> None:
    for named in ([7], "key"):
        world = world_of(7)
        end(world, 7, "completed")
        waiting(world, wait(named, keyed=False, result_key="got"), payload={"key": 7})
        assert world[ME].state["got"] == {"by": 7, "k7": True}


def test_a_list_of_one_is_a_list() -> None:
    world = world_of(7)
    end(world, 7, "completed")
    waiting(world, wait([7], result_key="got"))
    assert world[ME].state == {"got": {"7": {"by": 7, "k7": True}}}


def test_the_wait_for_one_run_refuses_several() -> None:
    world = waiting(world_of(7, 8), wait("key", keyed=False), payload={"key": [7, 8]})
    assert why(world) == "state key 'key' names 2 workflows where one is waited for; use wait_for_workflows"


@pytest.mark.parametrize(
    ("value", "ids"),
    [(7, [7]), ("7", [7]), ([8, "7", 8, "8", 7], [8, 7]), (["7"], [7]), (2**63 - 1, [2**63 - 1])],
)
def test_ids_come_from_the_state_each_once_where_it_is_first_named(value: Any, ids: list[int]) -> None:
    world = waiting(world_of(7, 8, 2**63 - 1), wait("key"), payload={"key": value})
    assert world[ME].runtime == {"ids": ids}


@pytest.mark.parametrize("mode", ["all", "any", "quorum"])
@pytest.mark.parametrize(
    "value", [None, True, False, 0, -7, 7.0, 2**63, "", "seven", "07", " 7", "-7", "7.0", "٧", "9" * 30, {}, {"id": 7}]
)
def test_what_is_no_id_fails_at_once_in_every_mode(value: Any, mode: str) -> None:
    for key in (value, [7, value]):
        world = waiting(world_of(7), wait("key", mode, quorum=1), payload={"key": key})
        assert re.fullmatch(r"state key 'key' holds .*, which is not the id of a workflow", why(world))
        assert world.letters == []


def test_a_list_within_a_list_is_no_id() -> None:
    assert "[7]" in why(waiting(world_of(7), wait("key"), payload={"key": [[7]]}))


def test_a_long_value_is_quoted_in_part() -> None:
    assert len(why(waiting(world_of(), wait("key"), payload={"key": "x" * 10_000}))) < 400


@pytest.mark.parametrize("mode", ["all", "any", "quorum"])
def test_a_missing_key_and_an_unknown_group_fail_in_every_mode(mode: str) -> None:
    assert "'key' is missing" in why(waiting(world_of(), wait("key", mode, quorum=1)))
    assert "'g' is unknown" in why(waiting(world_of(), wait(mode=mode, quorum=1, group="g")))


@pytest.mark.parametrize("named", [[], "key"])
def test_an_empty_list_satisfies_all_and_nothing_else(named: Any) -> None:
    for keyed in (True, False):
        world = waiting(world_of(), wait(named, result_key="got", keyed=keyed), payload={"key": []})
        assert (world[ME].status, world[ME].state) == ("completed", {"key": [], "got": {}})
    for mode in ("any", "quorum"):
        why(waiting(world_of(), wait(named, mode, quorum=1), payload={"key": []}))


def test_a_group_is_what_a_step_has_started() -> None:
    world = world_of(7, 8)
    world.start(ME, flow(then("a"), wait(group="g", result_key="got")))
    world.write(ME, [KeepGroup(ME, "g", (8, 7))])
    world.succeed(ME)
    assert world[ME].runtime == {"ids": [8, 7]}
    world.deliver()
    end(world, 7, "completed")
    end(world, 8, "completed")
    world.deliver()
    assert list(world[ME].state["got"]) == ["8", "7"]


def test_a_run_does_not_wait_for_itself() -> None:
    for mode in ("all", "any", "quorum"):
        world = waiting(world_of(7), wait([7, ME], mode, quorum=1))
        assert why(world) == "the list of workflows names the run itself, which would wait for ever"


def test_a_quorum_above_the_number_of_runs_fails_at_once() -> None:
    world = waiting(world_of(7, 8), wait("key", "quorum", quorum=3), payload={"key": [7, 8, 7]})
    assert why(world) == "3 of 2 must complete, but there are too few"


def test_the_message_stays_short_for_many_that_are_lost() -> None:
    world = waiting(world_of(), wait(list(range(1000, 3000))))
    assert why(world).endswith("workflow 1004 is not there and 1995 more are lost")
    assert len(why(world)) < 300


def test_a_long_error_of_a_lost_run_is_quoted_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of()
    lost = Standing(WorkflowStatus.FAILED, CleanupStatus.NONE, "x" * 9000)
    monkeypatch.setattr(world, "answer", lambda _, need: dict.fromkeys(need.ids, lost))
    waiting(world, wait([1, 2, 3, 4, 5, 6, 7]))
    assert len(why(world)) < 5 * 300


def test_the_end_of_a_run_between_reading_and_asking_is_told() -> None:
    """The run ends while the letter is under way: it finds the run ended, and is answered at once."""
    world = waiting(world_of(7), wait([7], result_key="got"))
    end(world, 7, "completed")
    assert world[ME].status is WAITING
    world.deliver()
    assert world[ME].state == {"got": {"7": {"by": 7, "k7": True}}}


def test_a_run_that_goes_on_before_its_end_was_heard_need_not_be_asked_again() -> None:
    """It fails, tells who watches it, is retried, and only then is its letter opened. It has kept its watchers."""
    world = waiting(world_of(7), wait([7], result_key="got"))
    world.deliver()
    end(world, 7, "failed")
    world.command(7, RetryRun())
    world.deliver()
    assert world[ME].status is WAITING
    assert world.entries(ME) == ["waiting"]
    end(world, 7, "completed")
    world.deliver()
    assert world[ME].status is WorkflowStatus.COMPLETED
    assert len(world.sent(LetterKind.SUBSCRIBE, 7)) == 1


def test_a_run_that_had_completed_and_was_rewound_is_asked_again() -> None:
    """It completes, tells who watches it, forgets them, and is rewound before the letter is opened."""
    world = Several()
    world.start(7, flow(then("a"), then("b")))
    waiting(world, wait([7], result_key="got"))
    world.deliver()
    world.succeed(7)
    end(world, 7, "completed")
    world.command(7, Rewind(0))
    world.deliver()
    assert (world[ME].status, world[7].status, world.runs[7].watchers) == (WAITING, "running", {ME: 1})
    end(world, 7, "completed")
    world.deliver()
    assert world[ME].status is WorkflowStatus.COMPLETED
    assert len(world.sent(LetterKind.SUBSCRIBE, 7)) == 2


def test_a_run_that_all_wait_for_and_that_was_counted_already_is_asked_again_when_it_was_rewound() -> None:
    """Two have completed and were counted; one of them is rewound, then the last one ends."""
    world = Several()
    for other in (7, 8):
        world.start(other, flow(then("a"), then("b")))
    waiting(world, wait([7, 8], result_key="got"))
    world.deliver()
    world.succeed(7)
    end(world, 7, "completed")
    world.deliver()
    world.command(7, Rewind(0))
    world.succeed(8)
    end(world, 8, "completed")
    world.deliver()
    assert (world[ME].status, world.runs[7].watchers) == (WAITING, {ME: 1})
    end(world, 7, "completed")
    world.deliver()
    assert (world[ME].status, list(world[ME].state["got"])) == ("completed", ["7", "8"])


@pytest.mark.parametrize("fails_first", [True, False])
@pytest.mark.parametrize(("mode", "quorum"), [("any", None), ("quorum", 1)])
def test_a_run_that_fails_and_completes_after_all_wakes_the_wait(mode: str, quorum: int, fails_first: bool) -> None:
    """Whether it failed before the wait was reached, or while it was waited for; the other one never ends."""
    world = world_of(7, 8)
    if fails_first:
        end(world, 7, "failed")
    waiting(world, wait([7, 8], mode, quorum=quorum, result_key="got"))
    world.deliver()
    if not fails_first:
        end(world, 7, "failed")
        world.deliver()
    assert (world[ME].status, world.runs[7].watchers) == (WAITING, {ME: 1})
    world.command(7, RetryRun())
    world.deliver()
    end(world, 7, "completed")
    world.deliver()
    assert (world[ME].status, list(world[ME].state["got"])) == (WorkflowStatus.COMPLETED, ["7"])
    assert world.runs[7].watchers == {}


def test_a_run_that_failed_between_reading_and_asking_tells_and_keeps_the_wait_in_mind() -> None:
    world = waiting(world_of(7, 8), wait([7, 8], "any", result_key="got"))
    end(world, 7, "failed")
    world.deliver()
    assert (world[ME].status, world.sent(LetterKind.SETTLED, ME)) == (WAITING, [{"id": 7}])
    world.command(7, RetryRun())
    end(world, 7, "completed")
    world.deliver()
    assert world[ME].state == {"got": {"7": {"by": 7, "k7": True}}}


def test_two_failed_runs_are_asked_once_each() -> None:
    """The answer that one has failed is no reason to ask it again."""
    world = world_of(7, 8, 9)
    end(world, 7, "failed")
    waiting(world, wait([7, 8, 9], "any"))
    end(world, 8, "failed")
    world.deliver()
    assert [len(world.sent(LetterKind.SUBSCRIBE, other)) for other in (7, 8, 9)] == [1, 1, 1]


def test_a_run_that_is_deleted_before_it_was_asked_is_lost() -> None:
    world = waiting(world_of(7), wait([7]))
    del world.runs[7]
    world.post(Send(7, LetterKind.SUBSCRIBE, 0, {"waiter": ME}, 1))
    world.deliver()
    assert "workflow 7 is not there" in why(world)


def test_a_run_that_is_deleted_between_two_readings_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of(7, 8)
    end(world, 7, "completed")
    end(world, 8, "completed")
    answer = world.answer

    def without_7(run_id: int, need: Any) -> Any:
        found = answer(run_id, need)
        return {key: state for key, state in found.items() if key != 7} if isinstance(need, NeedStates) else found

    monkeypatch.setattr(world, "answer", without_7)
    waiting(world, wait([7, 8], "any", result_key="got"))
    assert world[ME].state == {"got": {"8": {"by": 8, "k8": True}}}
    world.runs.pop(ME)
    waiting(world, wait([7, 8], result_key="got"))
    assert why(world) == "all 2 must complete, but workflow 7 is not there"


def test_only_the_states_that_are_merged_are_read() -> None:
    world = world_of(7, 8, 9)
    for other in (7, 8, 9):
        end(world, other, "completed")
    waiting(world, wait([7, 8, 9], "any"))
    assert world.needs == [NeedStanding((7, 8, 9)), NeedStates((7,))]


def test_late_news_change_nothing() -> None:
    world = waiting(world_of(7, 8), wait([7], "any"), then("b"))
    world.deliver()
    end(world, 7, "completed")
    world.deliver()
    before = world[ME]
    world.post(Send(ME, LetterKind.SETTLED, 0, {"id": 7}, 1))
    world.deliver()
    assert world[ME] is before


def test_anything_else_that_happens_is_a_reason_to_look_and_not_to_ask() -> None:
    world = waiting(world_of(7), wait([7]))
    letters = list(world.letters)
    world.signal(ME, "go")
    assert world.tell(ME, Due(1)) == []
    assert (world.letters, world[ME].status, world[ME].runtime) == (letters, WAITING, {"ids": [7]})
    assert world.entries(ME) == ["waiting", "signalled"]


def test_retrying_the_lost_run_alone_does_not_revive_the_waiter() -> None:
    world = waiting(world_of(7, 8), wait([7, 8], result_key="got"))
    world.deliver()
    end(world, 7, "failed")
    world.deliver()
    world.command(7, RetryRun())
    end(world, 7, "completed")
    world.deliver()
    assert world[ME].status is WorkflowStatus.FAILED
    world.command(ME, RetryRun())
    assert (world[ME].status, world[ME].visit, world[ME].runtime) == (WAITING, 1, {"ids": [7, 8]})
    world.deliver()
    end(world, 8, "completed")
    world.deliver()
    assert (world[ME].status, list(world[ME].state["got"])) == ("completed", ["7", "8"])
    assert world.entries(ME) == ["waiting", "failed", "retried", "waiting", "resumed"]


def test_a_retry_of_a_wait_that_never_could_be_reads_the_state_again() -> None:
    world = waiting(world_of(7), wait("key"), payload={"key": "x"})
    why(world)
    world.command(ME, RetryRun())
    why(world)
    assert world.entries(ME) == ["failed", "retried", "failed"]


def test_a_failure_cascades_to_those_who_wait() -> None:
    world = world_of(7)
    world.start(8, flow(wait([7])))
    waiting(world, wait([8]))
    world.deliver()
    end(world, 7, "failed")
    world.deliver()
    assert "workflow 8 has failed (step 'w' of workflow 8 waits in vain" in why(world)


modes = st.sampled_from([("all", None), ("any", None), ("quorum", 1), ("quorum", 2), ("quorum", 3)])
fates = st.sampled_from(["completed", "completed", "failed", "cancelled", "active", "missing"])


@given(
    modes,
    st.lists(fates, min_size=1, max_size=5),
    st.permutations(range(5)),
    st.integers(0, 5),
    st.booleans(),
    st.booleans(),
)
def test_a_wait_is_decided_as_the_book_says(
    mode: tuple[str, int | None],
    how: list[str],
    order: list[int],
    before: int,
    opens_at_once: bool,
    backwards: bool,
) -> None:
    """Some runs end before the wait, the others after it, in any order, with letters opened early or late."""
    word, quorum = mode
    needed = {"all": len(how), "any": 1}.get(word, quorum or 0)
    ids = [10 + place for place in range(len(how))]
    world = world_of(*(one for one, fate in zip(ids, how, strict=True) if fate != "missing"))
    ends = [(ids[place], how[place]) for place in order if place < len(how) and how[place] not in ("active", "missing")]
    for one, fate in ends[:before]:
        end(world, one, fate)
    waiting(world, wait(ids, word, quorum=quorum, result_key="got"))
    for one, fate in ends[before:]:
        if opens_at_once:
            world.deliver(backwards=backwards)
        end(world, one, fate)
    world.deliver(backwards=backwards)
    completed, active = how.count("completed"), how.count("active")
    lost = len(how) - completed - active
    if completed >= needed:
        assert world[ME].status is WorkflowStatus.COMPLETED
        got = list(world[ME].state["got"])
        assert got == [str(one) for one in ids if str(one) in got], "as listed"
        assert len(got) == 1 if word == "any" else len(got) >= needed
        assert all(how[int(one) - 10] == "completed" for one in got)
    elif lost > len(how) - needed:
        why(world)
    else:
        assert world[ME].status is WAITING


def test_a_wait_for_all_looks_at_a_few_while_one_of_them_goes_on() -> None:
    others = tuple(range(100, 200))
    world = waiting(world_of(*others), wait(list(others)))
    world.deliver()
    for other in others[:-1]:
        end(world, other, "completed")
        world.needs.clear()
        world.deliver()
        assert max(len(need.ids) for need in world.needs if isinstance(need, NeedStanding)) <= 16
    assert world[ME].status is WAITING
    end(world, others[-1], "completed")
    world.deliver()
    assert world[ME].status is WorkflowStatus.COMPLETED


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_a_wait_for_all_that_has_lost_one_does_not_wait_for_those_listed_last(how: str) -> None:
    others = tuple(range(100, 140))
    world = waiting(world_of(*others), wait(list(others)))
    world.deliver()
    end(world, others[0], "completed")
    end(world, others[1], how)
    world.deliver()
    assert (world[ME].status, world[ME].error_kind) == (WorkflowStatus.FAILED, ErrorKind.WAIT_UNSATISFIABLE)


def test_a_wait_for_all_ends_in_whatever_order_they_do() -> None:
    others = tuple(range(100, 140))
    world = waiting(world_of(*others), wait(list(others)))
    world.deliver()
    for other in reversed(others):
        end(world, other, "completed")
        world.deliver()
    assert world[ME].status is WorkflowStatus.COMPLETED
