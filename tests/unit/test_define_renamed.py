"""Handlers that were moved or renamed: what was stored under the old name leads to the new one."""

from __future__ import annotations

import importlib
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from queuety.define.builder import WorkflowBuilder, workflow
from queuety.define.marks import HandlerKind, Step, bind, job, step
from queuety.define.registry import Registry
from queuety.define.wire import definition_from_json, definition_to_json
from queuety.errors import DefinitionError, HandlerNotFound
from queuety.model import HandlerRef, Options, Use

STEP = HandlerKind.STEP


@step(queue="new", max_attempts=7)
def renamed(state: dict[str, Any], limit: int = 1) -> dict[str, Any]:
    return {"limit": limit}


@step
def other(state: dict[str, Any]) -> None: ...


class Moved(Step):
    def __init__(self, mark: str = "!") -> None:
        self.mark = mark

    def handle(self, state: Any) -> Any:
        return {"mark": self.mark}


@job
def renamed_job(width: int) -> None: ...


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def write(package: Path, name: str, text: str) -> None:
    (package / f"{name}.py").write_text(textwrap.dedent(text))


MARKED = """
from queuety.define.marks import step

@step
def fetch(state):
    return {"old": True}
"""


@pytest.mark.parametrize(
    ("old", "text"),
    [
        ("qr_gone", None),
        ("qr_empty", "'what was here has moved'"),
        ("qr_broken", "import qr_missing_thing"),
        ("qr_raising", "raise RuntimeError('moved to new.place')"),
        ("qr_exiting", "import sys; sys.exit(3)"),
        ("qr_plain", "def fetch(state): ..."),
        ("qr_present", MARKED),
    ],
)
@pytest.mark.parametrize("was_met", [False, True])
def test_an_old_name_leads_to_what_is_registered_under_it(
    package: Path, old: str, text: str | None, was_met: bool
) -> None:
    if text is not None:
        write(package, old, text)
    registry, name = Registry(), f"{old}:fetch"
    if was_met:
        try:
            registry.resolve(name)
        except HandlerNotFound:
            assert old != "qr_present"
    registry.register(name, renamed)
    assert registry.resolve(name).target is renamed
    assert registry.plan(name, {"limit": 3}).call({}) == {"limit": 3}
    assert registry.plan(name, use=Use.CLEANUP).use is Use.CLEANUP
    ref, options = registry.ref(bind(name, limit=4), STEP, where="here")
    assert (ref, options) == (HandlerRef(name, {"limit": 4}), Options(queue="new", max_attempts=7))
    sys.modules.pop(old, None)


def test_classes_and_jobs_have_old_names_too() -> None:
    registry = Registry()
    registry.register("old.place:Format.Inner", Moved)
    registry.register("old.place:resize", renamed_job)
    assert registry.plan("old.place:Format.Inner", {"mark": "?"}).call({}) == {"mark": "?"}
    assert registry.resolve("old.place:resize").target is renamed_job
    assert registry.ref("old.place:resize", HandlerKind.JOB, where="here")[0] == HandlerRef("old.place:resize")


def test_a_stored_definition_keeps_its_names_and_its_hash() -> None:
    old = "old.place:fetch"
    form = {
        "name": "w",
        "on_cancel": old,
        "must_complete_within": 9,
        "on_deadline": {"handler": old, "config": {"limit": 2}},
        "steps": [
            {"type": "single", "name": "0", "handler": old, "compensation": old},
            {"type": "parallel", "name": "1", "branches": [old]},
        ],
    }
    stored = definition_from_json(form)
    assert definition_to_json(stored) == form
    registry = Registry()
    registry.register(old, renamed)
    known = definition_from_json(form, registry)
    assert known.steps[0].handler == known.steps[0].compensation == known.on_cancel == HandlerRef(old)
    assert known.on_deadline == HandlerRef(old, {"limit": 2})
    own = Options(queue="new", max_attempts=7)
    assert (known.steps[0].options, known.steps[1].branches[0].options) == (own, own)
    assert definition_from_json(definition_to_json(known), None) == known


def test_a_builder_without_an_application_learns_what_an_old_name_means() -> None:
    registry = Registry()
    registry.register("old.place:fetch", renamed)
    for builder in (workflow("w"), WorkflowBuilder("w", registry=registry)):
        built = builder.then("old.place:fetch").build(registry)
        assert built.steps[0].handler == HandlerRef("old.place:fetch")
        assert built.steps[0].options == Options(queue="new", max_attempts=7)


def test_what_is_left_of_a_module_may_say_who_has_the_name_now(package: Path) -> None:
    registry = Registry()
    write(package, "qr_home", f"registry = None\nfrom {__name__} import renamed")
    write(package, "qr_shim", "import qr_home\nqr_home.registry.register('qr_shim:fetch', qr_home.renamed)")
    import qr_home  # type: ignore[import-not-found]

    qr_home.registry = registry
    assert registry.resolve("qr_shim:fetch").target is renamed
    for module in ("qr_home", "qr_shim"):
        del sys.modules[module]


def test_a_name_that_a_module_declares_on_its_way_in_counts(package: Path) -> None:
    write(package, "qr_new_home", MARKED.replace("@step", "@step(name='qr_old_home:fetch')"))
    write(package, "qr_old_home", "import qr_new_home")
    assert Registry().plan("qr_old_home:fetch").call({}) == {"old": True}
    for module in ("qr_new_home", "qr_old_home"):
        del sys.modules[module]


def test_who_finds_nothing_under_a_name_is_told_how_to_keep_it() -> None:
    gone = f"{__name__}:gone"
    with pytest.raises(
        HandlerNotFound,
        match=rf"module {__name__} has no gone; if it was renamed, register .*: app.register\('{gone}', handler\)",
    ):
        Registry().resolve(gone)


def test_two_handlers_are_never_stored_under_one_name() -> None:
    registry, name = Registry(), f"{__name__}:other"
    registry.register(name, renamed)
    with pytest.raises(
        DefinitionError,
        match=rf"^here: {name} would be stored as '{name}', which is registered as a name of {__name__}:renamed; use",
    ):
        registry.ref(other, STEP, where="here")
    assert registry.resolve(name).target is renamed
    assert registry.ref(renamed, STEP, where="here")[0] == HandlerRef(f"{__name__}:renamed")


def test_a_handler_may_be_registered_under_its_own_name() -> None:
    registry, name = Registry(), f"{__name__}:other"
    registry.register(name, other)
    assert registry.ref(other, STEP, where="here")[0] == HandlerRef(name)
    assert registry.resolve(name).target is other


def test_a_module_that_was_loaded_anew_keeps_the_names_of_its_handlers(package: Path) -> None:
    registry, name = Registry(), "qr_again:fetch"
    write(package, "qr_again", MARKED)
    module = importlib.import_module("qr_again")
    registry.register(name, module.fetch)
    before = module.fetch
    importlib.reload(module)
    assert module.fetch is not before
    assert registry.ref(module.fetch, STEP, where="here")[0] == HandlerRef(name)
    assert registry.resolve(name).target is module.fetch
    del sys.modules["qr_again"]
