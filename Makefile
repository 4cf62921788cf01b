# A fresh checkout needs Python 3.11 or newer, make, and nothing else.

VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ARGS   ?=
JOBS   ?= 2

# Scenarios of chance, whose rounds `make proof` raises too.
CROWDS := fan_out_at_once.py families_at_once.py many_items.py shared_by_processes.py

# The first interpreter that is new enough and can make a virtual environment.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& { command -v "$$p"; break; }; done)

# Where tests stand that run apart from the others: collecting all of them takes as long as some of these.
PAIRED := $(shell grep -rl --include='*.py' 'mark\.paired' tests)
SERIAL := $(shell grep -rl --include='*.py' --exclude-dir=clusters 'mark\.serial' tests)

.DEFAULT_GOAL := help
.PHONY: help install demo test check fix bench bench-all proof clean

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 18

install: $(STAMP) ## the virtual environment in .venv, with everything

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { \
		echo "Queuety needs Python 3.11 or newer with venv; none was found on PATH (or say PYTHON=/path/to/python3)." >&2; exit 1; }
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all,dev]'
	@touch $@

demo: $(STAMP) ## a report over real documents, with a worker killed in the middle (ARGS=folder)
	$(BIN)/queuety demo $(ARGS)

check: $(STAMP) ## style, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fix: $(STAMP) ## formatting and what ruff can mend by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# pytest answers 5 when nothing was selected: no test being paired or serial is no failure.
test: check ## every check, then every test (QUEUETY_TEST_REQUIRE=postgresql,mysql: no database may be missing)
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m "not serial and not paired" $(ARGS)
	$(BIN)/pytest -n 2 --dist worksteal -m paired $(or $(ARGS),$(PAIRED)) || test $$? -eq 5
	$(BIN)/pytest -m serial $(or $(ARGS),$(SERIAL)) || test $$? -eq 5

bench: $(STAMP) ## steps per second and latency on each database, beside its raw floor
	$(BIN)/python -m benchmarks $(ARGS)

bench-all: $(STAMP) ## the same with 50,000 items, 10,000 parked runs and long loops: a quarter of an hour
	$(BIN)/python -m benchmarks --sizes full $(ARGS)

proof: $(STAMP) ## the random and the crash tests, many more rounds than usual, and clusters whose nodes are killed
	QUEUETY_TEST_PROOF=1 $(BIN)/pytest --timeout 3600 tests/unit tests/crash tests/clusters $(addprefix tests/flow/test_,$(CROWDS)) $(ARGS)

clean: ## what was built, except what is yours
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
