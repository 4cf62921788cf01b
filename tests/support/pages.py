"""The pages of the documentation as programs: their blocks of code, found and run in order.

What a comment before a block says:

- `<!-- skip: reason -->`    the block does not run
- `<!-- file: name.py -->`   the block is written to that file of the page's directory instead of being run
- `<!-- run -->`             the commands of a `console` or `bash` block (`$ …`) run and must answer 0

Every other `python` block runs; every other block is text. A page has a temporary directory to itself, and is a module
there: it grows block by block, on disk too, so that what it defines can be imported by the processes that it starts.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FENCE: Final = re.compile(r"^(?P<indent> *)(?P<mark>`{3,}|~{3,})(?P<language>[\w+-]*)")
DIRECTIVE: Final = re.compile(r"^<!--\s*(?P<verb>skip|run|file)\s*(?::\s*(?P<value>.*?))?\s*-->$")
SHELLS: Final = frozenset({"console", "bash", "sh", "shell"})
PAGE_S: Final = 100


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. `line` counts from 1 and is that of its first line of code."""

    line: int
    language: str
    code: str
    verb: str = ""
    value: str = ""

    @property
    def commands(self) -> list[str]:
        """What stands after `$ `, with continued lines joined."""
        joined = self.code.replace("\\\n", " ")
        return [line.lstrip()[2:] for line in joined.splitlines() if line.lstrip().startswith("$ ")]


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order. Raises `ValueError` for a comment that cannot mean anything."""
    return list(_blocks(text.splitlines()))


def _blocks(lines: list[str]) -> Iterator[Block]:
    verb, value, number = "", "", 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if directive := DIRECTIVE.match(line.strip()):
            verb, value = directive["verb"], directive["value"] or ""
            if (verb == "run") == bool(value):
                raise ValueError(f"line {number}: {line.strip()}: skip wants a reason, file a name, run nothing")
        elif fence := FENCE.match(line):
            start, closing = number, fence["indent"] + fence["mark"]
            while number < len(lines) and lines[number].rstrip() != closing:
                number += 1
            if number == len(lines):
                raise ValueError(f"line {start}: the block is never closed")
            code = "\n".join(part.removeprefix(fence["indent"]) for part in lines[start:number])
            number += 1
            block = Block(start + 1, fence["language"], code + "\n", verb, value)
            if verb == "run" and not (block.language in SHELLS and block.commands):
                raise ValueError(f"line {start}: a block to be run has no command (`$ …`)")
            yield block
            verb, value = "", ""
        elif line.strip() and verb:
            break
    if verb:
        raise ValueError(f"line {number}: no block follows the comment {verb}")


def run_page(name: str, text: str, directory: Path) -> None:
    """Runs the blocks of a page, in a process of its own, as the module `name` in the directory.

    Raises `AssertionError` with the output if a block fails; a traceback tells the page's own lines.
    """
    (directory / f"{name}.md").write_text(text)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("QUEUETY_")}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    ran = subprocess.run(
        [sys.executable, "-X", "utf8", __file__, name],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PAGE_S,
        check=False,
    )
    assert ran.returncode == 0, f"{name}: exit code {ran.returncode}\n{ran.stdout}"


def _run_here(name: str) -> None:
    """Runs the page `name`.md of the working directory in this process."""
    here = Path.cwd()
    sys.path[0] = str(here)
    path = here / f"{name}.py"
    path.touch()
    module = importlib.import_module(name)
    lines = 0
    for block in blocks((here / f"{name}.md").read_text()):
        if block.verb == "file":
            (here / block.value).parent.mkdir(parents=True, exist_ok=True)
            (here / block.value).write_text(block.code)
        elif block.verb == "run":
            for command in block.commands:
                print(f"line {block.line}: $ {command}", flush=True)
                subprocess.run(["bash", "-c", command], check=True)
        elif block.language == "python" and not block.verb:
            # Empty lines in between: the module's lines are the page's.
            with path.open("a") as file:
                file.write("\n" * (block.line - 1 - lines) + block.code)
            lines = block.line - 1 + block.code.count("\n")
            exec(compile("\n" * (block.line - 1) + block.code, path, "exec"), vars(module))


if __name__ == "__main__":
    _run_here(sys.argv[1])
