"""`queuety demo`: what it makes of real documents, and that it does what it says with real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from queuety import Queuety, WorkflowState
from queuety.demo import account, folder, steps, text
from queuety.demo.page import page
from queuety.demo.process import WorkerProcess
from queuety.demo.run import FAILED, INTERRUPTED, OK, USAGE, main

DEMO = (sys.executable, "-m", "queuety.cli", "demo")
BUNDLED = sorted(path.name for path in folder.BUNDLED.glob("*.txt"))
HOSTILE = '<script>alert("x")</script> & Sons'


def words_of(count: int, word: str = "word") -> str:
    return " ".join([word] * count)


def left_behind(place: Path) -> list[int]:
    """The processes that work in this folder."""
    if not Path("/proc/self/cwd").exists():
        pytest.skip("there is no /proc to look in")
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "cwd") == str(place.resolve()):
                    found.append(int(entry.name))
            except OSError:
                continue  # it has ended, or is somebody else's
    return found


# --- documents ------------------------------------------------------------------------------------------------------


def test_the_texts_that_come_with_it_are_real_and_their_sources_named() -> None:
    assert len(BUNDLED) >= 8
    sources = (folder.BUNDLED / "SOURCES").read_text("utf-8")
    for name in BUNDLED:
        document = folder.read_document(str(folder.BUNDLED), name)
        assert len(text.words(document.text)) >= 150, name
        assert f"\n{name} " in sources
    assert list(folder.list_documents(str(folder.BUNDLED)).paths) == BUNDLED


def test_documents_are_found_below_the_folder_and_the_rest_is_not(tmp_path: Path) -> None:
    for name in ("b.txt", "A.MD", "sub/deep/c.rst", ".hidden/d.txt", "node_modules/e.md", ".f.txt", "g.html", "h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("Text.")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    found = folder.list_documents(str(tmp_path))
    assert list(found.paths) == ["A.MD", "b.txt", "sub/deep/c.rst"]
    assert list(found.left_out) == []


def test_what_is_left_out_is_told_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MOST_DOCUMENTS", 2)
    (tmp_path / "a-large.txt").write_bytes(b"a" * (2 * 1024 * 1024 + 1))
    os.mkfifo(tmp_path / "b-pipe.txt")
    for name in ("c.txt", "d.txt", "e.txt"):
        (tmp_path / name).write_text("Text.")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/f\xff.txt")).write_text("Text.")
    found = folder.list_documents(str(tmp_path))
    assert list(found.paths) == ["c.txt", "d.txt"]
    assert {one.path: one.reason for one in found.left_out} == {
        "a-large.txt": "it is larger than 2 MiB",
        "b-pipe.txt": "it is no file",
        "e.txt": "the report holds 2 documents at most",
        "gone.txt": "it is no file",
        "f\ufffd.txt": "its name is not UTF-8",
    }


def test_a_folder_of_too_much_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MOST_BYTES_IN_ALL", 10)
    (tmp_path / "a.txt").write_text("12345678")
    (tmp_path / "b.txt").write_text("123")
    (tmp_path / "c.txt").write_text("12")
    found = folder.list_documents(str(tmp_path))
    assert list(found.paths) == ["a.txt", "c.txt"]
    assert [one.path for one in found.left_out] == ["b.txt"]


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("utf-8", "Größe – “naïve”"), ("utf-8-sig", "Größe"), ("utf-16", "Größe – 語"), ("cp1252", "Größe – “naïve”")],
)
def test_every_usual_encoding_is_read(tmp_path: Path, encoding: str, said: str) -> None:
    (tmp_path / "a.txt").write_bytes(f"Title\r\n\r\n{said} said.\r\n".encode(encoding))
    assert folder.read_document(str(tmp_path), "a.txt") == folder.Document("Title", f"{said} said.")


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\x7fELF\0\0\0")
    with pytest.raises(folder.FolderError, match="no text"):
        folder.read_document(str(tmp_path), "a.txt")


def test_markdown_is_read_without_its_marks(tmp_path: Path) -> None:
    source = (
        "---\ntags: x\n---\n# The *Title*\n\nA **bold\nand brave** [link](http://example.org/x).\n\n```python\ncode()\n```\n\n"
        "- one\n- two\n\n| a | b |\n|---|---|\n| c | d |\n\n2 * 3 * 4 and snake_case_name stay.\n"
    )
    (tmp_path / "a.md").write_text(source)
    document = folder.read_document(str(tmp_path), "a.md")
    assert document.title == "The Title"
    found = text.sentences(document.text)
    assert found[0] == "A bold and brave link."
    assert {"one", "two"} <= set(found)
    assert found[-1] == "2 * 3 * 4 and snake_case_name stay."
    assert "code" not in document.text


# --- text -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prose", "expected"),
    [
        ("Dr. No met J. Smith at 5 p.m. today. He left.", ["Dr. No met J. Smith at 5 p.m. today.", "He left."]),
        ('"Why?" he said. "Go!" Then he\nwent.', ['"Why?" he said.', '"Go!"', "Then he went."]),
        ("第一句。第二句！", ["第一句。", "第二句！"]),
        ("No end", ["No end"]),
        ("  \n\n \t\n", []),
        ("A bell\x07 and\x1b[31m red\u202e.", ["A bell and [31m red ."]),
    ],
)
def test_sentences(prose: str, expected: list[str]) -> None:
    assert text.sentences(prose) == expected


def test_a_word_that_all_documents_have_tells_less_than_one_that_one_has() -> None:
    documents = [["whale", "ship", "sea"], ["raven", "sea", "door"], ["wall", "sea", "stone"]]
    everywhere = text.document_counts(documents)
    telling = dict(text.key_words({"whale": 1, "sea": 1, "the": 50}, everywhere, 3, 9))
    assert list(telling) == ["whale", "sea"]
    assert telling["whale"] > telling["sea"]


def test_a_summary_holds_sentences_of_the_text_in_their_order_and_no_twins() -> None:
    first = "The whale swam round the ship all night."
    prose = f"{first} Nothing else of any note happened then. {first} At dawn the captain saw land and wept."
    chosen = text.summary(prose, {"whale": 5.0, "ship": 4.0, "captain": 3.0, "land": 2.0}, 2)
    assert chosen == [first, "At dawn the captain saw land and wept."]


def test_a_text_of_scraps_is_summarised_all_the_same() -> None:
    assert text.summary("milk\n\neggs\n\nbread", {"eggs": 1.0}, 1) == ["eggs"]
    assert text.summary("12 34", {}, 3) == []


# --- the page -------------------------------------------------------------------------------------------------------


class Parsed(HTMLParser):
    """The elements of a page; complains of what is not closed."""

    VOID = frozenset({"meta", "link", "br", "hr", "img"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.ids += [value for key, value in attrs if key == "id" and value]
        if tag == "a":
            self.links.append(named["href"] or "")
        assert not {"src", "onclick", "onload"} & named.keys()
        if tag not in self.VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self.texts[tag][-1] += data


def a_state(**changes: Any) -> dict[str, Any]:
    return {
        "folder": "/some/where",
        "documents": [
            {"path": "a&b.txt", "title": HOSTILE, "words": 1200, "sentences": 1, "key_words": [["<b>", 2.0]]},
        ],
        "summaries": {"a&b.txt": [f"Said {HOSTILE} and {{braces}}."]},
        "left_out": [{"path": "<i>.txt", "reason": "it is no file"}],
        "summarised_on_attempt": 2,
    } | changes


def test_the_page_escapes_whatever_documents_say() -> None:
    parsed = Parsed(page(a_state(folder="/x/<script>"), workflow_id=7))
    assert "script" not in parsed.texts
    assert "b" not in parsed.texts
    assert parsed.texts["h2"] == ["Contents", HOSTILE, "Left out"]
    assert parsed.texts["blockquote"] == [f"Said {HOSTILE} and {{braces}}."]
    assert parsed.texts["title"] == ["Report on <script>"]
    assert "attempt 2" in parsed.texts["footer"][0]


def test_the_page_has_a_light_and_a_dark_dress_and_needs_nothing_else() -> None:
    html = page(a_state(), workflow_id=7)
    assert "prefers-color-scheme: dark" in html
    assert not re.search(r"https?:|url\(|@import", html)


def test_a_report_replaces_the_old_one_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    steps.write_whole(target, "old")
    with pytest.raises(UnicodeEncodeError):
        steps.write_whole(target, "new \ud800")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


# --- the steps, without processes -----------------------------------------------------------------------------------


@pytest.fixture
def run_here(memory_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[Path], Any]]:
    """Makes the report of a folder in this process, without waiting at each document; gives back the run."""
    monkeypatch.setattr(steps, "SUMMARISING_S", 0.0)
    with Queuety(memory_url) as app:

        def run(source: Path) -> Any:
            payload = {"folder": str(source), "output": str(tmp_path / "report.html")}
            run_id = app.dispatch_workflow(steps.report_workflow(), payload)
            app.run_until_idle()
            found = app.workflow_status(run_id)
            assert found is not None
            return found, account.attempts(app.workflow_timeline(run_id))

        yield run


def test_what_cannot_be_read_is_left_out_of_the_report(run_here: Callable[[Path], Any], tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "good.txt").write_text("The whale swam round the ship all night.")
    (source / "binary.txt").write_bytes(b"\0\1\2")
    (source / "numbers.txt").write_text("1 2 3")
    run, _ = run_here(source)
    assert run.status == "completed"
    assert [document["path"] for document in run.state["documents"]] == ["good.txt"]
    html = Parsed((tmp_path / "report.html").read_text("utf-8"))
    assert html.texts["section"] == ["Left outbinary.txt: it is no textnumbers.txt: there are no words in it"]


def test_a_folder_without_a_readable_word_fails_at_once(run_here: Callable[[Path], Any], tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "numbers.txt").write_text("1 2 3")
    run, attempts = run_here(source)
    assert run.status == "failed"
    assert "numbers.txt: there are no words in it" in run.error_message
    assert [(one.step, one.attempt, one.outcome) for one in attempts] == [("index", 1, "failed")]


def test_a_run_without_a_kill_is_not_what_the_demo_promises(run_here: Callable[[Path], Any]) -> None:
    run, attempts = run_here(folder.BUNDLED)
    assert account.merges(run) == ["index", "summarise", "report"]
    (broken,) = account.broken_promises(run, attempts)
    assert "summarise 1 completed" in broken
    assert "summarise 1 killed" in broken


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"state": {"finished": ["index", "summarise", "summarise", "report"]}}, "index, summarise, summarise, report"),
        ({"state": {"finished": ["index", "report"]}}, "index, report"),
        ({"state": {}}, "no step"),
        ({"status": "failed", "error_message": "disk full"}, "failed: disk full"),
    ],
)
def test_every_broken_promise_is_found(run_here: Callable[[Path], Any], changes: dict[str, Any], named: str) -> None:
    run: WorkflowState = run_here(folder.BUNDLED)[0]
    kept = [account.Attempt(step, attempt, outcome, 1, None) for step, attempt, outcome in account.PROMISED]
    assert account.broken_promises(run, kept) == []
    (broken,) = account.broken_promises(replace(run, **changes), kept)
    assert named in broken


# --- a worker's processes -------------------------------------------------------------------------------------------


def test_a_worker_that_ends_by_itself_tells_why(tmp_path: Path) -> None:
    program = "import os, sys; print(os.environ['QUEUETY_DATABASE_URL'], 'is broken', flush=True); sys.exit(3)"
    with WorkerProcess("sqlite:///x.db", tmp_path / "log", command=(sys.executable, "-c", program)) as worker:
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        assert worker.exit_code() == 3
        assert worker.last_words() == "sqlite:///x.db is broken"


def test_a_killed_worker_takes_its_children_with_it(tmp_path: Path) -> None:
    told, never = tmp_path / "told", tmp_path / "never"
    os.mkfifo(told)
    os.mkfifo(never)
    script = f'(echo "a child"; exec cat "{never}") > "{told}" & wait'
    with (
        WorkerProcess("sqlite:///x.db", tmp_path / "log", command=("sh", "-c", script)) as worker,
        told.open() as stream,
    ):
        assert stream.readline() == "a child\n"
        worker.kill()
        assert stream.read() == ""  # it ends when nobody is left who could write


# --- the whole demo -------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A working directory, in which no process may be left."""
    working = tmp_path / "a place, 100% ours?"
    working.mkdir()
    yield working
    assert left_behind(working) == []


