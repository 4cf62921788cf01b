"""`queuety why` and `queuety workflow stream`; on the three databases."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from queuety import Queuety
from queuety.inspect.why import Why
from tests.support.cli import Project, done, queuety, refused, told

MODULE = """
from queuety import Queuety, StreamingStep, job, step

app = Queuety()

class Poem(StreamingStep):
    def stream(self, state, existing_chunks):
        yield from state["chunks"][len(existing_chunks):]

    def on_complete(self, chunks, state):
        return {"many": len(chunks)}

@job
def mail():
    return None

poem = app.workflow("poem").then(Poem)
held = app.workflow("held").then(Poem).wait_for_signal("go", step_name="hold").then(Poem)
"""


@pytest.fixture(autouse=True)
def streaming(project: Project) -> None:
    """The application has a workflow that streams."""
    (project.folder / "shop.py").write_text(MODULE)


def start(name: str, *chunks: object) -> str:
    return str(told("workflow", "dispatch", name, "--payload", json.dumps({"chunks": chunks}))["id"])


def test_why_answers_for_workflows_and_for_jobs() -> None:
    run, job = start("held"), str(told("dispatch", "shop:mail")["id"])
    assert done("why", job).startswith(f"Job {job} (shop:mail) has been ready for 0 s")
    assert f"Workflow {run} (held) stands at step '0'. Job " in done("why", run)
    done("flush")
    waits = f"Workflow {run} (held) waits at step 'hold' for the signal 'go'."
    assert done("why", run) == f"{waits} `queuety workflow signal {run} go` sends it.\n"
    found = told("why", run)
    assert list(found) == [field.name for field in fields(Why)]
    assert (found["kind"], found["status"], found["reason"]) == ("workflow", "waiting_for_signal", "waiting_for_signal")
    assert found["details"]["remaining"] == ["go"]
    assert told("why", job)["reason"] == "completed"
    assert json.loads(done("why", run, "--json")) == found


def test_why_of_nothing_is_a_no() -> None:
    start("poem")
    assert refused("why", "9999", code=1) == "no workflow and no job has the id 9999"


def test_text_is_written_as_it_was_yielded() -> None:
    run = start("poem", "Roses are ", "red,\n", "violets\tare \x1b[2Jblue", {"a": [1, "\x1b"]}, "\n", "the end")
    done("flush")
    assert done("workflow", "stream", run) == (
        'Roses are red,\nviolets\tare \\x1b[2Jblue\n{"a": [1, "\\u001b"]}\n\nthe end\n'
    )


def test_as_json_every_chunk_is_a_line() -> None:
    run = start("poem", "a\nb", {"n": 1}, None, "ü")
    done("flush")
    lines = done("workflow", "stream", run, "--json").splitlines()
    assert [json.loads(line) for line in lines] == ["a\nb", {"n": 1}, None, "ü"]


def test_a_run_that_yields_nothing_writes_nothing() -> None:
    run = start("poem")
    done("flush")
    assert done("workflow", "stream", run) == ""


def test_a_stream_of_a_run_that_waits_gives_up_in_time() -> None:
    run = start("held", "a", "b\n")
    done("flush")
    answer = queuety("workflow", "stream", run, "--timeout", "0.05")
    assert (answer.code, answer.out) == (1, "ab\n")
    assert f"workflow {run} has yielded nothing for 0.05 s" in answer.err


def test_progress_is_shown_while_a_step_runs(project: Project) -> None:
    run = start("poem")
    with Queuety(project.url) as app:
        jobs = app.door.tables.jobs
        running = {"phase": "leased", "progress": '{"pages":3}', "owner": 7, "wake_us": 10**16, "started_us": 1}
        app.door.write(lambda tx: tx.connection.execute(jobs.update().values(**running)))
    assert 'progress    {"pages": 3}\n' in done("workflow", "status", run)
    assert told("workflow", "status", run)["progress"] == {"pages": 3}
    (job,) = told("list", "--workflow", run)
    assert '{"pages": 3}' in done("inspect", str(job["id"]))
    assert told("why", run)["details"]["because"]["details"]["progress"] == {"pages": 3}


def test_the_stream_of_nobody_is_a_no() -> None:
    job = str(told("dispatch", "shop:mail")["id"])
    assert "is a job and no workflow" in refused("workflow", "stream", job, code=1)
    assert refused("workflow", "stream", "9999", code=1) == "no workflow has the id 9999"
