"""`queuety workflow graph`: of a run, of a name, of code; to stdout or into a file."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from queuety import Queuety
from tests.support.cli import Project, done, refused, told

GREETING = """greeting  2 steps

on cancel: sweep
0        fetch
1 greet
"""


def test_a_run_is_drawn_with_how_its_steps_stand(project: Project) -> None:
    workflow_id = str(told("workflow", "dispatch", "greeting", "--payload", '{"name": "Eve"}')["id"])
    done("flush")
    outline = done("workflow", "graph", workflow_id)
    assert f"workflow {workflow_id}, failed" in outline
    assert "[x] 0" in outline
    assert "[!] 1 greet" in outline
    assert "[bold]Eve[/bold]\\x1b[2J\\nsecond line" in outline
    assert ElementTree.fromstring(done("workflow", "graph", workflow_id, "--format", "svg")).tag.endswith("svg")


@pytest.mark.parametrize("target", ["greeting", "shop:greeting"])
def test_a_workflow_of_the_code_is_drawn_before_it_runs(local: Project, target: str) -> None:
    assert done("workflow", "graph", target) == GREETING
    mermaid = done("workflow", "graph", target, "--format", "mermaid")
    assert mermaid.startswith("flowchart TD\n")
    assert 's1["greet"]' in mermaid
    assert not (local.folder / "local.db").exists()


def test_a_function_that_builds_a_workflow_is_asked(local: Project) -> None:
    assert done("workflow", "graph", "shop:building").startswith("built  1 step\n")


def test_a_name_that_only_the_database_knows(local: Project) -> None:
    with Queuety(local.url) as app:
        form = {"name": "elsewhere", "steps": [{"type": "single", "name": "a", "handler": "not.here:a"}]}
        app.dispatch_definition(form)
    assert done("workflow", "graph", "elsewhere") == "elsewhere  1 step\n\n0 a\n"
    assert done("workflow", "graph", "elsewhere", "--database", local.url) == "elsewhere  1 step\n\n0 a\n"


def test_it_is_written_to_a_file(local: Project) -> None:
    assert done("workflow", "graph", "greeting", "--format", "svg", "--output", "g.svg") == "written to g.svg\n"
    assert ElementTree.fromstring(Path("g.svg").read_text()).tag.endswith("svg")
    assert "cannot be written" in refused("workflow", "graph", "greeting", "--output", "nowhere/g.svg", code=2)


def test_a_file_that_is_there_is_replaced_only_by_force(local: Project) -> None:
    Path("g.svg").write_text("mine")
    assert "is there already" in refused("workflow", "graph", "greeting", "--output", "g.svg", code=2)
    assert Path("g.svg").read_text() == "mine"
    done("workflow", "graph", "greeting", "--output", "g.svg", "--force")
    assert Path("g.svg").read_text().startswith("<svg")
    assert "--force goes with" in refused("workflow", "graph", "greeting", "--force", code=2)


def test_the_ending_of_the_file_says_how_it_is_drawn(local: Project) -> None:
    for name, beginning in (("g.SVG", "<svg"), ("g.mmd", "flowchart TD"), ("g.txt", "greeting  2 steps")):
        done("workflow", "graph", "greeting", "-o", name)
        assert Path(name).read_text().lstrip().startswith(beginning)
    done("workflow", "graph", "greeting", "-o", "g.svg", "--format", "text", "--force")
    assert Path("g.svg").read_text() == GREETING


def test_what_cannot_be_drawn_is_said(local: Project) -> None:
    done("migrate")
    assert refused("workflow", "graph", "99", code=1) == "no workflow has the id 99"
    assert refused("workflow", "graph", "0", code=1) == "no workflow has the id 0"
    assert "no workflow 'nobody' can be drawn" in refused("workflow", "graph", "nobody", code=1)
    assert "module shop has no nobody" in refused("workflow", "graph", "shop:nobody", code=2)
    assert "--format" in refused("workflow", "graph", "greeting", "--format", "png", code=2)
