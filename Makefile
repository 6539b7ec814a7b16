# Everything runs in .venv at the root: a plain virtual environment, filled by pip with the versions of constraints.txt.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The stamp carries a digest of what decides the environment: an unchanged set-up is a comparison of two strings.
DIGEST := $(shell cat pyproject.toml constraints.txt | cksum | tr ' ' '-')
STAMP := $(VENV)/.installed-$(DIGEST)
TORCH := $(shell grep '^torch==' constraints.txt)

.PHONY: setup run test demo lint format docs bench test-real clean

setup: $(STAMP)

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is $$($(PYTHON) --version 2>&1), but Python 3.11 or newer is needed: make setup PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || \
	  { echo "$(PYTHON) has no venv module; on Debian: apt-get install python3-venv" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	# torch first and by exact version: any other way of resolving it takes gigabytes of CUDA packages.
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[local,demo,judge,dev]'
	@rm -f $(VENV)/.installed-*
	@touch $@

run: setup
	$(BIN)/openclaw-rl serve $(ARGS)

demo: setup
	$(BIN)/openclaw-rl demo $(ARGS)

test: setup
	$(BIN)/python -m pytest --cov --cov-report=term --cov-fail-under=90 -m 'not real' $(ARGS)

test-real: setup
	@$(BIN)/python -m pytest -m real $(ARGS) || { code=$$?; test $$code -eq 5 && echo "no test is marked real yet" || exit $$code; }

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	$(BIN)/python -m cli.reference

bench: setup
	$(BIN)/python -m bench.serve_while_training --json $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache *.egg-info .coverage*
