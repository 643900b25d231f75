# Every target makes the virtual environment it needs; python3, make and the package registries are enough.
# Stamp files remember what is installed; a change of pyproject.toml renews it.

PYTHON ?= python3
VENV ?= .venv
PEERS_VENV ?= .venv-peers
OPENENV_VENV ?= .venv-openenv
MCP1_VENV ?= .venv-mcp1
FASTMCP_VENV ?= .venv-fastmcp
NODE_FOLDER ?= build/node
WORKERS ?= auto
CC ?= cc
ROWS ?=

BIN := $(VENV)/bin
export PROCTOR_PEERS := $(abspath $(PEERS_VENV))
export PROCTOR_OPENENV := $(abspath $(OPENENV_VENV))
export PROCTOR_MCP1 := $(abspath $(MCP1_VENV))
export PROCTOR_FASTMCP := $(abspath $(FASTMCP_VENV))
export PROCTOR_NODE := $(abspath $(NODE_FOLDER))
PIP_INSTALL := -m pip install -qq --disable-pip-version-check
TORCH := torch==2.13.0
PEERS := plume-nav-sim==0.1.0
OPENENV := openenv==0.10.0
MCP1 := mcp==1.30.0
FASTMCP := fastmcp>=4,<5
# The conformance suite asks for a newer Node.js than Debian has; npm brings one.
NODE_PACKAGES := node@22 @modelcontextprotocol/conformance@0.1.16 @modelcontextprotocol/inspector@2.12.0 axe-core@4
SYSTEM_TOOLS := bwrap:bubblewrap dockerd:docker.io runc:runc podman:podman npm:npm chromium:chromium

DEV_STAMP := $(VENV)/.stamp-dev
TRAIN_STAMP := $(VENV)/.stamp-train
MUTATE_STAMP := $(VENV)/.stamp-mutate
PEERS_STAMP := $(PEERS_VENV)/.stamp-peers
OPENENV_STAMP := $(OPENENV_VENV)/.stamp-openenv
MCP1_STAMP := $(MCP1_VENV)/.stamp-mcp1
FASTMCP_STAMP := $(FASTMCP_VENV)/.stamp-fastmcp
NODE_STAMP := $(NODE_FOLDER)/.stamp-node

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup check test test-system bench hops stress mutate demo docs screenshots clean python-new-enough compiler system-tools mcp-peers

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

setup: $(DEV_STAMP) ## make the virtual environment with everything for development

check: $(DEV_STAMP) ## lint, formatting, types, layers, words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python tools/check_words.py
	$(BIN)/python tools/check_names.py

# The gate tries the same examples every time; a plain `pytest` tries new ones.
test test-system: export HYPOTHESIS_PROFILE ?= ci

test: $(DEV_STAMP) ## the quick tests in random order, with the coverage gate
	@mkdir -p build/coverage
	$(BIN)/python -m pytest -m "not system and not slow" -n $(WORKERS) --cov --cov-report= --cov-report=json:build/coverage.json
	$(BIN)/python tools/coverage_gate.py build/coverage.json

test-system: $(TRAIN_STAMP) $(PEERS_STAMP) $(OPENENV_STAMP) compiler system-tools mcp-peers ## the slow tests, and those with peers, training, a compiler and sandboxes
	$(BIN)/python -m pytest -m "slow and not system" -n $(WORKERS)
	$(BIN)/python -m pytest -m system

bench: $(DEV_STAMP) ## measure everything, or the rows that start with ROWS=prefix
	@$(MAKE) --no-print-directory $(PEERS_STAMP) || echo "bench: $(PEERS) could not be installed; its rows will be named gaps" >&2
	@$(MAKE) --no-print-directory $(OPENENV_STAMP) || echo "bench: $(OPENENV) could not be installed; its rows will be named gaps" >&2
	$(BIN)/python -m bench $(if $(ROWS),--rows $(ROWS))

hops: $(DEV_STAMP) ## count the calls and files of one remote step and of one governed tool call
	@$(BIN)/python -m tools.measure_hops

stress: $(DEV_STAMP) ## run the quick tests beside eight busy loops, with SIGINT ignored; REPEAT=20 TESTS="tests/cli -k ctrl" runs those 20 times
	$(BIN)/python tools/stress.py --repeat $(or $(REPEAT),1) $(if $(TESTS),-- $(TESTS))

mutate: $(MUTATE_STAMP) ## make mistakes in the judge on purpose, and see how many the tests notice; goes on where it was stopped
	$(BIN)/python tools/mutate.py

demo: $(DEV_STAMP) ## watch a governed agent in a sandbox, live; then its episode is proved and replayed
	@$(BIN)/proctor demo --page build/demo.html

docs: $(DEV_STAMP) ## write the generated parts of docs/ anew
	$(BIN)/python tools/make_docs.py

screenshots: $(DEV_STAMP) ## take the pictures of the viewer in docs/images anew; needs Chromium
	$(BIN)/python tools/make_screenshots.py

