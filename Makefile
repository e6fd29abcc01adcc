# Each target sets up what it needs: a virtual environment in .venv with everything in it.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Modules are compiled once and kept, whatever the shell says: the tests start a hundred processes.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

.PHONY: demo test test-all types test-weekly removal fuzz stress service package minimum lab mlflow bench bench-large bench-index league local-llm notebooks docs lock clean

demo: $(READY)  ## documents and questions -> trace -> study -> report
	$(BIN)/raglab demo

test: $(READY)  ## what a contributor runs: lint, types, all tests but those of tests/levels.py
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check --no-cache .
	$(BIN)/mypy
	FUZZ_CASES=$${FUZZ_CASES:-100} $(PYTEST) -m "not full and not weekly" --durations=15

test-all: $(READY)  ## what CI runs: browsers, crowds, a removal test of the rooms that a change touches, too
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check --no-cache .
	FUZZ_CASES=$${FUZZ_CASES:-400} $(PYTEST) -m "not weekly" --durations=30
	$(BIN)/python .ci/removal.py --changed
	$(MAKE) -j 2 --output-sync stress types service package SCALE=0.1

types: $(READY)
	$(BIN)/mypy

test-weekly: $(READY) local-llm  ## long simulations, all notebooks, more inputs at every door; dates its pass in experiments/README.md
	$(PYTEST) -m weekly --durations=30
	$(MAKE) fuzz CASES=4000
	$(MAKE) removal
	$(BIN)/python .ci/weekly.py passed

ROOMS ?=
removal: $(READY)  ## without the rooms of raglab/extensions the tests of the core pass; ROOMS="scale cockpit": without each of these
	$(BIN)/python .ci/removal.py $(ROOMS)

CASES ?= 50000
fuzz: $(READY)  ## hostile inputs at every door, a table of what became of them; a door takes a part of CASES
	FUZZ_CASES=$(CASES) $(PYTEST) tests/fuzz $(wildcard tests/test_resigned*.py tests/extensions/*/test_fuzz_*.py tests/extensions/*/test_resigned*.py)

SCALE ?= 1
stress: $(READY)  ## kills and crowds on both databases; SCALE=0.1 is a tenth
	OMP_NUM_THREADS=1 $(BIN)/python experiments/stress.py --scale $(SCALE)

service:  ## in an environment of its own: requirements-service.txt decides, requirements-replay.txt replays and certifies
	$(PYTHON) -m venv --clear out/service
	out/service/bin/pip install --quiet --disable-pip-version-check --no-deps . -r requirements-service.txt
	out/service/bin/pip uninstall --quiet --disable-pip-version-check --yes pip setuptools
	cd out/service && bin/python ../../experiments/service/decide.py
	$(PYTHON) -m pip --python out/service/bin/python install --quiet --disable-pip-version-check --no-deps -r requirements-replay.txt
	cd out/service && bin/python ../../experiments/service/replay.py

package: $(READY)  ## sdist and wheel: their files are the tree's, and the wheel runs in an empty environment
	$(BIN)/python .ci/package.py

FAST ?=
minimum:  ## the lowest versions that pyproject.toml allows: imports and the README's examples; FAST=1 runs the tests of the core
	$(PYTHON) .ci/minimum.py $(if $(FAST),--fast)

lab: $(READY)  ## JupyterLab on the project, at the first notebook, on this machine only
	$(BIN)/jupyter lab --ip=127.0.0.1 --notebook-dir=. notebooks/01_quickstart.ipynb $(if $(filter 0,$(shell id -u)),--allow-root)

mlflow: $(READY)  ## the runs of studies in MLflow, on this machine only, at http://127.0.0.1:5000
	$(BIN)/python -c "from raglab.lab.tracking import show_page; raise SystemExit(show_page())"

# Without a tag of a release the last version is bfe28d6, the tree before the extensions.
BASE ?= $(shell git describe --tags --abbrev=0 2>/dev/null || echo bfe28d6)
bench: $(READY)  ## speeds of this tree over those of the last version, in turns; BASE=main compares with another commit
	$(BIN)/python experiments/bench.py --base "$(BASE)"

LARGE ?= 100000
bench-large: $(READY)  ## memory and time of replay in shards; LARGE=1000000 is a million cases, an hour
	$(BIN)/python experiments/bench_large.py --cases $(LARGE)

bench-index: $(READY)  ## an index of many passages: memory, time to build and to ask, recall
	$(BIN)/python experiments/bench_index.py

DATA ?= ../shared/data/league
league: $(READY)  ## a study: published tables replayed from their stored outputs; DATA=folder of the tables, see docs/league.md
	OMP_NUM_THREADS=1 $(BIN)/python -m experiments.league $(DATA)

local-llm: $(READY)  ## fetch a small language model (93 MB, Apache-2.0) for notebook 04 and the tests that need one
	$(BIN)/python .ci/local_llm.py

notebooks: $(READY)  ## run every notebook again and keep its outputs
	cd notebooks && RAGLAB_PROGRESS=0 PYTHONPATH=../.ci ../$(BIN)/jupyter nbconvert --to notebook --execute --inplace --ExecutePreprocessor.record_timing=False \
	  --ExecutePreprocessor.store_widget_state=False --NotebookExporter.preprocessors=static_outputs.StaticOutputs *.ipynb

docs: $(READY)  ## the documentation site, offline, in out/docs/html; warnings and broken links are errors
	OMP_NUM_THREADS=1 $(BIN)/python docs/site/build.py

lock: constraints.txt  ## hashes and licences of what constraints.txt pins, as pip reports them
	$(PYTHON) -m venv .venv/lock
	.venv/lock/bin/pip install --quiet --upgrade pip packaging
	.venv/lock/bin/python .ci/supply_chain.py

# By requirements.lock and its hashes where the platform has them, else by constraints.txt; it says which.
$(READY): pyproject.toml constraints.txt requirements.lock .ci/environment.py
	$(PYTHON) -m venv .venv
	$(BIN)/python .ci/environment.py
	@touch $(READY)

clean:  ## everything that can be made again
	rm -rf .venv out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
