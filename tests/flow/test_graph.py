"""Pictures of runs: how each step stands and which way the run has come, from what the database holds."""

from __future__ import annotations

from typing import Any

import pytest

from queuety import Queuety, step, workflow
from queuety.errors import DefinitionError, NotFoundError
from queuety.inspect.graph.facts import run_facts
from queuety.inspect.graph.model import Graph, Mark, Way
from queuety.inspect.graph.sketch import graph_of
from queuety.store.queries import graph as queries
from queuety.testing import ManualClock

State = dict[str, Any]


@step
def fetch(state: State) -> State:
    return {"fetched": True}


@step
def count(state: State) -> State:
    return {"count": state.get("count", 0) + 1}


@step
def jump(state: State) -> State:
    return {"_next_step": "landing"}


@step(max_attempts=2, backoff=[0])
def fail(state: State) -> State:
    if state.get("mended"):
        return {}
    raise ValueError("broken <b>here</b>")


@step
def handle(state: State, item: Any, index: int) -> State:
    if item == "bad":
        raise ValueError("bad item")
    return {}


@step
def undo(state: State) -> None:
    pass


@step
def undo_badly(state: State) -> None:
    raise ValueError("cannot be undone")


def drawn(app: Queuety, run: int) -> Graph:
    with app.door.reading() as connection:
        facts = run_facts(connection, app.door.tables, run)
    assert facts is not None
    return graph_of(facts.definition, facts)


def marks(graph: Graph) -> dict[str, str]:
    """How each step stands, by its name; what belongs to none is left out."""
    return {node.name: str(node.mark) for node in graph.all_nodes() if node.index is not None}


def facts(graph: Graph, name: str) -> tuple[str, ...]:
    return next(node.facts for node in graph.all_nodes() if node.name == name)


def taken(graph: Graph) -> dict[tuple[str, str], int]:
    return {(edge.source, edge.target): edge.taken for edge in graph.edges if edge.taken}


def test_a_run_that_is_over_has_done_all_its_steps(app: Queuety) -> None:
    run = app.workflow("w").then(fetch, "a").parallel([fetch, count], "b").delay(0).dispatch()
    app.run_until_idle()
    graph = drawn(app, run)
    assert marks(graph) == {"a": "done", "b": "done", "delay_0": "done"}
    assert graph.mark is Mark.DONE
    assert facts(graph, "b") == ("2 branches completed",)
    assert taken(graph) == {("start", "s0"): 1, ("s0", "s1"): 1, ("s1", "s2"): 1, ("s2", "end_"): 1}


def test_a_loop_tells_how_often_it_went_round(app: Queuety) -> None:
    run = app.workflow("w").then(count, "a").repeat_until("a", "count", 4, name="again").then(fetch, "b").dispatch()
    app.run_until_idle()
    graph = drawn(app, run)
    assert (facts(graph, "a"), facts(graph, "again"), facts(graph, "b")) == (("4 times",), ("4 times",), ())
    assert taken(graph)["s0", "s1"] == 4
    assert {(edge.way, edge.label, edge.taken) for edge in graph.edges if edge.way is Way.BACK} == {
        (Way.BACK, "until count = 4", 3)
    }


def test_a_jump_is_drawn_once_it_has_happened_and_what_it_passed_over_was_skipped(app: Queuety) -> None:
    builder = app.workflow("w").then(jump, "jump").then(fetch, "between").then(fetch, "landing")
    run = builder.dispatch()
    assert [edge.way for edge in drawn(app, run).edges if edge.way is Way.JUMP] == []
    app.run_until_idle()
    graph = drawn(app, run)
    assert marks(graph) == {"jump": "done", "between": "skipped", "landing": "done"}
    assert [(edge.source, edge.target) for edge in graph.edges if edge.way is Way.JUMP] == [("s0", "s2")]
    assert taken(graph) == {("start", "s0"): 1, ("s0", "s2"): 1, ("s2", "end_"): 1}


def test_where_a_run_stands(app: Queuety, clock: ManualClock) -> None:
    run = (
        app.workflow("w")
        .then(fetch, "a")
        .wait_for_signals(["left", "right"], name="wait", timeout=3600)
        .then(fail, "b")
        .dispatch()
    )
    assert marks(drawn(app, run)) == {"a": "running", "wait": "not reached", "b": "not reached"}
    app.run_until_idle()
    app.signal(run, "left")
    graph = drawn(app, run)
    assert marks(graph)["wait"] == "waiting"
    assert facts(graph, "wait") == ("has come: left", "until 2026-01-01 01:00:00 UTC")
    app.signal(run, "right")
    app.run_until_idle(max_jobs=1)
    assert facts(drawn(app, run), "b") == ("attempt 2",)
    app.pause_workflow(run)
    assert marks(drawn(app, run))["b"] == "paused"
    app.resume_workflow(run)
    app.run_until_idle()
    graph = drawn(app, run)
    assert marks(graph) == {"a": "done", "wait": "done", "b": "failed"}
    assert facts(graph, "b") == ("attempt 2",)
    assert graph.lines == (f"workflow {run}, failed", "broken <b>here</b>")


