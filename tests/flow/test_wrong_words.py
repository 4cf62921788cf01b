"""Names and numbers that no database can be asked for, and values of a wrong type: one answer on all of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from queuety import Queuety, WorkflowFilter, errors, step
from queuety.inspect.queues import queue_states

State = dict[str, Any]
Verb = Callable[[Queuety, Any], Any]


@step
def work(state: State) -> None:
    pass


def queues_of(app: Queuety, name: Any) -> Any:
    with app.door.reading() as connection:
        return queue_states(connection, app.door.tables, [], queue=name)


NAMED: dict[str, Verb] = {
    "name": lambda app, given: app.list_workflows(name=given),
    "tag": lambda app, given: app.list_workflows(tag=given),
    "bulk": lambda app, given: app.pause_workflows(WorkflowFilter(name=given)),
    "diff": lambda app, given: app.workflow_diff(given),
    "migrate": lambda app, given: app.migrate_workflows(given, "12345678"),
    "logs": lambda app, given: app.logs(handler=given),
    "list_jobs": lambda app, given: app.list_jobs(given),
    "stats": lambda app, given: app.stats(given),
    "queues": queues_of,
}


def test_a_name_that_no_database_can_be_asked_for_is_refused(app: Queuety) -> None:
    for given in ("a\0b", "a\ud800"):
        for verb in (*NAMED.values(), lambda app, given: app.workflow_graph(given)):
            with pytest.raises(errors.DefinitionError, match="contains the character"):
                verb(app, given)


def test_a_name_that_is_no_text_is_refused(memory: Queuety) -> None:
    for verb in NAMED.values():
        with pytest.raises(errors.DefinitionError, match="=5: a text is needed"):
            verb(memory, 5)


COUNTED: dict[str, Verb] = {
    "timeline": lambda app, given: app.workflow_timeline(1, limit=given),
    "offset": lambda app, given: app.workflow_timeline(1, offset=given),
    "after_id": lambda app, given: app.workflow_timeline(1, after_id=given),
    "list_workflows": lambda app, given: app.list_workflows(limit=given),
    "before_id": lambda app, given: app.list_workflows(before_id=given),
    "list_jobs": lambda app, given: app.list_jobs(limit=given),
    "logs": lambda app, given: app.logs(limit=given),
    "diff": lambda app, given: app.workflow_diff("w", limit=given),
}


def test_a_number_that_no_database_can_be_asked_for_is_refused(app: Queuety) -> None:
    run = app.workflow("w").then(work).dispatch()
    for verb in COUNTED.values():
        with pytest.raises(errors.DefinitionError, match="a whole number of at most"):
            verb(app, 2**70)
    most = 10**18
    assert len(app.workflow_timeline(run, limit=most, offset=most, after_id=0)) == 0
    assert len(app.list_workflows(limit=most, before_id=most)) == len(app.list_jobs(limit=most)) == 1
    assert app.workflow_diff("w", limit=most).has_more_runs is False
    assert app.list_workflows(parent_id=2**70) == app.list_workflows(parent_id=2**63) == []
    assert app.pause_workflows(WorkflowFilter(parent_id=2**70)).done == []


FORM = {"name": "w", "steps": [{"type": "single", "name": "a", "handler": "not.here:a"}]}

WRONG: dict[str, Verb] = {
    "format": lambda app, run: app.workflow_graph(run, []),  # type: ignore[arg-type]
    "remove": lambda app, run: app.patch_state(run, remove=None),  # type: ignore[arg-type]
    "keys": lambda app, run: app.patch_state(run, remove=[[]]),  # type: ignore[list-item]
    "folder": lambda app, _: app.load_workflows(None),  # type: ignore[arg-type]
    "file": lambda app, _: app.load_workflow_file(None),  # type: ignore[arg-type]
    "event": lambda app, _: app.logs(event=[]),  # type: ignore[arg-type]
    "statuses": lambda app, _: app.purge_workflows(1, statuses=5),  # type: ignore[arg-type]
    "status": lambda app, _: app.purge_workflows(1, statuses=[[]]),  # type: ignore[list-item]
    "ids": lambda app, _: app.migrate_workflows("w", "12345678", ids=5),  # type: ignore[arg-type]
    "from": lambda app, _: app.workflow_diff("w", from_=5),  # type: ignore[arg-type]
    "step_map": lambda app, _: app.workflow_diff("w", step_map=5),  # type: ignore[arg-type]
    "queues": lambda app, _: app.worker(5),  # type: ignore[arg-type]
    "tags": lambda app, _: app.dispatch_definition(FORM, tags=5),  # type: ignore[arg-type]
}


def test_what_is_of_a_wrong_type_is_refused_in_words(memory: Queuety) -> None:
    run = memory.workflow("w").then(work).dispatch()
    for what, verb in WRONG.items():
        with pytest.raises(errors.DefinitionError) as told:
            verb(memory, run)
        assert "TypeError" not in str(told.value), what


def test_a_dispatch_that_is_refused_names_no_run(memory: Queuety) -> None:
    few = memory.workflow("m").for_each("items", work).max_for_each_items(3)
    with pytest.raises(errors.ConstraintViolation, match=r"^workflow 'm' may have at most max_for_each_items=3; the"):
        few.dispatch({"items": [1, 2, 3, 4]})
    small = memory.workflow("m").then(work).max_state_bytes(5)
    with pytest.raises(errors.ConstraintViolation, match=r"^workflow 'm' may have at most max_state_bytes=5; its"):
        small.dispatch({"items": [1, 2, 3, 4]})


def test_python_m_is_the_command_line() -> None:
    told = subprocess.run([sys.executable, "-m", "queuety", "--version"], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")
    assert "queuety" in told.stdout
