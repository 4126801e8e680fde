# Everything runs in an environment that this file makes for itself: .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN     = $(VENV)/bin
OUT    ?= demo-out
STAMP   = $(VENV)/.installed
PIP     = $(BIN)/python -m pip --disable-pip-version-check -q
JOBS   ?= $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)

.DEFAULT_GOAL := help
.PHONY: help demo demo-network test test-slow test-network check format bench bench-glm bench-network \
        bench-sdv bench-smartnoise tables tables-smoke test-gan clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | awk -F'\t' '{printf "  make %-14s %s\n", $$1, $$2}'

$(VENV)/bin/python:
	@test -n "$(PYTHON)" && $(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
	  || { echo "Python 3.11 is needed (found: '$(PYTHON)'); install it or run 'make PYTHON=/path/to/python3.11 ...'"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(VENV)/bin/python pyproject.toml
	@echo "installing into $(VENV) …"
	$(PIP) install --upgrade pip
	$(PIP) install -e .
	@touch $@

$(STAMP)-dev: $(STAMP)
	@echo "installing development tools into $(VENV) …"
	$(PIP) install -e '.[dev]'
	@touch $@

demo: $(STAMP)  ## a five-party study on a built-in federation, written to demo-out/ (OUT=...)
	$(BIN)/verticopula demo --out $(OUT)

$(STAMP)-nvflare: $(STAMP)
	@echo "installing NVIDIA FLARE into $(VENV) …"
	$(PIP) install -e '.[nvflare]'
	@touch $@

demo-network: $(STAMP)-nvflare  ## the same between six processes with mutual TLS on this machine (OUT=...)
	$(BIN)/verticopula demo-network --out $(OUT)-network

$(STAMP)-browser: $(STAMP)-dev  # the report is looked at in a real browser
	@if { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null; then :; \
	elif command -v apt-get >/dev/null; then \
	  echo "installing Chromium for the tests of the report …"; \
	  as_root=; test "$$(id -u)" = 0 || as_root=sudo; export DEBIAN_FRONTEND=noninteractive; \
	  { $$as_root apt-get install -y -q chromium || { $$as_root apt-get update -q && $$as_root apt-get install -y -q chromium; }; }; \
	else echo "install Chromium or Google Chrome and have it on the PATH: tests of the report fail without it"; fi
	@if command -v chromium || command -v chromium-browser || command -v google-chrome; then touch $@; fi >/dev/null

# A file's tests stay in one process: their fixtures start processes of their own. JOBS=0 runs everything in one.
PARALLEL = -n $(JOBS) --maxprocesses 8 --dist loadfile --no-loadscope-reorder

test: $(STAMP)-browser  ## the test suite on all cores (JOBS=...), without slow checks and long network tables
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not network and not gan"

$(STAMP)-cluster: $(STAMP)-dev
	@echo "installing dask and ray into $(VENV) …"
	$(PIP) install -e '.[cluster]'
	@touch $@

test-slow: $(STAMP)-cluster  ## the slow statistical checks, and the tables' other back ends (installs dask and ray)
	$(BIN)/python -m pytest -m slow

test-network: $(STAMP)-dev  ## the fault and intruder tables: real processes, killed and attacked
	$(BIN)/python -m pytest -m network

$(STAMP)-gan: $(STAMP)-dev
	@echo "installing PyTorch into $(VENV) …"
	$(PIP) install -e '.[gan]'
	@touch $@

test-gan: $(STAMP)-gan  ## the Vertigan baseline (installs PyTorch)
	$(BIN)/python -m pytest -m gan

tables-smoke: $(STAMP)-dev  ## the paper's tables in miniature (a minute; part of make test)
	$(BIN)/python -m pytest tests/experiments/test_tables_smoke.py

tables: $(STAMP)-dev  ## the paper's tables in full, to experiments-out/ (hours; can be interrupted and run again)
	$(BIN)/python -m experiments missing --jobs 2
	$(BIN)/python -m experiments table1 table2 table3 table4 table5 table6 table7 table8 --judge bayes --jobs 2

check: $(STAMP)-dev  ## ruff and mypy (strict on src)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)-dev  ## apply ruff's formatting and safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)-dev  ## the benchmarks that need no other environment; JSON in benchmarks/results/
	$(BIN)/python -m benchmarks --jobs 2

bench-glm: $(STAMP)-dev  ## regressions: agreement, rounds, speed, the paper's Original-C and Original-VFL (an hour)
	$(BIN)/python -m benchmarks glm_agreement glm_rounds glm_speed glm_original glm_bayes glm_coverage

bench-network: $(STAMP)-dev  ## the network: round trips, a regression, VCDS against one process; faults and intruders
	$(BIN)/python -m benchmarks network faults intruders

bench-sdv: $(STAMP)-dev  ## VCDS against SDV's GaussianCopulaSynthesizer (makes .venv-sdv)
	$(BIN)/python -m benchmarks sdv

bench-smartnoise: $(STAMP)-dev  ## strict mode against SmartNoise's MST with a trusted curator (makes .venv-smartnoise)
	$(BIN)/python -m benchmarks smartnoise

clean:  ## remove environments, caches and demo output
	rm -rf $(VENV) .venv-sdv .venv-smartnoise $(OUT) $(OUT)-network .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
