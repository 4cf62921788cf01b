"""`queuety workflow diff` and `queuety workflow migrate`."""

from __future__ import annotations

from dataclasses import fields

import pytest

from queuety.inspect.diff import WorkflowDiff
from queuety.inspect.diff_runs import RunMove
from tests.support.cli import Project, done, queuety, refused, told

SHOP = """
from queuety import Queuety, step

app = Queuety()

@step
def fetch(state):
    return {"fetched": True}

@step
def pack(state):
    return {"packed": True}

@step
def check(state):
    return {"checked": True}

old = app.workflow("order").then(fetch, "fetch").then(pack, "pack").version("1")

def newer(app):
    built = app.workflow("order").then(check, "check").then(fetch, "fetch", timeout=5)
    return built.then(pack, "wrap").on_queue("orders").version("2")
"""


@pytest.fixture(autouse=True)
def changed(local: Project) -> None:
    (local.folder / "shop.py").write_text(SHOP)


def start(count: int = 1) -> list[str]:
    return [str(told("workflow", "dispatch", "shop:old")["id"]) for _ in range(count)]


def version(run: str) -> str:
    label: str = told("workflow", "status", run)["definition_version"]
    return label


def test_the_difference_is_shown_before_anything_is_stored() -> None:
    run, other = start(2)
    found = told("workflow", "diff", "order", "--to", "shop:newer")
    assert list(found) == [field.name for field in fields(WorkflowDiff)]
    assert list(found["runs"][0]) == [field.name for field in fields(RunMove)]
    assert [one["version"] for one in found["versions"]] == ["2", "1"]
    assert found["changes"][0]["step_map"] == {"pack": "wrap"}
    assert [(str(one["workflow_id"]), one["verdict"]) for one in found["runs"]] == [(run, "safe"), (other, "safe")]
    assert [one["version"] for one in told("workflow", "diff", "order")["versions"]] == ["1"], "nothing was stored"

    lines = [line.split() for line in done("workflow", "diff", "order", "--to", "shop:newer").splitlines()]
    assert ["2", found["target"][:12], "not", "stored", "0", "to", "this", "one"] in lines
    assert ["options", "queue:", "-", "→", '"orders"'] in lines
    assert ["added", "check", "(0)"] in lines
    assert ["changed", "fetch", "(0", "→", "1)", "timeout:", "-", "→", "5"] in lines
    assert ["maybe", "renamed", "pack", "→", "wrap", "(1", "→", "2)"] in lines
    assert ["if", "these", "were", "renamed,", "say", "--step-map", "pack=wrap"] in lines
    assert [line[0] for line in lines if line[1:2] == ["running"]] == [run, other]
    mapped = done("workflow", "diff", "order", "--to", "shop:newer", "--step-map", "pack=wrap")
    assert "maybe" not in mapped
    assert "renamed" in mapped


def test_a_run_is_moved_and_moved_back() -> None:
    (run,) = start()
    there = "step 'fetch' starts over in a new visit: it has moved from 0 to 1; it is past step 'check', new there"
    said = done("workflow", "migrate", run, "--to", "shop:newer", "--dry-run")
    assert said == f"workflow {run} could be moved: {there}\n"
    assert version(run) == "1"
    said = done("workflow", "migrate", run, "--to", "shop:newer", "--reason", "check is needed", "--actor", "ann")
    assert said == f"workflow {run} was moved: {there}\n"
    assert version(run) == "2"
    first = told("workflow", "diff", "order", "--to", "1")["target"]
    done("workflow", "migrate", run, "--to", first[:10])
    assert version(run) == "1"
    assert told("flush") == {"ran": 2}


def test_a_step_that_is_gone_asks_for_a_map() -> None:
    (run,) = start()
    done("workflow", "pause", run)
    done("flush")
    done("workflow", "resume", run)
    said = refused("workflow", "migrate", run, "--to", "shop:newer", code=1)
    assert said.startswith(f"workflow {run} ('order') cannot be moved to definition ")
    assert "needs_map: there is no step 'pack' (step 'wrap' does the same)" in said
    assert done("workflow", "migrate", run, "--to", "shop:newer", "--step-map", "pack=wrap").startswith(
        f"workflow {run} was moved: step 'pack' (there 'wrap') starts over"
    )


def test_all_open_runs_are_moved_and_the_others_told_of() -> None:
    runs = start(4)
    done("workflow", "cancel", runs[0])
    plan = told("workflow", "migrate", "--name", "order", "--to", "shop:newer", "--dry-run")
    assert plan == {"dry_run": True, "matched": 3, "done": [int(run) for run in runs[1:]], "refused": {}}
    assert told("workflow", "migrate", "--name", "order", "--to", "shop:newer", "--limit", "1")["done"] == [
        int(runs[1])
    ]
    answer = queuety("workflow", "migrate", *runs, "999999", "--to", "2")
    assert (answer.code, answer.err) == (1, "")
    title, columns, *rows = answer.out.splitlines()
    assert title == "5 matched; it was done to 2"
    assert columns.split() == ["id", "refused"]
    assert [row.split()[0] for row in rows] == [runs[0], runs[1], "999999"]
    assert [version(run) for run in runs] == ["1", "2", "2", "2"]


BAD_INPUT = (
    (("migrate", "1"), 2, "say --to: the version to move to"),
    (("migrate", "--to", "1"), 2, "say either the ID of each run, or --name for all open runs of a workflow"),
    (("migrate", "1", "--name", "order", "--to", "1"), 2, "say either the ID of each run"),
    (("migrate", "1", "--to", "1", "--limit", "5"), 2, "--limit goes with --name"),
    (("migrate", "1", "--to", "1", "--step-map", "a"), 2, "--step-map 'a': OLD=NEW is needed"),
    (("migrate", "1", "--to", "1", "--step-map", "a=b", "--step-map", "a=c"), 2, "step 'a' is given twice"),
    (("migrate", "1", "--to", "shop:nothing"), 2, "module shop has no nothing"),
    (("migrate", "1", "--to", "shop:fetch"), 2, "shop:fetch is a handler"),
    (("migrate", "999999", "--to", "1"), 1, "no workflow has the id 999999"),
    (("diff", "nothing"), 1, "no definition of a workflow named 'nothing' is stored"),
    (("diff", "order", "--to", "nine"), 1, "no definition of workflow 'order' has the version 'nine'"),
    (("diff", "order", "--to", "1", "--from", "1"), 2, "name two versions"),
    (("diff", "order", "--step-map", "q=fetch"), 2, "no version has a step 'q'"),
)


def test_bad_input_moves_nothing() -> None:
    (run,) = start()
    for arguments, code, said in BAD_INPUT:
        assert said in refused("workflow", *arguments, code=code)
    assert version(run) == "1"
