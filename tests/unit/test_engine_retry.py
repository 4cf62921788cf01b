"""When a failed attempt is repeated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuety.engine.retry import backoff_seconds
from queuety.errors import DefinitionError
from tests.unit.reference import SECOND, World, flow, then


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (None, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600]),
        ("exponential", [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600]),
        ("linear", [5, 10, 15, 20]),
        ("fixed", [5, 5, 5]),
        ((1, 0.5, 30), [1, 0.5, 30, 30, 30]),
    ],
)
def test_backoff(backoff: str | tuple[float, ...] | None, expected: list[float]) -> None:
    assert [backoff_seconds(backoff, number) for number in range(1, len(expected) + 1)] == expected


@given(st.integers(1, 10**6), st.floats(0, 1))
def test_jitter_lengthens_by_its_share(failure: int, jitter: float) -> None:
    for name in ("exponential", "linear"):
        plain = backoff_seconds(name, failure)
        assert plain <= backoff_seconds(name, failure, jitter=jitter) <= plain * (1 + jitter) + 1e-6
        assert backoff_seconds(name, failure, jitter=0.1) == pytest.approx(plain * 1.1)


def test_jitter_leaves_exact_delays_alone() -> None:
    assert backoff_seconds("fixed", 2, jitter=1.0) == 5
    assert backoff_seconds((3.0,), 2, jitter=1.0) == 3


@pytest.mark.parametrize("backoff", ["quadratic", "", (), []])
def test_a_backoff_that_says_nothing_is_refused(backoff: str | tuple[float, ...]) -> None:
    with pytest.raises(DefinitionError, match="backoff="):
        backoff_seconds(backoff, 1)


def due_times(world: World) -> list[int]:
    return [due_us for _, _, due_us in world.open.values()]


def test_the_steps_own_backoff_counts_its_attempts() -> None:
    world = World(flow(then("a", backoff=(1.0, 30.0), max_attempts=4)))
    seen = []
    for _ in range(3):
        world.fail()
        seen += due_times(world)
    assert seen == [SECOND, 30 * SECOND, 30 * SECOND]
    world.fail()
    assert world.workflow.status == "failed"


def test_the_handlers_wish_wins_over_the_backoff_but_uses_up_an_attempt() -> None:
    world = World(flow(then("a", max_attempts=2)))
    world.fail(retry_after_us=0)
    assert due_times(world) == [0]
    world.fail(retry_after_us=5)
    assert (world.workflow.status, due_times(world)) == ("failed", [])


def test_a_final_failure_leaves_no_attempt() -> None:
    world = World(flow(then("a", max_attempts=9)))
    world.fail(is_final=True, retry_after_us=5)
    assert world.workflow.status == "failed"


def test_an_attempt_is_counted_by_the_job_not_by_the_definition() -> None:
    world = World(flow(then("a", max_attempts=1)))
    failure = world.failure()
    assert failure.job.max_attempts == 1
    world.tell(failure)
    assert world.workflow.status == "failed"
