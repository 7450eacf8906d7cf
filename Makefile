# Everything a developer runs. `make` alone lists the commands.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := tests/logs tests/readers tests/unit
# Tests start hundreds of processes: without files of bytecode each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
WORKERS ?= $(shell nproc 2>/dev/null || echo 2)

.DEFAULT_GOAL := help
.PHONY: help kernels demo paper gap test lint style types suite coverage format soak bench command priors bayes nested judged rivals features scale views judges pages docs docs-serve lowest release-check clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 15

$(VENV)/core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable .
	@touch $@

$(VENV)/dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --editable ".[dev]"
	@touch $(VENV)/core $@

kernels: $(VENV)/core ## compile ahead what first fits need, as wheels have it: a minute or two
	$(BIN)/python -m gecasmo.kernels.shipped

demo: $(VENV)/core ## simulate a log, fit three models, compare them
	$(BIN)/gecasmo demo

paper: $(VENV)/dev ## the paper's experiment and what lies beyond it; charts into docs/images
	$(BIN)/gecasmo paper --chart docs/images/paper.png
	$(BIN)/python examples/beyond_the_paper.py --chart docs/images/beyond.png

gap: $(VENV)/dev ## networks behind coins against a black box; tables and chart of docs/gap.md
	$(BIN)/gecasmo gap --keep .gap --docs docs/gap.md --chart docs/images/gap.png

# Types are checked beside the tests: mypy has use for one processor only.
test: style ## lint, type check and all tests
	@$(MAKE) --no-print-directory --jobs 2 types suite

lint: style types ## ruff and mypy

style: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev
	$(BIN)/mypy

suite: $(VENV)/dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

coverage: $(VENV)/dev ## all tests, and which lines they reach: at least 95 in a hundred
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --cov --cov-report=term

format: $(VENV)/dev ## let ruff tidy up
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

soak: $(VENV)/dev ## mutated and crafted files, kills, full disks, many seeds: an hour or two; writes benchmarks/results/soak.md
	PYTHONPATH=. $(BIN)/python -m benchmarks.soak

bench: $(VENV)/dev ## measure kernels and fits; writes benchmarks/results/latest.md
	$(BIN)/python -m benchmarks

command: $(VENV)/dev ## whole fits from a file to a saved model; writes benchmarks/results/command.md
	PYTHONPATH=src:. $(BIN)/python -m benchmarks.command

priors: $(VENV)/dev ## learned priors and intervals by simulation; writes benchmarks/results/priors.md
	PYTHONPATH=. $(BIN)/python -m benchmarks.priors

judged: $(VENV)/dev ## rankings by relevance against the truth, CLAX's too (in .clax)
	PYTHONPATH=. $(BIN)/python -m benchmarks.judged

judges: $(VENV)/dev ## clicks with other judges, from noise to perfect, and their intervals; writes benchmarks/results/judges*.md
	PYTHONPATH=. $(BIN)/python -m benchmarks.judges --keep .judges

bayes: $(VENV)/dev ## EM, VB and Gibbs compared by simulation; writes benchmarks/results/bayes.md
	PYTHONPATH=. $(BIN)/python -m benchmarks.bayes

nested: $(VENV)/dev ## tests of nested models on logs for which the smaller one is true; writes benchmarks/results/nested.md
	PYTHONPATH=. $(BIN)/python -m benchmarks.nested --keep .nested

pages: $(VENV)/dev ## do promises of best pages hold, and how fast are they; writes benchmarks/results/pages.md
	PYTHONPATH=. $(BIN)/python -m benchmarks.pages

rivals: $(VENV)/dev ## against CLAX (in an environment of its own, .clax) and others, 12 minutes
	PYTHONPATH=. $(BIN)/python -m benchmarks.rivals

features: $(VENV)/dev ## logistic forms against CLAX; writes benchmarks/results/features.md
	PYTHONPATH=. $(BIN)/python -m benchmarks.features

scale: $(VENV)/dev ## logs of 1M to 100M pages, out of core, and the ingest beside others; writes benchmarks/results/scale.md and ingest.md
	PYTHONPATH=. $(BIN)/python -m benchmarks.scale
	PYTHONPATH=. $(BIN)/python -m benchmarks.ingest

views: $(VENV)/dev ## logs under views, in memory and stored; writes benchmarks/results/views.md
	PYTHONPATH=. $(BIN)/python -m benchmarks.views

docs: .docs/made ## the documentation site, into site/
	NO_MKDOCS_2_WARNING=1 .docs/bin/mkdocs build --quiet

docs-serve: .docs/made ## the same on this machine, made anew when a page changes
	NO_MKDOCS_2_WARNING=1 .docs/bin/mkdocs serve

.docs/made: pyproject.toml
	$(PYTHON) -m venv .docs
	.docs/bin/pip install --quiet --editable . "mkdocs-material>=9.6" "mkdocstrings[python]>=0.29" ruff
	cd .docs && tar xzf $$(npm pack --silent mermaid@11) --strip-components 2 package/dist/mermaid.min.js
	@touch $@

# The core with the lowest versions that pyproject.toml allows; tests of heavy extras are left out.
lowest: ## the core's tests with the lowest versions of all dependencies, in .lowest
	$(PYTHON) -m venv .lowest
	$(PYTHON) .ci/lowest.py --tests > .lowest/requirements.txt
	.lowest/bin/pip install --quiet --no-compile --editable . --requirement .lowest/requirements.txt
	.lowest/bin/python -m pytest $(CORE)

release-check: ## build wheel and sdist, and do what the README says in an empty environment with each
	$(PYTHON) -m venv .release
	.release/bin/pip install --quiet "build>=1.2" "twine>=6.1"
	.release/bin/python .ci/release_check.py

clean: ## remove what the commands above made
	rm -rf $(VENV) .lowest .release .docs site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage dist build
