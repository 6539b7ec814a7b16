# Everything runs in .venv at the root: a plain virtual environment, filled by pip with the versions of constraints.txt.

PYTHON ?= python3
# Otherwise each of the many processes of a test run would compile this project and its libraries again.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
# The stamp's name contains a digest of the files that define the environment, so an unchanged one is recognized at once.
DIGEST := $(shell cat pyproject.toml constraints.txt | cksum | tr ' ' '-')
STAMP := $(VENV)/.installed-$(DIGEST)
TORCH := $(shell grep '^torch==' constraints.txt)
USED := import matplotlib.pyplot, peft, pytest, transformers.models.qwen2.tokenization_qwen2, transformers.models.qwen3.modeling_qwen3; \
  from openclaw_rl.cli import main; from openclaw_rl.cli.commands import demo, serve; from openclaw_rl.learner import main; \
  from openclaw_rl.proxy import main; from openclaw_rl.proxy.dialects import adapter; from openclaw_rl.shared.litellm import provider; \
  from openclaw_rl.trainer_local import transformers_trainer; from openclaw_rl.trainer_local.embedded import server; provider.register()
# Line coverage of the tests and of the processes they start.
COVERAGE := $(CURDIR)/.cache/coverage
PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder
# Each worker imports all test files that it is given.
SLOW = $(shell grep -rl --include='test_*.py' 'mark\.slow' tests)
# The real SGLang, for test-real only, in a separate environment. The environments of the other programs that test-real
# drives are in .cache/rigs too (tests/rigs/environments.py).
SGLANG := .cache/rigs/sglang
SGLANG_RIG := tests/rigs/sglang_cpu
SGLANG_STAMP := $(SGLANG)/.installed-$(shell cksum < $(SGLANG_RIG)/requirements.txt | tr ' ' '-')

# The OpenClaw extension needs npm (Node 20.19 or newer). Without npm it is skipped and everything else works.
EXTENSION := openclaw-extension
EXTENSION_STAMP := $(EXTENSION)/node_modules/.installed-$(shell cat $(EXTENSION)/package.json $(EXTENSION)/package-lock.json | cksum | tr ' ' '-')
NPM := $(shell command -v npm)
ifeq ($(NPM),)
in_extension = @echo "npm is not installed: skipping the OpenClaw extension" >&2
else
in_extension = cd $(EXTENSION) && $(NPM) run --silent $(1)
endif
# The dashboard's scripts are served as they are written; the extension's TypeScript checks them, Node tests them.
DASHBOARD_TYPES = $(if $(NPM),$(EXTENSION)/node_modules/.bin/tsc -p proxy/dashboard)
DASHBOARD_TESTS = $(if $(NPM),node --test $(wildcard tests/proxy/dashboard/*.test.mjs))

.PHONY: setup run test test-slow demo lint format docs bench test-real rigs extension clean

setup: $(STAMP)

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is $$($(PYTHON) --version 2>&1), but Python 3.11 or newer is needed: make setup PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || \
	  { echo "$(PYTHON) has no venv module; on Debian: apt-get install python3-venv" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	# Install torch first and by exact version: otherwise pip may download gigabytes of CUDA packages.
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[local,cloud,demo,judge,redact,tools,dev]'
	# Write the bytecode of the imported packages once: compiling torch takes long.
	HF_HUB_OFFLINE=1 $(BIN)/python -W ignore -c '$(USED)'
	# The policy that `serve` chooses by default; set-up continues without it.
	@$(BIN)/openclaw-rl fetch smollm2 || echo "set-up continues without it: \`make run\` serves the tiny policy" >&2
	@rm -f $(VENV)/.installed-*
	@touch $@

extension: $(if $(NPM),$(EXTENSION_STAMP))

$(EXTENSION_STAMP):
	cd $(EXTENSION) && $(NPM) ci --no-audit --no-fund --loglevel=error
	@rm -f $(EXTENSION)/node_modules/.installed-*
	@touch $@

run: setup
	$(BIN)/openclaw-rl serve $(ARGS)

demo: setup
	$(BIN)/openclaw-rl demo $(ARGS)

# All but the slow tests, in minutes; `make test-slow` runs those, which start whole services.
# `make test ARGS=tests/proxy/test_app.py` runs one file (or whatever else pytest takes), without coverage.
ifeq ($(ARGS),)
test: setup extension
	@rm -rf "$(COVERAGE)" && mkdir -p "$(COVERAGE)"
	PROXY_COVERAGE="$(COVERAGE)" $(BIN)/python -m slipcover --json --out "$(COVERAGE)/tests.json" \
	  -m pytest $(PARALLEL) -m 'not real and not slow'
	$(BIN)/python -m slipcover --merge "$(COVERAGE)"/*.json --out "$(COVERAGE)/all.json" --skip-covered --fail-under 90
	$(call in_extension,test)
	$(DASHBOARD_TESTS)
else
test: setup
	$(BIN)/python -m pytest -m 'not real' $(ARGS)
endif

test-slow: setup
	$(BIN)/python -m pytest $(PARALLEL) -m 'slow and not real' $(or $(ARGS),$(SLOW))

test-real: setup extension rigs $(SGLANG_STAMP)
	$(BIN)/python -m pytest -m real -rs $(ARGS)

# Prints the reason for each environment that cannot be built; its tests are skipped.
rigs: setup
	$(BIN)/python -m tests.rigs.environments

$(SGLANG_STAMP): | setup
	test -x $(SGLANG)/bin/python || $(PYTHON) -m venv $(SGLANG)
	$(SGLANG)/bin/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(SGLANG)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $(SGLANG_RIG)/requirements.txt
	@rm -f $(SGLANG)/.installed-*
	@touch $@

lint: setup extension
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/plain_english.py
	$(call in_extension,lint)
	$(call in_extension,typecheck)
	$(DASHBOARD_TYPES)

format: setup extension
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(call in_extension,format)

docs: setup
	$(BIN)/python -m openclaw_rl.cli.docs.settings_page
	$(BIN)/python -m openclaw_rl.cli.docs.gpu_page
	$(BIN)/python -m openclaw_rl.cli.docs.start_pages
	$(BIN)/python -m bench.learning.page
	$(BIN)/python -m bench.real_model.page
	$(BIN)/python -m bench.judge_page
	$(BIN)/python -m bench.gpu_page
	$(BIN)/python -m bench.first_hour --page
	$(BIN)/python -m bench.clients_page
	$(BIN)/python -m bench.reliability_page
	$(BIN)/python -m bench.environments.page

bench: setup
	$(BIN)/python -m bench.serve_while_training --json $(ARGS)

clean:
	rm -rf $(VENV) $(EXTENSION)/node_modules $(EXTENSION)/dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache *.egg-info
