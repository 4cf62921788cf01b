"""What a program gets wrong at the call: the same answer on every database, in words, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queuety import Queuety, errors, step

State = dict[str, Any]


@step
def work(state: State) -> None:
    pass


SEEING: dict[str, Callable[[Queuety, Any], Any]] = {
    "workflow_status": lambda app, given: app.workflow_status(given),
    "workflow_timeline": lambda app, given: app.workflow_timeline(given),
    "job_status": lambda app, given: app.job_status(given),
    "list_jobs": lambda app, given: app.list_jobs(workflow_id=given),
}
STEERING: dict[str, Callable[[Queuety, Any], Any]] = {
    "pause_workflow": lambda app, given: app.pause_workflow(given),
    "resume_workflow": lambda app, given: app.resume_workflow(given),
    "retry_workflow": lambda app, given: app.retry_workflow(given),
    "cancel_workflow": lambda app, given: app.cancel_workflow(given),
    "wait": lambda app, given: app.wait(given, timeout=0),
}


@pytest.mark.parametrize("verb", sorted(SEEING | STEERING))
@pytest.mark.parametrize("given", ["1", 1.0, True, b"1", [1], "own"], ids=repr)
def test_an_id_that_is_no_number_is_refused(app: Queuety, verb: str, given: Any) -> None:
    run = app.workflow("w").then(work).dispatch()
    given = str(run) if given == "own" else given
    with pytest.raises(errors.DefinitionError, match="the whole number that a dispatch gave back is needed"):
        (SEEING | STEERING)[verb](app, given)
    found = app.workflow_status(run)
    assert found is not None
    assert found.status == "running"


@pytest.mark.parametrize("given", [0, -1, 1 << 62, 1 << 63, -(1 << 80), 10**30])
def test_a_number_that_no_run_has_is_an_unknown_id(app: Queuety, given: int) -> None:
    app.workflow("w").then(work).dispatch()
    assert [bool(see(app, given)) for see in SEEING.values()] == [False] * len(SEEING)
    for steered in STEERING.values():
        with pytest.raises(errors.NotFoundError, match=f"no workflow has the id {given}"):
            steered(app, given)


@pytest.mark.parametrize("given", [work, "w", None, {"name": "w"}], ids=["step", "name", "none", "mapping"])
def test_what_is_no_builder_is_refused(app: Queuety, given: Any) -> None:
    with pytest.raises(errors.DefinitionError, match="is no workflow; give what workflow"):
        app.dispatch_workflow(given)
    with pytest.raises(errors.DefinitionError, match="is no workflow; give what workflow"):
        app.dispatch_many(given, [{}])


def test_the_wrong_one_of_many_payloads_is_named(app: Queuety) -> None:
    template = app.workflow("w").then(work)
    with pytest.raises(errors.PayloadError, match=r"^payloads\[2\]\.when: a set is not JSON"):
        app.dispatch_many(template, [{}, {}, {"when": {1}}])
    with pytest.raises(errors.PayloadError, match=r"^payloads\[1\]\._own: keys that start with _ are reserved"):
        app.dispatch_many(template, [{}, {"_own": 1}])
    assert app.list_workflows() == []


def test_a_workflow_that_is_dispatched_as_a_job_is_told_where_it_belongs(app: Queuety) -> None:
    with pytest.raises(errors.DefinitionError, match=r"<workflow 'w', 1 steps> is no job.*app\.dispatch_workflow"):
        app.dispatch(app.workflow("w").then(work))
