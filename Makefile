# Strata: build, run and test.  `make` lists the targets.
#
# This file only says what depends on what.  The work is in coordinator/ and worker/ (PGXS),
# scripts/ (the machine), tests/ (pytest, the demo) and benchmarks/.
# Settings: WORKERS, SCALE (demo); LAB, SUITE (lab); PYTEST, FUZZ, COMPAT, BENCH (more arguments); PG_MAJOR, PG_CONFIG.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# the major version of the Debian release that we are on
PG_MAJOR ?= $(shell scripts/postgresql_major.sh)
PG_CONFIG ?= /usr/lib/postgresql/$(PG_MAJOR)/bin/pg_config
export PG_MAJOR PG_CONFIG

WORKERS ?= 2
SCALE ?= 0.1
PYTEST ?=
FUZZ ?= --seconds inf
BENCH ?=
COMPAT ?=

PYTHON := .venv/bin/python
EXTENSIONS := extensions/columnar extensions/tiering worker coordinator
DEMO := $(PYTHON) -m tests.demo
JOBS := $(shell nproc)
# file by file; tests also wait, the lab's most of the time, and more than four would wait for the disk
PARALLEL := -n 4 --no-loadscope-reorder

LAB ?= lab
SUITE ?= trixie
LAB_TOOL := $(PYTHON) -m tests.provisioning --name $(LAB) --suite $(SUITE)

.PHONY: help build install assertions demo down clean check check-fast check-slow fuzz compat bench bench-17 bench-18 lint lint-19 format psql
.PHONY: packages python lab lab-down deb check-17 check-18 drill

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

# ---- the machine ---------------------------------------------------------------------------------

packages:
	@scripts/install_packages.sh

python: .venv/installed

.venv/installed: requirements.txt ansible/requirements.txt | packages
	@echo "Installing Python tools into .venv ..."
	@test -x $(PYTHON) || python3 -m venv --clear .venv
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check \
		-r requirements.txt -r ansible/requirements.txt
	@touch $@

.venv/tests: tests/requirements.txt .venv/installed
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt
	@touch $@

# ---- the extensions ------------------------------------------------------------------------------

build: packages ## Compile the extensions
	@for extension in $(EXTENSIONS); do \
		$(MAKE) -s -j$(JOBS) -C $$extension PG_CONFIG=$(PG_CONFIG); \
	done

install: build ## Install them into PostgreSQL's directories (what changed, with sudo if needed)
	@scripts/install_extensions.sh $(EXTENSIONS)

assertions: packages
	@scripts/build_assertions.sh

# ---- the demo ------------------------------------------------------------------------------------

demo: install python ## Start a local cluster, load real data, show what it does (WORKERS=2 SCALE=0.1)
	@$(DEMO) up --workers $(WORKERS) --scale $(SCALE)

psql: ## A psql session on the demo's coordinator
	@test -r .strata/env || { echo "There is no cluster yet: make demo"; exit 1; }
	@set -a; . .strata/env; exec psql

down: ## Stop the demo's servers; make demo starts them again
	@if test -e .venv/installed; then $(DEMO) down; fi

clean: ## Remove the demo's cluster with its data, and what was built
	@if test -e .venv/installed; then $(DEMO) remove; fi
	@if test -x $(PG_CONFIG); then for extension in $(EXTENSIONS); do \
		$(MAKE) -s -C $$extension PG_CONFIG=$(PG_CONFIG) clean; \
	done; fi
	@rm -rf .cache/assert .cache/lint .cache/pytest .cache/ruff .cache/stage dist

# ---- the lab of real hosts -----------------------------------------------------------------------

lab: python ## Boot the hosts of inventories/lab, real Debians, on this machine (LAB=lab SUITE=trixie; root)
	@scripts/install_packages.sh lab
	@$(LAB_TOOL) up

lab-down: ## Remove the lab's hosts with all that is on them, and labs whose tests were killed
	@if test -e .venv/installed; then $(LAB_TOOL) down; fi

# ---- Debian packages -----------------------------------------------------------------------------

PG ?= $(PG_MAJOR)

deb: python ## Build the Debian package into dist/, for PG=15 with Patroni (PG=15, 17 or 18; not the machine's own: needs root)
ifeq ($(PG),15)
	@scripts/fetch_patroni.sh dist
endif
ifeq ($(PG),$(PG_MAJOR))
	@scripts/install_packages.sh deb
	@scripts/build_deb.sh $(PG) dist $$(scripts/deb_version.sh)
else
	@scripts/install_packages.sh lab
	@$(LAB_TOOL) deb $(PG)
endif

# ---- tests ---------------------------------------------------------------------------------------

check: lint install assertions .venv/tests ## All tests but the slow ones (some 30 minutes on 2 cores with the lab)
	@test $$EUID -ne 0 || scripts/install_packages.sh lab
	@$(PYTHON) -m pytest -m "not slow" $(PARALLEL) $(PYTEST)

check-fast: install assertions .venv/tests ## The inner loop, below 2 minutes: the first case of each short test, no kills, moves, fuzzer, TPC-H
	@$(PYTHON) -m pytest -m "not slow and not long" --first-case $(PARALLEL) $(PYTEST)

check-slow: install assertions .venv/tests ## The slow tests
	@test $$EUID -ne 0 || { scripts/install_packages.sh lab && scripts/install_packages.sh virtual; }
	@$(PYTHON) -m pytest -m slow $(PYTEST)

check-17: ## All of check but the lab on PostgreSQL 17 of Debian 13, in a chroot (needs root)
check-18: ## The same on PostgreSQL 18 of Debian testing
check-17 check-18: check-%:
	@$(MAKE) deb PG=$*
	@$(LAB_TOOL) check $* -m "not slow" $(PARALLEL) $(PYTEST)

fuzz: install assertions python ## Compare random statements with plain PostgreSQL until stopped
	@$(PYTHON) -m tests.fuzz $(FUZZ)

compat: install python ## PostgreSQL's own tests beside plain PostgreSQL (COMPAT="--variant key --file join")
	@$(PYTHON) -m tests.compat $(COMPAT)

bench: install python ## Measure the performance budgets
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements.txt
	@$(PYTHON) -m benchmarks.run $(BENCH)

bench-17: ## The same on PostgreSQL 17 of Debian 13, in a chroot (needs root)
bench-18: ## The same on PostgreSQL 18 of Debian testing
bench-17 bench-18: bench-%:
	@$(MAKE) deb PG=$*
	@$(LAB_TOOL) bench $* $(BENCH)

drill: python ## Failover drills on the lab (make lab before; LAB=lab, DRILL="--long --runs 3")
	@mkdir -p .cache/drill
	@PYTHONPATH=ansible:. $(PYTHON) -m drills --lab $(LAB) --suite $(SUITE) \
		--markdown .cache/drill/drills.md --junit .cache/drill/drills.xml $(DRILL)

lint: build python ## Warnings on PostgreSQL 15, 17 and 18, formats, ruff, shellcheck, yamllint, ansible-lint
	@scripts/lint.sh

lint-19: packages ## Warnings on PostgreSQL 19, which is not supported yet, of Debian experimental
	@scripts/lint.sh 19

format: python ## Format C and Python sources
	@scripts/format.sh
