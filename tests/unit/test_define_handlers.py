"""Marks, the registry, and what it refuses."""

from __future__ import annotations

import functools
import sys
import textwrap
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from queuety.define.handlers import handler_of
from queuety.define.marks import HandlerKind, Job, Step, bind, job, step
from queuety.define.registry import Registry
from queuety.errors import DefinitionError, HandlerNotFound
from queuety.model import HandlerRef, Options, Priority

STEP, JOB = HandlerKind.STEP, HandlerKind.JOB


def unmarked(state: dict[str, Any]) -> None: ...


@step
def fetch(state: dict[str, Any]) -> dict[str, Any]:
    return {"seen": sorted(state)}


@step(max_attempts=5, queue="slow", priority="high", backoff=[1, 2], timeout=9, give_up_on=KeyError)
async def optioned(state: dict[str, Any]) -> None: ...


@step(name="charge card")
def charge(state: dict[str, Any], *, currency: str = "EUR") -> dict[str, Any]:
    return {"currency": currency}


@step
def score(state: dict[str, Any], at_least: int) -> dict[str, Any]:
    return {"score": at_least}


@step
def without_state() -> None: ...


@step
def generator(state: dict[str, Any]) -> Any:
    yield {}


class Static:
    @step
    @staticmethod
    def above(state: dict[str, Any]) -> None: ...

    @staticmethod
    @step
    def below(state: dict[str, Any]) -> None: ...


