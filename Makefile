# `make report` measures this machine and renders results/report.html; `make test` runs the whole test suite.
PYTHON ?= python3
CORES ?= all
VENV := .venv
BIN := $(VENV)/bin
# Tools run as `python -m`: the first line of a script cannot name a Python in every folder.
# Tests marked slow run whole studies through Slurm and wait for minutes; CI runs them too, with PYTEST= .
PYTEST ?= -m "not slow"
# The GPU packages are large; they are installed if there is a GPU to use them.
EXTRAS := $(if $(shell command -v nvidia-smi),-gpu)
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: report test lint clean

report: $(VENV)/run$(EXTRAS)
	python -m snakemake --cores $(CORES) --quiet progress -- all
	@echo "The report is $$PWD/results/report.html"

test: $(VENV)/test$(EXTRAS)
	python -m pytest $(PYTEST)

lint: $(VENV)/test$(EXTRAS)
	python -m ruff check .
	python -m ruff format --check .
	python -m snakefmt --check Snakefile workflow/rules
	python -m mypy
	python -m snakemake --lint --cores 1

clean:
	rm -rf results logs .snakemake

$(VENV)/run$(EXTRAS): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Tilewise needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .$(if $(EXTRAS),[gpu])
	touch $@

$(VENV)/test$(EXTRAS): $(VENV)/run$(EXTRAS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .[test$(if $(EXTRAS),$(comma)gpu)]
	touch $@

comma := ,
