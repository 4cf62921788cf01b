"""A signal that came long before it was used, and whose arrival was pruned meanwhile: what going back finds of it."""

from __future__ import annotations

from typing import Any

from queuety import Queuety, step
from queuety.testing import ManualClock
from tests.support.flowing import status_of
from tests.support.invariants import check


@step
def work(state: dict[str, Any]) -> dict[str, Any]:
    return {"done": state.get("done", 0) + 1}


def test_a_signal_whose_arrival_was_pruned_is_used_and_must_be_sent_again_after_a_rewind(
    app: Queuety, clock: ManualClock
) -> None:
    builder = app.workflow("w").then(work, "a").delay(days=9, step_name="later").wait_for_signal("go", "go", "wait")
    run = builder.then(work, "b").dispatch()
    app.signal(run, "go", {"n": 1})
    app.run_until_idle()
    clock.advance(days=5)
    assert app.prune_history(1) == 2  # that the signal came, and the first step
    clock.advance(days=5)
    app.run_until_idle()
    assert status_of(app, run).state == {"done": 2, "go": {"n": 1}}, "it was kept for the wait all the same"

    copy = app.fork_workflow(run, "wait")
    app.rewind_workflow(run, "later")
    app.run_until_idle()
    for each in (run, copy):
        assert status_of(app, each).status == "waiting_for_signal"
        assert app.why(each).reason == "waiting_for_signal"
        app.signal(each, "go", {"n": 2})
        app.run_until_idle()
        assert status_of(app, each).state == {"done": 2, "go": {"n": 2}}
    check(app.door)
