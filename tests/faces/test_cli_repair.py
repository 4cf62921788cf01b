"""`queuety workflow pause`, `retry`, `rewind`, `fork`, `skip-step` and so on: one run by its id, many over a filter."""

from __future__ import annotations

import getpass
import json
from typing import Any

import pytest

from tests.support.cli import Project, done, queuety, refused, told

SHOP = """
from queuety import Queuety, job, step

app = Queuety()

@step
def read(state):
    return {"amount": state["raw"]}

@step(max_attempts=1)
def charge(state):
    return {"receipt": state["amount"] + 1}

@step(max_attempts=2, backoff=[3600])
def send(state):
    if not state.get("open"):
        raise ConnectionError("nobody is there")
    return {"sent": True}

@step
def refund(state):
    return {}

@job
def mail(): ...

order = app.workflow("order").then(read, "read").then(charge, "charge").compensate_with(refund).then(send, "send")
numbers = app.workflow("numbers").then(read, "2").then(read, "1").then(read, "0").delay(hours=1)
asking = app.workflow("asking").wait_for_signal("go", step_name="ask").then(read, "read")
"""
TEXT, NUMBER = '{"raw": "19"}', '{"raw": 19}'


@pytest.fixture(autouse=True)
def shop(local: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application has an order that fails, and the login is Lin's."""
    (local.folder / "shop.py").write_text(SHOP)
    monkeypatch.delenv("QUEUETY_ACTOR", raising=False)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "lin")


def start(name: str, payload: str = NUMBER, *tags: str) -> str:
    given = [part for tag in tags for part in ("--tag", tag)]
    return str(told("workflow", "dispatch", f"shop:{name}", "--payload", payload, *given)["id"])


def ordered(payload: str, count: int = 1) -> list[str]:
    """Orders once all that is due has run: TEXT has failed at `charge`, NUMBER waits to try `send` again."""
    runs = [start("order", payload) for _ in range(count)]
    done("flush")
    return runs


def run_of(workflow_id: str) -> dict[str, Any]:
    found: dict[str, Any] = told("workflow", "status", workflow_id)
    return found


def last(workflow_id: str) -> tuple[str, str | None, str | None]:
    """The last event of the run, and who asked for it, and why."""
    event = told("workflow", "timeline", workflow_id)[-1]
    return event["event"], event["actor"], event["reason"]


# one run


def test_a_run_is_stopped_let_go_on_and_ended() -> None:
    (run,) = ordered(NUMBER)
    assert done("workflow", "pause", run) == f"workflow {run} is paused\n"
    assert told("workflow", "resume", run) == {"id": int(run), "status": "running"}
    assert done("workflow", "cancel", run) == f"workflow {run} is cancelled\n"
    assert told("flush") == {"ran": 1}
    assert "cleaning up  completed\n" in done("workflow", "status", run)


def test_a_failed_run_is_retried_with_another_state() -> None:
    (run,) = ordered(TEXT)
    assert "failed step  1 charge\n" in done("workflow", "status", run)
    assert told("workflow", "retry", run, "--with-state", '{"amount": 5}') == {"id": int(run), "status": "running"}
    done("flush")
    assert run_of(run)["state"] == {"raw": "19", "amount": 5, "receipt": 6}


def test_a_run_goes_back_to_a_step_by_its_name_or_index() -> None:
    (run,) = ordered(NUMBER)
    assert done("workflow", "rewind", run, "read", "--with-state", '{"amount": 7}') == f"workflow {run} is running\n"
    assert (run_of(run)["current_step_name"], run_of(run)["state"]) == ("charge", {"raw": 19, "amount": 7})
    done("flush")
    assert told("workflow", "rewind", run, "1")["status"] == "running"
    assert run_of(run)["state"] == {"raw": 19, "amount": 7, "receipt": 8}


def test_a_number_is_an_index_unless_it_is_written_as_a_name() -> None:
    run = start("numbers")
    done("flush")
    done("workflow", "rewind", run, "=2")
    assert run_of(run)["current_step"] == 1
    assert told("workflow", "state-at", run, "=2") == told("workflow", "state-at", run, "0")
    done("flush")
    done("workflow", "rewind", run, "2")
    assert run_of(run)["current_step_name"] == "delay_0"
    fork = str(told("workflow", "fork", run, "--at-step", "=0")["id"])
    assert run_of(fork)["current_step"] == 2
    assert "not at the step that was meant" in refused("workflow", "skip-step", fork, "--step", "=2", code=1)
    done("workflow", "skip-step", fork, "--step", "=0")
    done("workflow", "complete-step", fork, "--step", "3")
    assert run_of(fork)["status"] == "completed"


