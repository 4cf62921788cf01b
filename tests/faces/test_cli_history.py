"""`queuety workflow timeline`, `state-at`, `trace`, `queuety log` and the filters of `workflow list`."""

from __future__ import annotations

from dataclasses import fields

import pytest

from queuety.inspect.events import TimelineEvent
from queuety.inspect.logged import LogRow
from tests.support.cli import Project, done, refused, told


def start(*arguments: str) -> int:
    """The id of a run that was dispatched."""
    workflow_id: int = told("workflow", "dispatch", *arguments)["id"]
    return workflow_id


@pytest.mark.usefixtures("project")
def test_a_failed_run_from_its_log_to_its_mending() -> None:
    """On each database: what failed, what the state was before, who mended it."""
    run = str(start("greeting", "--payload", '{"name": "Eve"}', "--tag", "vip"))
    done("flush")
    lines = told("log", "--workflow", run)
    assert list(lines[0]) == [field.name for field in fields(LogRow)]
    assert [line["event"] for line in lines] == [
        "workflow_started",
        "started",
        "completed",
        "started",
        "buried",
        "workflow_failed",
    ]
    assert told("log")[0] == lines[-1], "the newest first"
    assert told("log", "--event", "buried") == [lines[4]]
    assert told("log", "--handler", "shop:greet", "--limit", "1") == [lines[4]]
    assert told("log", "--job", str(lines[4]["job_id"])) == lines[3:5]
    assert told("log", "--since", "1h") == told("log", "--since", "1 h ago") == lines
    assert told("log", "--since", "2000-01-01T00:00:00+02:00", "--limit", "2") == lines[:2]
    assert told("log", "--since", "2999-12-31") == []

    assert told("workflow", "state-at", run, "0") == {"name": "Eve"}
    assert done("workflow", "state-at", run, "0") == '{"name": "Eve"}\n'
    no_state = refused("workflow", "state-at", run, "greet", code=1)
    assert no_state.startswith(f"no state of workflow {run} after step greet is recorded: the step has not settled")
    assert [each["id"] for each in told("workflow", "list", "--tag", "vip", "--newer-than", "1d")] == [int(run)]
    assert told("workflow", "list", "--error-kind", "StepFailed", "--older-than", "1h") == []

    done("workflow", "complete-step", run, '{"greeting": "Hi"}', "--actor", "Ada", "--reason", "by phone")
    assert told("workflow", "state-at", run, "greet") == {"name": "Eve", "greeting": "Hi"}
    events = told("workflow", "timeline", run)
    assert list(events[0]) == [field.name for field in fields(TimelineEvent)]
    assert (events[-1]["actor"], events[-1]["reason"]) == ("Ada", "by phone")
    assert told("workflow", "timeline", run, "--after", str(events[1]["id"])) == events[2:]
    people = done("workflow", "timeline", run).splitlines()
    assert people[0].split()[-1] == "by"
    assert people[-1].endswith("Ada: by phone")
    assert "by Ada: by phone" in done("log", "--workflow", run, "--event", "step_completed")


def test_a_trace_is_everything_as_json_and_a_summary_for_people(local: Project) -> None:
    run = str(start("greeting"))
    done("flush")
    bundle = told("workflow", "trace", run)
    assert (bundle["workflow"]["id"], len(bundle["events"]), len(bundle["jobs"])) == (int(run), 4, 2)
    assert "state_before" in bundle["events"][0]
    assert "state_before" not in told("workflow", "trace", run, "--no-states")["events"][0]
    people = done("workflow", "trace", run)
    assert f"workflow {run}  greeting" in people
    assert "shop:greet" in people
    assert refused("workflow", "trace", "999", code=1) == "no workflow has the id 999"
    assert refused("workflow", "state-at", "999", "0", code=1) == "no workflow has the id 999"


def test_an_empty_log_says_so(local: Project) -> None:
    done("migrate")
    assert done("log") == "nothing is logged\n"
    job = told("dispatch", "shop:mail", "--payload", '{"to": "Ada"}')["id"]
    done("flush")
    assert [(line["event"], line["job_id"], line["workflow_id"]) for line in told("log")] == [
        ("completed", job, None),
        ("started", job, None),
    ]
    assert f"job {job}" in done("log")
    assert refused("workflow", "timeline", str(job), code=1).startswith(f"{job} is a job and no workflow")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("log", "--event", "gone"), "there is no log event 'gone'; there are started"),
        (("log", "--since", "soon"), "--since 'soon': a moment such as"),
        (("log", "--since", "2026-13-45"), "--since '2026-13-45': a moment such as 2026-01-31T12:00"),
        (("workflow", "list", "--older-than", "old"), "--older-than 'old': a length of time is needed"),
    ],
)
def test_what_cannot_be_read_is_refused(local: Project, arguments: tuple[str, ...], said: str) -> None:
    done("migrate")
    assert refused(*arguments, code=2).startswith(said)


def test_a_status_shows_tags_and_what_has_been_used(local: Project) -> None:
    (local.folder / "limits.py").write_text(
        "from queuety import workflow\nfrom shop import fetch\n"
        "few = workflow('few').then(fetch).max_transitions(3).max_for_each_items(5)\n"
    )
    run = str(start("limits:few", "--tag", "b", "--tag", "a"))
    done("flush")
    people = done("workflow", "status", run)
    assert "  tags        a, b" in people
    assert "transitions: 1 of 3" in people
    assert "items of a for-each step: at most 5" in people
