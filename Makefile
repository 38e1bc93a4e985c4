# The commands people learn. `make run` and `make test` set everything up on a machine with Python 3.11, git and make.

PYTHON ?= python3.11
PROFILE ?= default
# As it was typed: neither make nor a shell reads anything in it but spaces between words.
override PROFILE := $(value PROFILE)
export PROFILE
PREFECT_PORT ?= 4200
MLFLOW_PORT ?= 5000
GPUS ?=

BIN := $(CURDIR)/.venv/bin
export PATH := $(BIN):$(PATH)
export DO_NOT_TRACK := 1
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export GX_ANALYTICS_ENABLED := false
export MLFLOW_DISABLE_TELEMETRY := true

INSTALLED := .venv/.installed

.PHONY: venv lock play run smoke test test-all lint docs ui gc
.DEFAULT_GOAL := run

venv: $(INSTALLED)  ## The virtual environment, from requirements.lock

# The lock is complete, so nothing is resolved. torch goes first and by its exact version, so that pip takes a CPU wheel where
# one is at hand; what its CUDA build needs beside the lock comes with it.
$(INSTALLED): requirements.lock pyproject.toml
	@test -x $(BIN)/python || { echo "Making .venv with $(PYTHON)" && $(PYTHON) -m venv .venv; }
	@echo "Installing torch (half a minute)"
	@$(BIN)/python -m pip install --quiet --constraint requirements.lock "$$(grep '^torch==' requirements.lock)"
	@echo "Installing the $$(grep -c == requirements.lock) packages of requirements.lock (two minutes)"
	@$(BIN)/python -m pip install --quiet --no-deps --requirement requirements.lock
	@$(BIN)/python -m pip install --quiet --no-deps --editable .
	@echo "Checking that the packages fit together"
	@$(BIN)/python -m pip check
	@touch $@

lock:  ## requirements.lock anew, from what is installed
	sed -n '/^#/p' requirements.lock > requirements.lock.new
	$(BIN)/python -m pip freeze --exclude-editable | grep -viE '^(nvidia-|cuda-|triton)' | sed -E 's/^(torch==[0-9.]+)\+.*/\1/' >> requirements.lock.new
	mv requirements.lock.new requirements.lock

DATABASE := $(if $(MLFLOW_TRACKING_URI),,mlflow.db)

# Another profile is a DVC experiment of its name: `dvc exp show` lays it beside the others, and params.yaml stays as it is.
run: $(INSTALLED) $(DATABASE)  ## Every stage that is not up to date, then the table of iterations
	@python -m flows.mend
	@set -f; set -- $$PROFILE; end="python -m flows.summary"; if [ "$${*:-default}" = default ]; then dvc repro && $$end; else \
		names=$$(printf '%s\n' "$$@" | grep -v = | paste -sd-); THEN=$$end sh experiments/run "$${names:-$$1}" "$$@"; fi

play: $(INSTALLED)  ## An agent that comes with the package plays a game in this terminal
	@agentprm play

smoke: $(INSTALLED)  ## The smoke profile, from nothing, in a clone of the last commit
	rm -rf .scratch/smoke
	git clone --quiet . .scratch/smoke
	cd .scratch/smoke && python -m tasks.frame.profile smoke --write && dvc repro && python -m flows.summary

mlflow.db: | $(INSTALLED)
	@python -c "from tasks.frame.mlflow_store import connect; connect()"

# Tests that share a Prefect server stay in one process (loadgroup).
test: $(INSTALLED)  ## The test suite without the slow tests
	python -m pytest -q -n auto --dist loadgroup

test-all: $(INSTALLED)  ## The slow tests too, and examples that no run had before
	HYPOTHESIS_PROFILE=random python -m pytest -q -n auto --dist loadgroup -m "slow or not slow"

lint: $(INSTALLED)  ## Style, format and types
	ruff check .
	ruff format --check .
	pyright

docs: $(INSTALLED)  ## The site of the documentation, in site/: open site/index.html
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict

ui: $(INSTALLED) $(DATABASE)  ## Prefect's server, a worker and MLflow on localhost, until Ctrl-C
	@python -m flows.ui --prefect-port $(PREFECT_PORT) --mlflow-port $(MLFLOW_PORT) $(if $(GPUS),--gpus $(GPUS))

gc: $(INSTALLED)  ## What takes space and what of it may go; DELETE=yes deletes that
	@python -m flows.gc $(if $(filter yes,$(DELETE)),--delete)
