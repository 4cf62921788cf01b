"""Names that another process can find, and names that every database can hold."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from queuety.define import names
from queuety.errors import DefinitionError

SRC = str(Path(names.__file__).parents[2])


def plain() -> None: ...


class Holder:
    @staticmethod
    def inside() -> None: ...

    @classmethod
    def of_class(cls) -> None: ...

    def method(self) -> None: ...


replaced = plain
rebound = functools.wraps(plain)(lambda: None)


def test_what_a_module_holds_is_named_after_it() -> None:
    assert names.importable_name(plain) == f"{__name__}:plain"
    assert names.importable_name(Holder.inside) == f"{__name__}:Holder.inside"
    assert names.importable_name(replaced) == f"{__name__}:plain"


def nested() -> Any:
    def inner() -> None: ...

    return inner


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda: None, "a lambda"),
        (nested(), "defined inside a function"),
        (Holder().method, "bound method"),
        (Holder.of_class, "bound method"),
        (functools.partial(plain), r"no name .* bind\(handler, key=value\)"),
        (Holder(), "no name"),
        (3, "no name"),
        (rebound, "would not be found again: the module now holds plain there"),
    ],
)
def test_what_nobody_could_import_again_is_refused_with_the_reason(value: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        names.importable_name(value)


class Trap(type):
    def __getattribute__(cls, name: str) -> Any:
        if name == "inside":
            raise AssertionError("somebody's code was run")
        return super().__getattribute__(name)


class Trapped(metaclass=Trap):
    inside = 1


def test_attributes_are_looked_up_without_running_anybodys_code() -> None:
    module = sys.modules[__name__]
    assert names.attribute(module, "Holder.inside") is Holder.inside
    assert names.attribute(module, "Holder.nothing") is None
    assert names.attribute(module, "Trapped.inside") == 1
    assert names.attribute(module, "plain.__globals__") is None
    assert names.attribute(module, "pytest.raises") is None
    assert names.attribute(module, "") is None


@pytest.mark.parametrize("name", ["a", "ü", "🙂", "two words", "x" * 255, "Order-1 "])
def test_a_name_may_be_any_text_of_255_characters(name: str) -> None:
    assert names.check_name(name, what="a queue") == name


@pytest.mark.parametrize("name", ["", "  ", "x" * 256, "a\0b", "a\nb", "\x7f", "\x85", "\ud800", None, 3, b"a"])
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    with pytest.raises(DefinitionError, match=r"^a queue") as refused:
        names.check_name(name, what="a queue")
    assert "\0" not in str(refused.value)


SCRIPT = """
from queuety.define.marks import step
from queuety.define.registry import Registry

@step
def fetch(state):
    return {{}}

if __name__ == "__main__":
    from queuety.define.marks import HandlerKind
    ref, _ = Registry().ref(fetch, HandlerKind.STEP, where="here")
    assert Registry().resolve(ref.name).target is fetch, "imported a second time"
    print(ref.name)
{more}
"""


def run(*arguments: str, cwd: Path, stdin: str | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": SRC},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_script_that_runs_is_named_as_others_import_it(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    for file in (tmp_path / "orders.py", tmp_path / "shop" / "jobs.py", tmp_path / "shop" / "__main__.py"):
        file.write_text(SCRIPT.format(more=""))
    assert run("orders.py", cwd=tmp_path) == "orders:fetch"
    assert run("-m", "orders", cwd=tmp_path) == "orders:fetch"
    assert run("-m", "shop.jobs", cwd=tmp_path) == "shop.jobs:fetch"
    assert run("-m", "shop", cwd=tmp_path) == "shop.__main__:fetch"
    assert run("shop/jobs.py", cwd=tmp_path) == "jobs:fetch"
    resolve = "from queuety.define.registry import Registry; print(Registry().resolve('orders:fetch').name)"
    assert run("-c", resolve, cwd=tmp_path) == "orders:fetch"


def test_code_without_a_file_keeps_a_name_that_works_in_its_own_process(tmp_path: Path) -> None:
    assert run("-", cwd=tmp_path, stdin=SCRIPT.format(more="")) == "__main__:fetch"
    assert run("-c", SCRIPT.format(more=""), cwd=tmp_path) == "__main__:fetch"


def test_a_spawned_child_of_the_script_finds_the_scripts_handlers(tmp_path: Path) -> None:
    more = """
    import multiprocessing
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(look))
"""
    look = """
def look():
    return Registry().resolve("orders:fetch").target.__module__
"""
    script = SCRIPT.format(more=more).replace("if __name__", look + "\nif __name__")
    (tmp_path / "orders.py").write_text(script)
    assert run("orders.py", cwd=tmp_path).splitlines() == ["orders:fetch", "__mp_main__"]
