"""`queuety workflow signal`, `approve`, `reject`, `input`, and how waits are shown; on the three databases."""

from __future__ import annotations

import json

import pytest

from tests.support.cli import Project, done, refused, told

MODULE = """
from queuety import Queuety, step

app = Queuety()

@step
def work(state):
    return {}

two = app.workflow("two").wait_for_signals(["paid", "packed"], result_key="both", name="hold", timeout=3600)
approval = app.workflow("approval").wait_for_approval("agreed").then(work)
decision = app.workflow("decision").wait_for_decision("yes", "no")
asking = app.workflow("asking").wait_for_input("answer")
plain = app.workflow("plain").then(work)
hosted = app.workflow("hosted").wait_for_workflow("host")
"""


@pytest.fixture(autouse=True)
def waiting(project: Project) -> None:
    """The application has workflows that wait."""
    (project.folder / "shop.py").write_text(MODULE)


def start(name: str, payload: str = "{}") -> str:
    return str(told("workflow", "dispatch", name, "--payload", payload)["id"])


def state_of(workflow_id: str) -> object:
    return told("workflow", "status", workflow_id)["state"]


def test_signals_are_sent_until_the_wait_is_over(project: Project) -> None:
    run = start("two")
    assert done("workflow", "signal", run, "packed", '{"by": "Ada"}') == f"workflow {run} is waiting_for_signal\n"
    people = done("workflow", "status", run)
    assert "waiting for  all of the signals paid, packed\n" in people
    assert "there: packed\n" in people
    assert "missing: paid\n" in people
    assert "until 20" in people
    (project.folder / "paid.json").write_text('{"sum": 5}')
    assert told("workflow", "signal", run, "paid", "@paid.json") == {"id": int(run), "status": "completed"}
    assert state_of(run) == {"both": {"paid": {"sum": 5}, "packed": {"by": "Ada"}}}
    assert "waiting for" not in done("workflow", "status", run)


def test_nothing_is_missing_of_which_any_one_is_enough() -> None:
    people = done("workflow", "status", start("decision"))
    assert "waiting for  any of the signals yes, no\n" in people
    assert "missing" not in people


def test_a_failed_step_is_named(project: Project) -> None:
    (project.folder / "loop.json").write_text(
        '{"name": "loop", "steps": [{"name": "pause", "type": "delay", "seconds": 0}, {"name": "again",'
        ' "type": "repeat", "until": true, "target": "pause", "state_key": "done", "max_iterations": 1}]}'
    )
    run = str(told("workflow", "dispatch", "--definition", "loop.json")["id"])
    done("flush")
    people = done("workflow", "status", run)
    assert "failed step  1 again\n" in people


def test_data_may_come_by_option_and_from_stdin() -> None:
    run = start("two")
    done("workflow", "signal", run, "paid", "--data", '{"sum": 5}')
    done("workflow", "signal", run, "packed", "-", given='{"by": "Zoë"}')
    assert state_of(run) == {"both": {"paid": {"sum": 5}, "packed": {"by": "Zoë"}}}


@pytest.mark.parametrize(
    ("name", "verb", "state"),
    [
        ("approval", "approve", {"approval": {"n": 1}}),
        ("decision", "approve", {"decision": {"outcome": "approved", "signal": "yes", "data": {"n": 1}}}),
        ("decision", "reject", {"decision": {"outcome": "rejected", "signal": "no", "data": {"n": 1}}}),
        ("asking", "input", {"input": {"n": 1}}),
    ],
)
def test_people_answer_without_knowing_a_signals_name(name: str, verb: str, state: object) -> None:
    run = start(name)
    assert "answered by a person" in done("workflow", "status", run)
    done("workflow", verb, run, '{"n": 1}')
    assert state_of(run) == state


def test_a_name_may_be_given() -> None:
    run = start("decision")
    assert told("workflow", "approve", run, "--signal", "no", "--json")["status"] == "completed"
    assert state_of(run) == {"decision": {"outcome": "rejected", "signal": "no", "data": {}}}


def test_the_timeline_and_the_status_tell_of_waits_as_json() -> None:
    run = start("asking")
    status = told("workflow", "status", run)
    assert (status["wait_type"], status["waiting_for"], status["wait_mode"]) == ("signal", ["answer"], "all")
    assert status["wait_details"]["human_wait"] == "input"
    assert status == json.loads(done("workflow", "status", run, "--json"))
    done("workflow", "input", run)
    events = [event["event"] for event in told("workflow", "timeline", run)]
    assert events == ["workflow_waiting", "signal_received", "workflow_resumed"]


def test_a_wait_for_another_run_is_shown() -> None:
    host = start("asking")
    run = start("hosted", json.dumps({"host": int(host)}))
    assert f"waiting for  workflow {host}\n" in done("workflow", "status", run)
    assert told("workflow", "list", "--status", "waiting_for_workflows")[0]["wait_details"]["remaining"] == [host]


@pytest.mark.parametrize("arguments", [("signal", "9999", "go"), ("approve", "9999"), ("input", "9999")])
def test_an_unknown_id_is_a_no(arguments: tuple[str, ...]) -> None:
    start("plain")
    assert refused("workflow", *arguments, code=1) == "no workflow has the id 9999"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("go", "{"), "DATA is not valid JSON"),
        (("go", "[1]"), "DATA must be a mapping"),
        (("go", "--data", "5"), "--data must be a mapping"),
        (("go", "@nowhere.json"), "DATA from nowhere.json cannot be read"),
        (("go", "{}", "--data", "{}"), "say either DATA or --data, not both"),
        (("  ",), "name must not be empty"),
    ],
)
def test_bad_input_sends_nothing(arguments: tuple[str, ...], said: str) -> None:
    run = start("two")
    assert said in refused("workflow", "signal", run, *arguments, code=2)
    assert [event["event"] for event in told("workflow", "timeline", run)] == ["workflow_waiting"]
