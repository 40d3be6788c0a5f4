# Everything that a newcomer, a contributor or CI runs; `make help` lists it.
# The first use of a target creates .venv and installs the packages that the target needs. Nothing outside this folder changes.

PYTHON ?= python3
DURATION ?= 30
SEEDS ?= 101
SECONDS ?= 600
TIMES ?= 1
WITHIN ?=
STORIES_WITHIN ?=
TURN ?=
VERSIONS ?=
LOCKED ?=

VENV := .venv
BIN := $(VENV)/bin
DEV := $(VENV)/.dev
IMAGE_TOOLS := build/image-tools
LOWEST := build/lowest
# the packages for development are enough for the demonstration
DEMO := $(if $(wildcard $(DEV)),$(DEV),$(VENV)/.demo)
# Many tests wait for servers, so there are two workers more than cores. Long stories load the machine more, so they have only
# one more. Beyond eight, workers only wait for each other. The tests start hundreds of processes: if the environment forbids
# bytecode, each process would compile all its imports.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --maxprocesses 8 --dist worksteal
CORES := $(shell $(PYTHON) -c 'import os; print(os.cpu_count() or 1)' 2>/dev/null || echo 2)
WORKERS := $(shell expr $(CORES) + 2)
PROVERS := $(shell expr $(CORES) + 1)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo demo-kafka test prove compat compose-check chart chart-cluster chart-docs coverage lint bench freshness freshness-live group image package lock lowest audit diagram clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-22s%s\n", $$1, $$2}'
	@echo
	@echo "  DURATION=30     seconds that the demonstration measures"
	@echo "  SECONDS=600     seconds that freshness-live measures each lane"
	@echo '  ONLY="p1 p5"    benchmarks to run; if empty, all'
	@echo "  TIMES=1         multiplies the work of \`make prove\`"
	@echo "  WITHIN=1200     seconds after which \`make prove\` begins no further block of a campaign; if empty, it plays all"
	@echo "  STORIES_WITHIN=2400  the same for its long stories"
	@echo "  TURN=5          so many tests of \`make prove\` come last that would be first"
	@echo "  VERSIONS=6.2,7,8  of redis-py, for \`make compat\`; if empty, the newest"
	@echo "  LOCKED=1        .venv as CI has it: installed by the hashes of image/dev.lock"
	@echo "  PYTHON=python3  the interpreter for .venv, 3.11 or newer"

demo: $(DEMO) ## see it work: a shop with a Redis and four applications; half a minute
	@$(BIN)/cacheupdater demo --duration $(DURATION)

demo-kafka: $(DEMO) ## two updaters share a topic of Kafka; one is killed while you watch
	@$(BIN)/cacheupdater demo --kafka --duration $(DURATION)

# To rewrite the asserts of all tests takes a worker 25 s. Here one process does so for all workers, beside the linters, which
# use one core.
test: $(DEV) ## check style, types and imports, and run all tests in their short form; twelve minutes on two cores
	@$(PYTEST) -n 0 --collect-only -qq >/dev/null 2>&1 & \
		$(MAKE) --no-print-directory lint || { kill $$!; exit 1; }; wait
	$(PYTEST) -n $(WORKERS)

prove: $(DEV) ## run campaigns: 200,000 schedules, a million inputs of a fuzzer, kills, zombies, outages, races; an hour; TIMES=10 does ten times as much
	$(PYTEST) -n $(PROVERS) --prove --times $(TIMES) $(if $(WITHIN),--within $(WITHIN)) $(if $(STORIES_WITHIN),--stories-within $(STORIES_WITHIN)) $(if $(TURN),--turn $(TURN))

compat: $(DEV) ## run redis-py's own test suite against redis-py and against our clients, and compare test by test; writes a section of docs/reference/compat.md for each of VERSIONS=6.2,7,8
	PYTHONPATH=tests/support $(BIN)/python -P -m compat.run $(VERSIONS)

compose-check: $(DEV) ## check the file of examples/03-compose, and each service that can run here; Chromium opens the page
	@$(BIN)/python -c 'import check_jsonschema' 2>/dev/null || $(BIN)/python -m pip install --quiet check-jsonschema
	$(BIN)/pytest -n 0 tests/compose
	$(BIN)/pytest -n 0 -s tests/compose --prove

