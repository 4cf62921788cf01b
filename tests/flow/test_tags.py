"""Tags: words that a run is found by, given when it is started."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine

from queuety import Queuety, bind, errors, step, workflow
from queuety.define.builder import WorkflowBuilder
from queuety.testing import ManualClock
from tests.support.contents import contents
from tests.support.databases import Database
from tests.support.flowing import status_of
from tests.support.stories import ended

State = dict[str, Any]


@step
def put(state: State, *, key: str) -> State:
    return {key: True}


def builder(app: Queuety, name: str = "w") -> WorkflowBuilder:
    return app.workflow(name).then(bind(put, key="a"))


def ids(app: Queuety, **conditions: Any) -> list[int]:
    return [state.id for state in app.list_workflows(**conditions)]


def test_a_run_is_found_by_each_of_its_tags_and_shows_all_of_them(app: Queuety) -> None:
    run = builder(app).tag("zebra", "acme").tag("2026").dispatch()
    other = builder(app).tag("acme").dispatch()
    bare = builder(app).dispatch()
    assert [status_of(app, each).tags for each in (run, other, bare)] == [("2026", "acme", "zebra"), ("acme",), ()]
    assert ids(app, tag="acme") == [other, run]
    assert ids(app, tag="2026") == [run]
    assert ids(app, tag="nobody") == []
    assert [state.tags for state in app.list_workflows()] == [(), ("acme",), ("2026", "acme", "zebra")]
    assert ids(app, tag="acme", before_id=other) == [run]
    assert ids(app, tag="acme", limit=1) == [other]
    app.run_until_idle(max_jobs=1)
    assert ids(app, tag="acme", status="completed") == [run]
    assert ids(app, tag="acme", name="other") == []


def test_tags_stay_whatever_becomes_of_the_run(app: Queuety) -> None:
    run = builder(app).tag("here").dispatch()
    assert ended(app, run).tags == ("here",)
    app.rewind_workflow(run, 0)
    assert status_of(app, run).tags == ("here",)
    other = builder(app).tag("here").dispatch()
    app.cancel_workflow(other)
    assert ids(app, tag="here") == [other, run]


def test_tags_are_told_apart_to_the_letter(app: Queuety) -> None:
    names = ["Order", "order", "ordér", "order ", "a,b", "%", "order\u00a0x", "😀"]
    runs = {name: builder(app).tag(name).dispatch() for name in names}
    for name, run in runs.items():
        assert ids(app, tag=name) == [run], name


def test_a_tag_given_twice_counts_once_and_there_are_at_most_fifty(app: Queuety) -> None:
    run = builder(app).tag("a", "a").tag("a").dispatch()
    assert status_of(app, run).tags == ("a",)
    many = [f"tag {number:02}" for number in range(50)]
    assert status_of(app, builder(app).tag(*many).dispatch()).tags == tuple(many)
    with pytest.raises(errors.DefinitionError, match="at most 50"):
        builder(app).tag(*many, "one more")
    longest = "x" * 255
    assert ids(app, tag=longest) == []
    run = builder(app).tag(longest).dispatch()
    assert ids(app, tag=longest) == [run]


def test_what_is_no_tag_is_refused_and_nothing_is_started(app: Queuety) -> None:
    before = contents(app.door)
    definition = builder(app).definition()
    for bad in ("", " ", "x" * 256, "a\nb", "\ud800", 5, None, b"x"):
        with pytest.raises(errors.DefinitionError, match="tag"):
            builder(app).tag(bad)  # type: ignore[arg-type]
        with pytest.raises(errors.DefinitionError, match="tag"):
            app.dispatch_definition(definition, tags=["good", bad])  # type: ignore[list-item]
    with pytest.raises(errors.DefinitionError, match="a list of tags"):
        app.dispatch_definition(definition, tags="acme")
    with pytest.raises(errors.DefinitionError):
        app.list_workflows(tag=5)  # type: ignore[arg-type]
    assert contents(app.door) == before


def test_tags_are_of_the_run_and_not_of_the_definition(app: Queuety) -> None:
    plain, tagged = builder(app), builder(app).tag("here")
    assert plain.definition() == tagged.definition()
    runs = [plain.dispatch(), tagged.dispatch()]
    assert len({status_of(app, run).definition_hash for run in runs}) == 1
    third = app.dispatch_definition(tagged.definition())
    fourth = app.dispatch_definition(tagged.definition(), tags=["other"])
    assert [status_of(app, run).tags for run in (third, fourth)] == [(), ("other",)]


def test_many_that_are_started_together_all_have_them(app: Queuety) -> None:
    runs = app.dispatch_many(builder(app).tag("batch", "acme"), [{}] * 20)
    assert ids(app, tag="batch") == runs[::-1]
    assert status_of(app, runs[7]).tags == ("acme", "batch")


def test_a_run_that_a_key_already_names_keeps_the_tags_that_it_has(app: Queuety) -> None:
    first = builder(app).idempotency_key("k").tag("first").dispatch()
    assert builder(app).idempotency_key("k").tag("second").dispatch() == first
    assert status_of(app, first).tags == ("first",)
    assert ids(app, tag="second") == []


def test_runs_that_a_run_starts_and_forks_have_none_of_them(app: Queuety) -> None:
    child = workflow("child").tag("of child").then(bind(put, key="b"))
    run = app.workflow("w").tag("here").run_workflow("child", child).wait_for_signal("go").dispatch()
    app.run_until_idle()
    other = app.fork_workflow(run)
    (inner,) = app.list_workflows(parent_id=run)
    assert (status_of(app, other).tags, inner.tags) == ((), ())
    assert ids(app, tag="here") == [run]


def test_a_dispatch_that_is_rolled_back_leaves_no_tag(app: Queuety, database: Database) -> None:
    app.migrate()
    before = contents(app.door)
    engine = create_engine(database.url, poolclass=NullPool)
    with engine.connect() as connection:
        app.dispatch_workflow(builder(app).tag("here"), connection=connection)
        connection.rollback()
    assert contents(app.door) == before
    with engine.begin() as connection:
        run = app.dispatch_workflow(builder(app).tag("here"), connection=connection)
    assert ids(app, tag="here") == [run]
    engine.dispose()


def test_tags_go_with_their_run(app: Queuety, clock: ManualClock) -> None:
    run = builder(app).tag("here", "too").dispatch()
    kept = builder(app).tag("here").wait_for_signal("go").dispatch()
    app.run_until_idle()
    clock.advance(seconds=1)
    assert app.purge_workflows(0) == 1
    assert app.workflow_status(run) is None
    assert (ids(app, tag="here"), ids(app, tag="too")) == ([kept], [])
    assert len(contents(app.door)["tags"]) == 1
