"""Pictures of definitions and runs: what they show, how much of it, and that no name can be more than a name."""

from __future__ import annotations

import re
import time
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuety import Queuety, bind, step, workflow
from queuety.define.wire import definition_from_json
from queuety.errors import DefinitionError, NotFoundError
from queuety.inspect.graph import FORMATS, drawn
from queuety.inspect.graph.labels import plain
from queuety.inspect.graph.layout import Box, Layout, layout, text_width
from queuety.inspect.graph.model import Graph, Kind, Way
from queuety.inspect.graph.run import Child, RunFacts, StepFacts
from queuety.inspect.graph.sketch import graph_of
from queuety.model import Branch, Definition, HandlerRef, StepSpec, WorkflowStatus

State = dict[str, Any]
SVG = "{http://www.w3.org/2000/svg}"


@step
def fetch(state: State) -> State:
    raise AssertionError("nothing is executed")


@step
def item(state: State, item: Any, index: int) -> State:
    return {}


@step
def best(state: State, for_each: Any) -> State:
    return {}


@step
def ready(state: State, score: int = 1) -> bool:
    return True


def single(name: str, **more: Any) -> StepSpec:
    return StepSpec("single", name, HandlerRef("m:handler"), **more)


def every_kind() -> Definition:
    child = workflow("inner").then(fetch, "pack").wait_for_signal("packed").on_cancel(fetch)
    return (
        workflow("every")
        .version("7")
        .must_complete_within(hours=1)
        .then(fetch, "draft")
        .compensate_with(fetch)
        .parallel([fetch, bind(ready, score=2)], "both")
        .for_each("videos", item, name="each", mode="quorum", quorum=2, reducer=best)
        .repeat_until("draft", "rating", 5, max_iterations=3, name="by key")
        .repeat_while("both", condition=bind(ready, score=8), name="by condition")
        .delay(minutes=90)
        .wait_for_signals(["a", "b"], timeout=60, on_timeout="draft", name="signals")
        .wait_for_decision(name="decision", timeout=5)
        .wait_for_approval(correlation_key="order")
        .start_workflows("videos", child, group_key="all", name="start")
        .wait_for_workflow_group("all", name="group")
        .wait_for_workflows([7, 8], name="ids", mode="any")
        .wait_for_workflow("other", name="one")
        .run_workflow("inner run", child, "run")
        .then(fetch)
        .on_cancel(fetch)
        .on_deadline(fetch)
        .build()
    )


def lines_of(graph: Graph) -> dict[str, tuple[str, ...]]:
    return {node.id: node.lines for node in graph.all_nodes() if node.index is not None}


# What is shown


def test_every_kind_says_what_it_does() -> None:
    graph = graph_of(every_kind())
    assert lines_of(graph) == {
        "s0": ("fetch",),
        "s1": ("∥ fetch", "∥ ready(score=2)"),
        "s2": ("item for each of videos", "until 2 have succeeded", "then best"),
        "s3": ("back to draft until rating = 5", "at most 3 times"),
        "s4": ("back to both while ready(score=8)",),
        "s5": ("waits 1 h 30 min",),
        "s6": ("waits for a and b", "after 1 min to draft"),
        "s7": ("waits for a decision: approved or rejected", "after 5 s it fails"),
        "s8": ("waits for an approval: approval", "of the same order"),
        "s9": ("starts inner for each of videos", "as the group all"),
        "s9_s0": ("fetch",),
        "s9_s1": ("waits for packed",),
        "s10": ("waits for all of the group all",),
        "s11": ("waits for any of the workflows 7 and 8",),
        "s12": ("waits for the workflow in other",),
        "s13": ("runs inner run",),
        "s13_s0": ("fetch",),
        "s13_s1": ("waits for packed",),
        "s14": ("fetch",),
    }
    assert graph.nodes[0].lines == ("15 steps, version 7", "within 1 h")
    assert {node.name for node in graph.nodes if node.kind in (Kind.UNDO, Kind.ON_CANCEL, Kind.ON_DEADLINE)} == {
        "undo: fetch",
        "on cancel: fetch",
        "on deadline: fetch",
    }
    assert not graph.is_run
    assert {node.mark for node in graph.all_nodes()} == {None}


