"""`queuety dispatch`, `list`, `inspect`, and the commands about queues, on the three databases."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime

import pytest

from queuety import JobState
from tests.support.cli import Project, done, refused, told

pytestmark = pytest.mark.usefixtures("project")

TO_ME = ("shop:mail", "--payload", '{"to": "me"}')


def add(*arguments: str) -> int:
    """The id of a job that was added."""
    job_id: int = told("dispatch", *arguments)["id"]
    return job_id


def test_a_job_from_its_dispatch_to_its_end() -> None:
    job_id = add(*TO_ME, "--queue", "letters", "--priority", "high", "--max-attempts", "7")
    job = told("inspect", str(job_id))
    assert list(job) == [*(field.name for field in fields(JobState)), "history"]
    assert (job["queue"], job["priority"], job["max_attempts"], job["status"]) == ("letters", 2, 7, "pending")
    assert job["payload"] == {"to": "me"}
    assert job["history"] == []

    assert done("flush", "--queue", "other") == "0 handlers ran\n"
    assert done("flush", "--queue", "other,letters") == "1 handler ran\n"

    job = told("inspect", str(job_id))
    assert job["status"] == "completed"
    assert [attempt["error"] for attempt in job["history"]] == [None]
    people = done("inspect", str(job_id))
    assert f"job {job_id}\n" in people
    assert "priority   high" in people
    assert "attempts   1 of 7" in people


def test_a_job_that_failed_shows_why() -> None:
    job_id = str(add("shop:mail", "--payload", '{"to": "nobody"}', "--max-attempts", "1"))
    done("flush")
    people = done("inspect", job_id)
    assert "buried" in people
    assert "nobody has no address" in people
    assert "ValueError: nobody has no address" in people.splitlines()[-1]
    assert told("inspect", job_id)["history"][0]["error"]["class"].endswith("ValueError")


def test_a_delay_puts_it_off() -> None:
    job = told("inspect", str(add(*TO_ME, "--delay", "3600")))
    waits = datetime.fromisoformat(job["available_at"]) - datetime.fromisoformat(job["created_at"])
    assert round(waits.total_seconds()) == 3600
    assert done("flush") == "0 handlers ran\n"
    assert "UTC (in " in done("inspect", str(job["id"]))


@pytest.mark.parametrize(("said", "priority"), [("low", 0), ("Normal", 1), ("2", 2), ("urgent", 3)])
def test_a_priority_has_a_name_and_a_number(said: str, priority: int) -> None:
    assert told("inspect", str(add(*TO_ME, "--priority", said)))["priority"] == priority


def test_a_payload_is_read_from_a_file_or_stdin(project: Project) -> None:
    (project.folder / "payload.json").write_text('{"to": "from a file"}')
    job_id = add("shop:mail", "--payload", "@payload.json")
    assert told("inspect", str(job_id))["payload"] == {"to": "from a file"}
    said = done("dispatch", "shop:mail", "--payload", "-", given='{"to": "from stdin"}')
    assert told("inspect", said.split()[1])["payload"] == {"to": "from stdin"}


def test_a_list_is_newest_first_and_filtered() -> None:
    ids = [add(*TO_ME), add(*TO_ME, "--queue", "letters"), add(*TO_ME)]
    done("flush", "--queue", "letters")
    assert [job["id"] for job in told("list")] == ids[::-1]
    assert [job["id"] for job in told("list", "--limit", "2")] == ids[:0:-1]
    assert [job["id"] for job in told("list", "--queue", "letters")] == ids[1:2]
    assert [job["id"] for job in told("list", "--status", "completed")] == ids[1:2]
    assert told("list", "--workflow", str(ids[0])) == []
    title, *rows = done("list").splitlines()
    assert title.split() == ["id", "status", "queue", "handler", "tries", "created", "(UTC)"]
    assert rows[1].split()[:5] == [str(ids[1]), "completed", "letters", "shop:mail", "1/3"]
    assert done("list", "--queue", "empty") == "no jobs\n"


def test_the_jobs_of_a_run() -> None:
    workflow_id = str(told("workflow", "dispatch", "greeting")["id"])
    done("flush")
    assert [job["handler"] for job in told("list", "--workflow", workflow_id)] == ["shop:greet", "shop:fetch"]


def test_an_unknown_id_is_a_no() -> None:
    assert refused("inspect", "123456789", code=1) == "no job has the id 123456789"
    workflow_id = str(told("workflow", "dispatch", "greeting")["id"])
    message = refused("inspect", workflow_id, code=1)
    assert message == f"{workflow_id} is a workflow and no job; see `queuety workflow status {workflow_id}`"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("shop:mail", "--payload", "{"), "--payload is not valid JSON"),
        (("shop:mail", "--payload", "null"), "--payload must be a mapping"),
        (("shop:mail", "--payload", '{"who": "me"}'), "to"),
        (("shop:mail",), "to"),
        (("shop:fetch", "--payload", "{}"), "shop:fetch is a step"),
        (("shop:nothing",), "module shop has no nothing"),
        (("nothing",), "nothing"),
        ((*TO_ME, "--priority", "4"), "--priority '4': low, normal, high, urgent, or 0 to 3 is needed"),
        ((*TO_ME, "--delay", "-1"), "delay"),
        ((*TO_ME, "--delay", "nan"), "delay"),
        ((*TO_ME, "--delay", "soon"), "--delay"),
        ((*TO_ME, "--max-attempts", "0"), "max_attempts"),
        ((*TO_ME, "--queue", ""), "queue"),
        ((*TO_ME, "--queue", "a\nb"), "queue"),
    ],
)
def test_bad_input_adds_nothing(arguments: tuple[str, ...], said: str) -> None:
    assert said in refused("dispatch", *arguments, code=2)
    assert told("list") == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--status", "sleeping"),
        ("list", "--limit", "0"),
        ("list", "--format", "xml"),
        ("inspect", "one"),
        ("inspect", "0"),
        ("inspect", str(2**63)),
        ("inspect",),
        ("list", "--nonsense"),
        ("nonsense",),
        ("flush", "--queue", ","),
        ("pause", ""),
    ],
)
def test_wrong_usage_is_one_line(arguments: tuple[str, ...]) -> None:
    refused(*arguments, code=2)


def test_status_counts_what_stands_in_each_queue() -> None:
    add(*TO_ME)
    add(*TO_ME, "--delay", "60")
    add("shop:mail", "--payload", '{"to": "nobody"}', "--queue", "letters", "--max-attempts", "1")
    done("flush", "--queue", "letters")
    found = told("status")
    assert found["workers"] == []
    nothing = {"delayed": 0, "suspects": 0, "processing": 0, "workers": 0, "is_paused": False}
    assert found["queues"] == [
        {"queue": "default", "ready": 1, "buried": 0, **nothing, "delayed": 1},
        {"queue": "letters", "ready": 0, "buried": 1, **nothing},
    ]
    assert [queue["queue"] for queue in told("status", "--queue", "letters")["queues"]] == ["letters"]
    title, default, letters, _, workers = done("status").splitlines()
    assert title.split() == ["queue", "ready", "delayed", "processing", "buried", "workers"]
    assert default.split() == ["default", "1", "1", "0", "0", "0"]
    assert letters.split() == ["letters", "0", "0", "0", "1", "0"]
    assert workers == "no worker is alive"


def test_a_paused_queue_stands_still_until_it_is_resumed() -> None:
    add(*TO_ME)
    assert done("pause", "default") == "queue default is paused\n"
    assert told("flush") == {"ran": 0}
    assert told("status")["queues"][0]["is_paused"] is True
    assert done("status").splitlines()[1].endswith("paused")
    assert done("resume", "default") == "queue default goes on\n"
    assert told("flush") == {"ran": 1}


def test_recover_says_how_many() -> None:
    assert told("recover") == {"recovered": 0}
    assert done("recover") == "0 jobs were taken back\n"
