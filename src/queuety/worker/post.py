"""Letters into events, and the answers that a run which is not there any more cannot give itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from queuety.model import (
    Cancel,
    ChildRevived,
    ChildSettled,
    DeadlinePassed,
    DependencySettled,
    Due,
    Effect,
    Event,
    LetterKind,
    RetryRun,
    Send,
    Subscribed,
    Told,
    WorkflowStatus,
)
from queuety.store.load import Letter

_log = logging.getLogger("queuety.worker")

_READERS: Final[Mapping[LetterKind, Callable[[Letter], Event]]] = {
    LetterKind.TIMER: lambda letter: Due(_visit(letter)),
    LetterKind.SUBSCRIBE: lambda letter: Subscribed(letter.body["waiter"], _visit(letter)),
    LetterKind.SETTLED: lambda letter: DependencySettled(
        letter.body["id"], _visit(letter), bool(letter.body.get("is_done"))
    ),
    LetterKind.CHILD: lambda letter: ChildSettled(
        letter.body["id"], WorkflowStatus(letter.body["status"]), bool(letter.body["is_clean"])
    ),
    LetterKind.REVIVED: lambda letter: ChildRevived(letter.body["id"]),
    LetterKind.DEADLINE: lambda _letter: DeadlinePassed(),
    LetterKind.CANCEL: lambda letter: Told(Cancel(), letter.body["parent"]),
    LetterKind.RETRY: lambda letter: Told(RetryRun(), letter.body["parent"]),
}


def event_of(letter: Letter) -> Event | None:
    """What the letter says has happened; None, with a line in the log, for one that makes no sense."""
    try:
        return _READERS[letter.kind](letter)
    except (LookupError, TypeError, ValueError) as error:
        _log.error("a %s letter to workflow %d makes no sense (%r); dropped", letter.kind, letter.workflow_id, error)
        return None


def answers_for_missing(letters: Iterable[Letter], *, now_us: int) -> list[Effect]:
    """What those are told who have written to a run that is not there: it will never end otherwise."""
    answers: list[Effect] = []
    for letter in letters:
        event = event_of(letter)
        missing = letter.workflow_id
        if isinstance(event, Subscribed):
            answers.append(Send(event.waiter_id, LetterKind.SETTLED, now_us, {"id": missing}, event.visit))
        elif isinstance(event, Told):
            body = {"id": missing, "status": WorkflowStatus.CANCELLED.value, "is_clean": True}
            answers.append(Send(event.parent_id, LetterKind.CHILD, now_us, body))
    return answers


def _visit(letter: Letter) -> int:
    if letter.visit is None:
        raise ValueError("it has no visit")
    return letter.visit
