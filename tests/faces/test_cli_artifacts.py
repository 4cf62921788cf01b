"""What runs put aside, and what goes by age, from the command line; on the three databases where they matter."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from queuety.cli.root import root
from tests.support.cli import Project, done, refused, told

MODULE = """
from datetime import UTC, datetime
from queuety import Queuety, current, job, step
from queuety.testing import ManualClock

clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
app = Queuety(clock=clock)

@step
def draws(state):
    current().put_artifact("picture", b"\\x89PNG\\x00\\xff", kind="binary", metadata={"by": "Ada"})
    current().put_artifact("report", {"pages": [1, 2], "title": "\\x1b[2J"})

@job
def quick():
    pass

@job(max_attempts=1)
def sinks():
    raise ValueError("no")

drawing = app.workflow("drawing").then(draws)
late = app.workflow("late").wait_for_signal("go").must_complete_within(hours=1)
"""


@pytest.fixture(autouse=True)
def shop(request: pytest.FixtureRequest) -> None:
    """The application draws."""
    name = "project" if "project" in request.fixturenames else "local"
    project: Project = request.getfixturevalue(name)
    (project.folder / "shop.py").write_text(MODULE)


def start(name: str = "drawing") -> str:
    return str(told("workflow", "dispatch", name)["id"])


def test_artifacts_are_listed_and_shown(project: Project) -> None:
    run = start()
    assert done("workflow", "artifacts", run) == "no artifacts\n"
    done("flush")
    listed = done("workflow", "artifacts", run)
    assert [line.split()[:3] for line in listed.splitlines()[1:]] == [
        ["picture", "binary", "0"],
        ["report", "json", "0"],
    ]
    assert "6 bytes" in done("workflow", "artifacts", run, "--with-content")
    assert "\x1b" not in done("workflow", "artifacts", run, "--with-content")
    picture, report = told("workflow", "artifacts", run)
    assert (picture["key"], picture["metadata"], picture["step_index"]) == ("picture", {"by": "Ada"}, 0)
    assert "content" not in report
    picture, report = told("workflow", "artifacts", run, "--with-content")
    assert (picture["encoding"], picture["content"]) == ("base64", "iVBORwD/")
    assert (report["encoding"], report["content"]) == ("json", {"pages": [1, 2], "title": "\x1b[2J"})
    assert told("workflow", "artifact", run, "report") == report
    people = done("workflow", "artifact", run, "picture")
    assert 'metadata  {"by": "Ada"}\n' in people
    assert "content   6 bytes; --output FILE writes them to a file\n" in people
    assert "\x1b" not in done("workflow", "artifact", run, "report")
    assert told("workflow", "status", run)["artifact_keys"] == ["picture", "report"]


def test_the_content_is_written_as_it_is(local: Project, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    run = start()
    done("flush")
    assert done("workflow", "artifact", run, "picture", "-o", "p.png") == "6 bytes were written to p.png\n"
    assert Path("p.png").read_bytes() == b"\x89PNG\x00\xff"
    assert "p.png is there already" in refused("workflow", "artifact", run, "picture", "-o", "p.png", code=2)
    done("workflow", "artifact", run, "report", "-o", "p.png", "--force")
    assert json.loads(Path("p.png").read_text()) == {"pages": [1, 2], "title": "\x1b[2J"}
    assert "cannot be written" in refused("workflow", "artifact", run, "report", "-o", "no/where", code=2)
    assert "--force goes with" in refused("workflow", "artifact", run, "report", "--force", code=2)
    with pytest.raises(SystemExit):
        root(["workflow", "artifact", run, "picture", "--output", "-"], prog_name="queuety")
    assert capfdbinary.readouterr().out == b"\x89PNG\x00\xff"


def test_artifacts_are_put_and_deleted(local: Project) -> None:
    run = start()
    put = ("workflow", "put-artifact", run)
    assert done(*put, "a", '{"n": [1]}') == f"workflow {run} has the artifact a\n"
    assert told(*put, "b", "hello", "--kind", "text", "--step", "0", "--metadata", '{"x": 1}') == {
        "id": int(run),
        "key": "b",
    }
    (local.folder / "raw").write_bytes(b"\xff\x00")
    (local.folder / "page").write_text("# ü\n")
    done(*put, "c", "@raw", "--kind", "binary")
    done(*put, "d", "@raw", "--kind", "pdf")
    done(*put, "e", "@page", "--kind", "markdown")
    done(*put, "f", "@page", "--kind", "binary")
    done(*put, "g", "-", given="[true]")
    found = {one["key"]: one for one in told("workflow", "artifacts", run, "--with-content")}
    assert {key: (one["encoding"], one["content"]) for key, one in found.items()} == {
        "a": ("json", {"n": [1]}),
        "b": ("text", "hello"),
        "c": ("base64", "/wA="),
        "d": ("base64", "/wA="),
        "e": ("text", "# ü\n"),
        "f": ("base64", "IyDDvAo="),
        "g": ("json", [True]),
    }
    assert (found["b"]["metadata"], found["b"]["step_index"]) == ({"x": 1}, 0)
    for _ in range(2):
        assert done("workflow", "delete-artifact", run, "a") == f"workflow {run} has no artifact a\n"
    assert refused("workflow", "artifact", run, "a", code=1) == f"workflow {run} has no artifact 'a'"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("k", "{"), "CONTENT is not valid JSON"),
        (("k", "NaN"), "CONTENT is not valid JSON"),
        (("k", "@nowhere"), "CONTENT from nowhere cannot be read"),
        (("k", "@raw"), "CONTENT from raw is no text in UTF-8"),
        (("k", "@raw", "--kind", "text"), "CONTENT from raw is no text in UTF-8"),
        ((" ", "1"), "key must not be empty"),
        (("k", "1", "--kind", " "), "kind must not be empty"),
        (("k", "1", "--metadata", "[]"), "--metadata must be a mapping"),
        (("k", "-", "--metadata", "-"), "cannot both be read from stdin"),
    ],
)
def test_bad_input_keeps_nothing(local: Project, arguments: tuple[str, ...], said: str) -> None:
    (local.folder / "raw").write_bytes(b"\xff\x00")
    run = start()
    assert said in refused("workflow", "put-artifact", run, *arguments, code=2)
    assert told("workflow", "artifacts", run) == []


@pytest.mark.parametrize(
    "arguments", [("artifacts",), ("artifact", "k"), ("put-artifact", "k", "1"), ("delete-artifact", "k")]
)
def test_an_unknown_run_is_a_no(local: Project, arguments: tuple[str, ...]) -> None:
    start()
    command, *more = arguments
    assert refused("workflow", command, "9999", *more, code=1) == "no workflow has the id 9999"


def test_what_is_old_is_deleted_when_it_is_asked_for(project: Project) -> None:
    told("dispatch", "shop:quick")
    told("dispatch", "shop:quick")
    told("dispatch", "shop:sinks")
    runs = [start(), start()]
    done("flush")
    sys.modules["shop"].clock.advance(seconds=1)
    assert done("purge") == "0 jobs were deleted\n"
    assert done("purge", "--older-than", "1h") == "0 jobs were deleted\n"
    assert told("purge", "--older-than", "0") == {"purged": 2}
    assert done("purge", "--older-than", "0s", "--status", "buried") == "1 job was deleted\n"
    assert {one["handler"] for one in told("list")} == {"shop:draws"}
    assert done("log", "purge", "--older-than", "1") == "0 rows of history were deleted\n"
    assert told("log", "purge", "--older-than", "0d") == {"pruned": 2}
    assert told("workflow", "timeline", runs[0]) == []
    purging = ("workflow", "purge", "--older-than", "0")
    assert done("workflow", "purge", "--older-than", "7") == "0 workflows were deleted\n", "a bare number is days"
    assert done(*purging, "--dry-run") == "2 workflows would be deleted\n"
    assert told(*purging, "--status", "failed", "--dry-run") == {"would_purge": 0}
    assert told(*purging, "--status", "failed", "--status", "completed") == {"purged": 2}
    assert told("workflow", "list") == []


def test_deadlines_are_checked(project: Project) -> None:
    start()
    late = start("late")
    assert told("check-deadlines") == {"failed": 0}
    sys.modules["shop"].clock.advance(hours=1)
    assert done("check-deadlines") == "1 workflow has failed by its deadline\n"
    assert told("workflow", "status", late)["error_kind"] == "DeadlineExceeded"
    assert done("check-deadlines") == "0 workflows have failed by their deadline\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("purge", "--older-than", "old"), "--older-than 'old': a length of time is needed"),
        (("purge", "--older-than", "-1"), "a length of time is needed"),
        (("purge", "--status", "pending"), "'pending' is not one of completed, buried"),
        (("workflow", "purge"), "Missing option '--older-than'"),
        (("workflow", "purge", "--older-than", "1", "--status", "paused"), "'paused' is not one of completed, failed"),
        (("log", "purge"), "Missing option '--older-than'"),
    ],
)
def test_bad_input_deletes_nothing(local: Project, arguments: tuple[str, ...], said: str) -> None:
    start()
    done("flush")
    assert said in refused(*arguments, code=2)
    assert len(told("workflow", "list")) == 1
