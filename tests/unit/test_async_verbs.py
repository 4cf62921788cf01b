"""The async verbs are written by a script; nobody edits them, and nobody forgets to run it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from queuety import Queuety

ROOT = Path(__file__).parents[2]
VERBS = [name for name, _ in inspect.getmembers(Queuety, inspect.iscoroutinefunction) if name.endswith("_async")]


def test_the_file_is_what_the_script_writes() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/generate_async.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", VERBS)
def test_an_async_verb_takes_what_its_verb_takes(name: str) -> None:
    verb = inspect.signature(getattr(Queuety, name.removesuffix("_async")))
    twin = inspect.signature(getattr(Queuety, name))
    assert list(twin.parameters) == list(verb.parameters)
    assert twin.return_annotation == verb.return_annotation


def test_there_are_some() -> None:
    assert {"dispatch_async", "wait_async", "workflow_status_async", "run_until_idle_async"} <= set(VERBS)
    assert {"signal_async", "approve_workflow_async", "why_async"} <= set(VERBS)


def test_the_stream_has_an_async_form_that_is_a_generator() -> None:
    assert inspect.isasyncgenfunction(Queuety.workflow_stream_async)
    verb, twin = (inspect.signature(each) for each in (Queuety.workflow_stream, Queuety.workflow_stream_async))
    assert list(twin.parameters.values()) == list(verb.parameters.values())