def test_the_ways_are_those_that_the_definition_knows() -> None:
    graph = graph_of(every_kind())
    ways = {(edge.source, edge.target): (edge.way, edge.label) for edge in graph.edges if edge.way is not Way.NEXT}
    assert ways == {
        ("s3", "s0"): (Way.BACK, "until rating = 5"),
        ("s4", "s1"): (Way.BACK, "while ready(score=8)"),
        ("s6", "s0"): (Way.TIMEOUT, "after 1 min"),
        ("s0", "s0_undo"): (Way.SIDE, ""),
        ("start", "on_cancel"): (Way.SIDE, ""),
        ("start", "on_deadline"): (Way.SIDE, ""),
    }
    chain = [(edge.source, edge.target) for edge in graph.edges if edge.way is Way.NEXT]
    assert sorted(chain, key=lambda way: (way[0] != "start", len(way[0]), way[0])) == [
        ("start", "s0"),
        *((f"s{index}", f"s{index + 1}") for index in range(14)),
        ("s14", "end_"),
    ]


def test_a_kind_that_this_version_does_not_know_is_drawn_by_its_name() -> None:
    definition = Definition("w", (StepSpec("teleport<", "a", settings={"to": "moon"}), single("b")))
    for form in FORMATS:
        assert "a" in drawn(definition, format=form)
    assert "teleport&lt;" in drawn(definition, format="svg")


def test_the_same_definition_gives_the_same_picture() -> None:
    for form in FORMATS:
        assert drawn(every_kind(), format=form) == drawn(every_kind(), format=form)


def test_an_outline_has_a_line_a_step() -> None:
    assert drawn(every_kind(), format="text").splitlines()[2:13] == [
        "on cancel: fetch",
        "on deadline: fetch",
        "0 draft              fetch",
        "    undo: fetch",
        "1 both               ∥ fetch · ∥ ready(score=2)",
        "2 each               item for each of videos · until 2 have succeeded · then best",
        "3 by key             back to draft until rating = 5 · at most 3 times",
        "4 by condition       back to both while ready(score=8)",
        "5 delay_0            waits 1 h 30 min",
        "6 signals            waits for a and b · after 1 min to draft",
        "    → after 1 min to 0 draft",
    ]


# Runs


def a_run(**more: Any) -> RunFacts:
    inner = Definition("inner", (single("x"), single("y")))
    steps = (
        single("a"),
        StepSpec("parallel", "b", branches=(Branch(HandlerRef("m:one")),)),
        StepSpec("run_workflow", "c", child=inner),
        single("d"),
        single("e"),
    )
    within = RunFacts(9, inner, WorkflowStatus.RUNNING, 1, steps={0: StepFacts(settled=1)}, moves={(0, 1): 1})
    given: dict[str, Any] = {
        "status": WorkflowStatus.RUNNING,
        "current_step": 2,
        "steps": {0: StepFacts(settled=2, failures=3), 1: StepFacts(settled=1, parts=1)},
        "moves": {(0, 0): 1, (0, 1): 1, (1, 2): 1},
        "children": {2: Child(9, WorkflowStatus.RUNNING, within)},
    }
    return RunFacts(4, Definition("w", steps), **{**given, **more})


def test_marks_and_facts_of_a_run() -> None:
    run = a_run()
    graph = graph_of(run.definition, run)
    assert {node.id: (str(node.mark), node.facts) for node in graph.all_nodes() if node.index is not None} == {
        "s0": ("done", ("2 times", "3 failed attempts")),
        "s1": ("done", ("1 branch completed",)),
        "s2": ("waiting", ("workflow 9, running",)),
        "s2_s0": ("done", ()),
        "s2_s1": ("running", ()),
        "s3": ("not reached", ()),
        "s4": ("not reached", ()),
    }
    assert graph.lines == ("workflow 4, running",)
    assert [(edge.source, edge.target, edge.taken) for edge in graph.edges if edge.way is Way.JUMP] == [("s0", "s0", 1)]


@pytest.mark.parametrize(
    ("more", "marks"),
    [
        ({"status": WorkflowStatus.PAUSED}, "paused"),
        ({"status": WorkflowStatus.CANCELLED}, "cancelled"),
        ({"status": WorkflowStatus.FAILED, "failed_step": 2}, "failed"),
        ({"status": WorkflowStatus.WAITING_FOR_SIGNAL}, "waiting"),
        ({"status": WorkflowStatus.COMPLETED, "current_step": 5}, "skipped"),
        ({"status": WorkflowStatus.COMPLETED, "current_step": 5, "is_pruned": True}, "done"),
        ({"steps": {2: StepFacts(settled=1, was_skipped=True)}, "current_step": 3}, "skipped"),
    ],
)
def test_how_the_step_stands_at_which_a_run_is(more: dict[str, Any], marks: str) -> None:
    run = a_run(**more)
    graph = graph_of(run.definition, run)
    assert {str(node.mark) for node in graph.nodes if node.id == "s2"} == {marks}


