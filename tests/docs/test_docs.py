"""Every block of code in README.md, docs/ and examples/ runs; `tests/support/pages.py` says what a page may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import blocks, run_page

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/**/*.md"))]
PAGES = {path.relative_to(ROOT).as_posix(): path for path in FILES}
SKIPPED = {
    f"{name}:{block.line}": block.value
    for name, path in PAGES.items()
    for block in blocks(path.read_text())
    if block.verb == "skip"
}


@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs(page: str, tmp_path: Path) -> None:
    name = "page_" + page.removesuffix(".md").lower().replace("/", "_").replace("-", "_").replace(".", "_")
    run_page(name, PAGES[page].read_text(), tmp_path)


if SKIPPED:

    @pytest.mark.parametrize("block", SKIPPED)
    def test_the_block_is_skipped(block: str) -> None:
        pytest.skip(SKIPPED[block])