def test_a_fork_says_its_id() -> None:
    (run,) = ordered(NUMBER)
    fork = told("workflow", "fork", run, "--with-state", '{"open": true}')
    assert fork == {"id": fork["id"], "forked_from": int(run)}
    said = done("workflow", "fork", run, "--at-step", "charge", "--reason", "to try it")
    other = said.split()[1]
    assert said == f"workflow {other} was forked from {run}\n"
    assert (last(run), last(other)) == (("workflow_forked", "lin", "to try it"),) * 2
    done("flush")
    assert (run_of(str(fork["id"]))["status"], run_of(other)["status"]) == ("completed", "running")


def test_a_step_is_passed_over_or_entered_by_hand() -> None:
    skipped, entered = ordered(TEXT, 2)
    assert done("workflow", "skip-step", skipped, "--step", "charge") == f"workflow {skipped} is running\n"
    assert told("workflow", "complete-step", entered, '{"receipt": "by hand"}')["status"] == "running"
    assert [run_of(run)["state"].get("receipt") for run in (skipped, entered)] == [None, "by hand"]
    assert [run_of(run)["current_step_name"] for run in (skipped, entered)] == ["send", "send"]
    assert "and at step 2 ('send') by now" in refused("workflow", "skip-step", entered, "--step", "charge", code=1)


def test_keys_of_the_state_are_set_and_taken_out(local: Project) -> None:
    (run,) = ordered(NUMBER)
    (local.folder / "changes.json").write_text('{"open": true}')
    assert done("workflow", "patch-state", run, "@changes.json") == f"workflow {run} is running\n"
    done("workflow", "patch-state", run, "--remove", "raw", "--remove", "receipt")
    assert run_of(run)["state"] == {"amount": 19, "open": True}


def test_nobody_waits_for_a_time() -> None:
    (run,) = ordered(NUMBER)
    done("workflow", "patch-state", run, '{"open": true}')
    assert told("flush") == {"ran": 0}
    assert told("workflow", "run-now", run) == {"id": int(run), "status": "running"}
    assert told("flush") == {"ran": 1}
    assert run_of(run)["status"] == "completed"
    assert "nothing of it waits for a time" in refused("workflow", "run-now", run, code=1)


# many runs


def test_a_dry_run_says_what_would_be_done_and_does_nothing() -> None:
    failed, running = *ordered(TEXT), *ordered(NUMBER)
    assert done("workflow", "retry", "--status", "failed", "--dry-run") == "1 matched; it would be done to 1\n"
    answer = queuety("workflow", "retry", "--name", "order", "--dry-run")
    assert (answer.code, answer.err) == (1, "")
    said, columns, *rows = [line.split(maxsplit=1) for line in answer.out.splitlines()]
    assert said == ["2", "matched; it would be done to 1"]
    assert columns == ["id", "refused"]
    why = f"workflow {running} is running; it cannot be retried (only a failed workflow can)"
    assert rows == [[running, why]]
    answer = queuety("workflow", "retry", "--name", "order", "--dry-run", "--json")
    assert (answer.code, answer.err) == (1, "")
    assert json.loads(answer.out) == {"dry_run": True, "matched": 2, "done": [int(failed)], "refused": {running: why}}
    assert run_of(failed)["status"] == "failed"


FILTERS = (
    ("--status FAILED", 2),
    ("--name order", 3),
    ("--tag red", 1),
    ("--tag orange", 0),
    ("--error-kind StepFailed", 2),
    ("--error-kind WaitTimeout", 0),
    ("--older-than 1h", 0),
    ("--newer-than 1h30m", 4),
    ("--newer-than 1h --name order", 3),
    ("--name order --limit 2", 2),
)


def test_a_filter_says_which_are_meant() -> None:
    ordered(TEXT, 2)
    start("order", NUMBER, "red", "blue")
    start("asking")
    for given, matched in FILTERS:
        assert told("workflow", "cancel", *given.split(), "--dry-run")["matched"] == matched, given
    found = told("workflow", "cancel", *FILTERS[0][0].split())
    assert (found["dry_run"], found["matched"], len(found["done"])) == (False, 2, 2)
    assert [run_of(str(run))["status"] for run in found["done"]] == ["cancelled"] * 2