def begun(place: Path, *arguments: str) -> subprocess.Popen[str]:
    # What is set for the user's own application is not the demo's.
    environment = os.environ | {"QUEUETY_DATABASE_URL": "no database", "QUEUETY_LEASE_SECONDS": "1000"}
    return subprocess.Popen(
        [*DEMO, *arguments],
        cwd=place,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )


def played(place: Path, *arguments: str) -> tuple[int, str]:
    demo = begun(place, *arguments)
    output, _ = demo.communicate(timeout=100)
    return demo.returncode, output


def table_of(output: str) -> list[list[str]]:
    """The cells of the accounts, without how long each attempt took."""
    lines = output.splitlines()
    (begin,) = [number for number, line in enumerate(lines) if line.startswith("Step ")]
    rows = [re.split(r"\s{2,}", line) for line in lines[begin + 1 : begin + 5]]
    return [[*row[:4], row[-1]] for row in rows]


ACCOUNTS = [
    ["index", "1", "1", "completed", "1 ×"],
    ["summarise", "1", "1", "killed", "no"],
    ["summarise", "2", "2", "completed", "1 ×"],
    ["report", "1", "2", "completed", "1 ×"],
]


def check_report(place: Path, titles: list[str]) -> Parsed:
    report = Parsed((place / "demo-report" / "report.html").read_text("utf-8"))
    assert len(report.ids) == len(set(report.ids))
    anchors = {link.removeprefix("#") for link in report.links}
    assert anchors == {"top", *(f"document-{number}" for number in range(1, len(titles) + 1))}
    assert anchors <= set(report.ids)
    assert report.texts["h2"][1:] == titles
    assert len(report.texts["blockquote"]) == len(titles)
    assert all(report.texts["blockquote"])
    return report


