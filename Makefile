# Needs python3 (3.11 or newer, with venv) and make; everything else is installed into .venv and .runner.
#   make run                  the quick tier of the matrix; other cells with ARGS, as in: make run ARGS="--filter sm100"
#   make test                 all checks and tests
#   make lock                 write .github/locks/runner.txt anew: what jobs install, by hashes
#   make clean                remove what the others made, but for runs/

PYTHON ?= python3
BIN := .venv/bin
ARGS ?= --tier quick
PYTEST_ARGS ?= -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: run test lint lock clean

run: .venv/installed
	$(BIN)/runner $(ARGS)

test: lint
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: .venv/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Installed editable: only a change of the dependencies makes these stale.
.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: name one, as in: make run PYTHON=python3.11" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,ray]'
	@touch $@

# Of every Python and platform that the wheels are for. hatchling builds the project itself, see pyproject.toml. Versions
# that the lock has are kept; LOCK_ARGS=--upgrade takes the newest.
lock: .venv/installed-dev
	echo hatchling | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --only-binary :all: --custom-compile-command "make lock" $(LOCK_ARGS) \
	  --output-file .github/locks/runner.txt pyproject.toml -

clean:
	@if [ -x $(BIN)/runner ]; then $(BIN)/runner env clean || true; fi
	rm -rf .runner .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
