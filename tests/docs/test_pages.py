"""The pages' runner runs what it should, in order, and fails when a block fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import blocks, run_page


def _page(*parts: str) -> str:
    return "# A page\n\n" + "\n\n".join(parts) + "\n"


def _block(language: str, *lines: str) -> str:
    return "\n".join([f"```{language}", *lines, "```"])


def test_blocks_share_one_module_that_can_be_imported(tmp_path: Path) -> None:
    page = _page(
        _block("python", "def greet(name):", "    return f'hello {name}'"),
        _block("python", "assert greet.__module__ == __name__ == 'page_x'", "greeting = greet('Ada')"),
        "<!-- run -->",
        _block("console", "$ python -c 'import page_x; print(page_x.greeting)' > said", "hello Ada"),
        _block("python", "assert open('said').read() == 'hello Ada\\n'", "import pathlib; pathlib.Path('end').touch()"),
    )
    run_page("page_x", page, tmp_path)
    assert (tmp_path / "end").exists()


def test_a_file_is_written_and_not_run(tmp_path: Path) -> None:
    page = _page(
        "<!-- file: app.py -->",
        _block("python", "answer = 6 * 7"),
        _block("python", "import app", "assert app.answer == 42", "assert 'answer' not in globals()"),
    )
    run_page("page_x", page, tmp_path)


def test_a_block_that_fails_fails_the_page_and_tells_its_line(tmp_path: Path) -> None:
    page = _page(_block("python", "one = 1"), _block("python", "", "assert one == 2"))
    with pytest.raises(AssertionError, match=r'page_x.py", line 9') as failure:
        run_page("page_x", page, tmp_path)
    assert page.splitlines()[9 - 1] == "assert one == 2"
    assert "assert one == 2" in str(failure.value)


def test_a_command_that_fails_fails_the_page(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="exit 3"):
        run_page("page_x", _page("<!-- run -->", _block("bash", "$ exit 3")), tmp_path)


def test_only_marked_commands_run(tmp_path: Path) -> None:
    run_page("page_x", _page(_block("console", "$ exit 3"), _block("bash", "exit 3"), _block("", "nothing")), tmp_path)


def test_a_skipped_block_does_not_run_and_says_why(tmp_path: Path) -> None:
    page = _page("<!-- skip: wants a key of a paid service -->", _block("python", "raise SystemExit(3)"))
    run_page("page_x", page, tmp_path)
    assert [(block.verb, block.value, block.line) for block in blocks(page)] == [
        ("skip", "wants a key of a paid service", 6)
    ]


@pytest.mark.parametrize(
    "page",
    [
        _page("<!-- skip -->", _block("python", "x = 1")),
        _page("<!-- run -->", _block("python", "x = 1")),
        _page("<!-- run -->", _block("console", "no command")),
        _page("<!-- run -->", "Prose.", _block("console", "$ true")),
        _page("<!-- file -->", _block("python", "x = 1")),
        _page(_block("python", "x = 1"), "<!-- run -->"),
        "```python\nx = 1\n",
    ],
)
def test_a_comment_that_means_nothing_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match=r"line \d+"):
        blocks(page)


def test_commands_may_go_on_over_several_lines() -> None:
    (block,) = blocks(_page(_block("console", "$ queuety dispatch \\", "    report", "done", "$ true")))
    assert [command.split() for command in block.commands] == [["queuety", "dispatch", "report"], ["true"]]
