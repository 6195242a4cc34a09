# Everything starts here. Needs Python 3.11 or later, and make; `make help` lists the targets.

PYTHON ?= python3
JOBS   ?= 2

VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
REPORT := regard-report.html
NATIVE := native/CMakeLists.txt $(wildcard native/*.h native/*.cpp)
USED   := look,explore,sign-in,postgres,notebook,tasks,monitor,analysis,cuda
TASKS  := packages/regard-tasks
COMMA  := ,
BUILT  := src/regard/engines/native/_native.so
WEB    := $(wildcard web/*.*) $(shell find web/src web/public -type f)
PAGE   := src/regard/web/bundle/index.html

.DEFAULT_GOAL := help
.PHONY: help demo test lint types front web browser provider cross postgres box docs embedded bench breadth ray proof sanitize wheels clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'

demo: $(VENV)/.look ## set up, look at the embedded model, say where the report is
	$(BIN)/regard look
	@test -s $(REPORT)
	@echo "The report: file://$(CURDIR)/$(REPORT)"

test: $(VENV)/.test lint types front browser provider cross postgres box ## set up, then everything that CI runs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder --durations 15

lint: $(VENV)/.test ## style and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.test ## the type checker
	$(BIN)/mypy

front: $(VENV)/.test ## types and unit tests of the front end
	scripts/web.sh check test

web: $(VENV)/.tools ## build the front end of the explorer, into the package
	scripts/web.sh build

docs: $(VENV)/.docs ## the site, into build/docs: guides, API reference, notebooks that are run
	rm -rf build/docs
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --nitpicky --fresh-env docs build/docs
	$(BIN)/python scripts/check_site.py build/docs
	@echo "The site: file://$(CURDIR)/build/docs/index.html"

embedded: $(VENV)/.look ## train the embedded model again
	$(BIN)/python scripts/train_embedded.py

bench: $(VENV)/.test ## measure again, into benchmarks/
	$(BIN)/python -m benchmarks

breadth: $(VENV)/.breadth ## watch everything that makes attention, into docs/breadth.md; RESUME=1 goes on
	OMP_NUM_THREADS=1 PYTHONPATH=src $(BIN)/python -m tests.breadth --jobs $(JOBS) --modes eval,eager,train,generate \
	  $(if $(RESUME),--resume) --out build/breadth.json --page docs/breadth.md

ray: $(VENV)/.test ## a corpus that actors of Ray read, some of which are killed: installs Ray, and takes minutes
	$(PIP) --editable ".[ray]"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --timeout 900 tests/survey/test_corpus_ray.py

proof: $(VENV)/.test ## ten to twenty times as many drawn calls, gradients, laws of every engine and flipped bits as in the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(JOBS) --hypothesis-profile proof --timeout 0 \
	  tests/engines/test_cases.py tests/engines/test_gradients.py tests/engines/test_laws.py \
	  tests/engines/test_extremes.py tests/engines/triton/test_extremes.py tests/files/test_sealing.py

sanitize: ## the C++ code under the sanitizers for addresses and undefined behavior, then under valgrind
	scripts/sanitize.sh

wheels: $(VENV)/.tools $(PAGE) ## the wheels of both distributions and the source, into dist/; needs docker, and qemu for the other processor
	$(PIP) --group wheels
	$(BIN)/python -m cibuildwheel --output-dir dist
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist $(TASKS)
	$(BIN)/python -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")'

clean: ## remove what was built, measured in caches, or reported; .venv stays
	rm -rf build dist $(dir $(PAGE)) .pytest_cache .ruff_cache .mypy_cache .hypothesis docs/cards $(REPORT)
	find src tests scripts benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# --- setting up: a stamp in .venv for each step, so that a step is done once -------------------------------

$(VENV)/.made:
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "No $(PYTHON) found. Regard needs Python 3.11 or later: make PYTHON=/path/to/python $(MAKECMDGOALS)"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Regard needs Python 3.11 or later, and $(PYTHON) is $$("$(PYTHON)" --version 2>&1):" \
	       "make PYTHON=/path/to/python $(MAKECMDGOALS)"; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments, as its modules venv and ensurepip are missing." \
	       "On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
	@touch $@

$(VENV)/.torch: $(VENV)/.made constraints.txt
	@echo "Installing torch: a large download, once."
	$(PIP) torch
	@touch $@

# Groups of dependencies need a pip that is younger than that of most Pythons.
$(VENV)/.tools: $(VENV)/.made constraints.txt pyproject.toml
	$(PIP) pip
	$(PIP) --group build
	@touch $@

# Builds the native engine where it can. An older library must not stand in for one that does not build, and a compiler
# that was looked for in vain must be looked for again.
define install
	rm -f $(BUILT) native/CMakeCache.txt
	$(PIP) --no-build-isolation --editable $(TASKS) --editable '.[$(1)]' $(2)
	@test -e $(BUILT) || echo "The native engine was not built: it needs a C++ compiler with OpenMP." \
	  "Attention runs on the slower tiles engine. REGARD_NATIVE=1 make $(MAKECMDGOALS) shows what is wrong."
	@touch $@
endef

# Without it everything but the explorer works.
$(PAGE): $(VENV)/.tools $(WEB) scripts/web.sh scripts/node.sh
	scripts/web.sh build || echo "The front end was not built, and regard explore needs it: make web shows what is wrong."

$(VENV)/.look: $(VENV)/.torch $(VENV)/.tools pyproject.toml $(TASKS)/pyproject.toml $(NATIVE) | $(PAGE)
	$(call install,look$(COMMA)explore)

$(VENV)/.test: $(VENV)/.torch $(VENV)/.tools pyproject.toml $(TASKS)/pyproject.toml $(NATIVE) | $(PAGE)
	$(call install,$(USED),--group test --group dev)

# The group `breadth` without what it needs, most of all torchvision, and then what of that is used.
$(VENV)/.breadth: $(VENV)/.test
	$(PIP) --no-deps --group breadth datasets
	$(PIP) requests importlib_metadata ftfy sentencepiece fancy_einsum beartype jaxtyping typeguard dill multiprocess xxhash
	@touch $@

$(VENV)/.docs: $(VENV)/.test
	$(PIP) --group docs
	@touch $@

# Without these programs their tests are skipped and say so; where CI is set, those of the browser, of the provider, of
# PostgreSQL and of the box fail (tests/conftest.py, tests/explorer/browser/test_sign_in_view.py, tests/learn/store/conftest.py,
# tests/learn/test_box.py).
browser:
	@for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do \
	   command -v $$name >/dev/null && exit 0; done; \
	 $(call fetch,chromium,browser)

cross:
	@command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64 >/dev/null && exit 0; \
	 $(call fetch,g++-aarch64-linux-gnu qemu-user,aarch64)

# An OpenID provider, to which the browser's tests sign in.
provider: $(VENV)/.tools
	@scripts/provider.sh || echo "The OpenID provider was not installed: its tests cannot run."

# Debian keeps its server off the PATH.
postgres:
	@for name in $$(command -v postgres) /usr/lib/postgresql/*/bin/postgres; do \
	   test -x $$name && exit 0; done; \
	 $(call fetch,postgresql,PostgreSQL)

# In which solutions of strangers are run.
box:
	@command -v bwrap >/dev/null && exit 0; \
	 $(call fetch,bubblewrap,box)

define fetch
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	   echo "Installing $(1) for the $(2) tests."; \
	   apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(1) \
	     >/dev/null || echo "$(1) could not be installed"; \
	 else echo "Not found: $(1). The $(2) tests cannot run."; fi
endef