def test_a_step_that_was_repaired_counts_its_failed_attempts(app: Queuety) -> None:
    run = app.workflow("w").then(fail, "a").then(fetch, "b").dispatch()
    app.run_until_idle()
    app.retry_workflow(run, with_state={"mended": True})
    app.run_until_idle()
    assert facts(drawn(app, run), "a") == ("2 failed attempts",)
    other = app.workflow("w").then(fail, "a").then(fetch, "b").dispatch()
    app.run_until_idle()
    app.skip_step(other)
    app.run_until_idle()
    assert marks(drawn(app, other)) == {"a": "skipped", "b": "done"}


def test_items_are_counted_while_they_run_and_after(app: Queuety) -> None:
    run = (app.workflow("w").for_each("items", handle, mode="quorum", quorum=2, name="each").then(fetch, "b")).dispatch(
        {"items": ["x", "bad", "y"]}
    )
    app.run_until_idle(max_jobs=1)
    assert facts(drawn(app, run), "each") == ("1 of 3 items done",)
    app.run_until_idle()
    assert facts(drawn(app, run), "each")[0] == "2 items completed"


def test_a_run_within_a_run_is_drawn_as_it_stands(app: Queuety) -> None:
    child = workflow("inner").then(fetch, "pack").wait_for_signal("go").then(fetch, "send")
    run = app.workflow("outer").run_workflow("ship", child, "ship").then(fetch, "after").dispatch()
    app.run_until_idle()
    graph = drawn(app, run)
    assert marks(graph) == {
        "ship": "waiting",
        "after": "not reached",
        "pack": "done",
        "wait_for_go": "waiting",
        "send": "not reached",
    }
    (inner,) = app.list_workflows(parent_id=run)
    assert facts(graph, "ship") == (f"workflow {inner.id}, waiting for signal",)
    app.signal(inner.id, "go")
    app.run_until_idle()
    assert set(marks(drawn(app, run)).values()) == {"done"}


def test_what_a_run_went_back_over_counts_no_more(app: Queuety) -> None:
    run = app.workflow("w").then(count, "a").then(count, "b").then(count, "c").wait_for_signal("go").dispatch()
    app.run_until_idle()
    app.rewind_workflow(run, 0)
    app.run_until_idle(max_jobs=1)
    graph = drawn(app, run)
    assert marks(graph) == {"a": "done", "b": "done", "c": "running", "wait_for_go": "not reached"}
    assert facts(graph, "b") == ()
    assert taken(graph) == {("start", "s0"): 1, ("s0", "s1"): 1, ("s1", "s2"): 1}
    app.run_until_idle()
    app.rewind_workflow(run, 1)
    app.rewind_workflow(run, 0)
    assert marks(drawn(app, run)) == {"a": "done", "b": "running", "c": "not reached", "wait_for_go": "not reached"}


def test_a_fork_begins_where_it_was_forked(app: Queuety) -> None:
    run = app.workflow("w").then(count, "a").then(count, "b").wait_for_signal("go").then(fetch, "c").dispatch()
    app.run_until_idle()
    other = app.fork_workflow(run, at_step=1)
    app.run_until_idle()
    graph = drawn(app, other)
    assert marks(graph) == {"a": "done", "b": "done", "wait_for_go": "waiting", "c": "not reached"}
    assert facts(graph, "a") == ("before the fork",)
    assert f"forked from workflow {run}" in graph.lines
    assert taken(graph) == {("start", "s1"): 1, ("s1", "s2"): 1}


def test_a_run_that_was_moved_is_drawn_under_its_new_definition(app: Queuety) -> None:
    old = app.workflow("w").then(count, "a").then(count, "b").wait_for_signal("go", step_name="wait")
    new = (
        app.workflow("w").then(count, "new").then(count, "a").then(count, "bee").wait_for_signal("go", step_name="wait")
    )
    run = old.dispatch()
    app.run_until_idle()
    app.migrate_workflow(run, new, step_map={"b": "bee"})
    graph = drawn(app, run)
    assert marks(graph) == {"new": "skipped", "a": "done", "bee": "done", "wait": "waiting"}
    assert taken(graph)["s1", "s2"] == 1


