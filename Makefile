# `make help` lists what there is.
PYTHON ?= python3
CORES ?= all
ifneq ($(CORES),all)
ifneq ($(shell test '$(CORES)' -ge 1 2>/dev/null && echo yes),yes)
$(error CORES=$(CORES): write a number of cores from 1 on, or all)
endif
endif
VENV := .venv
BIN := $(VENV)/bin
supported := 'import sys; v = sys.version_info[:2]; (3, 11) <= v < (3, 15) or print("Tilewise needs Python 3.11 to 3.14, \
	this is", sys.version.split()[0] + "; name another, as in: make quick PYTHON=python3.11") or sys.exit(1)'
# Tools run as `python -m`: the first line of a script cannot name a Python in every folder.
# Tests marked slow run whole studies, alone or through Slurm, open pages in a browser, or take seconds for one behaviour;
# CI runs them too.
PYTEST ?= -m "not slow and not exhaustive"
export PATH := $(CURDIR)/$(BIN):$(PATH)

# The packages of CUDA 12 or 13, or none, as the driver and the GPUs need them; CUDA=12 or CUDA=13 forces them. An
# environment with CUDA, of which THERE is the name, stays as long as it serves, and is whole without a GPU too.
# CHOICE ends with the name of a file of requirements/, after the line that says why.
THERE := $(patsubst $(VENV)/run-%,%,$(firstword $(wildcard $(VENV)/run-*)))
ifneq ($(filter-out help clean lock,$(or $(MAKECMDGOALS),report)),)
CHOICE := $(shell { $(PYTHON) -c $(supported) && PYTHONPATH=workflow $(PYTHON) -m tilewise.nvidia.toolkits '$(CUDA)' $(THERE); } 2>&1)
ifneq ($(.SHELLSTATUS),0)
$(error $(CHOICE))
endif
endif
SET := $(or $(filter-out run,$(lastword $(CHOICE))),$(THERE),run)
EXTRAS := $(addprefix -,$(filter-out run,$(SET)))

.PHONY: help environment test-environment quick report test test-all architectures lint clean lock release

# $(call step,what,command): a line with how long it took, and a dot every ten seconds; what the command prints is shown if
# it fails. pip's warnings, such as those of an index that is not there, are no failures.
step = @printf '%s ... ' '$(1)'; begin=$$(date +%s); \
	while sleep 10 >/dev/null 2>&1; kill -0 $$$$ 2>/dev/null; do printf .; done & dots=$$!; \
	said=$$($(2) 2>&1); status=$$?; kill $$dots; \
	[ $$status = 0 ] && echo "$$(($$(date +%s) - begin)) s" || { printf 'failed\n%s\n' "$$said"; exit $$status; }
pip = python -m pip install -qq --disable-pip-version-check
# $(call new,folder,options): an environment with the newest pip where an index has it; that of an old Python takes twice
# the time to install.
new = $(PYTHON) -m venv $(2) $(1) && { $(1)/bin/$(pip) --upgrade pip || true; }
# $(call project,bin): the project itself; two environments may be made at once, and setuptools writes into workflow/.
project = flock pyproject.toml $(1)/$(pip) --no-deps --editable .
# $(call packages,names): what those files of requirements/ name, by version and hash.
packages = $(BIN)/$(pip) $(foreach name,$(1),-r requirements/$(name).txt)

# Typed without a name, make makes the report.
report: $(VENV)/run$(EXTRAS) ## run the whole study of this machine and write results/report.html and the pages beside it
	@echo 'This is the whole study; `make quick` runs a shorter one.'
	@exec python -m snakemake --cores $(CORES) -- all

quick: $(VENV)/run$(EXTRAS) ## run a short study of this machine and write results/report.html and the pages beside it
	@exec python -m snakemake --cores $(CORES) --configfile config/quick.yaml -- all

environment: $(VENV)/run$(EXTRAS) ## make the environment .venv alone; on a login node with CUDA=12 or CUDA=13

test-environment: $(VENV)/test$(EXTRAS) ## make the environment .venv with the packages of the tests

test: $(VENV)/test$(EXTRAS) ## run the tests
	@python -m pytest $(PYTEST)

test-all: $(VENV)/test$(EXTRAS) ## run also the tests that take minutes or need a network
	@python -m pytest

architectures: $(VENV)/test$(EXTRAS) $(VENV)-cuda12/compiler ## compile every kernel for eight architectures, by NVRTC 12.9 and 13, into docs/architectures.md
	@python -m tilewise.compile.architectures "$$(nproc)"
	@$(VENV)-cuda12/bin/python -m tilewise.compile.architectures "$$(nproc)"

