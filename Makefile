# make study [CONFIG=config/tiny.yaml] [CORES=n] [ARGS="flags for snakemake, -n for a dry run"] · make test [CORES=n] · make test-cluster · make bench · make setup
CONFIG ?= config/config.yaml
CORES ?= $(shell nproc 2>/dev/null || echo 2)
ARGS ?=
BIN := .venv/bin

.PHONY: study test test-cluster bench setup environment lint result-picture
.DEFAULT_GOAL := study

study: setup
	@$(BIN)/python scripts/study.py --config '$(CONFIG)' --cores $(CORES) -- $(ARGS)

test: setup
	@sh envs/setup.sh test
	@$(BIN)/python -m pytest -n $(CORES) --dist loadgroup $(ARGS)

# Sets up a Slurm of its own from Debian's packages, as root; skips with a reason where it cannot.
test-cluster: setup
	@$(BIN)/python -m pytest -o addopts=-q -rs tests/cluster $(ARGS)

bench: setup
	@for file in tests/bench_*.py; do echo "$$file"; $(BIN)/python $$file || exit 1; done

setup:
	@sh envs/setup.sh

lint: setup
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/snakefmt --check Snakefile rules && $(BIN)/snakemake --lint

# Remakes the two files that hold the lock's pins or its picture a second time.
environment: setup
	@$(BIN)/python envs/conda.py && $(BIN)/python -m continuity.dictionary

result-picture: setup
	@cp results/default/figures/study.svg config/result.svg
