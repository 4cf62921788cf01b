"""The pages hang together, and name all that there is."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest

from queuety.define.builder import WorkflowBuilder
from queuety.define.forms import FORMS
from queuety.inspect.why import Why
from tests.docs.test_docs import PAGES, ROOT

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCED = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)
STEPS = {
    name
    for name in dir(WorkflowBuilder)
    if name in {"then", "parallel", "delay"} or name.startswith(("for_", "repeat_", "run_", "start_", "wait_"))
}


def _anchors(page: Path) -> set[str]:
    """What `#…` may name there, as GitHub makes it of headings."""
    titles = HEADING.findall(FENCED.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*PAGES, "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_link_leads_somewhere(page: str) -> None:
    here = ROOT / page
    for link in LINK.findall(FENCED.sub("", here.read_text())):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        there = (here.parent / path).resolve() if path else here
        assert there.exists(), link
        assert not anchor or anchor in _anchors(there), link


def test_the_index_names_every_page() -> None:
    index = set(LINK.findall((DOCS / "README.md").read_text()))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"README.md"}
    assert pages <= index


def test_every_kind_of_step_is_described() -> None:
    index = (DOCS / "README.md").read_text()
    described = "".join(path.read_text() for path in (DOCS / "steps").glob("*.md"))
    assert len(STEPS) >= 18
    assert [name for name in sorted(STEPS) if f"`{name}`" not in index or name not in described] == []


def test_every_key_of_a_definition_is_named() -> None:
    page = (DOCS / "definitions.md").read_text()
    rows = {row.split("`")[1]: row for row in page.splitlines() if row.startswith("| `")}
    missing = {
        kind: [key for key in sorted(form.keys) if f"`{key}`" not in rows[kind]]
        for kind, form in FORMS.items()
        if kind != "single"
    }
    assert list(chain.from_iterable(missing.values())) == [], missing


def test_every_reason_is_explained() -> None:
    reasons = re.findall(r"`(\w+)`", (Why.__doc__ or "").split("one word for machines:")[1])
    page = (DOCS / "why.md").read_text()
    assert len(reasons) > 20
    assert [reason for reason in reasons if f"`{reason}`" not in page] == []
