"""The report workflow: index, summarise, report. What a user's own module of steps would look like."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Final

from queuety import Fail, Settings, current, step, workflow
from queuety.define.builder import WorkflowBuilder
from queuety.demo import text
from queuety.demo.folder import FolderError, LeftOut, list_documents, read_document
from queuety.demo.page import page

SETTINGS: Final = Settings(lease_seconds=3.0, idle_poll_seconds=0.5, grace_seconds=5.0)
"""Of the application: a short lease, so that nobody has to wait long until what a killed worker held is taken back."""
KEY_WORDS: Final = 24
SENTENCES: Final = 3
SUMMARISING_S: Final = 6.0
"""How long `summarise` takes for all documents together: it waits a little at each, to be there when it is killed."""
LONGEST_WAIT_S: Final = 1.5


def report_workflow() -> WorkflowBuilder:
    """The workflow; its payload is `folder`, an absolute path, and `output`, that of the file to be written.

    A summary that was cut short is begun again one second later.
    """
    return workflow("report").then(index, "index").then(summarise, "summarise", backoff=[1]).then(report, "report")


@step
def index(state: dict[str, Any]) -> dict[str, Any]:
    """Counts every document's words and sentences, and finds the words that tell it from the others."""
    folder = state["folder"]
    try:
        listing = list_documents(folder)
    except FolderError as error:
        raise Fail(str(error)) from error
    left_out = list(listing.left_out)
    documents: list[dict[str, Any]] = []
    counts: list[Counter[str]] = []
    for number, path in enumerate(listing.paths):
        _tell(number, len(listing.paths))
        try:
            document = read_document(folder, path)
        except (FolderError, OSError) as error:
            left_out.append(LeftOut(path, _why(error)))
            continue
        words = text.words(document.text)
        if not words:
            left_out.append(LeftOut(path, "there are no words in it"))
            continue
        title = text.clipped(" ".join(text.sentences(document.title)))
        sentences = len(text.sentences(document.text))
        documents.append({"path": path, "title": title, "words": len(words), "sentences": sentences})
        counts.append(Counter(words))
    if not documents:
        raise Fail(f"no document in {folder} can be read ({left_out[0].path}: {left_out[0].reason})")
    in_documents = text.document_counts(counts)
    for document_entry, of_document in zip(documents, counts, strict=True):
        telling = text.key_words(of_document, in_documents, len(documents), KEY_WORDS)
        document_entry["key_words"] = [[word, weight] for word, weight in telling]
    return {
        "documents": documents,
        "left_out": [{"path": one.path, "reason": one.reason} for one in left_out],
        "finished": _finished(state, "index"),
    }


@step
def summarise(state: dict[str, Any]) -> dict[str, Any]:
    """Picks each document's sentences that say most. Waits at each document, and tells how many are done."""
    documents = state["documents"]
    wait_s = min(LONGEST_WAIT_S, SUMMARISING_S / len(documents))
    pace = threading.Event()
    summaries: dict[str, list[str]] = {}
    for number, entry in enumerate(documents):
        _tell(number, len(documents))
        weights = dict(entry["key_words"])
        document = read_document(state["folder"], entry["path"])
        summaries[entry["path"]] = text.summary(document.text, weights, SENTENCES)
        pace.wait(wait_s)
    _tell(len(documents), len(documents))
    return {
        "summaries": summaries,
        "summarised_on_attempt": current().attempt,
        "finished": _finished(state, "summarise"),
    }


@step
def report(state: dict[str, Any]) -> dict[str, Any]:
    """Writes the page, whole or not at all."""
    output = Path(state["output"])
    write_whole(output, page(state, workflow_id=current().workflow_id or 0))
    return {"report": str(output), "finished": _finished(state, "report")}


def write_whole(path: Path, content: str) -> None:
    """Puts the content in place of what was there; a reader, or a crash at any moment, finds the one or the other."""
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _tell(done: int, of: int) -> None:
    """Renews the lease, and lets `job_status` show how far this attempt is."""
    current().heartbeat({"attempt": current().attempt, "done": done, "of": of})


def _finished(state: dict[str, Any], name: str) -> list[str]:
    """The steps whose results have been merged: a step that was merged twice would stand here twice."""
    return [*state.get("finished", ()), name]


def _why(error: Exception) -> str:
    return f"it cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