@pytest.mark.slow
def test_the_demo_on_the_texts_that_come_with_it(place: Path) -> None:
    code, output = played(place)
    assert code == OK, output
    assert f"A report on {len(BUNDLED)} documents that come with Queuety" in output
    killed = re.search(r"is killed .* in the middle of summarise: (\d+) of (\d+) documents", output)
    assert killed is not None
    assert len(BUNDLED) // 2 <= int(killed[1]) < int(killed[2]) == len(BUNDLED)
    before, after = output[: killed.start()], output[killed.end() :]
    assert f"summarise, attempt 1: {killed[1]} of" in before
    assert "attempt 2" not in before
    assert "attempt 1" not in after
    assert re.search(rf"summarise, attempt 2: \d+ of {len(BUNDLED)} documents", after)
    assert table_of(output) == ACCOUNTS
    assert "Nothing was lost and nothing was merged twice." in output

    documents = [folder.read_document(str(folder.BUNDLED), name) for name in BUNDLED]
    report = check_report(place, [document.title for document in documents])
    for document, said in zip(documents, report.texts["blockquote"], strict=True):
        flat = " ".join(document.text.split())
        assert said[:20] in flat
    counts = [int(count.replace(",", "")) for count in report.texts["span"]]
    assert counts == [len(text.words(document.text)) for document in documents]


