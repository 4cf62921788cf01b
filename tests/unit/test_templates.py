"""Templates and workflow files, as far as no database is needed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from queuety import Queuety, step, workflow
from queuety.errors import DefinitionError, HandlerNotFound, NotFoundError, PayloadError
from queuety.model import Priority
from tests.support.filed import forgotten

Write = Callable[[str, str], Path]

DAILY = """
from queuety import step, workflow as described

@step
def fetch(state):
    return {"fetched": True}

workflow = described("daily").then(fetch, "fetch")
"""

PLAIN = "from queuety import step\n\n@step\ndef plain(state):\n    return {}\n"


@step
def fetch(state: dict[str, Any]) -> dict[str, Any]:
    return {"fetched": True}


@pytest.fixture
def app(memory_url: str) -> Iterator[Queuety]:
    with Queuety(memory_url) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for workflow files; what was loaded from it is forgotten afterwards."""
    with forgotten():
        yield tmp_path / "flows"


@pytest.fixture
def write(folder: Path) -> Write:
    """Writes a file of the folder."""

    def written(name: str, text: str) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        return path

    return written


def named(name: str, handler: str = "fetch") -> str:
    return DAILY.replace("daily", name).replace('"fetch"', f'"{handler}"')


# Templates


def test_a_template_is_what_the_builder_described_when_it_was_registered(app: Queuety) -> None:
    builder = app.define_workflow("report").version("3").on_queue("slow").with_priority("high").max_attempts(7)
    template = app.register_workflow_template(builder.then(fetch, "fetch"))
    assert (template.name, template.steps, template.version, template.source) == ("report", ("fetch",), "3", None)
    assert (template.queue, template.priority, template.max_attempts) == ("slow", Priority.HIGH, 7)
    assert template.definition == builder.definition()
    builder.then(fetch, "again")
    assert app.workflow_templates() == {"report": template}
    assert app.register_workflow_template(builder).steps == ("fetch", "again")
    assert app.workflow_templates()["report"].hash == builder.build().hash != template.hash


def test_templates_come_by_name_in_a_mapping_of_ones_own(app: Queuety) -> None:
    for name in ("b", "a"):
        app.register_workflow_template(workflow(name).then(fetch))
    found = app.workflow_templates()
    assert list(found) == ["a", "b"]
    found["a"].definition.clear()
    found.clear()
    assert list(app.workflow_templates()) == ["a", "b"]
    assert app.workflow_templates()["a"].definition["name"] == "a"


def test_a_template_needs_a_builder_with_steps(app: Queuety) -> None:
    with pytest.raises(DefinitionError, match="has no steps"):
        app.register_workflow_template(app.define_workflow("empty"))
    with pytest.raises(DefinitionError, match="of type dict is no workflow"):
        app.register_workflow_template({"name": "x"})  # type: ignore[arg-type]
    assert app.workflow_templates() == {}


def test_an_alias_of_a_template_is_looked_up_when_it_is_registered(app: Queuety) -> None:
    with pytest.raises(DefinitionError, match="no handler is named 'fetching'"):
        app.register_workflow_template(workflow("w").then("fetching"))
    app.register("fetching", fetch)
    assert app.register_workflow_template(workflow("w").then("fetching")).steps == ("0",)


def test_an_unknown_template_names_those_that_are_registered(app: Queuety) -> None:
    with pytest.raises(NotFoundError, match="'daily' is not registered here; there are none"):
        app.run_workflow("daily")
    for name in ("weekly", "monthly"):
        app.register_workflow_template(workflow(name).then(fetch))
    with pytest.raises(NotFoundError, match="not registered here; there are 'monthly', 'weekly'"):
        app.run_workflow("daily")


@pytest.mark.parametrize("key", ["", "  ", 3, "a\x00b", "x" * 256])
def test_a_key_that_names_nothing_is_refused(app: Queuety, key: Any) -> None:
    app.register_workflow_template(workflow("daily").then(fetch))
    with pytest.raises(DefinitionError, match="idempotency_key"):
        app.run_workflow("daily", idempotency_key=key)
    with pytest.raises(PayloadError, match="_secret"):
        app.run_workflow("daily", {"_secret": 1})
    assert app.list_workflows() == []


# Files


def test_a_file_is_a_module_under_a_name_of_its_own(app: Queuety, write: Write) -> None:
    template = app.load_workflow_file(write("daily.py", DAILY))
    assert template is not None
    assert (template.name, template.steps) == ("daily", ("fetch",))
    assert template.source == str(write("daily.py", DAILY))
    assert template.definition["steps"][0]["handler"] == "queuety_files.daily:fetch"
    assert app.registry.resolve("queuety_files.daily:fetch").target is sys.modules["queuety_files.daily"].fetch


