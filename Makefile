# hoplo: what a person types.
#
#   make build   release wheel into .venv: .venv/bin/python and .venv/bin/hoplo work
#   make wheel   dist/hoplo-*.whl, its name checked against what it needs, tried in a fresh environment
#   make wheels  one for each CPython 3.11 to 3.14; what is for one that is not here is not run
#   make wheels-aarch64  the same for aarch64 and glibc 2.28, from any machine; their names are checked, and nothing is run
#   make demo    build, then examples/train_policy.py
#   make test    formatting, lints, Rust tests, simulation, Python tests
#   make record-instructions   what the hot paths take is right: the new baseline
#   make dev     the quick loop: compile, link the tree into .venv, no wheel
#   make soak    the random tests with fresh seeds and many cases (SOAK_CASES, SOAK_SEEDS)
#   make soak-programs   random programs under kills of workers, every value checked (SOAK_SECONDS, SOAK_SEED)
#   make soak-cluster    the same over six nodes that die, stop, are cut off and come back (root)
#   make bench   every benchmark beside its rivals, in bench/RESULTS.md (rivals in .bench-venv);
#                with RUNS=3, three times; how much of our goals each run reached: docs/internals/goals.md
#   make bench-control  the control store beside its paper's figures (RUNS too)
#   make bench-cluster  several nodes in network namespaces (root), beside Ray and bare connections
#   make bench-faults   nodes that die while work goes on, beside Ray (root)
#   make bench-collectives  reduce, broadcast, gather and so on, beside MPI, Gloo, Ray, Dask (root; RUNS too)
#   make bench-collectives-figures  papers' figures of that in their form (root)
#   make bench-scale    1 to 10,000 nodes, simulated with costs measured here (root)
#   make demo-cluster   a head and three nodes: trains, sorts, moves a gigabyte; shows who runs what
#   make format  rewrite the sources the way `make test` wants them
#   make clean   remove what the above made, but for Rust's cache

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build
MAKEFLAGS += --no-builtin-rules

