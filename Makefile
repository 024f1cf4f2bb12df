# The verbs of this project. `make run` and `make test` need nothing but python3 >= 3.11 and make.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV ?= .venv
BIN := $(VENV)/bin
# The first that runs and is new enough; looked for only when the virtual environment is made.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

# Stamps carry the content of pyproject.toml in their name: a touched file installs nothing, an edited one does,
# and what is installed already works without a network.
DEPS := $(shell sha256sum pyproject.toml | cut -c1-12)
INSTALLED := $(VENV)/.installed-$(DEPS)
INSTALLED_DEV := $(VENV)/.installed-dev-$(DEPS)

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

AT := $(if $(ARGS),, on http://127.0.0.1:9408/)

.PHONY: run
run: $(INSTALLED) ## Serve: this machine's AMD GPUs, or a replayed demo node where there is none. ARGS="--listen :9408"
	@if grep -qsx 0x1002 /sys/class/drm/card*/device/vendor || [ -e /dev/kfd ]; then
		echo "Serving this machine's AMD GPUs$(AT) (Ctrl-C ends it)"
		exec $(BIN)/amdgpu-exporter serve $(ARGS)
	else
		echo "No AMD GPU found on this machine: this is a REPLAY of a synthetic capture of an 8-GPU node."
		echo "Serving it$(AT) (Ctrl-C ends it)"
		exec $(BIN)/amdgpu-exporter serve --backend replay $(ARGS)
	fi

.PHONY: test
test: $(INSTALLED_DEV) ## Run all tests; parts that cannot be had are skipped, saying so. ARGS="-k config"
	@tests/install-parts
	@tests/install-browser
	@tests/install-kube-parts $(BIN)/python
	@tests/install-image-parts
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

.PHONY: check
check: lint types ## Everything but the slow tests: lint, types, generated files, layers, catalogue laws
	@$(BIN)/python -m tests.tools.generate --check
	$(BIN)/python -m pytest -q tests/test_architecture.py tests/test_catalogue_policy.py tests/test_docs_fresh.py

.PHONY: lint
lint: $(INSTALLED_DEV) ## Lint, and check the format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet . || { echo "not formatted: run make fmt" >&2; exit 1; }

.PHONY: types
# A cache from before a module was added can claim that it does not exist; without one it takes seconds.
types: $(INSTALLED_DEV) ## Check types
	$(BIN)/mypy --no-incremental

.PHONY: fmt
fmt: $(INSTALLED_DEV) ## Format, and mend what the linter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: generate
generate: $(INSTALLED_DEV) ## Rewrite generated files: docs/METRICS.md, docs/CONFIG.md, the demo capture
	@$(BIN)/python -m tests.tools.generate

.PHONY: golden
golden: $(INSTALLED_DEV) ## Rewrite golden files; read the diff before you commit it
	$(BIN)/python -m pytest -q -k golden --update-golden
	@git --no-pager diff --stat -- tests || true

.PHONY: bench
bench: $(INSTALLED_DEV) ## Print what it costs, beside others where they are installed
	@tests/install-parts
	$(PIP) pandas HolisticTraceAnalysis || $(PIP) pandas || echo "no pandas to compare with" >&2
	for each in benchmarks/[a-z]*.py; do
		[ "$$each" != benchmarks/fleet.py ] || continue # wants gigabytes: make bench-fleet
		echo "== $$each"
		$(BIN)/python "$$each"
	done

.PHONY: bench-fleet
bench-fleet: $(INSTALLED_DEV) ## Print what rules and panels cost over 100 to 1,000 simulated nodes. ARGS="--nodes 100"
	@tests/install-parts
	$(BIN)/python -m benchmarks.fleet $(ARGS)

# Grafana has no server package for this, but its front-end libraries are published: render with those.
.PHONY: dashboards-proof
dashboards-proof: $(INSTALLED_DEV) ## Render the dashboards with Grafana's libraries over a replayed hour; needs npm, chromium
	@tests/install-parts
	(cd dashboards/render && npm ci --ignore-scripts --legacy-peer-deps --no-audit --no-fund)
	AMDGPU_EXPORTER_KEEP_PICTURES=1 $(BIN)/python -m pytest tests/integration/test_dashboards_live.py $(ARGS)

.PHONY: proof-compare
proof-compare: $(INSTALLED_DEV) ## Print what compare says of planted truths, over ARGS="1000" seeds (half an hour)
	$(BIN)/python -m tests.tools.compare_truths $(ARGS)

.PHONY: clean
clean: ## Remove what was built or installed here
	rm -rf $(VENV) .cache build dist ./*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): | $(BIN)/python
	@echo "Installing amdgpu-exporter into $(VENV) (once)"
	$(PIP) --editable .
	rm -f $(VENV)/.installed-[0-9a-f]*
	touch $@

$(INSTALLED_DEV): | $(BIN)/python
	@echo "Installing amdgpu-exporter and what its tests need into $(VENV) (once)"
	$(PIP) --editable '.[test,check]'
	rm -f $(VENV)/.installed-*
	touch $@ $(INSTALLED)

$(BIN)/python:
	@[ -n "$(PYTHON)" ] || { echo "python3 >= 3.11 was not found; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	rm -f $(VENV)/.installed-*
	$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) cannot make virtual environments; on Debian: apt install python3-venv" >&2; rm -rf $(VENV); exit 1; }