def doubling(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(state: dict[str, Any]) -> Any:
        return function({**state, "doubled": True})

    return wrapper


@doubling
@step(name="wrapped")
def wrapped(state: dict[str, Any]) -> Any:
    return dict(state)


class Format(Step):
    def handle(self, state: dict[str, Any]) -> dict[str, Any]:
        return {"formatted": True}

    def config(self) -> dict[str, Any]:
        return {"max_attempts": 7, "timeout": 2}


@step(queue="reports", max_attempts=2)
class Report(Format):
    def __init__(self, title: str, copies: int = 1) -> None:
        self.title, self.copies = title, copies

    async def handle(self, state: dict[str, Any]) -> dict[str, Any]:
        return {"title": self.title}

    def config(self) -> dict[str, Any]:
        return {"max_attempts": self.copies}


class Heir(Report):
    pass


class NoHandle(Step):
    pass


class BadConfig(Step):
    def handle(self, state: Any) -> Any: ...

    def config(self) -> dict[str, Any]:
        return {"concurrency_group": "x"}


class RaisingConfig(Step):
    def handle(self, state: Any) -> Any: ...

    def config(self) -> dict[str, Any]:
        raise RuntimeError("no settings file")


@job(queue="mail", max_attempts=9)
@dataclass
class SendEmail(Job):
    to: str
    subject: str = "Hello"
    tries = 4
    backoff: ClassVar[Any] = [1, 5]

    def handle(self) -> None: ...


@dataclass(slots=True)
class Annotated(Job):
    to: str
    timeout: float = 12

    async def handle(self) -> None: ...


class Nightly(Job):
    def handle(self) -> None: ...


class NoDataclass(Job):
    to: str

    def handle(self) -> None: ...


@dataclass
class Forgotten(Job):
    to: InitVar[str]

    def handle(self) -> None: ...


@dataclass
class BadTries(Job):
    tries = 0

    def handle(self) -> None: ...


@job
def resize(width: int, height: int = 1) -> None: ...


@job
def positional(width: int, /) -> None: ...


def ref(target: Any, kind: HandlerKind = STEP) -> tuple[HandlerRef, Options]:
    return Registry().ref(target, kind, where="here")


def test_a_marked_function_is_the_same_function() -> None:
    def function(state: dict[str, Any]) -> int:
        return 3

    assert step(function) is function
    assert function({}) == 3
    assert Static.above is not None


@pytest.mark.parametrize(
    ("target", "kind", "name"),
    [
        (fetch, STEP, f"{__name__}:fetch"),
        (charge, STEP, "charge card"),
        (Static.above, STEP, f"{__name__}:Static.above"),
        (Static.below, STEP, f"{__name__}:Static.below"),
        (wrapped, STEP, "wrapped"),
        (Format, STEP, f"{__name__}:Format"),
        (resize, JOB, f"{__name__}:resize"),
        (SendEmail, JOB, f"{__name__}:SendEmail"),
        (Nightly, JOB, f"{__name__}:Nightly"),
    ],
)
def test_a_handlers_name_leads_back_to_it(target: Any, kind: HandlerKind, name: str) -> None:
    found, _ = ref(target, kind)
    assert found == HandlerRef(name)
    resolved = Registry().resolve(name)
    assert resolved.target is target
    assert resolved.kind is kind


def test_a_wrapper_above_the_mark_is_part_of_the_handler() -> None:
    assert Registry().resolve("wrapped").target({}) == {"doubled": True}


def test_options_come_from_the_mark_from_config_and_from_the_attributes_of_a_job() -> None:
    assert ref(optioned)[1] == Options(
        queue="slow",
        priority=Priority.HIGH,
        max_attempts=5,
        backoff=(1.0, 2.0),
        timeout_s=9.0,
        give_up_on=("builtins:KeyError",),
    )
    assert ref(Format)[1] == Options(max_attempts=7, timeout_s=2.0)
    assert ref(bind(Report, title="x", copies=6))[1] == Options(queue="reports", max_attempts=6)
    assert ref(bind(Heir, title="x"))[1] == Options(max_attempts=1)
    assert ref(SendEmail, JOB)[1] == Options(queue="mail", max_attempts=4, backoff=(1.0, 5.0))
    assert ref(Annotated, JOB)[1] == Options(timeout_s=12.0)


def test_a_bound_handler_carries_its_configuration() -> None:
    bound = bind(bind(score, at_least=3), at_least=4)
    assert ref(bound)[0] == HandlerRef(f"{__name__}:score", {"at_least": 4})
    assert ref(bind(fetch))[0] == HandlerRef(f"{__name__}:fetch")
    with pytest.raises(DefinitionError, match=r"configuration must be JSON; bind\.x: a set"):
        bind(score, x={1})


@pytest.mark.parametrize(
    ("target", "kind", "message"),
    [
        (unmarked, STEP, "unmarked carries no mark; put @step"),
        (len, STEP, "carries no mark"),
        (resize, STEP, "is a job and cannot be used as a step"),
        (fetch, JOB, "is a step and cannot be used as a job"),
        (Format(), STEP, "an instance of Format was given; give the class"),
        (Step, STEP, "is a class that is no handler"),
        (dict, STEP, "is a class that is no handler"),
        (NoHandle, STEP, r"has no method handle\(\)"),
        (BadConfig, STEP, r"BadConfig\.config\(\): there is no option 'concurrency_group'"),
        (RaisingConfig, STEP, r"config\(\) raised RuntimeError: no settings file"),
        (score, STEP, "cannot be called with .state.: missing a required argument: 'at_least'"),
        (bind(fetch, at_least=1), STEP, "unexpected keyword argument 'at_least'"),
        (bind(score, state=1, at_least=1), STEP, "multiple values for argument 'state'"),
        (without_state, STEP, "too many positional arguments"),
        (Report, STEP, "missing a required argument: 'title'"),
        (generator, STEP, "is a generator"),
        (NoDataclass, JOB, "put @dataclass above NoDataclass"),
        (Forgotten, JOB, "InitVar"),
        (BadTries, JOB, "BadTries: max_attempts must be an integer"),
        (bind(SendEmail, to="x"), JOB, "no configuration beside its payload"),
        (positional, JOB, "keyword arguments"),
        ("unknown", STEP, "no handler is named 'unknown' here"),
        (f"{__name__}:nothing", STEP, "has no nothing"),
        (f"{__name__}:unmarked", STEP, "carries no mark"),
        ("os:system", STEP, "carries no mark"),
        ("", STEP, "must not be empty"),
        (None, STEP, "no name"),
        (lambda _: None, STEP, "a lambda"),
    ],
)
def test_what_is_no_handler_for_that_use_is_refused_with_the_reason(
    target: Any, kind: HandlerKind, message: str
) -> None:
    with pytest.raises(DefinitionError, match=rf"^here: .*{message}"):
        ref(target, kind)


def test_nested_functions_are_refused_though_they_are_marked_and_named() -> None:
    @step
    def inner(state: Any) -> None: ...

    @step(name="inner of this test")
    def named(state: Any) -> None: ...

    for function in (inner, named):
        with pytest.raises(DefinitionError, match="defined inside a function"):
            ref(function)


def test_an_alias_names_a_handler_even_a_nested_one() -> None:
    @step
    def inner(state: Any) -> None: ...

    registry = Registry()
    registry.register("tidy", inner)
    registry.register("old.place:fetch", fetch)
    assert registry.ref(inner, STEP, where="here")[0] == HandlerRef("tidy")
    assert registry.ref("tidy", STEP, where="here")[0] == HandlerRef("tidy")
    assert registry.ref(bind("old.place:fetch"), STEP, where="here")[0] == HandlerRef("old.place:fetch")
    assert registry.resolve("old.place:fetch").target is fetch
    registry.register("tidy", inner)
    with pytest.raises(DefinitionError, match="already names"):
        registry.register("tidy", fetch)
    for alias, target in [("", fetch), ("a\0", fetch), ("x", unmarked), ("x", bind(fetch)), ("x", 3)]:
        with pytest.raises(DefinitionError):
            registry.register(alias, target)
    with pytest.raises(HandlerNotFound):
        registry.resolve("x")


@pytest.mark.parametrize(
    "name", ["os:system", "builtins:eval", f"{__name__}:unmarked", f"{__name__}:Step", "", ":", "a:"]
)
def test_a_name_in_a_row_cannot_call_what_carries_no_mark(name: str) -> None:
    with pytest.raises(HandlerNotFound):
        Registry().resolve(name)


@pytest.mark.parametrize(
    ("decorate", "message"),
    [
        (lambda: step("fetch"), "marks functions and classes"),  # type: ignore[call-overload]
        (lambda: step(fetch), "already marked as a step"),
        (lambda: job(fetch), "already marked as a step"),
        (lambda: step(rate_limit=(1, 2)), None),  # type: ignore[call-overload]
        (lambda: step(int), "must derive from Step"),
        (lambda: step(SendEmail), "already marked as a job"),
        (lambda: job(Nightly()), "marks functions and classes"),
        (lambda: step(name="")(lambda s: s), "name must not be empty"),
        (lambda: step(name="charge card")(lambda s: s), "already has the name 'charge card'"),
        (lambda: step(len), "takes no mark"),
        (lambda: step(max_attempts=0)(lambda s: s), "max_attempts must be"),
    ],
)
def test_a_mark_that_cannot_be_right_is_refused_at_once(decorate: Callable[[], Any], message: str | None) -> None:
    if message is None:
        with pytest.raises(DefinitionError, match="no option 'rate_limit'"):
            decorate()(lambda state: state)
    else:
        with pytest.raises(DefinitionError, match=message):
            decorate()


def test_a_step_class_marked_as_a_job_is_refused() -> None:
    @job
    class Confused(Step):
        def handle(self, state: Any) -> Any: ...

    with pytest.raises(DefinitionError, match="marked as a job but derives from Step"):
        handler_of(Confused, "x")


def test_a_job_that_is_no_dataclass_says_so_when_it_is_made() -> None:
    with pytest.raises(DefinitionError, match="NoDataclass is no dataclass: put @dataclass above it"):
        NoDataclass(to="x")  # type: ignore[abstract, unused-ignore]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def write(package: Path, name: str, text: str) -> None:
    (package / f"{name}.py").write_text(textwrap.dedent(text))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("raise RuntimeError('no database')", "RuntimeError: no database"),
        ("import missing_thing", "No module named 'missing_thing'"),
        ("def (", "SyntaxError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
    ],
)
def test_a_module_that_cannot_be_imported_is_a_handler_not_found_with_the_cause(
    package: Path, line: str, reason: str
) -> None:
    write(package, "qt_broken", line)
    with pytest.raises(HandlerNotFound, match=f"importing qt_broken raised .*{reason}"):
        Registry().resolve("qt_broken:fetch")
    with pytest.raises(DefinitionError, match=reason):
        ref("qt_broken:fetch")
    assert "qt_broken" not in sys.modules