def test_a_function_may_define_the_workflow(app: Queuety, write: Write) -> None:
    text = PLAIN + "\ndef define(app):\n    return app.workflow('made').then(plain, 'p')\n"
    template = app.load_workflow_file(str(write("made.py", text)))
    assert template is not None
    assert (template.name, template.steps) == ("made", ("p",))


@pytest.mark.parametrize(
    "text", [PLAIN, "from queuety import workflow", "workflow = 3", "class define: ...", ""], ids=range(5)
)
def test_a_file_without_a_builder_has_no_template(app: Queuety, write: Write, text: str) -> None:
    path = write("plain.py", text)
    assert app.load_workflow_file(path) is None
    assert app.load_workflows(path.parent) == 0
    assert app.workflow_templates() == {}


def test_a_folder_is_loaded_in_the_order_of_its_paths(app: Queuety, folder: Path, write: Write) -> None:
    loaded = "import builtins\nbuiltins.queuety_order.append(__name__)\n"
    for name in ("b", "a", "reports/daily", "_shared", "a/x", "_hidden/y", ".git/z", "__pycache__/q"):
        write(f"{name}.py", loaded)
    write("notes.txt", "no Python")
    (folder / "a.py").unlink()
    import builtins

    builtins.queuety_order = order = []  # type: ignore[attr-defined]
    app.load_workflows(folder)
    assert order == ["queuety_files.b"]
    app.load_workflows(folder, recursive=True)
    assert order == [f"queuety_files.{name}" for name in ("b", "a.x", "reports.daily")]


def test_it_counts_the_templates_and_loads_nothing_twice(app: Queuety, folder: Path, write: Write) -> None:
    write("one.py", named("one"))
    write("reports/two.py", named("two"))
    write("three.py", PLAIN)
    assert app.load_workflows(folder) == 1
    module = sys.modules["queuety_files.one"]
    assert app.load_workflows(str(folder), recursive=True) == 2
    assert sys.modules["queuety_files.one"] is module
    write("four.py", named("four"))
    assert app.load_workflows(folder, True) == 3
    assert list(app.workflow_templates()) == ["four", "one", "two"]


def test_another_application_of_the_process_loads_the_same_files(app: Queuety, folder: Path, write: Write) -> None:
    write("one.py", named("one"))
    app.load_workflows(folder)
    with Queuety("sqlite://") as other:
        assert other.workflow_templates() == {}
        assert other.load_workflows(folder) == 1
        assert other.workflow_templates() == app.workflow_templates()


def test_files_of_a_folder_may_import_each_other(app: Queuety, folder: Path, write: Write) -> None:
    write("_shared.py", PLAIN)
    write("lib/__init__.py", "answer = 42")
    write("lib/_deep.py", "from . import answer\nfrom .._shared import plain")
    write(
        "a.py",
        "from queuety import workflow as w\nfrom .b import other\nfrom .lib._deep import answer, plain\n"
        "workflow = w('a').then(plain, 'p').then(other, 'o')\nassert answer == 42",
    )
    write("b.py", PLAIN.replace("plain", "other"))
    assert app.load_workflows(folder) == 1
    handlers = [each["handler"] for each in app.workflow_templates()["a"].definition["steps"]]
    assert handlers == ["queuety_files._shared:plain", "queuety_files.b:other"]
    assert app.registry.resolve(handlers[0]).name == handlers[0]


def test_a_file_that_is_loaded_by_itself_stands_alone(app: Queuety, write: Write) -> None:
    write("_shared.py", PLAIN)
    path = write("a.py", "from ._shared import plain")
    with pytest.raises(DefinitionError, match=r"a\.py cannot be loaded: ModuleNotFoundError"):
        app.load_workflow_file(path)


def test_a_file_keeps_the_name_that_its_folder_gave_it(app: Queuety, folder: Path, write: Write) -> None:
    path = write("reports/daily.py", DAILY)
    app.load_workflows(folder, recursive=True)
    again = app.load_workflow_file(path)
    assert again is not None
    assert again.definition["steps"][0]["handler"] == "queuety_files.reports.daily:fetch"


