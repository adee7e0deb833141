# Each target sets up .venv by itself; all it needs is Python 3.11 or newer, with pip.

PYTHON ?= $(shell for p in python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
JOBS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal
PYTEST_ARGS ?=

.PHONY: demo test check docs notebooks clean

demo: $(INSTALLED)  ## tile, lower and run the canonical example, and say what was measured
	$(BIN)/python examples/canonical.py

test: $(INSTALLED)  ## all tests, notebooks included; JOBS=1 runs them in one process, PYTEST_ARGS=--slow adds the long ones
	$(PYTEST) $(PYTEST_ARGS)

check: $(INSTALLED)  ## what CI runs: format, lint, types, then `make test`
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST) $(PYTEST_ARGS)

docs: $(INSTALLED)  ## write the generated pages in docs/
	$(BIN)/python docs/build.py
	$(BIN)/python -m spyre_fx.analysis.coverage > docs/coverage.md

notebooks: $(INSTALLED)  ## run the scripts in notebooks/ and write the notebooks with their outputs
	$(BIN)/python notebooks/build.py

$(INSTALLED): setup.cfg pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and none was found; name one: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
