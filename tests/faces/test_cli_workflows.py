"""`queuety workflow …` and `queuety flush`, on the three databases."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import datetime, timedelta

import pytest

from queuety import WorkflowState
from queuety.inspect.timeline import TimelineEvent
from tests.support.cli import Project, done, refused, told

pytestmark = pytest.mark.usefixtures("project")


def start(*arguments: str) -> int:
    """The id of a run that was dispatched."""
    workflow_id: int = told("workflow", "dispatch", *arguments)["id"]
    return workflow_id


def test_a_run_from_its_dispatch_to_its_end() -> None:
    workflow_id = start("greeting", "--payload", '{"name": "Ada"}')
    assert told("workflow", "status", str(workflow_id))["status"] == "running"

    assert told("flush") == {"ran": 2}

    run = told("workflow", "status", str(workflow_id))
    assert list(run) == [field.name for field in fields(WorkflowState)]
    assert (run["status"], run["name"]) == ("completed", "greeting")
    assert run["state"] == {"name": "Ada", "greeting": "Hello Ada"}
    assert datetime.fromisoformat(run["completed_at"]).utcoffset() == timedelta(0)
    people = done("workflow", "status", str(workflow_id))
    assert f"workflow {workflow_id}  greeting" in people
    assert "Hello Ada" in people
    assert " UTC (" in people


def test_a_dispatch_says_the_id_to_people() -> None:
    assert done("workflow", "dispatch", "greeting").startswith("workflow ")


@pytest.mark.parametrize(
    ("target", "name"), [("shop:slow", "slow"), ("shop:building", "built"), ("shop:alone", "alone")]
)
def test_a_builder_or_a_function_that_returns_one_may_be_named(target: str, name: str) -> None:
    assert told("workflow", "status", str(start(target)))["name"] == name


def test_a_key_starts_one_run(project: Project) -> None:
    assert start("greeting", "--key", "k") == start("greeting", "--key", "k")
    assert start("greeting", "--key", "other") != start("greeting", "--key", "k")
    definition = project.folder / "definition.json"
    definition.write_text(
        json.dumps({"name": "greeting", "steps": [{"type": "single", "name": "0", "handler": "shop:fetch"}]})
    )
    assert start("--definition", str(definition), "--key", "k") == start("greeting", "--key", "k")


def test_a_definition_is_read_from_a_file_or_stdin(project: Project) -> None:
    steps = [{"type": "single", "name": name, "handler": f"shop:{name}"} for name in ("fetch", "greet")]
    definition = json.dumps({"name": "greeting", "steps": steps})
    (project.folder / "greeting.json").write_text(definition)
    (project.folder / "payload.json").write_text('{"name": "Zoë"}')

    from_file = start("--definition", "greeting.json", "--payload", "@payload.json")
    out = done("workflow", "dispatch", "--definition", "-", "--format", "json", given=definition)
    from_stdin = json.loads(out)["id"]
    done("flush")

    assert told("workflow", "status", str(from_file))["state"]["greeting"] == "Hello Zoë"
    assert told("workflow", "status", str(from_stdin))["state"]["greeting"] == "Hello nobody"


def test_a_list_is_newest_first_and_filtered() -> None:
    ids = [start("greeting"), start("slow"), start("greeting", "--payload", '{"name": "Eve"}')]
    done("flush")
    assert [run["id"] for run in told("workflow", "list")] == ids[::-1]
    assert [run["id"] for run in told("workflow", "list", "--limit", "1")] == ids[2:]
    assert [run["id"] for run in told("workflow", "list", "--status", "failed")] == ids[2:]
    assert [run["id"] for run in told("workflow", "list", "--name", "slow")] == ids[1:2]
    assert told("workflow", "list", "--parent", str(ids[0])) == []
    title, *rows = done("workflow", "list").splitlines()
    assert title.split() == ["id", "status", "name", "step", "created", "(UTC)"]
    assert [row.split()[:4] for row in rows] == [
        [str(ids[2]), "failed", "greeting", "1/2"],
        [str(ids[1]), "running", "slow", "0/2"],
        [str(ids[0]), "completed", "greeting", "2/2"],
    ]


def test_pause_resume_and_cancel() -> None:
    workflow_id = str(start("greeting"))
    assert told("workflow", "pause", workflow_id) == {"id": int(workflow_id), "status": "paused"}
    assert told("flush") == {"ran": 1}, "the step that it stands at is finished, and no other begins"
    assert done("workflow", "resume", workflow_id) == f"workflow {workflow_id} is running\n"
    assert done("workflow", "cancel", workflow_id) == f"workflow {workflow_id} is cancelled\n"
    assert "cleaning up  pending" in done("workflow", "status", workflow_id)
    done("flush")
    assert told("workflow", "status", workflow_id)["compensation_status"] == "completed"
    assert "shop:sweep" in {job["handler"] for job in told("list", "--workflow", workflow_id, "--cleanup")}
    assert "shop:sweep" not in {job["handler"] for job in told("list", "--workflow", workflow_id)}


def test_a_failed_run_is_shown_and_retried() -> None:
    workflow_id = str(start("greeting", "--payload", '{"name": "Eve"}'))
    done("flush")
    people = done("workflow", "status", workflow_id)
    assert "StepFailed" in people
    assert "no greeting for [bold]Eve[/bold]\\x1b[2J\n" in people
    assert "second line" in people
    assert "\x1b" not in people

    assert told("workflow", "retry", workflow_id)["status"] == "running"
    done("flush")
    assert told("workflow", "status", workflow_id)["status"] == "failed"


def test_the_timeline_tells_what_happened() -> None:
    workflow_id = str(start("greeting", "--payload", '{"name": "Eve"}'))
    done("flush")
    events = told("workflow", "timeline", workflow_id)
    assert list(events[0]) == [field.name for field in fields(TimelineEvent)]
    assert [event["event"] for event in events] == ["step_started", "step_completed", "step_started", "step_failed"]
    assert told("workflow", "timeline", workflow_id, "--offset", "1", "--limit", "2") == events[1:3]
    people = done("workflow", "timeline", workflow_id)
    assert '{"name": "Eve"}' in people
    assert "no greeting for [bold]Eve[/bold]\\x1b[2J second line" in people
    assert done("workflow", "timeline", str(start("greeting"))) == "no events\n"


@pytest.mark.parametrize("verb", ["status", "timeline", "pause", "resume", "retry", "cancel"])
def test_an_unknown_id_is_a_no(verb: str) -> None:
    assert refused("workflow", verb, "123456789", code=1) == "no workflow has the id 123456789"


def test_a_status_that_forbids_it_is_a_no() -> None:
    workflow_id = str(start("greeting"))
    for verb in ("resume", "retry"):
        message = refused("workflow", verb, workflow_id, code=1)
        assert f"workflow {workflow_id} is" in message
        assert "running" in message


def test_the_id_of_a_job_is_told_from_that_of_a_workflow() -> None:
    job_id = told("dispatch", "shop:mail", "--payload", '{"to": "me"}')["id"]
    message = refused("workflow", "status", str(job_id), code=1)
    assert message == f"{job_id} is a job and no workflow; see `queuety inspect {job_id}`"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("greeting", "--payload", "{"), "--payload is not valid JSON"),
        (("greeting", "--payload", "[1]"), "--payload must be a mapping"),
        (("greeting", "--payload", '{"a": NaN}'), "NaN is not JSON"),
        (("greeting", "--payload", '{"a": 1, "a": 2}'), "twice"),
        (("greeting", "--payload", '{"_a": 1}'), "_a"),
        (("greeting", "--payload", "@nowhere.json"), "--payload from nowhere.json cannot be read"),
        (("greeting", "--key", ""), "idempotency_key"),
        (("nothing",), "shop has no workflow named 'nothing'; it has greeting, slow"),
        (("shop:nothing",), "module shop has no nothing"),
        (("shop:fetch",), "shop:fetch is a handler"),
        (("shop:app",), "shop:app is an object of type Queuety"),
        ((), "say either TARGET or --definition FILE"),
        (("greeting", "--definition", "x.json"), "say either TARGET or --definition FILE"),
        (("--definition", "nowhere.json"), "--definition from nowhere.json cannot be read"),
        (("--definition", "-", "--payload", "-"), "cannot both be read from stdin"),
    ],
)
def test_bad_input_starts_nothing(arguments: tuple[str, ...], said: str) -> None:
    assert said in refused("workflow", "dispatch", *arguments, code=2)
    assert told("workflow", "list") == []


@pytest.mark.parametrize(
    "definition", ["{}", "[]", '{"name": "x", "steps": []}', '{"name": "x", "steps": [{"type": "?"}]}']
)
def test_a_definition_that_is_none_starts_nothing(definition: str) -> None:
    refused("workflow", "dispatch", "--definition", "-", code=2, given=definition)
    assert told("workflow", "list") == []


def test_input_that_is_no_text_is_refused() -> None:
    assert "no text in UTF-8" in refused("workflow", "dispatch", "greeting", "--payload", "-", code=2, given=b"\xff{}")