def test_a_file_cannot_have_two_names(app: Queuety, folder: Path, write: Write) -> None:
    app.load_workflow_file(write("reports/daily.py", DAILY))
    with pytest.raises(
        DefinitionError, match=r"loaded as queuety_files\.daily, and would be queuety_files\.reports\.da"
    ):
        app.load_workflows(folder, recursive=True)
    assert app.load_workflows(folder / "reports") == 1


@pytest.mark.parametrize("name", ["daily.v2.py", "two words.py", "2024.py", "a:b.py", "x\x1b.py"])
def test_a_name_that_no_module_can_have_is_refused(app: Queuety, folder: Path, write: Write, name: str) -> None:
    write(name, DAILY)
    with pytest.raises(DefinitionError, match="cannot be part of the name of a module"):
        app.load_workflows(folder)


def test_a_dash_is_allowed(app: Queuety, folder: Path, write: Write) -> None:
    write("daily-report.py", DAILY)
    assert app.load_workflows(folder) == 1
    assert app.registry.resolve("queuety_files.daily-report:fetch")


def test_what_is_not_there_is_said(app: Queuety, folder: Path, write: Write) -> None:
    path = write("daily.txt", DAILY)
    with pytest.raises(NotFoundError, match=r"no workflow file '.*missing\.py'"):
        app.load_workflow_file(folder / "missing.py")
    with pytest.raises(NotFoundError, match="no workflow file"):
        app.load_workflow_file(folder)
    with pytest.raises(NotFoundError, match="no folder 'nowhere'"):
        app.load_workflows("nowhere")
    with pytest.raises(NotFoundError, match="no folder"):
        app.load_workflows(path)
    with pytest.raises(NotFoundError, match="no folder ''"):
        app.load_workflows("")  # what an unset variable gives; it is not the working directory
    with pytest.raises(DefinitionError, match=r"name ends in \.py"):
        app.load_workflow_file(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_like_this", r"ModuleNotFoundError: No module named 'nothing_like_this' \(line 1\)"),
        ("x = 1\nx / 0", r"ZeroDivisionError: division by zero \(line 2\)"),
        ("def broken(:", "SyntaxError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("from queuety import workflow as w\nworkflow = w('x').then(lambda s: s)", "DefinitionError: .*lambda"),
        ("from queuety import workflow as w\nworkflow = w('x')", "workflow 'x' has no steps"),
        ("def define(app):\n    return 3", r"define\(app\) returned an object of type int"),
        ("def define(app):\n    raise KeyError('k')", r"define\(app\) raised KeyError: 'k'"),
        ("from queuety import workflow as w\nworkflow = w('x')\ndef define(app): ...", "both `workflow` and `define"),
    ],
)
def test_a_file_that_fails_is_named_and_nothing_is_left_of_the_load(
    app: Queuety, folder: Path, write: Write, text: str, said: str
) -> None:
    good = PLAIN.replace("@step", "@step(name='declared-here')")
    write(
        "a.py",
        good + "from .sub import inner\ndef define(app):\n    app.register('alias', plain)\n"
        "    return app.workflow('good').then(plain)\n",
    )
    write("sub/inner.py", PLAIN)
    path = write("z.py", text)
    with pytest.raises(DefinitionError, match=rf"(?s)workflow file {path}.*{said}"):
        app.load_workflows(folder)
    assert app.workflow_templates() == {}
    assert [name for name in sys.modules if name.startswith("queuety_files.")] == []
    for name in ("declared-here", "alias", "queuety_files.a:plain", "queuety_files.sub.inner:plain"):
        with pytest.raises(HandlerNotFound):
            app.registry.resolve(name)
    path.write_text(named("later"))
    assert app.load_workflows(folder) == 2
    assert app.registry.resolve("declared-here").target is sys.modules["queuety_files.a"].plain


def test_templates_that_a_file_registers_by_itself_go_with_a_load_that_fails(
    app: Queuety, folder: Path, write: Write
) -> None:
    app.register_workflow_template(workflow("mine").then(fetch))
    before = app.workflow_templates()
    text = PLAIN + "def define(app):\n    for name in ('mine', 'other'):\n"
    text += "        app.register_workflow_template(app.workflow(name).then(plain))\n"
    path = write("a.py", text)
    with pytest.raises(DefinitionError, match="returned an object of type NoneType"):
        app.load_workflow_file(path)
    with pytest.raises(DefinitionError, match="returned an object of type NoneType"):
        app.load_workflows(folder)
    assert app.workflow_templates() == before
    path.write_text(text + "    return app.workflow('third').then(plain)\n")
    assert app.load_workflows(folder) == 1
    assert list(app.workflow_templates()) == ["mine", "other", "third"]