VENV := .venv
VENV_PYTHON := $(CURDIR)/$(VENV)/bin/python
PIP := $(VENV_PYTHON) -m pip --quiet --disable-pip-version-check --no-input
CARGO := cargo
PYTEST_FLAGS ?=
# The wheel for the Python in VENV and this machine, and that for aarch64: others may lie beside them.
PYTHON_TAG = $(shell $(VENV_PYTHON) -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
WHEEL = dist/hoplo-*-$(PYTHON_TAG)-*_$(shell uname -m).whl
# For another Python, or for another machine than this one.
FOR_PYTHON = $(shell $(VENV_PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
FOR_MACHINE = $(shell uname -m)
FOR_TAG = $(subst .,,$(FOR_PYTHON))
WHEEL_ELSEWHERE = dist/hoplo-*-cp$(FOR_TAG)-*_$(FOR_MACHINE).whl

# Every cargo run sees the same Python and the same target folder, so that the wheel, the
# lints and `make dev` share their builds instead of invalidating one another's.
export CARGO_TARGET_DIR := $(CURDIR)/target
export PYO3_PYTHON := $(VENV_PYTHON)
export PYTHON_SYS_EXECUTABLE := $(VENV_PYTHON)
export PYO3_BUILD_EXTENSION_MODULE := 1

# Random tests take the same cases in every `make test`; new ones are for `make soak`. A failure is
# kept as a test with a name, not as a seed.
export PROPTEST_RNG_SEED ?= 1
export PROPTEST_DISABLE_FAILURE_PERSISTENCE := 1

RUST_SOURCES := Cargo.toml Cargo.lock $(shell find crates -type f \( -name '*.rs' -o -name '*.toml' \))
PYTHON_SOURCES := $(shell find python/hoplo -type f \( -name '*.py' -o -name '*.pyi' -o -name py.typed \))
WHEEL_SOURCES := $(RUST_SOURCES) $(PYTHON_SOURCES) setup.py pyproject.toml LICENSE $(wildcard README.md)
LINTED := python examples alias setup.py $(wildcard bench docs tests)

.PHONY: build wheel wheels wheel-elsewhere wheels-aarch64 demo demo-cluster test dev format clean check-tools bench bench-rivals bench-control \
        bench-cluster bench-faults bench-collectives bench-collectives-figures bench-collectives-rivals bench-scale \
        test-format test-lint test-types test-rust build-rust-tests test-machines test-loom test-sim \
        test-instructions test-of-python test-python test-elsewhere test-soak test-cluster soak soak-rust soak-sim soak-programs soak-cluster record-instructions

# ---------------------------------------------------------------------------- build

build: check-tools $(VENV)/.wheel

check-tools:
	@command -v $(CARGO) >/dev/null || { echo "hoplo needs Rust 1.90 or newer (cargo): install it with rustup" >&2; exit 1; }
	@$(CARGO) --version >/dev/null 2>&1 && rustc --version >/dev/null 2>&1 || { \
	  echo "cargo is here and does not run. If rustup has no toolchain in this home: rustup default stable, or set RUSTUP_HOME" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "hoplo needs a C compiler (cc): install gcc or clang" >&2; exit 1; }
	@[ -x $(VENV)/bin/python ] || [ -n "$(call find_python)" ] || { \
	  echo "hoplo needs CPython 3.11 or newer with venv: install python3 and python3-venv" >&2; exit 1; }

# The first of these that runs, is new enough and can make a virtual environment.
find_python = $(shell for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
  $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
    && echo $$python && break; done)

$(VENV)/.python: | check-tools
	@$(call find_python) -m venv $(VENV)
	@touch $@

$(VENV)/.build-tools: requirements/build.txt $(VENV)/.python
	@$(PIP) install -r requirements/build.txt
	@touch $@

$(VENV)/.cross: requirements/cross.txt $(VENV)/.python
	@$(PIP) install -r requirements/cross.txt
	@touch $@

$(VENV)/.demo: requirements/demo.txt $(VENV)/.python
	@$(PIP) install -r requirements/demo.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt requirements/demo.txt $(VENV)/.python
	@$(PIP) install -r requirements/dev.txt
	@touch $@

# No build isolation: a throw-away environment would be another PYO3_PYTHON, and recompile PyO3.
$(VENV)/.wheel: $(WHEEL_SOURCES) $(VENV)/.build-tools
	@echo "building the release wheel"
	@rm -rf build $(WHEEL)
	@$(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist .
	@rm -f $(VENV)/lib/python3*/site-packages/hoplo-dev.pth $(VENV)/bin/hoplo
	@$(PIP) install --force-reinstall --no-deps $(WHEEL)
	@$(PIP) install --constraint requirements/demo.txt $(WHEEL)
	@touch $@

wheel: build
	@$(VENV_PYTHON) tests/check_wheel.py $(WHEEL)
	@ls $(WHEEL)

# Only the extension is compiled again for each. What fails to build or to run fails all.
wheels:
	@for version in 3.11 3.12 3.13 3.14; do \
	  if python$$version -c '' 2>/dev/null; then \
	    $(MAKE) --no-print-directory wheel PYTHON=python$$version VENV=.venv-$$version || exit; \
	  else \
	    echo "without python$$version its wheel is built and not run"; \
	    $(MAKE) --no-print-directory wheel-elsewhere FOR_PYTHON=$$version || exit; \
	  fi; \
	done

wheels-aarch64:
	@for version in 3.11 3.12 3.13 3.14; do \
	  $(MAKE) --no-print-directory wheel-elsewhere FOR_PYTHON=$$version FOR_MACHINE=aarch64 || exit; \
	done

# For a Python or a machine that is not here. PyO3 knows what each CPython looks like, zig links for an old glibc, and nothing is run.
wheel-elsewhere: check-tools $(VENV)/.build-tools $(VENV)/.cross
	@rm -rf build $(WHEEL_ELSEWHERE)
	@PATH=$(CURDIR)/$(VENV)/bin:$$PATH CARGO=$(CURDIR)/tests/cargo_zig.sh \
	  CARGO_BUILD_TARGET=$(FOR_MACHINE)-unknown-linux-gnu.2.28 _PYTHON_HOST_PLATFORM=linux-$(FOR_MACHINE) \
	  SETUPTOOLS_EXT_SUFFIX=.cpython-$(FOR_TAG)-$(FOR_MACHINE)-linux-gnu.so PYO3_CROSS_PYTHON_VERSION=$(FOR_PYTHON) \
	  $(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist .
	@$(VENV_PYTHON) tests/check_wheel.py $(WHEEL_ELSEWHERE)
	@ls $(WHEEL_ELSEWHERE)

# ---------------------------------------------------------------------------- demo

demo: build $(VENV)/.demo
	@$(VENV_PYTHON) examples/train_policy.py

# Network namespaces where it may make them (root), else addresses of loopback.
demo-cluster: build $(VENV)/.demo
	@$(VENV_PYTHON) tests/cluster/demo.py $(DEMO_FLAGS)

# ---------------------------------------------------------------------------- test

# The Python tests wait most of the time. What computes takes the time that they leave: it is nice, and compiles, counts or simulates, so that it does not
# matter to it how fast it runs. Clusters are tested alone: a node that gets no CPU for 0.7 s is declared dead. The Rust tests start daemons, and run alone as well.
test: test-format test-types
	@+$(MAKE) --no-print-directory --jobs 2 test-machines test-of-python
	@+$(call in_turn,test-rust test-soak test-cluster)
	@echo "all of make test passed"

# One part after the other, and how long each took.
in_turn = for part in $(1); do begun=$$(date +%s); $(2) $(MAKE) --no-print-directory $$part || exit; \
  echo "$$part took $$(($$(date +%s) - begun)) s"; done

# They would take the CPUs from each other.
test-of-python:
	@+$(call in_turn,test-python test-elsewhere)

test-machines:
	@+$(call in_turn,test-lint build-rust-tests test-loom test-sim test-instructions,nice -n 19)

test-format: check-tools $(VENV)/.dev
	$(CARGO) fmt --all --check
	$(VENV_PYTHON) -m ruff format --check --quiet $(LINTED)

test-lint: check-tools $(VENV)/.dev
	$(VENV_PYTHON) -m ruff check --quiet $(LINTED)
	$(CARGO) clippy --locked --quiet --workspace --all-targets -- -D warnings

test-types: build $(VENV)/.dev
	$(VENV_PYTHON) -m mypy
	$(VENV_PYTHON) -m mypy.stubtest hoplo._core --allowlist python/stubtest-allowlist.txt

# hoplo-py is an extension module: only a Python can load it, so the Python tests are its tests.
RUST_TESTS := $(CARGO) test --locked --quiet --workspace --exclude hoplo-py --exclude hoplo-sim

test-rust: check-tools
	$(RUST_TESTS)

build-rust-tests: check-tools
	@$(RUST_TESTS) --no-run

test-loom: check-tools
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/loom \
	  $(CARGO) test --locked --quiet --release -p hoplo-shm --test loom

# Seeds of a node and of the control store's chains, and the chains' model check. Of several nodes all oracles judge each seed; the machines' own checks
# after each step take as long as all else, so every eighth seed has them, and a soak all.
test-sim: check-tools
	HOPLO_SIM_CHECKS_RARELY=1 $(CARGO) test --locked --quiet --profile sim -p hoplo-sim

# Counts, not times: they are the same on a busy machine. Needs valgrind, says so without it.
test-instructions: check-tools
	$(CARGO) bench --locked --quiet -p hoplo-client --bench instructions
	$(CARGO) bench --locked --quiet -p hoplo-core --bench instructions

record-instructions: check-tools
	$(CARGO) bench --locked --quiet -p hoplo-client --bench instructions -- --record
	$(CARGO) bench --locked --quiet -p hoplo-core --bench instructions -- --record

test-python: build $(VENV)/.dev
	$(VENV_PYTHON) -m pytest $(PYTEST_FLAGS) python/tests

# The tests of one node once more, with all work on another node than the driver's.
test-elsewhere: build $(VENV)/.dev
	HOPLO_TESTS_ELSEWHERE=1 $(VENV_PYTHON) -m pytest $(PYTEST_FLAGS) python/tests

# So that what runs for an hour runs at all.
test-soak: build $(VENV)/.dev
	@$(VENV_PYTHON) tests/soak --seconds 30 --round-seconds 10 --seed 1

# Control nodes and whole clusters as processes: killed, stopped, cut off. What cannot be done here (no root, no etcd)
# is skipped by name.
test-cluster: build $(VENV)/.dev
	$(CARGO) build --locked --quiet --release -p hoplo-cli
	$(CARGO) build --locked --quiet --profile sim -p hoplo-sim --example check_history
	$(VENV_PYTHON) -m pytest $(PYTEST_FLAGS) tests/cluster

# ---------------------------------------------------------------------------- soak

SOAK_CASES ?= 300000
SOAK_SEEDS ?= 50000
# Another one each time; a failure is repeated with the one that was printed.
SOAK_SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')

soak: soak-rust soak-sim
	@echo "all of make soak passed"

soak-rust: check-tools
	@seed=$(SOAK_SEED); echo "soak-rust: again with SOAK_SEED=$$seed"; \
	  PROPTEST_RNG_SEED=$$seed PROPTEST_CASES=$(SOAK_CASES) \
	  $(CARGO) test --locked --quiet --release -p hoplo-core -p hoplo-shm --lib && \
	  PROPTEST_RNG_SEED=$$seed PROPTEST_CASES=$$(($(SOAK_CASES) / 25)) \
	  $(CARGO) test --locked --quiet --release -p hoplo-control --lib

soak-sim: check-tools
	@seed=$(SOAK_SEED); echo "soak-sim: again with SOAK_SEED=$$seed"; \
	  HOPLO_SIM_FIRST=$$seed HOPLO_SIM_SEEDS=$(SOAK_SEEDS) \
	  $(CARGO) test --locked --quiet --profile sim -p hoplo-sim

SOAK_SECONDS ?= 3600

# Apart from `make soak`: it takes the time that it is given.
soak-programs: build $(VENV)/.dev
	@$(VENV_PYTHON) tests/soak --seconds $(SOAK_SECONDS) --seed $(SOAK_SEED)

# Nodes in network namespaces. SOAK_FLAGS=--three: any of three machines may be head, over control nodes.
soak-cluster: build $(VENV)/.dev
	@$(VENV_PYTHON) tests/soak/cluster.py --seconds $(SOAK_SECONDS) --seed $(SOAK_SEED) $(SOAK_FLAGS)

# ---------------------------------------------------------------------------- measure

BENCH := .bench-venv
BENCH_PIP := $(BENCH)/bin/python -m pip --quiet --disable-pip-version-check --no-input
BENCH_FLAGS ?=
DEMO_FLAGS ?=
RUNS ?= 1

bench-rivals: $(BENCH)/.rivals

$(BENCH)/.rivals: requirements/rivals.txt
	@$(call find_python) -m venv $(BENCH)
	@$(BENCH_PIP) install -r requirements/rivals.txt
	@touch $@

# The wheel, as a user has it; BENCH_FLAGS=--quick only shows that everything runs.
bench: build bench-rivals
	@command -v mpirun >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends openmpi-bin; } \
	  || echo "without mpirun (Debian: openmpi-bin) the simulation has no rival" >&2
	@$(BENCH_PIP) uninstall --yes hoplo
	@rm -f $(BENCH)/lib/python3*/site-packages/hoplo-dev.pth $(BENCH)/bin/hoplo
	@$(BENCH_PIP) install --no-deps $(WHEEL)
	@$(BENCH)/bin/python bench/run_all.py --runs $(RUNS) $(BENCH_FLAGS)

# The control store against its paper's figures: about 20 minutes, most of them kills.
bench-control: build $(VENV)/.dev
	@$(VENV_PYTHON) bench/run_all.py --control --runs $(RUNS) $(BENCH_FLAGS)

# Several nodes, in network namespaces: as root. The wheel, as a user has it, beside Ray: about a quarter of an hour,
# half of which Ray takes (BENCH_FLAGS="--without ray"). Of one row, without a page: $(BENCH)/bin/python bench/cluster.py --only "64 KiB".
bench-cluster: build bench-rivals
	@$(BENCH_PIP) uninstall --yes hoplo
	@rm -f $(BENCH)/lib/python3*/site-packages/hoplo-dev.pth $(BENCH)/bin/hoplo
	@$(BENCH_PIP) install --no-deps $(WHEEL)
	@$(CARGO) build --locked --quiet --release -p hoplo-net --example bare
	@$(BENCH)/bin/python bench/run_all.py --cluster --runs $(RUNS) $(BENCH_FLAGS)

# Nodes that lose their power: as root. About five minutes, most of them Ray's (BENCH_FLAGS="--without ray").
bench-faults: build bench-rivals
	@$(BENCH_PIP) uninstall --yes hoplo
	@rm -f $(BENCH)/lib/python3*/site-packages/hoplo-dev.pth $(BENCH)/bin/hoplo
	@$(BENCH_PIP) install --no-deps $(WHEEL)
	@$(BENCH)/bin/python bench/run_all.py --faults --runs $(RUNS) $(BENCH_FLAGS)

# Collectives on links that are shaped, in network namespaces: as root. The wheel, as a user has it, beside OpenMPI, Gloo, Ray and
# Dask: about 13 minutes a run. Less is asked with BENCH_FLAGS="--nodes 4,8 --megabytes 8 --rounds 3 --without ray --without dask".
bench-collectives: bench-collectives-rivals
	@$(BENCH)/bin/python bench/run_all.py --collectives --runs $(RUNS) $(BENCH_FLAGS)

# Figures of papers about collectives, in their form: as root, about 13 minutes.
bench-collectives-figures: bench-collectives-rivals
	@cd bench && ../$(BENCH)/bin/python collectives_figures.py $(BENCH_FLAGS) && ../$(BENCH)/bin/python report.py

bench-collectives-rivals: build bench-rivals
	@command -v mpirun >/dev/null && [ -e /usr/include/gloo/allreduce.h ] \
	  || { apt-get update -qq && apt-get install -y -qq --no-install-recommends openmpi-bin libgloo-dev; } \
	  || echo "Debian's openmpi-bin and libgloo-dev cannot be installed here: no figures of what is missing" >&2
	@mkdir -p $(CARGO_TARGET_DIR)/bench && rm -f $(CARGO_TARGET_DIR)/bench/rank_gloo
	@$(CXX) -O3 -march=native -Wall -o $(CARGO_TARGET_DIR)/bench/rank_gloo bench/players/rank_gloo.cpp -lgloo -lpthread \
	  || echo "Gloo's program cannot be compiled here: no figures of Gloo" >&2
	@$(BENCH_PIP) uninstall --yes hoplo
	@rm -f $(BENCH)/lib/python3*/site-packages/hoplo-dev.pth $(BENCH)/bin/hoplo
	@$(BENCH_PIP) install --no-deps $(WHEEL)

# 1 to 10,000 nodes, simulated with costs that are measured on real nodes in network namespaces: as root. A few minutes.
bench-scale: build $(VENV)/.dev
	@$(CARGO) build --locked --quiet --release -p hoplo-net --example bare
	@$(CARGO) build --locked --quiet --profile sim -p hoplo-sim --example scale
	@$(VENV_PYTHON) bench/run_all.py --scale --runs $(RUNS) $(BENCH_FLAGS)

# ---------------------------------------------------------------------------- develop

# The tree itself becomes the installed package: edit Python and run; after Rust, `make dev`.
dev: check-tools $(VENV)/.build-tools $(VENV)/.dev
	@# As setuptools-rust runs them, one by one: together their features unify to other builds.
	$(CARGO) rustc --lib --manifest-path crates/py/Cargo.toml --release --locked --crate-type cdylib
	$(CARGO) build --manifest-path crates/cli/Cargo.toml --release --locked
	@if [ -e $(VENV)/.wheel ]; then $(PIP) uninstall --yes hoplo; rm -f $(VENV)/.wheel; fi
	@echo "$(CURDIR)/python" > "$$($(VENV_PYTHON) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/hoplo-dev.pth"
	@# Replaced, not rewritten: a process that has the old file mapped keeps it.
	@install -C $(CARGO_TARGET_DIR)/release/lib_core.so python/hoplo/_core.so
	@install -C $(CARGO_TARGET_DIR)/release/hoplo $(VENV)/bin/hoplo

format: $(VENV)/.dev
	$(CARGO) fmt --all
	$(VENV_PYTHON) -m ruff check --fix --quiet $(LINTED) || true
	$(VENV_PYTHON) -m ruff format --quiet $(LINTED)

clean:
	rm -rf $(VENV) $(wildcard .venv-3.*) build dist python/hoplo/_core*.so python/*.egg-info \
	  .mypy_cache .ruff_cache .pytest_cache .hypothesis train_policy.png