def test_marks_are_told_without_colours() -> None:
    """In every format the word or a sign stands beside the colour."""
    run = a_run(status=WorkflowStatus.FAILED, failed_step=2)
    text, mermaid, svg = (drawn(run.definition, run, format=form) for form in ("text", "mermaid", "svg"))
    assert "[!] 2 c" in text
    assert "[!] failed" in text
    assert "✗ failed, workflow 9, running" in mermaid
    assert "failed, workflow 9, running" in "".join(ElementTree.fromstring(svg).itertext())


def test_text_is_readable_on_what_it_stands_on() -> None:
    """At least 4.5 to 1, in light and in dark; the colours of Mermaid's nodes too."""
    from queuety.inspect.graph.mermaid import _STYLES
    from queuety.inspect.graph.style import _DARK, _LIGHT

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    def contrast(one: str, other: str) -> float:
        low, high = sorted((light(one), light(other)))
        return (high + 0.05) / (low + 0.05)

    for colours in (_LIGHT, _DARK):
        for name in set(colours) - {"page", "box", "line", "untaken", "taken"}:
            assert contrast(colours[name], colours["box"]) >= 4.5, name
            assert contrast(colours[name], colours["page"]) >= 4.5, name
    for _, look in _STYLES.values():
        found = dict(part.split(":") for part in look.split(","))
        assert contrast(found["color"], found["fill"]) >= 4.5, look


# How much


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_a_long_workflow_is_drawn_in_bounds_and_says_what_it_leaves_out(form: str) -> None:
    steps = [{"type": "single", "name": f"step {number}", "handler": "m:h"} for number in range(5_000)]
    steps.append({"type": "repeat", "name": "again", "target": "step 5", "until": True, "state_key": "x"})
    definition = definition_from_json({"name": "long", "steps": steps}, None)
    run = RunFacts(1, definition, WorkflowStatus.RUNNING, 3_000, moves={(n, n + 1): 1 for n in range(3_000)})
    began = time.perf_counter()
    for picture in (drawn(definition, format=form), drawn(definition, run, format=form)):
        assert len(picture) < 250_000
        left_out = [int(found.replace(",", "")) for found in re.findall(r"([\d,]+) steps left out", picture)]
        assert left_out[0] > 1_000
        assert "step 0" in picture
        assert "again" in picture
    assert "step 3000" in picture
    assert time.perf_counter() - began < 10


def test_what_is_drawn_and_what_is_left_out_is_all_there_is() -> None:
    definition = Definition("w", tuple(single(str(number)) for number in range(300)))
    for at in (0, 3, 150, 299):
        run = RunFacts(1, definition, WorkflowStatus.RUNNING, at)
        graph = graph_of(definition, run, most=20)
        shown = [node.index for node in graph.nodes if node.kind == "single"]
        gaps = [int(node.name.partition(" ")[0]) for node in graph.nodes if node.kind == Kind.LEFT_OUT]
        assert at in shown
        assert len(shown) <= 20
        assert len(shown) + sum(gaps) == 300
        ids = {node.id for node in graph.nodes}
        assert {edge.source for edge in graph.edges} | {edge.target for edge in graph.edges} <= ids


def test_workflows_within_workflows_share_what_may_be_drawn() -> None:
    inner = Definition("leaf", tuple(single(str(number)) for number in range(50)))
    for _ in range(10):
        inner = Definition("nest", (single("a"), StepSpec("run_workflow", "b", child=inner)))
    wide = Definition("wide", tuple(StepSpec("run_workflow", str(number), child=inner) for number in range(100)))
    for definition in (inner, wide):
        graph = graph_of(definition)
        assert sum(1 for node in graph.all_nodes() if node.index is not None) <= 200
        assert "left out here" in drawn(definition, format="text")


# Names are data

