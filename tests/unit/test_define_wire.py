"""The JSON form of a definition: one shape out, several in, and a hash that knows everything and nothing else."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuety.codec import checked, decode, encode
from queuety.define import wire
from queuety.define.builder import workflow
from queuety.define.marks import bind, job, step
from queuety.define.registry import Registry
from queuety.define.wire import definition_from_json, definition_hash, definition_to_json, hashed
from queuety.errors import DefinitionError
from queuety.model import Definition, Guards, HandlerRef, Options, Priority, StepSpec
from tests.unit.test_define_options import options


@step(queue="theirs", max_attempts=2)
def fetch(state: dict[str, Any], limit: int = 1) -> None: ...


@job
def plain_job() -> None: ...


NAME = f"{__name__}:fetch"

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6).filter(str.strip)
configs = st.dictionaries(texts, st.none() | st.integers(-9, 9) | st.lists(texts, max_size=2), min_size=1, max_size=2)
refs = st.builds(HandlerRef, texts, st.none() | configs)
steps = st.one_of(
    st.builds(StepSpec, st.just("single"), texts, refs, options, compensation=st.none() | refs),
    st.builds(
        StepSpec,
        st.just("delay"),
        texts,
        settings=st.builds(lambda seconds: {"seconds": seconds}, st.integers(0, 10**6) | st.just(0.5)),
    ),
)
limits = st.none() | st.integers(1, 2**63 - 1)
guards = st.builds(Guards, **{field.name: limits for field in dataclasses.fields(Guards)})
definitions = st.builds(
    Definition,
    name=texts,
    steps=st.lists(steps, min_size=1, max_size=4, unique_by=lambda spec: spec.name).map(tuple),
    queue=st.none() | texts.filter(lambda text: "," not in text),
    priority=st.none() | st.sampled_from(list(Priority)),
    max_attempts=st.none() | st.integers(1, 9),
    version=st.none() | texts.map(str.strip),
    on_cancel=st.none() | refs,
    on_deadline=st.none() | refs,
    deadline_s=st.none() | st.integers(1, 10**6).map(float) | st.floats(1, 10**6),
    compensates_on_failure=st.booleans(),
    prune_after=st.none() | st.integers(1, 9),
    guards=st.none() | guards.filter(lambda limits: limits != Guards()),
).map(hashed)


def shuffled(value: Any, random: Any) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        random.shuffle(keys)
        return {key: shuffled(value[key], random) for key in keys}
    return [shuffled(item, random) for item in value] if isinstance(value, list) else value


@given(definitions, st.randoms())
def test_a_definition_survives_its_json_form_with_the_same_hash(definition: Definition, random: Any) -> None:
    form = definition_to_json(definition)
    assert checked(form, what="form") == form
    back = definition_from_json(shuffled(decode(encode(form)), random))
    assert back == definition
    assert back.hash == definition.hash == definition_hash(back)
    assert len(back.hash) == 64
    assert set(back.hash) <= set("0123456789abcdef")


@given(definitions, definitions)
def test_different_definitions_have_different_hashes(one: Definition, other: Definition) -> None:
    assert (one.hash == other.hash) == (dataclasses.replace(one, hash="") == dataclasses.replace(other, hash=""))


def test_every_part_of_a_definition_is_in_its_hash() -> None:
    base = Definition(
        "w", (StepSpec("single", "a", HandlerRef("m:f")), StepSpec("delay", "b", settings={"seconds": 1}))
    )
    first = base.steps[0]
    options = Options(
        queue="q",
        priority=Priority.LOW,
        max_attempts=1,
        backoff="fixed",
        timeout_s=1.0,
        retry_on=("a:B",),
        give_up_on=("a:B",),
        delay_s=1.0,
        cost_units=0,
    )
    others = [
        dataclasses.replace(base, **{field: value})
        for field, value in {
            "name": "v",
            "queue": "q",
            "priority": Priority.LOW,
            "max_attempts": 1,
            "version": "1",
            "on_cancel": HandlerRef("m:c"),
            "steps": base.steps[::-1],
            "on_deadline": HandlerRef("m:c"),
            "deadline_s": 1.0,
            "compensates_on_failure": True,
            "prune_after": 1,
        }.items()
    ]
    others += [
        dataclasses.replace(base, guards=dataclasses.replace(Guards(), **{field.name: limit}))
        for field in dataclasses.fields(Guards)
        for limit in (1, 2)
    ]
    told_apart = {field.name for field in dataclasses.fields(Definition)} - {"hash"}
    differ = {name for name in told_apart for each in others if getattr(each, name) != getattr(base, name)}
    assert differ == told_apart, "a field of Definition that this test forgets"
    specs = [
        dataclasses.replace(first, name="z"),
        dataclasses.replace(first, handler=HandlerRef("m:g")),
        dataclasses.replace(first, handler=HandlerRef("m:f", {"a": 1})),
        dataclasses.replace(first, compensation=HandlerRef("m:f")),
        dataclasses.replace(first, compensation=HandlerRef("m:f", {"a": 1})),
        *(
            dataclasses.replace(
                first, options=dataclasses.replace(Options(), **{field.name: getattr(options, field.name)})
            )
            for field in dataclasses.fields(Options)
        ),
    ]
    others += [dataclasses.replace(base, steps=(spec, base.steps[1])) for spec in specs]
    others.append(dataclasses.replace(base, steps=(first, StepSpec("delay", "b", settings={"seconds": 2}))))
    hashes = {definition_hash(each) for each in [base, *others]}
    assert len(hashes) == 1 + len(others)


def test_the_hash_is_the_same_in_another_process() -> None:
    built = workflow("w").then(bind(fetch, limit=3), backoff=[1, 2.5]).delay(3).build()
    code = "import json, sys; from queuety.define.wire import *; print(definition_from_json(json.load(sys.stdin)).hash)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(definition_to_json(built)),
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(wire.__file__).parents[2]), "PYTHONHASHSEED": "7"},
    )
    assert done.stdout.strip() == built.hash


def test_a_definition_that_an_earlier_version_has_stored_keeps_its_hash() -> None:
    form = {
        "name": "report",
        "version": "v2",
        "queue": "reports",
        "max_attempts": 4,
        "priority": "high",
        "on_cancel": "m:undo",
        "steps": [
            {
                "type": "single",
                "name": "0",
                "handler": {"handler": "m:f", "config": {"limit": 3}},
                "timeout": 30,
                "backoff": [1, 2.5],
            },
            {"type": "delay", "name": "delay_0", "seconds": 90150},
        ],
    }
    stored = definition_from_json(form)
    assert stored.hash == "178aa2b576dbf53a3a820f4a0a23287f016639622a8ac023724b7da9338772f1"
    assert definition_to_json(stored) == form


def test_a_definition_of_every_kind_that_an_earlier_version_has_stored_keeps_its_hash() -> None:
    child = {
        "name": "c",
        "on_cancel": {"handler": "m:undo", "config": {"deep": [1, None]}},
        "steps": [
            {"type": "single", "name": "0", "handler": "m:f", "retry_on": ["builtins:OSError"], "delay": 0.5},
        ],
    }
    starts = {"items_key": "o", "result_key": "ids", "payload_key": "item", "inherit_state": True, "workflow": child}
    condition = {"handler": "m:c", "config": {"score": 8}}
    each = {"handler": "m:i", "items_key": "urls", "result_key": "pages", "mode": "quorum", "quorum": 2}
    form = {
        "name": "every kind",
        "priority": "urgent",
        "steps": [
            {
                "type": "single",
                "name": "get",
                "handler": "m:f",
                "queue": "q",
                "max_attempts": 2,
                "give_up_on": ["a.b:C"],
            },
            {"type": "parallel", "name": "1", "branches": ["m:g", {"handler": "m:h", "timeout": 1.5}]},
            {"type": "for_each", "name": "2", **each, "reducer": "m:r"},
            {
                "type": "repeat",
                "name": "until",
                "until": True,
                "target": "get",
                "condition": condition,
                "max_iterations": 3,
            },
            {
                "type": "wait_for_signal",
                "name": "go",
                "names": ["go"],
                "mode": "all",
                "timeout": 60,
                "on_timeout": "get",
            },
            {"type": "wait_for_workflows", "name": "w", "workflows": [7], "mode": "all", "keyed": True},
            {"type": "run_workflow", "name": "6", "workflow": child},
            {"type": "start_workflows", "name": "7", **starts},
            {"type": "delay", "name": "d", "seconds": 0},
        ],
    }
    stored = definition_from_json(form)
    assert stored.hash == "f185d9f5d9b61c7abe27ae0a8f022097fbabdc9eae711a6282ddc9d132796c0a"
    assert definition_to_json(stored) == form


def test_the_json_form_is_what_it_says() -> None:
    built = (
        workflow("report").then(bind(fetch, limit=3), "get", timeout=30, priority=3).delay(1.5).max_attempts(2).build()
    )
    assert definition_to_json(built) == {
        "name": "report",
        "max_attempts": 2,
        "steps": [
            {
                "type": "single",
                "name": "get",
                "handler": {"handler": NAME, "config": {"limit": 3}},
                "queue": "theirs",
                "priority": "urgent",
                "max_attempts": 2,
                "timeout": 30,
            },
            {"type": "delay", "name": "delay_0", "seconds": 1.5},
        ],
    }


def one_step(**entry: Any) -> dict[str, Any]:
    return {"name": "w", "steps": [{"type": "single", "name": "a", **entry}]}


@pytest.mark.parametrize(
    ("entry", "handler", "options"),
    [
        ({"handler": "m:f"}, HandlerRef("m:f"), Options()),
        ({"class": "m:F"}, HandlerRef("m:F"), Options()),
        ({"handler": {"class": "m:F", "payload": {"a": 1}}}, HandlerRef("m:F", {"a": 1}), Options()),
        ({"handler": {"handler": "m:f", "config": {}}}, HandlerRef("m:f"), Options()),
        ({"handler": "m:f", "timeout": {"seconds": 5}, "delay": 2}, HandlerRef("m:f"), Options(timeout_s=5, delay_s=2)),
        (
            {"handler": "m:f", "retry": {"max_attempts": 4, "backoff": "fixed"}, "max_attempts": 5},
            HandlerRef("m:f"),
            Options(max_attempts=5, backoff="fixed"),
        ),
        (
            {"handler": "m:f", "queue": "q", "config": {"queue": "r", "priority": 2, "retry": {"backoff": [1]}}},
            HandlerRef("m:f"),
            Options(queue="q", priority=Priority.HIGH, backoff=(1.0,)),
        ),
        (
            {
                "handler": "m:f",
                "queue": None,
                "retry": None,
                "resources": None,
                "config": None,
                "compensation": None,
            },
            HandlerRef("m:f"),
            Options(),
        ),
        ({"handler": "m:f", "cost_units": 0}, HandlerRef("m:f"), Options(cost_units=0)),
        ({"handler": "m:f", "resources": {"cost_units": 7}}, HandlerRef("m:f"), Options(cost_units=7)),
        (
            {"handler": "m:f", "cost_units": 1, "resources": {"cost_units": 2}, "config": {"cost_units": 3}},
            HandlerRef("m:f"),
            Options(cost_units=1),
        ),
        (
            {"handler": "m:f", "resources": {"cost_units": 2}, "config": {"cost_units": 3}},
            HandlerRef("m:f"),
            Options(cost_units=2),
        ),
        (
            {"handler": "m:f", "config": {"resources": {"cost_units": 4}, "retry": {"max_attempts": 5}}},
            HandlerRef("m:f"),
            Options(cost_units=4, max_attempts=5),
        ),
    ],
)
def test_the_other_shapes_are_read_too(entry: dict[str, Any], handler: HandlerRef, options: Options) -> None:
    spec = definition_from_json(one_step(**entry)).steps[0]
    assert spec == StepSpec("single", "a", handler, options)


def test_a_delay_may_be_given_in_its_parts() -> None:
    form = {"name": "w", "steps": [{"type": "delay", "name": "d", "minutes": 1, "seconds": 3}]}
    assert definition_from_json(form).steps[0].settings == {"seconds": 63}


def test_with_a_registry_handlers_are_looked_up_and_state_their_options() -> None:
    registry = Registry()
    registry.register("get", fetch)
    built = definition_from_json(one_step(handler="get", queue="mine"), registry)
    assert built.steps[0] == StepSpec("single", "a", HandlerRef("get"), Options(queue="mine", max_attempts=2))
    assert definition_from_json(definition_to_json(built), registry) == built
    assert definition_from_json(one_step(handler="gone"), None).steps[0].handler == HandlerRef("gone")


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ([], "definition must be a mapping"),
        ({"name": "w", "steps": {1}}, r"definition\.steps: a set"),
        ({"steps": [{}]}, "definition: name must be a string"),
        ({"name": "w"}, "workflow 'w': steps must be a list"),
        ({"name": "w", "steps": []}, "at least one step"),
        ({"name": "w", "steps": {}}, "steps must be a list"),
        ({"name": "w", "steps": ["m:f"]}, "step 0 must be a JSON object, not 'm:f'"),
        ({"name": "w", "steps": [{"type": "delay"}] * 10_001}, "at most 10000"),
        ({"name": "w", "steps": [{}]}, "step 0: name is missing"),
        (
            {"name": "w", "steps": [{"name": "a"}]},
            "step 0 .'a'.: type must be one of delay, for_each, parallel, repeat, run_workflow, single, .*, not None",
        ),
        ({"name": "w", "steps": [{"name": "a", "type": "teleport"}]}, "not 'teleport'"),
        ({"name": "w", "steps": [{"name": "a", "type": ["single"]}]}, "step 0 .'a'.: type must be one of"),
        ({"name": "w", "steps": [{"name": "", "type": "single"}]}, "step 0: name must not be empty"),
        ({"name": "w", "hash": "x", "steps": [{}]}, "definition: there is no key 'hash'"),
        (one_step(), "step 0 .'a'.: handler or class is missing"),
        (one_step(handler="m:f", **{"class": "m:F"}), "class and handler say the same thing"),
        (one_step(handler=["m:f"]), "step 0 .'a'.: handler must be a string"),
        (one_step(handler={"name": "m:f"}), "step 0 .'a'.: handler: there is no key 'name'"),
        (one_step(handler={"config": {}}), "handler or class is missing"),
        (one_step(handler={"handler": "m:f", "config": [1]}), "handler: config must be a JSON object"),
        (one_step(handler={"handler": {"handler": "m:f"}}), "handler must be a string"),
        (one_step(handler="m:f", rate_limit=[1, 2]), "step 0 .'a'.: there is no key 'rate_limit'"),
        (one_step(handler="m:f", seconds=1), "there is no key 'seconds'"),
        (one_step(handler="m:f", max_attempts=0), "step 0 .'a'.: max_attempts must be an integer"),
        (one_step(handler="m:f", retry=3), "retry must be a JSON object"),
        (one_step(handler="m:f", retry={"timeout": 3}), "retry: there is no key 'timeout'"),
        (one_step(handler="m:f", cost_units=-1), "step 0 .'a'.: cost_units must be an integer from 0"),
        (one_step(handler="m:f", resources=3), "step 0 .'a'.: resources must be a JSON object, not 3"),
        (
            one_step(handler="m:f", resources={"concurrency_group": "g"}),
            "step 0 .'a'.: resources: there is no key 'concurrency_group'; there are cost_units",
        ),
        (one_step(handler="m:f", resources={"cost_units": 1.5}), "resources: cost_units must be an integer"),
        (one_step(handler="m:f", config={"resources": {"queue": "q"}}), "config: resources: there is no key 'queue'"),
        (one_step(handler="m:f", config=[]), "config must be a JSON object"),
        (one_step(handler="m:f", config={"config": {}}), "config: there is no key 'config'"),
        (one_step(handler="m:f", config={"backoff": "slow"}), "step 0 .'a'.: config: backoff must be"),
        ({"name": "w", "steps": [{"type": "delay", "name": "d", "seconds": -1}]}, "step 0 .'d'.: the sum must lie"),
        ({"name": "w", "steps": [{"type": "delay", "name": "d", "seconds": None}]}, "seconds must be a number"),
        ({"name": "w", "steps": [{"type": "delay", "name": "d", "queue": "q"}]}, "there is no key 'queue'"),
        ({"name": "w", "steps": [{"type": "delay", "name": "d"}] * 2}, "step 1: step 0 already has the name 'd'"),
        ({**one_step(handler="m:f"), "priority": "soon"}, "workflow 'w': priority must be one of"),
        ({**one_step(handler="m:f"), "version": " "}, "workflow 'w': version must not be empty"),
        ({**one_step(handler="m:f"), "on_cancel": {}}, "workflow 'w': on_cancel: handler or class is missing"),
    ],
)
def test_a_form_that_cannot_be_right_names_the_step_and_the_key(form: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        definition_from_json(form)


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        ("unknown", "step 0 .'a'.: handler: no handler is named 'unknown' here"),
        (f"{__name__}:nothing", "has no nothing"),
        (f"{__name__}:plain_job", "is a job and cannot be used as a step"),
        ({"handler": NAME, "config": {"size": 1}}, "unexpected keyword argument 'size'"),
    ],
)
def test_with_a_registry_a_handler_must_be_one(handler: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        definition_from_json(one_step(handler=handler), Registry())


def test_nobody_shares_the_form_with_the_definition() -> None:
    built = workflow("w").then(bind(fetch, limit=3)).build()
    form: Any = definition_to_json(built)
    form["steps"][0]["handler"]["config"]["limit"] = 4
    assert definition_to_json(built)["steps"][0]["handler"]["config"] == {"limit": 3}
