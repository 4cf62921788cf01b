"""Plays the example: dispatches a run, kills its worker while it writes, reviews, and shows what was published."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

TOPIC = "street trees"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["QUEUETY_DATABASE_URL"] = f"sqlite:///{folder}/agents.db"
        os.environ["QUEUETY_LEASE_SECONDS"] = "1"  # how long a killed worker's step stays its own; else 30
        from examples.agents.flow import app, article

        with app:
            run = app.dispatch_workflow(article, {"topic": TOPIC, "folder": folder})
            print(f"run {run} of the workflow {article.name!r} is dispatched; a worker starts")
            reviewer = threading.Thread(target=review, args=(app, run), daemon=True)
            reviewer.start()
            worker = start_worker()
            try:
                for number, sentence in enumerate(app.workflow_stream(run, timeout=60), start=1):
                    print(f"    {sentence}", flush=True)
                    if number == 2:
                        print("kill -9: the worker and all its processes; another one starts", flush=True)
                        kill(worker)
                        worker = start_worker()
                done = app.wait(run, timeout=60)
            finally:
                kill(worker)
            reviewer.join()
            print(f"run {run} is {done.status}; {Path(done.state['published']).name} says:\n")
            print(Path(done.state["published"]).read_text(), end="")


def review(app, run: int) -> None:
    """What a person does, from wherever it is: waits until asked, says no with a note, and then yes."""
    until_asked(app, run)
    print("Ada rejects the draft: shorter, please", flush=True)
    app.reject_workflow(run, {"note": "shorter, please"})
    until_asked(app, run)
    print("Ada approves the draft", flush=True)
    app.approve_workflow(run, {"by": "Ada"})


def until_asked(app, run: int) -> None:
    while app.workflow_status(run).status != "waiting_for_signal":
        time.sleep(0.1)
    time.sleep(1)  # reads it


def start_worker() -> subprocess.Popen[bytes]:
    """`queuety work` in a process group of its own, as a shell starts it."""
    command = [sys.executable, "-m", "queuety.cli", "--app", "examples.agents.flow:app", "work", "--log-level", "error"]
    return subprocess.Popen(command, process_group=0)


def kill(worker: subprocess.Popen[bytes]) -> None:
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


if __name__ == "__main__":
    main()
