"""`python -m queuety.cli`: the same as `queuety`."""

from queuety.cli import main

main()