@pytest.mark.slow
def test_the_demo_on_ones_own_folder_and_again(place: Path) -> None:
    own = place / "my documents"
    own.mkdir()
    (own / "whale.md").write_text(
        '# "Whale" & *I* < you\n\nCall me Ishmael. The whale swam round the ship all night.\n'
    )
    for number in (1, 2):
        (own / "thé.txt").write_bytes("Thé\n\nLe thé est servi à cinq heures, café ou thé.".encode("cp1252"))
        code, output = played(place, "my documents")
        assert code == OK, output
        assert "A report on 2 documents in my documents" in output
        assert "Run 1 of the workflow" in output, number
        assert table_of(output) == ACCOUNTS
        report = check_report(place, ["Thé", '"Whale" & I < you'])
        assert report.texts["blockquote"][0] == "Le thé est servi à cinq heures, café ou thé."
        assert "attempt 2" in report.texts["footer"][0]
    url = re.search(r"--database (\S+) workflow timeline 1", output)
    assert url is not None
    command = [sys.executable, "-m", "queuety.cli", "--database", url[1], "workflow", "timeline", "1"]
    shown = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
    assert shown.stdout.count("step_completed") == 3


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_interrupts_it_leaves_no_process(place: Path, signal_number: signal.Signals) -> None:
    with begun(place) as demo:
        assert demo.stdout is not None
        lines: list[str] = []
        for line in demo.stdout:
            lines.append(line)
            if "summarise, attempt 1: 1 of" in line:
                break
        assert left_behind(place) != []
        demo.send_signal(signal_number)
        rest = demo.stdout.read()
    assert demo.returncode == INTERRUPTED, (lines, rest)
    assert rest.splitlines()[-1] == "error: interrupted; no process is left"
    assert "is killed" not in rest


def test_two_demos_at_once_do_not_share_a_folder(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with begun(place) as demo:
        assert demo.stdout is not None
        assert any("Worker 1 is started" in line for line in demo.stdout)
        assert main(output=place / "demo-report") == USAGE
        demo.terminate()
        demo.stdout.read()
    assert demo.returncode == INTERRUPTED
    assert "another demo is under way" in capsys.readouterr().err


def test_documents_without_words_end_it_with_the_reason(place: Path) -> None:
    own = place / "numbers"
    own.mkdir()
    (own / "one.txt").write_text("1 2 3")
    code, output = played(place, "numbers")
    assert code == FAILED
    assert output.splitlines()[-1].startswith("error: the run is failed: no document in ")
    assert "one.txt: there are no words in it" in output
    assert not (place / "demo-report" / "report.html").exists()


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("nowhere", "there is no folder "),
        ("a-file.txt", "is no folder; name the one that it lies in"),
        ("empty", "no document in "),
        ("large", "a.txt: it is larger than 2 MiB"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, complaint: str
) -> None:
    (tmp_path / "a-file.txt").write_text("Text.")
    (tmp_path / "empty" / ".git").mkdir(parents=True)
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "a.txt").write_bytes(b"a" * (folder.MOST_BYTES + 1))
    assert main(tmp_path / name, output=tmp_path / "out") == USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert complaint in said.err
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    assert main(output=tmp_path / "file") == USAGE
    assert f"cannot be written to {tmp_path / 'file'}" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"
