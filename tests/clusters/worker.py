"""A worker in a process of its own: `python -m tests.clusters.worker`. Its log tells of every commit that fails."""

from __future__ import annotations

import logging

from queuety.worker.child import LOG_FORMAT
from tests.clusters.load import app, commits_told


def main() -> None:
    logging.basicConfig(format=LOG_FORMAT, level=logging.INFO)
    worker = app.worker("default", 8, grace_seconds=5.0)
    print("works", flush=True)
    with commits_told(lambda line: print(line, flush=True)):
        worker.run()


if __name__ == "__main__":
    main()