HOSTILE = [
    '"]; click s0 "javascript:alert(1)"',
    "end",
    "%%{init: {}}%%",
    "<script>alert(1)</script>",
    "]]></style><script>",
    "&lt;&#60;&amp;",
    "`md` *b* _i_ 1. x",
    "#quot; #35;",
    "ﬂ°°60¶ß",
    "$$x^2$$ fa:fa-car \\n \\",
    "s0 --> s1; subgraph x",
    "\u202eabc\u2066",
    "' onload='alert(1)",
    "a" * 255,
    "日本語 עברית 🙂",
]
names = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(min_size=1, max_size=60),
    st.text(alphabet='"[]{}()<>|;:%#&\\`$-_.\n\r\t\x00\ud800\u2028\ufffe endgraphclick', min_size=1, max_size=40),
)


@st.composite
def definitions(draw: st.DrawFn, depth: int = 1) -> Definition:
    """Definitions as rows may hold them: any text in every place, also what the builder would refuse."""
    called = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    ref = st.builds(HandlerRef, names, st.none() | st.dictionaries(names, names, max_size=2))
    steps: list[StepSpec] = []
    for index, name in enumerate(called):
        text = draw(names)
        kind = draw(
            st.sampled_from(["single", "parallel", "for_each", "repeat", "signal", "workflows", "run", "other"])
        )
        undo = draw(st.none() | ref)
        more: dict[str, Any] = {"compensation": undo}
        if kind == "run" and depth:
            more |= {"child": draw(definitions(depth=depth - 1))}
        settings_of = {
            "repeat": {"until": True, "target": called[index - 1], "state_key": text, "expected": {text: text}},
            "signal": {"names": [text], "timeout": 5, "on_timeout": called[0], "correlation_key": text},
            "workflows": {"workflows": text},
            "for_each": {"items_key": text, "result_key": text, "mode": "all"},
        }
        known = {"signal": "wait_for_signal", "workflows": "wait_for_workflows", "run": "run_workflow", "other": text}
        handler = draw(ref) if kind in ("single", "for_each") else None
        branches = tuple(Branch(draw(ref)) for _ in range(kind == "parallel"))
        steps.append(
            StepSpec(
                known.get(kind, kind), name, handler, settings=settings_of.get(kind, {}), branches=branches, **more
            )
        )
    own = draw(st.none() | ref)
    return Definition(draw(names), tuple(steps), version=draw(names), on_cancel=own, on_deadline=own)


@st.composite
def runs(draw: st.DrawFn) -> RunFacts:
    definition = draw(definitions())
    count = len(definition.steps)
    indices = st.integers(0, count - 1)
    facts = st.builds(StepFacts, st.integers(0, 3), st.booleans(), st.integers(0, 3), st.integers(0, 3))
    status = draw(st.sampled_from(list(WorkflowStatus)))
    done = status is WorkflowStatus.COMPLETED
    return RunFacts(
        draw(st.integers(1, 2**63 - 1)),
        definition,
        status,
        count if done else draw(indices),
        error_message=draw(names),
        steps=draw(st.dictionaries(indices, facts)),
        moves=draw(st.dictionaries(st.tuples(indices, st.integers(0, count)), st.integers(1, 9))),
        runtime=draw(st.sampled_from([{}, {"total": 3, "done": 1, "failed": 1}, {"matched": ['"]<b>'], "due_us": 1}])),
    )


ID = r"(?:s\d+|gap\d+)(?:_(?:s\d+|gap\d+))*"
NODE = rf"(?:start|end_|(?:{ID}_)?on_(?:cancel|deadline)|{ID}(?:_undo)?)"
SAFE = r"(?:[^\W\"#;<>&`*%\[\]{{}}|\\$]|[ ,()=/:._\-∶∖＄✓▶◔Ⅱ✗⊘»○]|#\d+;|<br/>)*"
OPEN = r"(?:\(\[|\[\[|\[/|\[|\{\{|\(|>)"
CLOSE = r"(?:\]\)|\]\]|/\]|\]|\}\}|\))"
MERMAID = [
    re.compile(r"flowchart TD"),
    re.compile(rf"\s+{NODE}{OPEN}\"{SAFE}\"{CLOSE}"),
    re.compile(rf"\s+subgraph {ID}_in\[\"{SAFE}\"\]"),
    re.compile(r"\s+direction TB"),
    re.compile(r"\s+end"),
    re.compile(rf"\s+{NODE} (?:-->|-\.->|==>|-\.-)(?:\|\"{SAFE}\"\|)? {NODE}(?:_in)?"),
    re.compile(r"\s+classDef [a-z]+ [a-z0-9:#, \-]+"),
    re.compile(rf"\s+class {NODE}(?:,{NODE})* [a-z]+"),
    re.compile(r"\s+linkStyle \d+(?:,\d+)* [a-z0-9:#,\-]+"),
]


