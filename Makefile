# Everything that a newcomer, a contributor or CI runs; `make help` lists it.
# The first use of a target makes .venv and installs what that target needs; nothing outside this folder is touched.

PYTHON ?= python3
DURATION ?= 30
SEEDS ?= 101
SECONDS ?= 600
TIMES ?= 1
LOCKED ?=

VENV := .venv
BIN := $(VENV)/bin
DEV := $(VENV)/.dev
IMAGE_TOOLS := build/image-tools
LOWEST := build/lowest
# what is installed for development is enough for the demonstration
DEMO := $(if $(wildcard $(DEV)),$(DEV),$(VENV)/.demo)
# Many tests wait for servers, so one worker more than cores; beyond eight they only wait for each other. They start
# hundreds of processes: where the environment forbids bytecode, each would compile all that it imports.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --maxprocesses 8 --dist worksteal
WORKERS := $(shell $(PYTHON) -c 'import os; print(1 + (os.cpu_count() or 1))' 2>/dev/null || echo 3)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo demo-kafka test prove compose-check chart chart-cluster chart-docs coverage lint bench freshness freshness-live group image package lock lowest audit diagram clean

help: ## what there is
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-22s%s\n", $$1, $$2}'
	@echo
	@echo "  DURATION=30     seconds that the demonstration measures"
	@echo "  SECONDS=600     seconds that each lane of freshness-live is measured"
	@echo '  ONLY="p1 p5"    benchmarks to run, all for none'
	@echo "  TIMES=1         how many times as much as usual \`make prove\` does"
	@echo "  LOCKED=1        .venv as CI has it: by the hashes of image/dev.lock"
	@echo "  PYTHON=python3  the interpreter for .venv, 3.11 or newer"

demo: $(DEMO) ## see it work: a shop, a Redis, four applications, half a minute
	@$(BIN)/cacheupdater demo --duration $(DURATION)

demo-kafka: $(DEMO) ## two updaters share a topic of Kafka; one is killed while you watch
	@$(BIN)/cacheupdater demo --kafka --duration $(DURATION)

test: lint ## lint, types, layers, all tests in their short form; ten minutes on two cores
	$(PYTEST) -n $(WORKERS)

prove: $(DEV) ## campaigns of 200,000 schedules, a million inputs of a fuzzer, kills, zombies, outages, races; twenty minutes; TIMES=10 makes ten times as much
	$(PYTEST) -n $(WORKERS) --prove --times $(TIMES)

compose-check: $(DEV) ## examples/03-compose: its file, and each service that can run here; Chromium looks at the page
	@$(BIN)/python -c 'import check_jsonschema' 2>/dev/null || $(BIN)/python -m pip install --quiet check-jsonschema
	$(BIN)/pytest -n 0 tests/compose
	$(BIN)/pytest -n 0 -s tests/compose --prove

coverage: $(DEV) ## branch coverage of what `make test` runs but its campaigns, with its floor; doubles the time of what it measures
	$(PYTEST) -n $(WORKERS) --cov -m "not campaign"

lint: $(DEV) ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

chart: $(DEV) ## the Helm chart by real tools: lint, golden files, three versions of Kubernetes, policies; fetches 400 MB once
	$(PYTEST) -n 0 --timeout 1200 tests/chart

chart-cluster: $(DEV) ## both charts in a real Kubernetes API server, and their pods' commands run here; two minutes, after it was built once (Go; four)
	$(BIN)/python tests/support/kube_binaries.py
	$(PYTEST) -n 0 --timeout 1200 tests/kubernetes tests/sidecar
	$(PYTEST) -n 0 tests/sidecar --prove

chart-docs: $(DEV) ## write the chart's README and values.schema.json from its values.yaml
	$(BIN)/python charts/document.py

bench: $(DEV) ## the hot paths against their goals; AGAINST=REV: against that commit, by turns
	$(BIN)/python benchmarks/$(if $(AGAINST),against.py $(AGAINST),run.py) $(ONLY)

freshness: $(DEV) ## stale reads for the rows they cost, all policies, simulated; half an hour; writes the results page
	cd benchmarks && ../$(BIN)/python -m freshness.run --seeds $(SEEDS) $(if $(QUICK),--quick) $(if $(TRACES),--traces $(abspath $(TRACES)))

freshness-live: $(DEV) ## price, fixed and TTL on real servers, side by side; an hour and a half
	cd benchmarks && ../$(BIN)/python -m freshness_live.run --seconds $(SECONDS)

group: $(DEV) ## real updaters on a real Kafka, killed every ten seconds; SECONDS=300 is the long form
	$(BIN)/pytest -n 0 -s tests/integration -k "group or cluster_live or sentinel_live" --prove --group-seconds $(SECONDS)

image: $(DEV) $(IMAGE_TOOLS) ## the container image, built without Docker and tried as its user with a read-only root; as root on Debian, three minutes
	$(IMAGE_TOOLS)/bin/python image/build.py
	$(BIN)/pytest -n 0 -s tests/image/built_image.py

package: $(DEV) $(IMAGE_TOOLS) ## the wheel: its content, and the demonstration by uvx and pip from a local index, for every Python here; five minutes
	$(BIN)/pytest -n 0 -s tests/image/built_wheel.py

lock: $(IMAGE_TOOLS) ## renew what the image installs, by hash; UPGRADE=1 takes newer versions
	@UV=$(IMAGE_TOOLS)/bin/uv UPGRADE=$(UPGRADE) image/lock.sh

lowest: $(IMAGE_TOOLS) ## tests with the oldest version that pyproject.toml allows of each dependency; needs an index, five minutes
	@UV=$(IMAGE_TOOLS)/bin/uv PYTHON=$(PYTHON) image/lowest.sh $(LOWEST)

audit: $(IMAGE_TOOLS) ## known holes in what the locks name, by pip-audit; says what could not be asked
	$(IMAGE_TOOLS)/bin/python image/audit.py

diagram: $(DEV) ## draw docs/automaton.md from the automaton's table
	$(BIN)/python -m cacheupdater.core.automaton > docs/automaton.md

clean: ## remove .venv and whatever was built
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
