# Two commands: `make demo` shows the whole way on this machine, `make test` proves it. Both install what they need
# into .venv on the first run and nothing on the second.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
OLD := .venv-old
EXPORT := .venv-export
# Test files run side by side, one file in one process; more than there are cores, as those with Slurm mostly wait. With four, two
# cores are never idle; each takes up to 2 GB of memory.
JOBS ?= 4
# As pip does for what it copies: where PYTHONDONTWRITEBYTECODE is set, each command would compile all that it imports.
COMPILE := $(VENV)/bin/python -m compileall -q hpc_llm
# pip would blame a package for a Python that is too old, and an environment of one stays.
define is_new
@$(1) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { echo "$(1) is no Python 3.10 or newer, which is needed: \
	make clean $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 2; }
endef
DEMO := logs/demo-$(shell date +%Y%m%d-%H%M%S)
SMOKE := logs/smoke-$(shell date +%Y%m%d-%H%M%S)

.PHONY: demo smoke test compiled test-old-stack test-export lint tools golden bench-gpu clean help

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

demo: $(VENV)/.train  ## train a tiny Llama here with four methods, and print the table
	$(VENV)/bin/hpc-llm submit --cluster local --method z2o,z3,z3o,q --model tiny --logs $(DEMO) \
	  --micro-batch-size 4 --sequence-length 64 --steps 40 --set optimizer.lr=3e-3 --wait
	$(VENV)/bin/hpc-llm parse $(DEMO) --format table

smoke: $(VENV)/.train  ## run all files of experiments/ small on this machine, and print how long that took
	@set -e; for file in experiments/*.yaml; do \
	  $(VENV)/bin/hpc-llm submit $$file --smoke --cluster local --logs $(SMOKE) --wait; \
	  done; $(VENV)/bin/hpc-llm parse $(SMOKE) -o $(SMOKE)/results.csv; echo "$(SMOKE): $$SECONDS s"

# What the tests import is compiled once, beside the checks, and not by each of the processes that run them.
test: tools $(VENV)/.dev  ## install what the tests need, then check the code and run all of them
	@unset PYTHONDONTWRITEBYTECODE; $(MAKE) --no-print-directory --jobs=2 --output-sync=target lint compiled
	unset PYTHONDONTWRITEBYTECODE; PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

test-old-stack: $(OLD)/.made  ## train, save and load with the oldest torch, transformers and DeepSpeed that are promised
	$(OLD)/bin/python tests/worker/old_stack.py

test-export: $(EXPORT)/.made  ## send runs to a real MLflow server, whose packages are too many for every test
	$(EXPORT)/bin/python tests/exporting/mlflow_server.py

compiled: $(VENV)/.dev
	@$(VENV)/bin/python -m pytest --collect-only -qq > $(VENV)/collected.txt || { cat $(VENV)/collected.txt; exit 1; }

lint: $(VENV)/.dev  ## ruff, mypy and the import rule
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --config pyproject.toml

golden: $(VENV)/.dev  ## record the golden job scripts again; look at their difference before committing it
	HPC_LLM_RECORD_GOLDEN=1 $(VENV)/bin/python -m pytest -q tests/test_render.py

bench-gpu: $(VENV)/.train  ## time the methods beside what a user would write, on this machine's GPUs: benchmarks/results/bench-gpu.csv
	$(VENV)/bin/python benchmarks/bench_gpu.py

tools:  ## Slurm, modules and the other programs that the tests run for real
	@tests/install-tools.sh

$(VENV)/bin/python:
	$(call is_new,$(PYTHON))
	$(PYTHON) -m venv $(VENV)

$(VENV)/.train: setup.py | $(VENV)/bin/python
	$(call is_new,$(VENV)/bin/python)
	$(VENV)/bin/python -m pip install --quiet --editable '.[train]'
	$(COMPILE)
	@touch $@

$(VENV)/.dev: setup.py | $(VENV)/bin/python
	$(call is_new,$(VENV)/bin/python)
	$(VENV)/bin/python -m pip install --quiet --editable '.[dev]'
	$(COMPILE)
	@touch $(VENV)/.train $@

$(OLD)/.made: tests/worker/old-stack.txt
	$(PYTHON) -m venv $(OLD)
	$(OLD)/bin/python -m pip install --quiet --requirement $<
	@touch $@

$(EXPORT)/.made: setup.py
	$(PYTHON) -m venv $(EXPORT)
	$(EXPORT)/bin/python -m pip install --quiet --editable . 'mlflow>=3'
	@touch $@

clean:  ## remove the environment and the caches; runs under logs/ stay
	rm -rf $(VENV) $(OLD) $(EXPORT) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
