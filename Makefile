# make demo       the whole thing on real models, from nothing: environment, models, demonstration
# make bench      what a kept prefix saves on this machine: figures and a plot in build/bench, in ten minutes
# make test       the tests, in minutes; the models are fetched first
# make test-full  all tests, with those that take long or need the package index
# make lint       ruff, mypy, import-linter, bandit, pip-audit
# make models     fetch the embedded models
# make clean      remove .venv and what the tools left behind (neither models nor state)
#
# Settings, on the command line or in the environment:
#   PYTHON             the interpreter that .venv is made from; 3.11 or newer             (default: python3)
#   TORCH_INDEX        URL of a wheel index to look for torch in as well. Without it pip's own settings decide,
#                      and on Linux that can be the CUDA build, of several gigabytes. On a machine without a GPU,
#                      give the CPU index that PyTorch's installation page names.         (default: none)
#   CACHESTACK_MODELS  where the models go                                      (default: the cache folder)
#   CACHESTACK_HOME    where entries, indexes and statistics go                 (default: the data folder)

PYTHON ?= python3
TORCH_INDEX ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
MODELS := smollm2-135m-instruct all-minilm-l6-v2
# Tests and lint never ask a model hub; a missing model fails a test here, where elsewhere it would skip it.
OFFLINE := HF_HUB_OFFLINE=1 CACHESTACK_REQUIRE_MODELS=1

.DEFAULT_GOAL := demo
.PHONY: demo models bench test test-full lint format clean

demo: models
	$(BIN)/cachestack demo

models: $(INSTALLED)
	$(BIN)/cachestack models pull $(MODELS)

# Once for all: tables, JSON and picture are of one and the same run. Exit status 1 of the command stops it here.
bench: models
	mkdir -p build/bench
	$(BIN)/cachestack bench prefix --profile --json --plot build/bench/prefix.png > build/bench/prefix.json
	$(BIN)/cachestack bench prefix --from build/bench/prefix.json

test: models
	$(OFFLINE) $(BIN)/python -m pytest -m "not full"

test-full: models
	$(OFFLINE) $(BIN)/python -m pytest

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive cachestack
	$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip --progress-spinner off > /dev/null

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The mark is written last: an installation that was interrupted is done again.
$(INSTALLED): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found: install Python 3.11 or newer, or give make PYTHON=…"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is $$($(PYTHON) -V 2>&1), and CacheStack needs 3.11 or newer: give make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make environments: install its venv package (Debian, Ubuntu: python3-venv)"; exit 1; }
	@echo "Installing into $(VENV); the first time takes minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[local,plot,dev]' \
	  $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