def test_each_verb_is_done_to_many() -> None:
    runs = ordered(NUMBER, 2)
    ids = [int(run) for run in runs][::-1]
    for verb, status in (
        (("pause",), "paused"),
        (("resume",), "running"),
        (("run-now",), "running"),
        (("rewind", "read", "--with-state", '{"amount": "7"}'), "running"),
        (("skip-step", "--step", "charge"), "running"),
    ):
        found = told("workflow", *verb, "--name", "order", "--reason", "all of them")
        assert found == {"dry_run": False, "matched": 2, "done": ids, "refused": {}}
        assert [run_of(run)["status"] for run in runs] == [status] * 2
    assert [run_of(run)["state"] for run in runs] == [{"raw": 19, "amount": "7"}] * 2
    done("workflow", "rewind", "read", "--name", "order", "--with-state", '{"amount": "7"}')
    done("flush")
    assert (
        done("workflow", "retry", "--name", "order", "--with-state", '{"amount": 1}') == "2 matched; it was done to 2\n"
    )
    assert done("workflow", "cancel", "--name", "order", "--limit", "1") == "1 matched; it was done to 1\n"
    assert [run_of(run)["status"] for run in runs] == ["running", "cancelled"], "the newest first"


def test_what_is_refused_stops_no_other() -> None:
    failed, running = *ordered(TEXT), *ordered(NUMBER)
    answer = queuety("workflow", "skip-step", "--step", "send", "--name", "order")
    assert (answer.code, answer.err) == (1, "")
    assert answer.out.startswith("2 matched; it was done to 1\n")
    assert f"workflow {failed} is failed and at step 1 ('charge') by now, not at the step" in answer.out
    assert run_of(running)["status"] == "completed"


# signals


def test_a_signal_is_sent_to_one_or_to_many() -> None:
    one, *others = [start("asking") for _ in range(3)]
    assert done("workflow", "signal", one, "go", '{"n": 1}', "--reason", "now") == f"workflow {one} is running\n"
    found = told("workflow", "signal", "go", '{"n": 2}', "--status", "waiting_for_signal", "--dry-run")
    assert found == {"dry_run": True, "matched": 2, "done": [int(run) for run in others][::-1], "refused": {}}
    found = told("workflow", "signal", "go", "--data", '{"n": 2}', "--status", "waiting_for_signal", "--actor", "ann")
    assert (found["matched"], len(found["done"])) == (2, 2)
    sent = [told("workflow", "timeline", run)[1] for run in (one, *others)]
    assert [(event["output"]["payload"], event["actor"], event["reason"]) for event in sent] == [
        ({"n": 1}, "lin", "now"),
        ({"n": 2}, "ann", None),
        ({"n": 2}, "ann", None),
    ]


# who and why


def test_the_history_says_who_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = ordered(NUMBER)
    done("workflow", "pause", run)
    assert last(run) == ("workflow_paused", "lin", None)
    monkeypatch.setenv("QUEUETY_ACTOR", "ops")
    done("workflow", "resume", run, "--reason", "all is well")
    assert last(run) == ("workflow_resumed", "ops", "all is well")
    done("workflow", "patch-state", run, '{"open": true}', "--actor", "Ada", "--reason", "it opens\nat nine")
    assert last(run) == ("workflow_patched", "Ada", "it opens\nat nine")
    monkeypatch.setenv("QUEUETY_ACTOR", "  ")
    done("workflow", "run-now", run)
    assert last(run) == ("workflow_hurried", "lin", None)
    people = done("workflow", "timeline", run)
    assert people.splitlines()[0].endswith("by")
    assert "ops: all is well\n" in people