coverage: $(DEV) ## check the branch coverage of `make test`, without its campaigns; the tests take twice as long
	$(PYTEST) -n $(WORKERS) --cov -m "not campaign"

lint: $(DEV) ## check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

chart: $(DEV) ## check the Helm chart with real tools: lint, golden files, three versions of Kubernetes, policies; fetches 400 MB once
	$(PYTEST) -n 0 --timeout 1200 tests/chart

chart-cluster: $(DEV) ## try both charts in a real Kubernetes API server, and run their pods' commands here; two minutes, the first time six (builds the server with Go)
	PYTHONPATH=tests/support $(BIN)/python -m kube.binaries
	$(PYTEST) -n 0 --timeout 1200 tests/kubernetes tests/sidecar
	$(PYTEST) -n 0 tests/sidecar --prove

chart-docs: $(DEV) ## write the chart's README and values.schema.json from its values.yaml and schema.yaml, and copy what both charts share
	$(BIN)/python charts/document.py

bench: $(DEV) ## measure the hot paths against their goals; AGAINST=REV compares with that commit, by turns
	$(BIN)/python benchmarks/$(if $(AGAINST),against.py $(AGAINST),run.py) $(ONLY)

freshness: $(DEV) ## simulate all policies, and compare their stale reads for the same rows; half an hour; writes the results page
	cd benchmarks && ../$(BIN)/python -m freshness.run --seeds $(SEEDS) $(if $(QUICK),--quick) $(if $(TRACES),--traces $(abspath $(TRACES)))

freshness-live: $(DEV) ## compare price, fixed intervals and TTLs on real servers, side by side; an hour and a half
	cd benchmarks && ../$(BIN)/python -m freshness_live.run --seconds $(SECONDS)

group: $(DEV) ## kill real updaters on a real Kafka, and on each depot, every ten seconds; SECONDS=300 is the long form
	$(BIN)/pytest -n 0 -s tests/integration -k "group or cluster_live or sentinel_live" --prove --group-seconds $(SECONDS)

image: $(DEV) $(IMAGE_TOOLS) ## build the container image without Docker, and try it as its user with a read-only root; needs root on Debian; three minutes
	$(IMAGE_TOOLS)/bin/python image/build.py
	$(BIN)/pytest -n 0 -s tests/image/built_image.py

package: $(DEV) $(IMAGE_TOOLS) ## check the content of the wheel, and run the demonstration by uvx and pip from a local index, for every Python here; five minutes
	$(BIN)/pytest -n 0 -s tests/image/built_wheel.py

lock: $(IMAGE_TOOLS) ## renew the locks, with hashes; UPGRADE=1 takes newer versions
	@UV=$(IMAGE_TOOLS)/bin/uv UPGRADE=$(UPGRADE) image/lock.sh

lowest: $(IMAGE_TOOLS) ## run the tests with the oldest version of each dependency that pyproject.toml allows; needs an index; five minutes
	@UV=$(IMAGE_TOOLS)/bin/uv PYTHON=$(PYTHON) image/lowest.sh $(LOWEST)

audit: $(IMAGE_TOOLS) ## look for known holes in the locked packages with pip-audit; says what it could not check
	$(IMAGE_TOOLS)/bin/python image/audit.py

diagram: $(DEV) ## draw docs/automaton.md from the automaton's table
	$(BIN)/python -m cacheupdater.core.automaton > docs/automaton.md

clean: ## remove .venv and all build results
	rm -rf $(VENV) build dist .coverage .coverage.* .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find cacheupdater client tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(IMAGE_TOOLS): image/tools.lock
	@echo "Installing what makes and checks the image into $@ (once) ..."
	@$(PYTHON) -m venv --clear $@
	@$@/bin/pip install --quiet --require-hashes --requirement image/tools.lock
	@touch $@

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "Installing what the demonstration needs into $(VENV) (once) ..."
	@$(BIN)/python -m pip install --quiet --editable '.[demo]'
	@touch $@

$(DEV): pyproject.toml | $(BIN)/python
	@echo "Installing what development needs into $(VENV) (once) ..."
ifeq ($(LOCKED),)
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
else
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement image/dev.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
endif
	@touch $@

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON) here: install Python 3.11 or newer, or say PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$$($(PYTHON) --version 2>&1) is too old: cacheupdater needs 3.11 or newer; say PYTHON=python3.12, for example"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make virtual environments: install its venv module (Debian and Ubuntu: the package python3-venv)"; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