clean: ## remove what the targets made, the virtual environments included
	rm -rf $(VENV) $(PEERS_VENV) $(OPENENV_VENV) $(MCP1_VENV) $(FASTMCP_VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

python-new-enough:
	@command -v $(PYTHON) >/dev/null || { echo "make: there is no $(PYTHON); name a Python >= 3.11 with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "make: $(PYTHON) is $$($(PYTHON) -V 2>&1), Proctor needs Python >= 3.11; name one with PYTHON=..." >&2; exit 1; }

compiler:
	@command -v $(CC) >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		echo "installing gcc" && apt-get update -qq && apt-get install -y -qq gcc libc6-dev >/dev/null; } || true
	@command -v $(CC) >/dev/null || { echo "make: missing: a C compiler ($(CC)); install gcc, or name yours with CC=..." >&2; exit 1; }

# Sandboxes and containers: installed by apt where that is possible, else named.
system-tools:
	@missing=""; for pair in $(SYSTEM_TOOLS); do command -v $${pair%%:*} >/dev/null || missing="$$missing $${pair##*:}"; done; \
	if test -n "$$missing" && test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
		echo "installing$$missing"; apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing >/dev/null 2>&1; fi; \
	missing=""; for pair in $(SYSTEM_TOOLS); do command -v $${pair%%:*} >/dev/null || missing="$$missing $${pair##*:}"; done; \
	test -z "$$missing" || { echo "make: missing:$$missing (packages of Debian); install them, or run this as root" >&2; exit 1; }; \
	test "$$(id -u)" = 0 || { echo "make: missing: root; the tests of cgroups and containers need it" >&2; exit 1; }

mcp-peers: $(MCP1_STAMP) $(FASTMCP_STAMP) $(NODE_STAMP)

$(DEV_STAMP): pyproject.toml | python-new-enough
	@echo "installing proctor for development into $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { echo "make: missing: Python's venv module (on Debian: python3-venv)" >&2; exit 1; }
	@$(BIN)/python $(PIP_INSTALL) -e '.[dev]'
	@touch $@

# torch comes first and alone, so that no other requirement chooses its build; a build for CUDA is refused.
$(TRAIN_STAMP): $(DEV_STAMP)
	@echo "installing the extras train, export and otel into $(VENV)"
	@plan=$$($(BIN)/python $(PIP_INSTALL) --dry-run --report - $(TORCH)) || { echo "make: missing: $(TORCH)" >&2; exit 1; }; \
		case "$$plan" in *'"name": "nvidia-'*|*'"version": "'*'+cu'*) \
		echo "make: missing: a CPU build of $(TORCH): pip would take one for CUDA; say where CPU builds are (PIP_FIND_LINKS)" >&2; exit 1;; esac
	@$(BIN)/python $(PIP_INSTALL) $(TORCH) || { echo "make: missing: $(TORCH)" >&2; exit 1; }
	@$(BIN)/python $(PIP_INSTALL) -e '.[dev,train,export,otel]' || { echo "make: missing: the extras train, export and otel" >&2; exit 1; }
	@touch $@

$(MUTATE_STAMP): $(DEV_STAMP)
	@echo "installing the mutate extra into $(VENV)"
	@$(BIN)/python $(PIP_INSTALL) -e '.[dev,mutate]' || { echo "make: missing: the mutate extra" >&2; exit 1; }
	@touch $@

$(PEERS_STAMP): Makefile | python-new-enough
	@echo "installing $(PEERS) into $(PEERS_VENV)"
	@$(PYTHON) -m venv $(PEERS_VENV)
	@$(PEERS_VENV)/bin/python $(PIP_INSTALL) $(PEERS) || { echo "make: missing: $(PEERS)" >&2; exit 1; }
	@touch $@

# OpenEnv has an environment of its own: it brings more than a hundred packages, none of which another peer should meet.
$(OPENENV_STAMP): Makefile | python-new-enough
	@echo "installing $(OPENENV) into $(OPENENV_VENV)"
	@$(PYTHON) -m venv $(OPENENV_VENV)
	@$(OPENENV_VENV)/bin/python $(PIP_INSTALL) $(OPENENV) || { echo "make: missing: $(OPENENV)" >&2; exit 1; }
	@touch $@

# The MCP SDK's first major, and FastMCP: clients that the agent plane must get along with, each as its users have it.
$(MCP1_STAMP): Makefile | python-new-enough
	@echo "installing $(MCP1) into $(MCP1_VENV)"
	@$(PYTHON) -m venv $(MCP1_VENV)
	@$(MCP1_VENV)/bin/python $(PIP_INSTALL) $(MCP1) || { echo "make: missing: $(MCP1)" >&2; exit 1; }
	@touch $@

$(FASTMCP_STAMP): Makefile | python-new-enough
	@echo "installing $(FASTMCP) into $(FASTMCP_VENV)"
	@$(PYTHON) -m venv $(FASTMCP_VENV)
	@$(FASTMCP_VENV)/bin/python $(PIP_INSTALL) '$(FASTMCP)' || { echo "make: missing: $(FASTMCP)" >&2; exit 1; }
	@touch $@

$(NODE_STAMP): Makefile | system-tools
	@echo "installing $(NODE_PACKAGES) into $(NODE_FOLDER)"
	@mkdir -p $(NODE_FOLDER)
	@npm install --silent --no-fund --no-audit --prefix $(NODE_FOLDER) $(NODE_PACKAGES) >/dev/null || { echo "make: missing: $(NODE_PACKAGES)" >&2; exit 1; }
	@touch $@