def test_a_failure_is_not_remembered_and_a_success_is(package: Path) -> None:
    registry = Registry()
    with pytest.raises(HandlerNotFound, match="No module named 'qt_late'"):
        registry.resolve("qt_late:fetch")
    write(package, "qt_late", "from queuety.define.marks import step\n@step\ndef fetch(state): return {}")
    found = registry.resolve("qt_late:fetch")
    del sys.modules["qt_late"]
    (package / "qt_late.py").unlink()
    assert registry.resolve("qt_late:fetch") is found


def test_the_name_of_another_services_handler_is_taken_on_trust() -> None:
    target = bind("elsewhere.orders:fetch", limit=3)
    assert ref(target) == (HandlerRef("elsewhere.orders:fetch", {"limit": 3}), Options())
    assert ref("queuety.elsewhere:fetch", JOB)[0] == HandlerRef("queuety.elsewhere:fetch")


def test_a_plan_calls_the_handler_with_its_configuration() -> None:
    registry = Registry()
    name = f"{__name__}:score"
    assert registry.plan(name, {"at_least": 3}).call({}) == {"score": 3}
    assert registry.plan(name, {"at_least": 4}).call({}) == {"score": 4}
    with pytest.raises(HandlerNotFound, match=r"cannot be called as its definition says: .*'at_least'"):
        registry.plan(name)