def test_what_undoes_a_step_tells_how_it_went(app: Queuety) -> None:
    run = (
        app.workflow("w")
        .max_attempts(1)
        .then(fetch, "a")
        .compensate_with(undo)
        .then(fetch, "b")
        .compensate_with(undo_badly)
        .then(fail, "c")
        .compensate_with(undo)
        .compensate_on_failure()
        .dispatch()
    )
    app.run_until_idle()
    graph = drawn(app, run)
    undone = {node.id: str(node.mark) for node in graph.nodes if node.kind == "undo"}
    assert undone == {"s0_undo": "done", "s1_undo": "failed", "s2_undo": "not reached"}


@pytest.mark.parametrize(("handler", "mark"), [(undo, "done"), (undo_badly, "failed")])
def test_the_runs_own_handlers_tell_how_they_went(app: Queuety, handler: Any, mark: str) -> None:
    builder = app.workflow("w").max_attempts(1).must_complete_within(hours=1).wait_for_signal("go")
    run = builder.on_cancel(handler).on_deadline(undo).dispatch()
    assert {str(node.mark) for node in drawn(app, run).nodes if node.kind.startswith("on_")} == {"not reached"}
    app.cancel_workflow(run)
    app.run_until_idle()
    graph = drawn(app, run)
    own = {str(node.kind): str(node.mark) for node in graph.nodes if node.kind.startswith("on_")}
    assert own == {"on_cancel": mark, "on_deadline": "not reached"}
    assert marks(graph) == {"wait_for_go": "cancelled"}


def test_a_name_means_the_template_and_else_what_was_stored_last(app: Queuety, clock: ManualClock) -> None:
    with pytest.raises(NotFoundError, match="no workflow 'w' can be drawn"):
        app.workflow_graph("w")
    app.workflow("w").then(fetch, "first").dispatch()
    clock.advance(seconds=1)
    app.workflow("w").then(fetch, "second").dispatch()
    assert '"second<br/>fetch"' in app.workflow_graph("w")
    app.register_workflow_template(app.define_workflow("w").then(fetch, "third"))
    assert '"third<br/>fetch"' in app.workflow_graph("w")


def test_what_cannot_be_drawn_is_refused(app: Queuety) -> None:
    run = app.workflow("w").then(fetch, "a").dispatch()
    with pytest.raises(DefinitionError, match="no format 'png'; there are mermaid, svg, text"):
        app.workflow_graph(run, "png")
    for unknown in (run + 1000, -1, 0, 2**70):
        with pytest.raises(NotFoundError, match="no workflow has the id"):
            app.workflow_graph(unknown)
    for wrong in (None, True, 1.5, [], b"w"):
        with pytest.raises(DefinitionError, match="is needed"):
            app.workflow_graph(wrong)  # type: ignore[arg-type]


def test_a_long_loop_is_counted_by_the_database(app: Queuety) -> None:
    """Reading costs the same few statements however long the history is."""
    run = app.workflow("w").then(count, "a").repeat_until("a", "count", 60, name="again").dispatch()
    app.run_until_idle()
    graph = drawn(app, run)
    assert facts(graph, "a") == ("60 times",)
    assert taken(graph)["s1", "s0"] == 59


def test_a_picture_is_of_one_moment(app: Queuety, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run goes on between two of the statements that read it: what they tell must fit together all the same."""
    run = app.workflow("w").then(count, "a").then(count, "b").then(count, "c").dispatch()
    read = queries.turns

    def late(*arguments: Any) -> Any:
        assert app.run_until_idle(max_jobs=2) == 2
        return read(*arguments)

    monkeypatch.setattr(queries, "turns", late)
    assert "jumped" not in app.workflow_graph(run)
    monkeypatch.undo()
    assert taken(drawn(app, run)) == {("start", "s0"): 1, ("s0", "s1"): 1, ("s1", "s2"): 1}


@pytest.mark.parametrize("form", ["mermaid", "svg", "text"])
def test_every_format_draws_a_run(app: Queuety, form: str) -> None:
    run = app.workflow("w").then(fetch, "a").then(fail, "b").dispatch()
    app.run_until_idle()
    picture = app.workflow_graph(run, form)
    assert picture.endswith("\n")
    assert all(word in picture for word in ("done", "failed", f"workflow {run}"))
    assert "<b>here" not in picture or form == "text"