def test_what_was_loaded_before_a_load_that_fails_stays(app: Queuety, folder: Path, write: Write) -> None:
    write("a.py", named("a"))
    app.load_workflows(folder)
    write("b.py", "1 / 0")
    with pytest.raises(DefinitionError):
        app.load_workflows(folder)
    assert list(app.workflow_templates()) == ["a"]
    assert app.registry.resolve("queuety_files.a:fetch")


def test_two_files_with_a_template_of_one_name_are_both_named(app: Queuety, folder: Path, write: Write) -> None:
    one, two = write("a.py", named("same")), write("b.py", named("same"))
    with pytest.raises(DefinitionError, match=rf"{one} and {two} both have a template named 'same'"):
        app.load_workflows(folder)
    assert app.workflow_templates() == {}
    app.load_workflow_file(one)
    with pytest.raises(DefinitionError, match="both have a template named 'same'"):
        app.load_workflow_file(two)
    assert app.workflow_templates()["same"].source == str(one)
    app.register_workflow_template(workflow("same").then(fetch))
    assert app.workflow_templates()["same"].source is None


def test_two_folders_cannot_have_a_module_of_one_name(app: Queuety, folder: Path, write: Write) -> None:
    one, two = write("x/daily.py", named("one")), write("y/daily.py", named("two"))
    app.load_workflows(folder / "x")
    with pytest.raises(DefinitionError, match=rf"{one} and {two} would both be the module queuety_files\.daily"):
        app.load_workflows(folder / "y")
    assert list(app.workflow_templates()) == ["one"]


def test_a_file_never_gets_the_namesake_from_another_folder(app: Queuety, folder: Path, write: Write) -> None:
    """`from ._shared import …` must not find what another folder has under that name."""
    write("x/_shared.py", PLAIN)
    write("x/a.py", "from ._shared import plain")
    write("y/_shared.py", PLAIN)
    write("y/b.py", "from ._shared import plain")
    app.load_workflows(folder / "x")
    with pytest.raises(DefinitionError, match=r"would both be the module queuety_files\._shared"):
        app.load_workflows(folder / "y")
    write("y/_shared.py", "").unlink()
    write("y/b.py", PLAIN)
    assert app.load_workflows(folder / "y") == 0
    assert app.registry.resolve("queuety_files.b:plain")


def test_two_folders_may_have_packages_of_one_name(app: Queuety, folder: Path, write: Write) -> None:
    write("x/reports/daily.py", named("one"))
    write("y/reports/weekly.py", named("two"))
    assert app.load_workflows(folder / "x", True) + app.load_workflows(folder / "y", True) == 2
    for name in ("daily", "weekly"):
        assert app.registry.resolve(f"queuety_files.reports.{name}:fetch")


# What a name in a row can reach


def test_a_name_loads_no_file(app: Queuety, folder: Path, write: Write) -> None:
    write("a.py", named("a"))
    write("_never.py", PLAIN + "raise SystemExit('imported')")
    write("sub/other.py", PLAIN + "raise SystemExit('imported')")
    app.load_workflows(folder)
    for module in ("_never", "sub.other", "sub", "missing", "..flows.a", "", "a.b"):
        with pytest.raises(HandlerNotFound, match=r"no workflow file is loaded here as .*--workflows FOLDER"):
            app.registry.resolve(f"queuety_files.{module}:plain")
    assert not any("never" in name or "other" in name for name in sys.modules if name.startswith("queuety_files"))


def test_a_name_reaches_only_what_is_marked(app: Queuety, folder: Path, write: Write) -> None:
    write("a.py", named("a") + "\nimport os\ndef danger(state): ...\n")
    app.load_workflows(folder)
    for name in ("danger", "os", "os.system", "workflow", "described"):
        with pytest.raises(HandlerNotFound):
            app.registry.resolve(f"queuety_files.a:{name}")


def test_a_file_of_another_service_is_taken_on_trust_when_a_definition_names_it(app: Queuety) -> None:
    form = {"name": "w", "steps": [{"type": "single", "name": "s", "handler": "queuety_files.elsewhere:fetch"}]}
    assert app.dispatch_definition(form) > 0


def test_several_threads_load_one_folder_once(app: Queuety, folder: Path, write: Write) -> None:
    for number in range(10):
        write(f"f{number}.py", named(f"w{number}"))
    counts: list[int] = []
    threads = [threading.Thread(target=lambda: counts.append(app.load_workflows(folder))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [10] * 4
    assert len(app.workflow_templates()) == 10
