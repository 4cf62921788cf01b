"""The supervisor: which children it starts, when, and what becomes of what they held. Fake children, no database."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from queuety.worker.desk import Hands
from queuety.worker.seats import HOPELESS_STARTS, Times
from queuety.worker.supervise import Supervisor
from queuety.worker.terms import Terms
from tests.support.children import PATIENCE_S, Actor, FakeDesk, Running, Stage, stage_in

TERMS = Terms(queues=("default",), concurrency=7, lease_s=300.0, grace_s=30.0)
LONG = 1000.0
PATIENT = Times(first_pause_s=0.001, longest_pause_s=0.01, silent_s=LONG, retire_s=LONG, margin_s=LONG, at_once_s=LONG)
"""Nothing happens for the passing of time alone."""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_in(tmp_path) as made:
        yield made


@pytest.fixture
def desk() -> FakeDesk:
    return FakeDesk()


class House:
    """A supervisor at work and its first child, which has told its number."""

    def __init__(self, stage: Stage, desk: FakeDesk, times: Times = PATIENT, terms: Terms = TERMS) -> None:
        self.supervisor = Supervisor("shop:app", desk, terms, workers=1, program=stage.program, times=times)
        self.running = Running(self.supervisor.run)
        desk.next_call("open")
        self.first = stage.enters()
        self.first.tell(owner=1)
        self.takes_in()

    def takes_in(self) -> None:
        """Waits until the supervisor has heard what children have told."""
        has_heard = Event()
        self.supervisor._later(has_heard.set)
        assert has_heard.wait(PATIENCE_S)

    def end(self, *actors: Actor) -> int:
        self.supervisor.stop()
        for actor in actors:
            assert actor.hears() == "stop"
            actor.exit(0)
        return self.running.code()


def test_a_child_gets_its_order_and_the_word_to_stop(stage: Stage, desk: FakeDesk) -> None:
    house = House(stage, desk)
    assert house.first.order["app"] == "shop:app"
    assert house.first.order["path"] == sys.path
    assert house.first.order["terms"]["concurrency"] == 7
    assert house.first.order["terms"]["is_supervised"] is True
    assert house.first.takes_suspects_only is False
    assert house.end(house.first) == 0
    assert desk.next_call("close")


def test_every_seat_is_filled(stage: Stage, desk: FakeDesk) -> None:
    supervisor = Supervisor("shop:app", desk, TERMS, workers=3, program=stage.program, times=PATIENT)
    running = Running(supervisor.run)
    actors = [stage.enters() for _ in range(3)]
    assert len({actor.pid for actor in actors}) == 3
    supervisor.stop(at_once=True)
    for actor in actors:
        assert actor.hears() == "stop now"
        actor.exit(0)
    assert running.code() == 0


def test_what_a_dead_child_held_is_given_back_and_another_takes_its_seat(stage: Stage, desk: FakeDesk) -> None:
    house = House(stage, desk)
    house.first.tell(owner=41)
    os.kill(house.first.pid, signal.SIGKILL)
    assert desk.next_call("end_dead") == ("end_dead", 41)
    second = stage.enters()
    second.tell(owner=42)
    assert house.end(second) == 0
    assert desk.next_call("end_dead") == ("end_dead", 42)


def test_a_number_told_just_before_the_end_is_heard(stage: Stage, desk: FakeDesk) -> None:
    house = House(stage, desk)
    actor = house.first
    for owner in range(2, 12):
        actor.tell(owner=owner)
        actor.exit(1)
        assert desk.next_call("end_dead") == ("end_dead", owner)
        actor = stage.enters()
    house.end(actor)


def test_a_death_is_not_forgotten_while_the_database_is_away(stage: Stage, desk: FakeDesk) -> None:
    house = House(stage, desk)
    desk.failures = 2
    house.first.exit(1)
    second = stage.enters()  # it is not waited for
    assert desk.next_call("failed") == ("failed", "end_dead")
    assert desk.next_call("failed") == ("failed", "end_dead")
    assert desk.next_call("end_dead") == ("end_dead", 1)
    house.end(second)


def test_a_child_that_never_works_is_no_hot_loop_and_says_why(
    stage: Stage, desk: FakeDesk, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor("shop:app", desk, TERMS, workers=1, program=stage.program, times=PATIENT)
    running = Running(supervisor.run)
    with caplog.at_level(logging.WARNING, "queuety.worker"):
        for _ in range(HOPELESS_STARTS):
            actor = stage.enters()
            actor.tell(failed="ModuleNotFoundError: No module named 'shop'")
            actor.exit(1)
        assert running.code() == 1
    assert "No module named 'shop'" in caplog.text
    assert "giving up" in caplog.text


def test_a_program_that_cannot_be_started_is_said_and_given_up(
    desk: FakeDesk, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor("shop:app", desk, TERMS, workers=1, program=("/no/such/python",), times=PATIENT)
    assert Running(supervisor.run).code() == 1
    assert "/no/such/python" in caplog.text


def test_one_that_worked_before_is_started_again_for_ever(stage: Stage, desk: FakeDesk) -> None:
    house = House(stage, desk)
    house.first.exit(1)
    for _ in range(2 * HOPELESS_STARTS):
        stage.enters().exit(1)
    house.end(stage.enters())


def test_a_retiring_child_loses_its_seat_but_not_its_leases(stage: Stage, desk: FakeDesk) -> None:
    house = House(stage, desk)
    house.first.tell(owner=1, retiring="job 5 does not stop")
    second = stage.enters()
    second.tell(owner=2)
    house.takes_in()
    assert set(desk.owners()) == {1, 2}
    house.first.exit(0)
    assert desk.next_call("end_dead") == ("end_dead", 1)
    assert set(desk.owners()) == {2}
    house.end(second)


def test_a_retiring_child_that_does_not_end_is_killed_at_nobodys_cost(stage: Stage, desk: FakeDesk) -> None:
    house = House(stage, desk, replace(PATIENT, retire_s=0.01, margin_s=0.01))
    house.first.tell(owner=1, retiring="job 5 does not stop")
    second = stage.enters()
    house.first.dies()
    assert desk.next_call("end_killed") == ("end_killed", 1, ())
    house.supervisor.stop(at_once=True)
    second.exit(0)
    assert house.running.code() == 0


def test_a_silent_child_over_a_time_limit_is_killed_and_replaced(stage: Stage, desk: FakeDesk) -> None:
    desk.hands = Hands(3, late=(77,))
    house = House(stage, desk, replace(PATIENT, silent_s=0.05))
    assert desk.next_call("hands_of") == ("hands_of", 1)
    house.first.dies()
    assert desk.next_call("end_killed") == ("end_killed", 1, (77,))
    second = stage.enters()
    house.end(second)


def test_a_silent_child_within_its_limits_is_left_alone_and_asked_after_again(stage: Stage, desk: FakeDesk) -> None:
    desk.hands = Hands(3, next_late_s=0.01)
    house = House(stage, desk, replace(PATIENT, silent_s=0.05))
    for _ in range(5):
        assert desk.next_call("hands_of") == ("hands_of", 1)
    assert set(desk.owners()) == {1}  # its leases are renewed
    assert house.end(house.first) == 0


def test_a_silent_child_with_empty_hands_is_replaced_in_the_end(stage: Stage, desk: FakeDesk) -> None:
    terms = replace(TERMS, lease_s=0.3)
    house = House(stage, desk, replace(PATIENT, silent_s=0.05, lifeless_s=0.1), terms)
    house.first.dies()
    assert desk.next_call("end_killed") == ("end_killed", 1, ())
    house.end(stage.enters())


def test_a_child_that_beats_again_is_not_judged_by_an_old_answer(stage: Stage, desk: FakeDesk) -> None:
    house = House(stage, desk)
    proc = house.supervisor._procs[0]
    house.supervisor._judge(proc, Hands(1, late=(77,)))
    assert not proc.was_killed
    house.end(house.first)


@pytest.mark.parametrize(("suspects", "children"), [(1, 1), (3, 3), (9, 4)])
def test_suspects_get_children_of_their_own(stage: Stage, desk: FakeDesk, suspects: int, children: int) -> None:
    house = House(stage, desk)
    desk.suspects = suspects
    house.first.exit(1)
    actors = [stage.enters() for _ in range(1 + children)]
    assert sorted(actor.takes_suspects_only for actor in actors) == [False] + [True] * children
    assert {actor.order["terms"]["concurrency"] for actor in actors if actor.takes_suspects_only} == {1}
    desk.suspects = 0
    assert stage.is_empty(0.2)
    house.end(*actors)


def test_a_child_that_dies_with_a_suspect_is_replaced_while_there_are_any(stage: Stage, desk: FakeDesk) -> None:
    house = House(stage, desk)
    desk.suspects = 1
    house.first.exit(1)
    alone = next(actor for actor in (stage.enters(), stage.enters()) if actor.takes_suspects_only)
    alone.tell(owner=50)
    alone.exit(1)
    while desk.next_call("end_dead") != ("end_dead", 50):
        continue
    again = stage.enters()
    assert again.takes_suspects_only
    desk.suspects = 0
    again.tell(owner=51)
    again.exit(0)  # none is left
    while desk.next_call("end_dead") != ("end_dead", 51):
        continue
    assert stage.is_empty(0.2)
    house.supervisor.stop(at_once=True)


def test_what_does_not_end_within_its_grace_is_killed_at_nobodys_cost(stage: Stage, desk: FakeDesk) -> None:
    house = House(stage, desk, replace(PATIENT, margin_s=0.05), replace(TERMS, grace_s=0.05))
    house.supervisor.stop()
    house.first.dies()
    assert house.running.code() == 0
    assert desk.next_call("end_killed") == ("end_killed", 1, ())


def test_a_child_that_has_not_begun_is_not_waited_for(stage: Stage, desk: FakeDesk) -> None:
    times = replace(PATIENT, at_once_s=0.01)
    supervisor = Supervisor("shop:app", desk, TERMS, workers=1, program=stage.program, times=times)
    running = Running(supervisor.run)
    stage.enters()
    supervisor.stop()
    assert running.code() == 0


def test_the_end_is_bounded_while_the_database_is_away(
    stage: Stage, desk: FakeDesk, caplog: pytest.LogCaptureFixture
) -> None:
    house = House(stage, desk, replace(PATIENT, farewell_s=0.1))
    desk.failures = 1_000_000
    with caplog.at_level(logging.WARNING, "queuety.worker"):
        assert house.end(house.first) == 0
    assert "comes back when its lease ends" in caplog.text


SUPERVISOR = """
import sys
from queuety.worker.supervise import Supervisor
from tests.support.children import FakeDesk
from tests.unit.test_supervise import PATIENT, TERMS
sys.exit(Supervisor("shop:app", FakeDesk(), TERMS, workers=1, program=sys.argv[1:], times=PATIENT).run())
"""


@pytest.fixture
def process(stage: Stage) -> Iterator[int]:
    """A supervisor in a process of its own."""
    made = subprocess.Popen([sys.executable, "-c", SUPERVISOR, *stage.program])
    yield made.pid
    made.kill()
    made.wait(PATIENCE_S)


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize(
    ("first", "second"), [(signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)], ids=["term", "int"]
)
def test_a_signal_stops_and_a_second_one_stops_at_once(
    stage: Stage, process: int, first: signal.Signals, second: signal.Signals
) -> None:
    actor = stage.enters()
    actor.tell(owner=1)
    os.kill(process, first)
    assert actor.hears() == "stop"
    os.kill(process, second)
    assert actor.hears() == "stop now"
    actor.exit(0)
    assert exit_code(process) == 0


def test_children_see_the_end_of_their_supervisor(stage: Stage, process: int) -> None:
    actor = stage.enters()
    actor.tell(owner=1)
    os.kill(process, signal.SIGKILL)
    assert actor.hears() == "eof"
    actor.exit(0)
