"""How fast Queuety is on this machine, beside what the database allows. `make bench` runs it."""
