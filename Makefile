# Each target makes the private virtual environment that it needs, with the versions pinned in constraints*.txt.
#
#   make demo           load real photographs in worker processes, and show that order and resume hold
#   make fast           run formatter, linter, type checker, laws 1 to 3 over every operator, and the quickest unit tests
#   make test           run these checks, and every test that needs no framework
#   make thorough       run the long forms of all laws, and all tests with poisoned memory; before a release
#   make test-torch     run the tests with PyTorch, in .venv-torch
#   make test-bridges   run the tests with JAX, Orbax and TensorFlow, in .venv-jax and .venv-tensorflow
#   make test-mosaicml  run the blocks of the migration guide with MosaicML Streaming, in .venv-mosaicml
#   make test-services  run the tests with servers on this machine (S3, PostgreSQL, Ray), in .venv-services
#   make test-gallery   run each program of examples/gallery and its notebook, killed and resumed
#   make test-oldest    run the tests of files and snapshots with the oldest numpy and pyarrow, in .venv-oldest
#   make test-release   install wheel and sdist into clean environments: each Python, oldest and newest versions, each extra alone
#   make bench          run the benchmarks; each measures its bound in the same run
#   make suite          compare with other loaders on seven workloads and write the pages, in .venv-peers; up to an hour
#   make conformance    try the laws on other loaders and write the page, in .venv-peers
#   make docs           build the site in docs/_build; a broken link is an error
#   make test-site      open that site in a browser, if chromium is installed
#   make sbom           write wheel, sdist and bill of materials (CycloneDX) to dist/
#   make clean          remove the virtual environments and all caches
#
# Another interpreter: make test PYTHON=python3.13. More test processes: make test PROCESSES=4

PYTHON ?= python3
PROCESSES ?= 2
VENV := .venv
PY := $(VENV)/bin/python
# A process without tests takes some from the others: some take a minute, most a millisecond.
PYTEST := python -m pytest --numprocesses $(PROCESSES) --dist worksteal
BENCHMARKS := transport_large transport_small jpeg startup tables inprocess overhead robustness loading snapshot_reading snapshot_epochs reading parsing watch bottlenecks service service_scale
FRAMEWORKS := tests/torch tests/bridges tests/gallery tests/services tests/site
# Tests with bounds in seconds, of what waits for what, and of the last descriptors: nothing else runs beside them.
ALONE := tests/cli/test_inspect.py tests/laws/test_closing.py tests/laws/test_descriptors.py \
  tests/loader/run/starting/test_zygote.py
# Tests that run the laws in a process of their own, with such bounds: only each other run beside them.
NESTED := tests/laws/test_forked.py tests/laws/test_portable.py
# PyTorch's own tests of leaving, dying and Ctrl-C, with such bounds.
TORCH_ALONE := tests/torch/test_conformance_processes.py
FAST := tests/laws/test_operators.py tests/laws/test_errors.py tests/loader/plan tests/shm tests/formats/tables \
  tests/snapshot/encoding tests/test_experimental.py tests/test_exports.py tests/test_guide.py tests/test_layers.py \
  tests/test_names.py

# Tests start a thousand interpreters: without bytecode each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

# The stamp names the checkout and the interpreter, so that a copied checkout or another PYTHON=
# never runs with a .venv made for something else.
STAMP := $(VENV)/installed-$(shell echo "$$(pwd -P) $(PYTHON)" | cksum | cut -d' ' -f1)
IDENTITY := import sys; print(sys.version, sys.base_prefix)

.PHONY: help venv demo test fast thorough test-torch test-bridges test-mosaicml test-services test-gallery test-oldest \
  test-release check bench suite conformance docs test-site sbom clean
.DEFAULT_GOAL := help

# The comment that this file begins with.
help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

venv: $(STAMP)

# A .venv that is whole and of the same interpreter is brought up to date in place.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "tundish needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3"; exit 1; }
	@rm -f $(VENV)/installed-*
	@test "$$($(PYTHON) -c '$(IDENTITY)')" = "$$($(PY) -c 'import pip; $(IDENTITY)' 2>&1)" \
	  || $(PYTHON) -m venv --clear $(VENV) \
	  || { echo "no virtual environment could be made (on Debian: apt install python3-venv)"; exit 1; }
	$(PY) -m pip install --quiet --constraint constraints.txt pip hatchling editables
	$(PY) -m pip install --quiet --constraint constraints.txt --no-build-isolation --group dev --editable '.[demo]'
	@touch $@

demo: venv
	$(VENV)/bin/tundish demo

test: check
	$(VENV)/bin/$(PYTEST) -m "not thorough" $(FRAMEWORKS:%=--ignore=%) $(ALONE:%=--ignore=%) $(NESTED:%=--ignore=%)
	$(VENV)/bin/$(PYTEST) -m "not thorough" $(NESTED)
	$(PY) -m pytest -m "not thorough" $(ALONE)

fast: check
	$(VENV)/bin/$(PYTEST) -m "not slow and not thorough" $(FAST)

thorough: venv .venv-services/installed
	$(VENV)/bin/$(PYTEST) -m thorough $(FRAMEWORKS:%=--ignore=%) $(ALONE:%=--ignore=%) $(NESTED:%=--ignore=%)
	$(PY) -m pytest -m thorough $(ALONE) $(NESTED)
	$(PY) -m tundish.testing.poisoned -m pytest -m "not thorough" tests/laws
	.venv-services/bin/python -m pytest -m thorough tests/services

