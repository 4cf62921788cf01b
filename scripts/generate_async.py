"""Writes `src/queuety/app/asynchronous.py`: the `…_async` form of every verb that talks to the database.

    python scripts/generate_async.py            writes the file
    python scripts/generate_async.py --check    exits with 1 if the file is not what would be written

A verb is a public method of the verb classes. An async verb is one hop to a thread; one that joins the caller's
transaction runs on the caller's own asynchronous connection instead.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

APP = Path(__file__).parent.parent / "src" / "queuety" / "app"
SOURCES = {
    "core": "Core",
    "templates": "TemplateVerbs",  # before what it builds on
    "workflows": "WorkflowVerbs",
    "jobs": "JobVerbs",
    "queues": "QueueVerbs",
    "bulk": "BulkVerbs",
    "repair": "RepairVerbs",
    "steering": "SteeringVerbs",
    "signals": "SignalVerbs",
    "streams": "StreamVerbs",
    "artifacts": "ArtifactVerbs",
    "portable": "PortableVerbs",
    "history": "HistoryVerbs",
    "why": "WhyVerbs",
    "graph": "GraphVerbs",
    "changing": "ChangingVerbs",
    "running": "RunningVerbs",
    "retention": "RetentionVerbs",
}
WITHOUT = {
    "workflow": "touches no database",
    "register": "touches no database",
    "register_workflow_template": "touches no database",
    "workflow_templates": "touches no database",
    "load_workflow_file": "touches no database",
    "load_workflows": "touches no database",
    "door": "is not a verb",
    "close": "waits for nothing",
    "worker": "makes a worker, whose run() is a program of its own",
    "terms": "touches no database",
    "worker_loop": "makes a part of a worker",
    "workflow_stream": "has one of its own: it waits on the event loop, and not in a thread",
}
"""Public methods that have no async form, and why."""

HEAD = '''"""The `…_async` forms of the verbs. Written by `scripts/generate_async.py`: change the verbs and run that."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
{imports}

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession


class AsyncVerbs({bases}):
    """Each verb as a coroutine: the same, run in a thread."""
'''


def main() -> int:
    text = generated()
    target = APP / "asynchronous.py"
    if "--check" in sys.argv[1:]:
        if target.exists() and target.read_text() == text:
            return 0
        sys.stderr.write(f"{target.name} is not up to date: run `python scripts/generate_async.py`\n")
        return 1
    target.write_text(text)
    return 0


def generated() -> str:
    """The text of the file, formatted and without unused imports."""
    imports: set[str] = set()
    methods: list[str] = []
    for module, class_name in SOURCES.items():
        tree = ast.parse((APP / f"{module}.py").read_text())
        imports |= {ast.unparse(node) for node in tree.body if _is_import(node)}
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == class_name:
                methods += [_method(verb) for verb in node.body if _is_verb(verb)]
    imports |= {f"from queuety.app.{module} import {name}" for module, name in SOURCES.items() if module != "core"}
    bases = ", ".join(_outermost())
    text = HEAD.format(imports="\n".join(sorted(imports)), bases=bases) + "\n".join(methods)
    return _tidy(text)


def _outermost() -> list[str]:
    """The verb classes that no other one builds on: together they have every verb."""
    names = list(SOURCES.values())
    built_on: set[str] = set()
    for module, name in SOURCES.items():
        tree = ast.parse((APP / f"{module}.py").read_text())
        (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
        built_on |= {ast.unparse(base) for base in found.bases}
    return [name for name in names if name not in built_on]


def _is_import(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module != "__future__"
    return isinstance(node, ast.Import)


def _is_verb(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and node.name not in WITHOUT
        and not node.decorator_list
    )


def _method(verb: ast.stmt) -> str:
    assert isinstance(verb, ast.FunctionDef)
    arguments = verb.args
    joins = any(argument.arg == "connection" for argument in arguments.kwonlyargs)
    signature = ast.unparse(arguments)
    if joins:
        signature = signature.replace(
            "connection: Connection | Session | scoped_session[Session] | None",
            "connection: AsyncConnection | AsyncSession | None",
        )
    names = [argument.arg for argument in arguments.args[1:]]
    keywords = [argument.arg for argument in arguments.kwonlyargs]
    call = ", ".join([*names, *(f"{name}={name}" for name in keywords if name != "connection")])
    returns = ast.unparse(verb.returns) if verb.returns else "None"
    lines = [f"    async def {verb.name}_async({signature}) -> {returns}:"]
    lines.append(f'        """See `{verb.name}`."""')
    if joins:
        separator = ", " if call else ""
        lines.append("        if connection is not None:")
        joined = f"self.{verb.name}({call}{separator}connection=theirs)"
        lines.append(f"            return await connection.run_sync(lambda theirs: {joined})")
    hop = f"asyncio.to_thread(self.{verb.name}{', ' if call else ''}{call})"
    lines.append(f"        {'await' if returns == 'None' else 'return await'} {hop}")
    return "\n".join(lines) + "\n"


def _tidy(text: str) -> str:
    ruff = Path(sys.executable).parent / "ruff"
    name = str(APP / "asynchronous.py")
    for command in (
        ["check", "--quiet", "--fix", "--select", "F401,I", "--stdin-filename", name, "-"],
        ["format", "--quiet", "--stdin-filename", name, "-"],
    ):
        text = subprocess.run([ruff, *command], input=text, capture_output=True, text=True, check=True).stdout  # noqa: S603
    return text


if __name__ == "__main__":
    sys.exit(main())