@pytest.mark.parametrize("error", [KeyError("no entry"), OSError("no entry")])
def test_nobody_is_named_where_nobody_is_known(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def unknown() -> str:
        raise error

    (run,) = ordered(NUMBER)
    monkeypatch.setattr(getpass, "getuser", unknown)
    done("workflow", "pause", run)
    assert last(run) == ("workflow_paused", None, None)


# what is refused

ONE_OR_MANY = "say either the ID of a run or which runs are meant (--status, --name, --tag, …)"
ID_AND_STEP = "say the ID of a run and a STEP; for many runs the STEP alone, and which runs are meant"
ID_AND_SIGNAL = "say the ID of a run and the NAME of a signal; for many runs the NAME alone, and which are meant"
SPAN = "a length of time is needed, such as 90s, 15min, 2h, 1d or 1w"
BAD_INPUT = (
    *((verb, ONE_OR_MANY) for verb in ("pause", "resume", "retry", "cancel", "run-now")),
    *((f"{verb} RUN --status failed", ONE_OR_MANY) for verb in ("pause", "resume", "retry", "cancel", "run-now")),
    ("skip-step", ONE_OR_MANY),
    ("skip-step --name order", "to skip a step of many runs say which one: --step INDEX or --step NAME"),
    ("skip-step --step send", ONE_OR_MANY),
    ("skip-step RUN --step send --tag red", ONE_OR_MANY),
    ("rewind RUN", ID_AND_STEP),
    ("rewind RUN read more", ID_AND_STEP),
    ("rewind order read", ID_AND_STEP),
    ("rewind RUN read --name order", ONE_OR_MANY),
    ("rewind", "Missing argument '[ID] STEP'"),
    ("signal RUN", ID_AND_SIGNAL),
    ("signal RUN go --name order", ID_AND_SIGNAL),
    ("signal order go", ID_AND_SIGNAL),
    ("signal go {} more --name order", ID_AND_SIGNAL),
    ("signal go [1] --name order", "DATA must be a mapping"),
    ("cancel RUN --dry-run", "--dry-run and --limit are for many runs at once, not for one by its ID"),
    ("cancel RUN --limit 1", "--dry-run and --limit are for many runs at once, not for one by its ID"),
    ("cancel --limit 1", ONE_OR_MANY),
    ("cancel --dry-run", ONE_OR_MANY),
    ("cancel --name order --limit 0", "'0': a whole number from 1 to 2,147,483,647 is needed"),
    ("cancel --status ended", "'ended' is not one of 'running', 'paused'"),
    ("cancel --error-kind Broken", "'Broken' is not one of 'StepFailed'"),
    ("cancel --older-than soon", f"--older-than 'soon': {SPAN}"),
    ("cancel --newer-than 1y", f"--newer-than '1y': {SPAN}"),
    ("cancel --older-than=-1h", f"--older-than '-1h': {SPAN}"),
    ("cancel --older-than 7", f"--older-than '7': {SPAN}"),
    ("cancel --older-than 1h30", f"--older-than '1h30': {SPAN}"),
    ("cancel none", "'none': an id (a whole number) is needed"),
    ("cancel 0", "'0': an id (a whole number) is needed"),
    ("rewind 99999999999999999999 read", "'99999999999999999999': an id (a whole number) is needed"),
    ("rewind RUN nowhere", "has no step 'nowhere'; it has 0 ('read'), 1 ('charge'), 2 ('send')"),
    ("rewind RUN =2", "has no step '2'; it has 0 ('read')"),
    ("rewind RUN 3", "has no step 3; it has 0 ('read')"),
    ("fork RUN --at-step nowhere", "has no step 'nowhere'"),
    ("skip-step RUN --step nowhere", "has no step 'nowhere'"),
    ("complete-step RUN {} --step nowhere", "has no step 'nowhere'"),
    ("retry RUN --with-state {", "--with-state is not valid JSON"),
    ("rewind RUN read --with-state [1]", "--with-state must be a mapping"),
    ("fork RUN --with-state @nowhere.json", "--with-state from nowhere.json cannot be read"),
    ("complete-step RUN 5", "OUTPUT must be a mapping"),
    ("patch-state RUN", "there is nothing to change in its state"),
    ("patch-state RUN {", "CHANGES is not valid JSON"),
    ('patch-state RUN {"_a":1}', "keys that start with _ are reserved"),
    ("patch-state RUN --remove nothing", "its state has no key 'nothing' that could be removed"),
    ("pause RUN --actor=", "actor='': a text of 1 to 255 characters is needed"),
    ("pause RUN --reason=", "reason='': a text of 1 to 4000 characters is needed"),
)


def test_bad_input_changes_nothing() -> None:
    (run,) = ordered(NUMBER)
    before = told("workflow", "timeline", run)
    for arguments, said in BAD_INPUT:
        assert said in refused("workflow", *arguments.replace("RUN", run).split(), code=2), arguments
    assert told("workflow", "timeline", run) == before


VERBS = ("pause", "resume", "retry", "cancel", "run-now", "skip-step", "fork", "complete-step", "patch-state")


def test_an_id_that_is_no_runs_is_a_no() -> None:
    job = str(told("dispatch", "shop:mail")["id"])
    for verb, *more in (*((verb,) for verb in VERBS), ("rewind", "read"), ("signal", "go"), ("approve",), ("input",)):
        assert refused("workflow", verb, "123456789", *more, code=1) == "no workflow has the id 123456789"
        said = f"{job} is a job and no workflow; see `queuety inspect {job}`"
        assert refused("workflow", verb, job, *more, code=1) == said


def test_a_status_that_forbids_it_is_a_no() -> None:
    (run,) = ordered(NUMBER)
    done("workflow", "cancel", run)
    for verb, *more in (*((verb,) for verb in VERBS), ("rewind", "read")):
        if verb != "patch-state":
            assert f"workflow {run} is cancelled" in refused("workflow", verb, run, *more, code=1) or verb == "cancel"
    assert "is already cancelled" in refused("workflow", "cancel", run, code=1)
    assert "it cannot be patched" in refused("workflow", "patch-state", run, '{"a": 1}', code=1)