test-torch: .venv-torch/installed
	.venv-torch/bin/$(PYTEST) tests/torch src/tundish/torch $(TORCH_ALONE:%=--ignore=%)
	.venv-torch/bin/python -m pytest $(TORCH_ALONE)
	.venv-torch/bin/$(PYTEST) -m framework tests/test_docs.py tests/test_examples.py

test-bridges: .venv-jax/installed .venv-tensorflow/installed
	.venv-jax/bin/python -m pytest tests/bridges/test_jax.py tests/bridges/test_orbax.py src/tundish/jax.py \
	  src/tundish/orbax.py
	.venv-jax/bin/python -m pytest -m framework tests/test_docs.py
	.venv-tensorflow/bin/python -m pytest tests/bridges/test_tensorflow.py src/tundish/tensorflow.py tests/guides \
	  tests/formats/tfrecord/test_tensorflow.py tests/formats/example/test_tensorflow.py
	.venv-tensorflow/bin/python -m pytest -m framework tests/test_docs.py

test-gallery: .venv-torch/installed .venv-jax/installed .venv-tensorflow/installed
	.venv-torch/bin/$(PYTEST) tests/gallery
	.venv-jax/bin/python -m pytest tests/gallery -k jax
	.venv-tensorflow/bin/python -m pytest tests/gallery -k keras

test-mosaicml: .venv-mosaicml/installed
	.venv-mosaicml/bin/python -m pytest -m framework tests/test_docs.py -k mosaicml

test-services: .venv-services/installed
	.venv-services/bin/python -m pytest -m "not thorough" tests/services --ignore=tests/services/test_ray_data.py
	.venv-services/bin/python -m pytest tests/services/test_ray_data.py src/tundish/ray.py

# Frameworks do not all agree on the versions of what they share, so each has a place of its own. Most of
# their modules are never imported: bytecode is made of those that are. One of them is built here, by setuptools.
.venv-%/installed: pyproject.toml constraints.txt constraints-frameworks.txt
	$(PYTHON) -m venv --clear .venv-$*
	.venv-$*/bin/python -m pip install --quiet --constraint constraints.txt pip hatchling editables "setuptools>=70.1"
	.venv-$*/bin/python -m pip install --quiet --no-compile --constraint constraints-frameworks.txt \
	  --no-build-isolation --group test --group test-$* --editable '.[demo]'
	@touch $@

# MosaicML Streaming needs older versions of numpy and transformers than the others.
.venv-mosaicml/installed: pyproject.toml constraints.txt constraints-mosaicml.txt
	$(PYTHON) -m venv --clear .venv-mosaicml
	.venv-mosaicml/bin/python -m pip install --quiet --constraint constraints.txt pip hatchling editables
	.venv-mosaicml/bin/python -m pip install --quiet --no-compile --constraint constraints-mosaicml.txt \
	  --no-build-isolation --group test --group test-mosaicml --editable .
	@touch $@

# The interpreter has to be one for which there are wheels of the oldest versions: make test-oldest PYTHON=python3.11
test-oldest: .venv-oldest/installed
	.venv-oldest/bin/python -m pytest -m "not thorough" tests/formats tests/snapshot tests/release tests/test_io.py \
	  tests/loader/operators/test_tables.py tests/loader/operators/test_packing.py tests/loader/operators/test_padding.py

.venv-oldest/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --constraint constraints.txt pip hatchling editables
	.venv-oldest/bin/python -m pip install --quiet --no-compile --prefer-binary --no-build-isolation --group test \
	  --editable '.[demo]' $$($(PYTHON) tests/release/environments.py --oldest)
	@touch $@

# The loaders that the suite and the conformance table compare with. They agree on the versions of what they share.
.venv-peers/installed: pyproject.toml constraints.txt constraints-peers.txt
	$(PYTHON) -m venv --clear .venv-peers
	.venv-peers/bin/python -m pip install --quiet --constraint constraints.txt pip hatchling editables "setuptools>=70.1"
	.venv-peers/bin/python -m pip install --quiet --no-compile --constraint constraints-peers.txt \
	  --no-build-isolation --group test --group peers --editable .
	@touch $@

suite: .venv-peers/installed
	.venv-peers/bin/python benchmarks/suite/run.py
	.venv-peers/bin/python benchmarks/suite/pages.py

conformance: .venv-peers/installed
	.venv-peers/bin/python benchmarks/conformance/run.py --json benchmarks/conformance/results.json

check: venv
	$(PY) -m ruff format --check --quiet .
	$(PY) -m ruff check --quiet .
	$(PY) -m mypy

bench: venv
	@for name in $(BENCHMARKS); do $(PY) benchmarks/$$name.py || exit 1; done

docs: .venv-docs/installed
	.venv-docs/bin/python -m sphinx --fail-on-warning --quiet --fresh-env docs docs/_build
	@echo "open docs/_build/index.html"

test-site: venv docs
	$(PY) -m pytest tests/site

# A part of it: make test-release ENVIRONMENTS="oldest sdist extra-torch"
test-release: venv
	$(PY) tests/release/environments.py $(if $(ENVIRONMENTS),--only $(ENVIRONMENTS))

sbom: venv
	$(PY) tests/release/environments.py --only sdist --dist dist --sbom

.venv-docs/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv-docs
	.venv-docs/bin/python -m pip install --quiet --constraint constraints.txt pip hatchling editables
	.venv-docs/bin/python -m pip install --quiet --constraint constraints.txt \
	  --no-build-isolation --group docs --editable .
	@touch $@

clean:
	rm -rf $(VENV) .venv-* .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist docs/_build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