def check_mermaid(picture: str) -> None:
    assert picture.endswith("\n")
    wrong = [line for line in picture[:-1].split("\n") if not any(rule.fullmatch(line) for rule in MERMAID)]
    assert wrong == []
    words = [line.split()[0] for line in picture.splitlines()]
    assert words.count("subgraph") == words.count("end")


ELEMENTS = {"svg", "title", "desc", "style", "rect", "g", "path", "polygon", "text"}
ATTRIBUTES = {
    "class", "role", "viewBox", "width", "height", "transform", "x", "y", "rx", "points", "d", "text-anchor"
}  # fmt: skip


def check_svg(picture: str) -> ElementTree.Element:
    """It is XML, of shapes and text only, and fetches nothing."""
    root = ElementTree.fromstring(picture)
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in ELEMENTS
        assert set(element.attrib) <= ATTRIBUTES
        for key, value in element.attrib.items():
            assert re.fullmatch(r"[\w .,\-()]*", value), (key, value)
    assert "url(" not in picture
    assert "@import" not in picture
    assert picture.count("http") <= picture.count("http://www.w3.org/2000/svg") + "".join(root.itertext()).count("http")
    assert picture.isprintable() or set(filter(lambda char: not char.isprintable(), picture)) == {"\n"}
    return root


@given(definitions())
@settings(max_examples=25)
def test_no_name_of_a_definition_becomes_anything_else(definition: Definition) -> None:
    check_mermaid(drawn(definition))
    root = check_svg(drawn(definition, format="svg"))
    shown = {element.text for element in root.iter(f"{SVG}title")}
    assert plain(definition.name) in shown
    text = drawn(definition, format="text")
    assert all(line.isprintable() for line in text.splitlines())
    assert text.count("\n") == len(text.split("\n")) - 1 == len(text.splitlines())


@given(runs())
@settings(max_examples=25)
def test_no_name_of_a_run_becomes_anything_else(run: RunFacts) -> None:
    check_mermaid(drawn(run.definition, run))
    check_svg(drawn(run.definition, run, format="svg"))
    assert all(line.isprintable() for line in drawn(run.definition, run, format="text").splitlines())


@given(runs())
@settings(max_examples=15)
def test_nothing_overlaps_and_nothing_sticks_out(run: RunFacts) -> None:
    _check_layout(layout(graph_of(run.definition, run)))


def _check_layout(placed: Layout) -> None:
    for number, box in enumerate(placed.boxes):
        assert box.x >= 0
        assert box.x + box.width <= placed.width + 0.1
        assert box.y + box.height <= placed.height + 0.1
        for text in box.texts:
            size = 14 if text.role == "title" else 12.5
            assert text_width(text.shown, size, is_bold=text.role != "detail") <= box.width
        assert not any(_overlap(box, other) for other in placed.boxes[number + 1 :])
        if box.inner is not None:
            left, top = box.inner_at
            assert left >= box.x
            assert left + box.inner.width <= box.x + box.width + 0.1
            assert top + box.inner.height <= box.y + box.height + 0.1
            _check_layout(box.inner)
    for line in placed.lines:
        assert all(0 <= x <= placed.width + 0.1 for x, _ in line.points)
        assert all(x == to_x or y == to_y for (x, y), (to_x, to_y) in zip(line.points, line.points[1:], strict=False))


def _overlap(one: Box, other: Box) -> bool:
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


# The verb, without a database's rows


def test_a_builder_a_template_and_a_definition_are_drawn_alike(memory_url: str) -> None:
    builder = workflow("w").then(fetch, "a")
    with Queuety(memory_url) as app:
        template = app.register_workflow_template(builder)
        pictures = {app.workflow_graph(target) for target in (builder, template, builder.definition(), "w")}
        assert pictures == {drawn(builder.build())}
        with pytest.raises(NotFoundError, match="there are 'w' registered here"):
            app.workflow_graph("x")
        with pytest.raises(DefinitionError, match="no format 'dot'"):
            app.workflow_graph(builder, format="dot")
        with pytest.raises(DefinitionError, match="steps"):
            app.workflow_graph({"name": "w"})


def test_a_definition_is_drawn_whose_handlers_are_nowhere(memory_url: str) -> None:
    form = {"name": "w", "steps": [{"type": "single", "name": "a", "handler": "not.installed:here"}]}
    with Queuety(memory_url) as app:
        assert '"a<br/>here"' in app.workflow_graph(form)