lint: $(VENV)/test$(EXTRAS) ## check style, types and workflow
	$(call step,ruff check,python -m ruff check .)
	$(call step,ruff format,python -m ruff format --check .)
	$(call step,snakefmt,python -m snakefmt --check Snakefile workflow/Snakefile workflow/rules)
	$(call step,mypy,python -m mypy)
	$(call step,import-linter,PYTHONPATH=workflow lint-imports)
	$(call step,clang-format,find $(emulator) kernels/cpu_cache -type f ! -name '*.md' ! -name '*.def' ! -name '*.txt' ! -name '.*' | xargs $(clang-format) --dry-run --Werror)
	$(call step,clang-tidy,ls $(tidied) | xargs -n 4 -P "$$(nproc)" $(clang-tidy) --quiet)
	$(call step,snakemake --lint,python -m snakemake --lint --cores 1)

release: $(VENV)/run$(EXTRAS) ## write what a release carries into dist/: the source, samples, and the pages of the recorded runs; and check it
	@python -m tilewise.release dist

clean: ## remove the results, the logs and what Snakemake keeps; not .venv
	@if [ -e results/.run.lock ] && ! flock --nonblock results/.run.lock true; then \
		echo 'a run works on these results; stop it first (Ctrl-C), or wait for its end'; exit 1; fi
	rm -rf results logs .snakemake

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

lock: ## choose the newest versions and write requirements/; needs uv (pip install uv)
	uv lock --quiet --upgrade
	uv export $(exported) --output-file requirements/run.txt
	for extra in $(extras); do uv export $(exported) --extra $$extra --output-file requirements/$$extra.txt; done
	rm uv.lock  # it holds addresses of a registry
	@# Ubuntu 22.04 has 3.11.0rc1, which its pip leaves out of "python_full_version < '3.12'".
	sed -i -E "s/python_full_version ([<>]=?) '([0-9]+\.[0-9]+)'/python_version \1 '\2'/" requirements/*.txt

# An environment has the packages of one CUDA: it is made anew for another.
$(VENV)/run$(EXTRAS): pyproject.toml requirements/$(SET).txt
	@case "$$(uname -sm)" in 'Linux x86_64' | 'Linux aarch64') ;; \
		*) echo "Tilewise needs Linux on x86-64 or aarch64, this is $$(uname -sm)"; exit 1;; esac
	@echo '$(subst ','\'',$(filter-out $(SET),$(CHOICE)))'
	$(call step,making the environment $(VENV),$(call new,$(VENV),$(if $(filter-out $@,$(wildcard $(VENV)/run-*)),--clear)))
	$(call step,installing the packages ($(if $(EXTRAS),1.4 GB with those of the GPU,250 MB)),{ $(call packages,$(SET)) && $(call project,$(BIN)); })
	@touch $@

$(VENV)/test$(EXTRAS): $(VENV)/run$(EXTRAS) requirements/test.txt
	$(call step,installing the packages of the tests,$(call packages,test $(if $(EXTRAS),$(SET),compiler)))
	@touch $@

# The compiler of CUDA 12 has an environment beside that of CUDA 13: a process has the modules of one of them.
$(VENV)-cuda12/compiler: pyproject.toml requirements/compiler12.txt
	$(call step,making the environment $(VENV)-cuda12,$(call new,$(VENV)-cuda12,--clear))
	$(call step,installing the compiler of CUDA 12,$(VENV)-cuda12/bin/$(pip) -r requirements/compiler12.txt && $(call project,$(VENV)-cuda12/bin))
	@touch $@

# clang-tidy reads a header with the sources that include it; these have none.
emulator := packages/microscope/src/kernelscope/cuda
tidied := $(emulator)/*/*.cpp $(emulator)/include/cuda_pipeline.h $(emulator)/include/cooperative_groups.h \
	$(emulator)/include/cooperative_groups/*.h kernels/cpu_cache/cache.h
clang-format := python -c 'import clang_format; clang_format.clang_format()'
clang-tidy := python -c 'import clang_tidy; clang_tidy.clang_tidy()'
# One file for each extra of pyproject.toml, whole in itself; they agree because they come from one resolution.
extras := compiler compiler12 gpu gpu12 notebook triton languages test
exported := --quiet --frozen --no-emit-project --no-annotate --no-header
