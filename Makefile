# Everything from a fresh machine with Python 3.11 and make: `make demo`, `make test`.
PYTHON ?= python3
MINUTES ?= 140
FIRST ?=
RUNS ?= ../unstuck-runs
STORE ?= ../unstuck-store
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt
# pip would do it on one core; what cannot be compiled (templates) is passed over
COMPILE = $(BIN)/python -m compileall -qq -j 0 .venv/lib >/dev/null 2>&1 || true

.PHONY: help demo test test-all test-lowest lint bench runs stop-runs results theory-results calibration redraw docs animation quickstart screenshots wheel-check clean

help:
	@echo "make demo         install, reproduce the theory figures at the paper's scale, write a report (under 3 minutes)"
	@echo "make test         install, run the fast tests"
	@echo "make test-all     the slow tests too"
	@echo "make test-lowest  use the package with the lowest versions that pyproject.toml allows, in an environment of its own"
	@echo "make lint         ruff, mypy and the order of imports"
	@echo "make bench        speed, as ratios against plain implementations; fails where an aim is missed"
	@echo "make runs         train the next unfinished runs in the background for MINUTES ($(MINUTES)), those of FIRST='figure or run id ...' first: from a worktree of HEAD in RUNS ($(RUNS)), into STORE ($(STORE))"
	@echo "make stop-runs    stop them; each goes on from its checkpoint at the next 'make runs'"
	@echo "make results      archive finished runs of STORE in results/store; rewrite tables, pictures, the docs' tables and results/TODO.md"
	@echo "make theory-results  rerun the theory figures at the paper's scale, and rewrite the docs' tables"
	@echo "make calibration  fit the forecaster's calibration to the runs under results/"
	@echo "make redraw FIGURES='fig1c ...'  draw pictures and compute claims from committed tables"
	@echo "make animation    draw README's moving picture of a forecast"
	@echo "make quickstart   run README's example and write what it printed"
	@echo "make screenshots  take the pictures of report and dashboard (needs Chromium)"
	@echo "make docs         build the documentation strictly into site/"
	@echo "make wheel-check  build the wheel, install it into an empty environment, use it without and with extras"

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/run.stamp: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) -e '.[papers]'
	$(COMPILE)
	@touch $@

.venv/dev.stamp: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) -e '.[dev]'
	$(COMPILE)
	@touch $@ .venv/run.stamp

demo: .venv/run.stamp
	$(BIN)/unstuck reproduce theory --profile paper --out demo
	$(BIN)/unstuck reproduce fig11 --profile quick --out demo
	@$(BIN)/unstuck report demo
	@echo "open it in a browser: $(CURDIR)/demo/report.html"

test: .venv/dev.stamp
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist worksteal --durations=12

test-all: .venv/dev.stamp
	$(BIN)/python -m pytest

test-lowest:
	bash tools/wheel_check.sh $(PYTHON) lowest

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/dev.stamp
	@missed=; for file in benchmarks/*.py; do echo "== $$file"; OMP_NUM_THREADS=1 $(BIN)/python $$file || missed="$$missed $$file"; done; \
	if [ -n "$$missed" ]; then echo "an aim is missed in$$missed"; exit 1; fi

runs: .venv/run.stamp
	bash tools/runs.sh start "$(RUNS)" "$(STORE)" $(MINUTES) $(FIRST)

stop-runs:
	bash tools/runs.sh stop "$(RUNS)" "$(STORE)"

results: .venv/run.stamp
	$(BIN)/python tools/results.py --collect --store "$(STORE)"

theory-results: .venv/run.stamp
	$(BIN)/unstuck reproduce theory --profile paper --out results
	$(BIN)/unstuck reproduce fit-censored --profile paper --out results
	$(BIN)/python tools/generate_docs.py

calibration: .venv/run.stamp
	$(BIN)/python tools/calibrate.py

redraw: .venv/run.stamp
	$(BIN)/python tools/redraw.py $(FIGURES)
	$(BIN)/python tools/generate_docs.py

screenshots: .venv/dev.stamp
	$(BIN)/python -m pytest tests/test_browser.py tests/test_browser_live.py -k "slider or pictures or plays" --screenshots results

animation: .venv/run.stamp
	$(BIN)/python tools/animate.py

quickstart: .venv/run.stamp
	OMP_NUM_THREADS=1 $(BIN)/python examples/quickstart.py >results/quickstart.txt
	@rm -rf runs/quickstart
	$(BIN)/python tools/generate_docs.py

docs: .venv/dev.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

wheel-check: .venv/dev.stamp
	bash tools/wheel_check.sh $(BIN)/python

clean:
	rm -rf .venv demo site dist
