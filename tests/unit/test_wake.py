"""What ends a sleeping worker's wait."""

from __future__ import annotations

import threading

from queuety.worker.wake import ECHOES_S, News, Wakes

LONG_S = 30.0


def test_a_ring_ends_the_wait_and_a_tell_says_that_the_database_has_changed() -> None:
    wakes = Wakes(idle_poll_s=LONG_S)
    wakes.ring()
    assert wakes.wait(LONG_S) == News(is_rung=True, is_foreign=False)
    threading.Thread(target=wakes.tell).start()
    assert wakes.wait(LONG_S) == News(is_rung=True, is_foreign=True)
    assert wakes.wait(0) == News(is_rung=False, is_foreign=False)


def test_after_a_file_has_changed_the_database_is_asked_again_since_the_change_comes_before_the_commit() -> None:
    mark = [0]
    wakes = Wakes(idle_poll_s=LONG_S, mark=lambda: mark[0])
    assert not wakes.wait(0).is_rung
    mark[0] = 1
    for _ in (0.0, *ECHOES_S):
        assert wakes.wait(LONG_S) == News(is_rung=True, is_foreign=True)
    assert not wakes.wait(0).is_rung
