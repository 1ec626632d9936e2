# Every target does its own set-up. `make` alone lists them.
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
# The strict editable install links module by module: a new module, or a changed pyproject.toml, asks for a new one.
MODULES := $(shell { find __init__.py adapters bridge core spark_jobs -name '*.py' | sort; cat pyproject.toml; } | cksum | cut -d' ' -f1)
READY   := $(VENV)/.ready-$(MODULES)

.PHONY: help setup install-brokers brokers brokers-stop demo test check types types-of-tests bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

setup: $(READY)  ## make the virtual environment

$(READY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "delaybridge needs Python 3.11 or later: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing delaybridge and its dependencies into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@# dev first: it pins pyspark, and uv fetches the newest (400 MB, a source archive) of what nothing has pinned yet.
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[dev,rabbitmq,kafka,activemq,spark]' --config-setting editable_mode=strict
	@# uv leaves this to each module's first import. Where that may write no files, each of the thousand processes of a test run would do it anew.
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib build/__editable__* || true
	@rm -f $(VENV)/.ready-* && touch $@

install-brokers: $(READY)  ## install the brokers that the tests start (Debian, Ubuntu), unless they or Docker are there
	@sh tests/brokers/install.sh $(CURDIR)/$(BIN)/python

brokers: install-brokers  ## start RabbitMQ, Kafka and ActiveMQ on this machine, to play with
	@cd tests && $(CURDIR)/$(BIN)/python -m brokers start

brokers-stop: $(READY)  ## stop them; they keep nothing
	@cd tests && $(CURDIR)/$(BIN)/python -m brokers stop

demo: $(READY)  ## see it work and audited, in about a minute, on the embedded broker; FAULTS=1 for an audit with something to find
	@$(BIN)/delaybridge demo $(if $(filter-out 0,$(FAULTS)),--faults)

test: $(READY) install-brokers  ## all tests; real brokers, started by the tests
	@cd tests && $(CURDIR)/$(BIN)/python -m spark.classes
	@$(BIN)/python -m pytest --numprocesses=4 --dist=loadfile --no-loadscope-reorder $(ARGS)

check: $(READY)  ## lint, formatting, types, and the layout (how long files are, what imports what)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory --jobs=2 types types-of-tests
	@$(BIN)/python -m pytest --quiet --no-header --numprocesses=0 tests/unit/test_packaging.py

types:
	@$(BIN)/mypy

types-of-tests:
	@cd tests && ../$(BIN)/mypy --config-file ../pyproject.toml --explicit-package-bases .

bench: $(READY) install-brokers  ## measure against the budgets; BENCH_FULL=1 for ten million pending and a million due at once
	@$(BIN)/python -m tests.benchmarks $(ARGS)

clean:  ## remove what was built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
