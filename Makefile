# Everything runs in an environment that this file makes for itself: .venv, or .venv-3.13 for PYTHON=python3.13.
ifeq ($(origin PYTHON), undefined)
PYTHON := $(shell for name in python3.11 python3.12 python3.13 python3; do \
            $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
VENV   ?= .venv
else
GIVEN  := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
VENV   ?= .venv-$(GIVEN)
endif
BIN     = $(VENV)/bin
OUT    ?= demo-out
STAMP   = $(VENV)/.installed
PIP     = $(BIN)/python -m pip --disable-pip-version-check -q
# One more than there are cores: tests of browsers, processes and disks wait, and meanwhile others run.
JOBS   ?= $(shell echo $$(( $$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN) + 1 )))

# Without compiled files every process of the tests would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo demo-network test test-audit test-cluster test-report test-console test-experiments test-databases test-statistics test-processes test-deploy deploy-constraints test-install test-pandas3 test-slow test-network test-mutation check format bench bench-glm bench-network \
        bench-sdv bench-smartnoise tables tables-smoke test-gan docs docs-outputs docs-pictures dist clean

help:  ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | awk -F'\t' '{printf "  make %-14s %s\n", $$1, $$2}'

$(VENV)/bin/python:
	@test -n "$(PYTHON)" && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed (found: '$(PYTHON)'); install it or run 'make PYTHON=/path/to/python3.11 ...'"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# An environment made by another Python than the one asked for is left as it is.
