# What people and CI run. `make help` lists it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test nightly check format lock clean $(VENV)

help: ## Say what there is.
	@awk -F ':.*## ' '/^[a-z.$$()A-Z]+:.*## / {sub(/\$$\(VENV\)/, "$(VENV)", $$1); printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV): $(STAMP) ## Install the project and all it needs, every file checked against its hash.

# The project itself comes last, editable and without build isolation: its build backend is in the
# lock like everything else.
$(STAMP): requirements-dev.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $(STAMP)

demo: $(STAMP) ## 25,000 records through real Kafka and PostgreSQL, with a crash in the middle.
	$(BIN)/weighbridge demo

# Most tests wait for servers, so several processes side by side, each with servers of its own, take
# half the time even on two cores. One process: make test PROCESSES=0
PROCESSES ?= 3

test: $(STAMP) ## The whole suite, on real servers.
	$(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal

nightly: $(STAMP) ## What takes minutes: simulations and fuzzing over thousands of seeds.
	$(BIN)/python -m pytest --nightly -m nightly

check: $(STAMP) ## Format, lint, types, and the tests that need no servers.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -m "not services and not slow"

format: $(STAMP) ## Format the code and mend what ruff can mend.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Hashes, all three Python versions, and no registry's name: a lock is good wherever it is read.
lock: $(STAMP) ## Resolve the dependencies anew.
	$(BIN)/uv pip compile pyproject.toml --extra embedded --extra parquet --group dev --universal \
		--python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade \
		--quiet --output-file requirements-dev.lock

clean: ## Remove what was built, and caches; the environment stays.
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find schemas connectors streams tests -name __pycache__ -type d -prune -exec rm -rf {} +
