"""`python -m queuety`: the same as `queuety`."""

from queuety.cli import main

main()