.PHONY: same-python
same-python: $(VENV)/bin/python
	@found=$$($< -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	test "$(or $(GIVEN),$$found)" = "$$found" \
	  || { echo "$(VENV) was made by Python $$found, not by $(GIVEN); remove it or name another: 'make VENV=.venv-$(GIVEN) ...'"; exit 1; }

$(STAMP): $(VENV)/bin/python pyproject.toml | same-python
	@echo "installing into $(VENV) …"
	$(PIP) install --upgrade pip
	$(PIP) install -e .
	@touch $@

$(STAMP)-dev: $(STAMP)
	@echo "installing development tools into $(VENV) …"
	$(PIP) install -e '.[audit,dev]'
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

# Neighbouring tests stay in one process as long as there is work for all: their fixtures start processes of their own.
# JOBS=0 runs everything in one.
PARALLEL = -n $(JOBS) --maxprocesses 8 --dist worksteal
APART    = audit browser cluster console databases deploy docs experiments gan install network processes report slow statistics
SHORT    = not ($(shell echo $(APART) | sed 's/ / or /g'))

test: $(STAMP)-dev  ## the test suite on all cores (JOBS=...), without what has a target of its own below
	$(BIN)/python -m pytest $(PARALLEL) -m "$(SHORT)"

test-audit: $(STAMP)-dev  ## the audit: its bounds and commands, correct mechanisms, and planted faults
	$(BIN)/python -m pytest $(PARALLEL) -m "audit and not slow"

test-statistics: $(STAMP)-dev  ## estimates and their errors over many draws
	$(BIN)/python -m pytest $(PARALLEL) -m "statistics and not slow"

test-report: $(STAMP)-browser  ## the report, also in a real browser (installs Chromium where there is none)
	$(BIN)/python -m pytest $(PARALLEL) -m "(report or browser) and not audit and not console"

test-console: $(STAMP)-browser  ## the web console, attacked, and used in a real browser between real processes
	$(BIN)/python -m pytest $(PARALLEL) -m console

test-experiments: $(STAMP)-dev  ## the paper's experiments and the benchmarks in miniature
	$(BIN)/python -m pytest $(PARALLEL) -m "experiments and not slow and not gan"

$(STAMP)-servers: $(STAMP)-dev  # tables are read from real servers
	@has() { test -x /usr/sbin/mariadbd && ls /usr/lib/postgresql/*/bin/postgres; }; \
	if has >/dev/null 2>&1; then :; \
	elif command -v apt-get >/dev/null; then \
	  echo "installing PostgreSQL and MariaDB for the tests of databases …"; \
	  as_root=; test "$$(id -u)" = 0 || as_root=sudo; export DEBIAN_FRONTEND=noninteractive; \
	  install() { $$as_root apt-get install -y -q --no-install-recommends postgresql mariadb-server; }; \
	  { install || { $$as_root apt-get update -q && install; }; }; \
	else echo "install the PostgreSQL and MariaDB servers: tests of databases fail without them"; fi; \
	if has >/dev/null 2>&1; then touch $@; fi

test-databases: $(STAMP)-servers  ## tables in PostgreSQL and MariaDB, started for the tests (installs the servers where there are none)
	$(BIN)/python -m pytest -m databases

test-processes: $(STAMP)-dev  ## the short fault and intruder tables and studies that wait for stewards: real processes, killed and attacked (minutes)
	$(BIN)/python -m pytest $(PARALLEL) -m "processes and not network"

$(STAMP)-deploy: $(STAMP)-dev  # linters from PyPI; systemd-analyze and promtool are Debian's
	$(PIP) install -e '.[deploy]'
	@if command -v systemd-analyze >/dev/null && command -v promtool >/dev/null; then :; \
	elif command -v apt-get >/dev/null; then \
	  as_root=; test "$$(id -u)" = 0 || as_root=sudo; export DEBIAN_FRONTEND=noninteractive; \
	  need="$$(command -v systemd-analyze >/dev/null || echo systemd) $$(command -v promtool >/dev/null || echo prometheus)"; \
	  get="$$as_root apt-get install -y -q --no-install-recommends"; \
	  { $$get $$need || { $$as_root apt-get update -q && $$get $$need; }; }; \
	else echo "install systemd-analyze and promtool and have them on the PATH: tests of deploy/ fail without them"; fi
	@if command -v systemd-analyze && command -v promtool; then touch $@; fi >/dev/null

test-deploy: $(STAMP)-deploy  ## image, compose file, units, manifests and alerts, by the tools that read them
	$(BIN)/python -m pytest -m deploy

deploy-constraints: $(STAMP)-dev  ## pin what the image installs to the versions of this environment
	$(BIN)/python deploy/pin_versions.py

test-install: $(STAMP)-dev  ## wheel and sdist, built and installed into an empty environment, run the demo
	$(BIN)/python -m pytest -m install

dist: $(STAMP)-dev  ## wheel and sdist in dist/, tested as they are
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	DIST=$(CURDIR)/dist $(BIN)/python -m pytest -m install

test-pandas3: $(VENV)-pandas3/.installed  ## make test with pandas 3, without SDMetrics, which does not support it
	$(VENV)-pandas3/bin/python -m pytest $(PARALLEL) -m "$(SHORT) and not sdmetrics"

$(VENV)-pandas3/.installed: $(STAMP)-dev
	@echo "installing into $(VENV)-pandas3 …"
	$(BIN)/python -m venv $(VENV)-pandas3
	$(VENV)-pandas3/bin/python -m pip --disable-pip-version-check -q install -e '.[dev]' 'pandas>=3'
	@touch $@

$(STAMP)-cluster: $(STAMP)-dev
	@echo "installing dask and ray into $(VENV) …"
	$(PIP) install -e '.[cluster]'
	@touch $@

test-cluster: $(STAMP)-cluster  ## studies on a real Dask cluster, also with TLS, whose processes are killed (installs dask and ray)
	$(BIN)/python -m pytest -m cluster

test-slow: $(STAMP)-cluster  ## the slow statistical checks, and the tables' other back ends (installs dask and ray)
	$(BIN)/python -m pytest $(PARALLEL) -m slow

$(STAMP)-compiler: $(STAMP)-dev  # the clock of real processes is moved by a few lines of C
	@if command -v cc >/dev/null; then :; \
	elif command -v apt-get >/dev/null; then \
	  echo "installing a C compiler for the tests of certificates …"; \
	  as_root=; test "$$(id -u)" = 0 || as_root=sudo; export DEBIAN_FRONTEND=noninteractive; \
	  { $$as_root apt-get install -y -q gcc libc6-dev || { $$as_root apt-get update -q && $$as_root apt-get install -y -q gcc libc6-dev; }; }; \
	else echo "install a C compiler and have it on the PATH as cc: tests of certificates fail without it"; fi
	@if command -v cc; then touch $@; fi >/dev/null

test-network: $(STAMP)-dev $(STAMP)-compiler  ## the whole fault and intruder tables (minutes; wants a free machine)
	$(BIN)/python -m pytest -m network

test-mutation: $(STAMP)-dev  ## small mistakes in the privacy code, one at a time: each must fail a test (ONLY=name for one)
	$(BIN)/python -m tests.mutation $(addprefix --only ,$(ONLY))

$(STAMP)-gan: $(STAMP)-dev
	@echo "installing PyTorch into $(VENV) …"
	$(PIP) install -e '.[gan]'
	@touch $@

test-gan: $(STAMP)-gan  ## the Vertigan baseline (installs PyTorch)
	$(BIN)/python -m pytest -m gan

tables-smoke: $(STAMP)-dev  ## the paper's tables in miniature (a minute; part of make test-experiments)
	$(BIN)/python -m pytest tests/experiments/test_tables_smoke.py

TABLES_OUT ?= experiments-out
BACKEND    ?= loky
RUN         = $(BIN)/python -m experiments
HOW         = --jobs $(JOBS) --backend $(BACKEND) --out $(TABLES_OUT)
TABLES      = $(RUN) table1 table2 table3 table4 table5 table6 table7 $(HOW)
# Without IEVCDS, which takes most of the time, and has no constant that was ever tuned.
OTHER_DATA  = Original-C VCDS EVCDS Refined Refined-aligned

# Interrupted after the first line, it leaves all tables with fewer data sets; called again, it goes on.
tables: $(STAMP)-$(if $(filter loky,$(BACKEND)),dev,cluster)  ## the paper's tables in full, to experiments-out/ (half a day of one core; JOBS=..., BACKEND=loky|dask|ray)
	$(TABLES) --headline --replications 30
	$(TABLES) --headline --judges paper --replications 100
	$(TABLES) --replications 30
	$(TABLES) --methods $(OTHER_DATA) --epsilons 1 --sizes 1000 5000 --effects uniform --replications 30
	$(TABLES) --methods $(OTHER_DATA) --epsilons 1 --sizes 1000 5000 --seed-offset 1000 --replications 30
	$(RUN) missing $(HOW)
	$(RUN) open_choices $(HOW)
	$(RUN) one_reading $(HOW)
	$(RUN) rows_per_subject $(HOW)
	$(RUN) judge_or_data $(HOW)
	$(RUN) table8 $(HOW)

check: $(STAMP)-dev  ## ruff, mypy (strict on src), and that rooms import only from lower rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP)-dev  ## apply ruff's formatting and safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)-dev  ## the benchmarks that need no other environment; JSON in benchmarks/results/
	$(BIN)/python -m benchmarks --jobs 2

bench-glm: $(STAMP)-dev  ## regressions: agreement, rounds, speed, the paper's Original-C and Original-VFL (an hour)
	$(BIN)/python -m benchmarks glm_agreement glm_rounds glm_moments glm_speed glm_original glm_bayes interval_coverage

bench-network: $(STAMP)-dev  ## the network: round trips, a regression, VCDS against one process; faults and intruders
	$(BIN)/python -m benchmarks network faults intruders

.PHONY: bench-public
bench-public: $(STAMP)-dev  ## strict mode and its rivals on public tables (DATA=folder; OPTIONS=... for a part; goes on where it stopped)
	@test -n "$(DATA)" || { echo "which folder has the tables? make bench-public DATA=folder (benchmarks/public_tables.py says what is in it)"; exit 2; }
	$(BIN)/python -m benchmarks public --data $(DATA) $(OPTIONS)

bench-sdv: $(STAMP)-dev  ## VCDS against SDV's GaussianCopulaSynthesizer (makes .venv-sdv)
	$(BIN)/python -m benchmarks sdv

bench-smartnoise: $(STAMP)-dev  ## strict mode against SmartNoise's MST with a trusted curator (makes .venv-smartnoise)
	$(BIN)/python -m benchmarks smartnoise

$(STAMP)-docs: $(STAMP)-dev
	@echo "installing Sphinx into $(VENV) …"
	$(PIP) install -e '.[docs]'
	@touch $@

SITE = build/site

docs: $(STAMP)-docs $(STAMP)-browser  ## the documentation site, in build/site/html; warnings are errors; its pages show what they print
	@mkdir -p $(SITE)/source
	$(BIN)/python -m sphinx -q -W --keep-going -E -c docs $(SITE)/source $(SITE)/html
	$(BIN)/python -m pytest $(PARALLEL) -m docs

docs-outputs: $(STAMP)-docs  ## runs all blocks of tutorials and how-to pages, and writes what came out into the pages (PAGES=...)
	$(BIN)/python -m reporting.page_notebooks write $(or $(PAGES),$(wildcard docs/tutorials/*.md docs/how-to/*.md))

docs-pictures: $(STAMP)-browser  ## the pictures of the report in README and documentation, from a demo, and of the console
	$(BIN)/verticopula demo --out $(OUT) --quiet
	$(BIN)/python -m reporting.report_pictures $(OUT)/report.html
	$(BIN)/python -m reporting.console_pictures

clean:  ## remove environments, caches and demo output
	rm -rf $(VENV) .venv-* $(OUT) $(OUT)-network .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
