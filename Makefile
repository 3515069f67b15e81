# The Python and its packages are bootstrap.sh's business: it makes .venv, and does nothing where that is in order.
PY := .venv/bin/python
UV_LOCK := .venv/bin/uv pip compile -q --universal --python-version 3.12 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --no-config
EMBEDDED := env -u DATABASE_URL -u REDIS_URL

.DEFAULT_GOAL := help
.PHONY: help up demo test lint bench chaos crash-matrix model lock runtime dev

help: ## List these targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1	/p' Makefile

up: runtime ## Start everything: database, demo people and policies, web and worker
	@$(PY) manage.py up

demo: runtime ## Run the main job, kill its worker on the way, decide, and end
	@$(PY) manage.py demo

# What the second half of `test` leaves out, and why: see the file.
ONCE := $(wildcard $(shell sed '/^\#/d' tests/once.txt))
# Tests wait for processes, browsers and locks half of their time.
WORKERS := $$(( $$(getconf _NPROCESSORS_ONLN) * 3 / 2 ))
test: lint ## Check everything: lint, the suite on SQLite and in Chromium, the suite on PostgreSQL and Redis
	$(EMBEDDED) $(PY) tests/services.py --chromium $(PY) -m pytest -n $(WORKERS)
	$(PY) tests/services.py $(PY) -m pytest -n $(WORKERS) $(ONCE:%=--ignore=%)

bench: dev ## Measure beside the database's own commit rate (BENCH="w1 --reps 3")
	$(PY) tests/services.py --durable $(PY) manage.py bench $(BENCH)

ON := sqlite postgresql
crash-matrix: dev ## Kill a process at every boundary, judge by an outside ledger (ON=postgresql: there alone; MATRIX="--row loop")
ifneq ($(filter sqlite,$(ON)),)
	$(EMBEDDED) $(PY) -m tests.crash --json var/crash-matrix.json $(MATRIX)
endif
ifneq ($(filter postgresql,$(ON)),)
	$(PY) tests/services.py $(PY) -m tests.crash --json var/crash-matrix.json $(MATRIX)
endif

chaos: dev ## Stop, kill and cut whatever the product leans on, and count what comes of it (CHAOS="CELL …")
	$(PY) -m tests.chaos $(CHAOS)

TIMES := 50
model: dev ## Do random things in random orders and crash random programs, for minutes, on both databases (TIMES=500)
	MODEL_TIMES=$(TIMES) $(EMBEDDED) $(PY) -m pytest -n auto -o faulthandler_timeout=0 tests/model $(MODEL)
	MODEL_TIMES=$(TIMES) $(PY) tests/services.py $(PY) -m pytest -n auto -o faulthandler_timeout=0 tests/model $(MODEL)

lint: export DJANGO_SETTINGS_MODULE = durable_app.settings_test
lint: export PUBLIC_URL = https://durable.example.org
lint: dev ## Check style, types, rooms, templates, migrations and deployment settings
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	.venv/bin/lint-imports --no-logo
	@git ls-files -co --exclude-standard '*templates/*.html' | xargs -r .venv/bin/djade --target-version 6.1 --check
	$(EMBEDDED) $(PY) manage.py makemigrations --check --dry-run
	$(EMBEDDED) $(PY) manage.py check --deploy --fail-level WARNING

# UPGRADE=--upgrade takes the newest versions; without it those in the files stay where they can.
lock: dev ## Write the lock files anew from pyproject.toml (UPGRADE=--upgrade for newer versions)
	echo 'uv>=0.13,<0.14' | $(UV_LOCK) $(UPGRADE) --no-annotate - -o requirements/uv.txt
	$(UV_LOCK) $(UPGRADE) pyproject.toml -o requirements/runtime.txt
	$(UV_LOCK) $(UPGRADE) pyproject.toml --group dev -c requirements/runtime.txt -o requirements/dev.txt

runtime dev:
	@sh bootstrap.sh $@
