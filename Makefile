# Headrace: every target first sets up what it needs, inside this folder.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
# The Lambda runtime's own version: `sam build` compiles the package with it, and the emulator that
# `make e2e` deploys to runs it.  Where pyenv has it, it may need to be named.
LAMBDA_PYTHON := 3.13
BUILD_PYTHON ?= $(or $(call python_of,$(LAMBDA_PYTHON)),$(PYTHON))
runs = $(shell $(1) -c 'import sys; print(sys.executable)' 2>/dev/null)
# More arguments for the tool a target runs: make test ARGS='-k lease'; SAM_ARGS for sam build
ARGS ?=

VENV := .venv
BUILD_VENV := .venv-build
PEERS_VENV := .venv-peers
GENERATORS_VENV := .venv-generators
SPARK_VENV := .venv-spark
# The versions nearest to EMR Serverless, and between; the tests marked `versions` run on each.
SPARK_MATRIX := 4.0 4.1
# Those that are supported; one of them is that of $(VENV).
PYTHONS := 3.11 3.12 3.13
python_of = $(or $(call runs,python$(1)),$(call runs,env PYENV_VERSION=$(1) python$(1)))
E2E_VENV := .venv-e2e
AUDIT_VENV := .venv-audit
PY := $(VENV)/bin/python
# AWS's own DynamoDB Local, for what runs without it too.
LOCAL_TABLES := $(if $(shell command -v npm 2>/dev/null),node_modules/.ready)

export PYTHONPATH := $(CURDIR)/functions:$(CURDIR)
# Images that build others say that nothing compiled is kept.  Here hundreds of processes start, and
# each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

##@ Use
.PHONY: demo
demo: $(VENV)/.ready ## See NGSI notifications travel through the queue (under a minute; without Spark: make demo SPARK=no)
	@test "$(SPARK)" = no || PIP_RETRIES=1 $(MAKE) -s $(SPARK_VENV)/.ready 2>/dev/null || true
	@$(PY) -m examples.ngsi.demo $(if $(filter no,$(SPARK)),--spark=no) $(ARGS)

.PHONY: run
run: $(VENV)/.ready ## Serve the API on http://127.0.0.1:8080, data in .headrace/
	@$(PY) -m headrace.local $(ARGS)

.PHONY: run-dynamodb
run-dynamodb: $(VENV)/.ready node_modules/.ready ## Serve the API on http://127.0.0.1:8080, data in AWS's DynamoDB Local, in memory (Java 17+)
	@$(PY) -m tests.engine --run $(ARGS)

##@ Develop
.PHONY: test
test: $(VENV)/.ready ## Run the tests, a minute on two cores (some of them: make test ARGS='-k lease')
	@$(PY) $(pytest) $(if $(CI),,--numprocesses $(some_more)) -m "not slow" $(ARGS)

# Each process waits for a fifth of its time: for clocks, locks and other processes.  In the CI
# other stages use that.
some_more = $(shell $(PY) -c 'import os; n = os.cpu_count() or 1; print(min(n + n // 2, 8))')

.PHONY: test-slow
test-slow: $(VENV)/.ready ## Run the tests that take seconds, or start and kill services; random seeds of the simulation
	@$(PY) $(pytest) -m slow $(if $(filter tests%,$(ARGS)),,$(SLOW_FILES)) $(ARGS)

# Collecting all other files would take each process as long as many of these tests.
SLOW_FILES = $(shell grep -rl --include='test_*.py' 'slow' tests | grep -vE '^tests/($(OWN_TARGETS))/')
OWN_TARGETS := browser|dynamodb|e2e|generators|peers|pipeline|wheel

pytest = -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal

ON_TABLES := tests/dynamodb tests/contract tests/simulation/test_on_tables.py

.PHONY: test-dynamodb
test-dynamodb: $(VENV)/.ready node_modules/.ready ## Run the stores' contract and what is DynamoDB's own on AWS's engine (Java 17+)
	@$(PY) $(pytest) --engine dynamodb $(ON_TABLES) \
	  tests/functional/test_api_tasks.py tests/functional/test_api_bulk.py $(ARGS)

.PHONY: test-wheel
test-wheel: $(VENV)/.ready ## Build the wheel, install it where nothing else is, and run the README's first task (under a minute)
	@$(PY) -m pytest tests/wheel $(ARGS)

.PHONY: test-pythons $(PYTHONS:%=test-python-%)
test-pythons: $(PYTHONS:%=test-python-%) ## Run what leans on the interpreter, and the contract of stores, on each Python that is supported

$(PYTHONS:%=test-python-%): test-python-%: $(VENV)/.ready
	@$(PY) -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] == "$*")' || { \
	  echo "Python $*: make test runs on it"; exit 0; }; \
	test -n "$(call python_of,$*)" || { echo "Python $*: not on this machine, its tests are left out"; exit 0; }; \
	$(MAKE) $(VENV)-$*/.ready OTHER_PYTHON="$(call python_of,$*)" && \
	$(VENV)-$*/bin/python $(pytest) -m "not slow" $(ON_OTHER_PYTHONS) $(ON_PYTHON_$*) $(ARGS)
# What leans on the interpreter (threads, event loops, signals, sqlite3, types at run time): `make test`
# has every rule by itself.  The newest, which Lambda runs, has the other stores and the contract too,
# which passes through all the rest; on SQLite, for dictionaries are the same on each.
ON_PYTHON_$(lastword $(PYTHONS)) := --engine sqlite tests/unit/store tests/contract
ON_OTHER_PYTHONS := $(addprefix tests/unit/,app client embedded outbox store/sqlite worker)

.PHONY: coverage
coverage: $(VENV)/.ready node_modules/.ready ## Measure which branches of domain, store and ops the tests run, store/dynamo on AWS's engine (Java 17+); fail under 95 % (IDLE=1 lists tests that run none of their own)
	@$(MAKE) $(TRACED)/.ready OTHER_PYTHON="$(call python_of,$(lastword $(PYTHONS)))"
	@mkdir -p build
	@$(TRACED)/bin/python $(pytest) -m "not slow" $(traced) --cov-report= --cov-fail-under=0 $(ARGS)
	@$(TRACED)/bin/python $(pytest) --engine dynamodb $(ON_TABLES) -m "not slow" $(traced) --cov-append --cov-report=term
	@test -z "$(IDLE)" || $(PY) -m infra.idle_tests

traced = --cov --cov-context=test

# In 3.11 a traced thread can loop for ever while an exception waits for another, blocked thread.
TRACED := $(VENV)-$(lastword $(PYTHONS))

.PHONY: mutation
mutation: $(VENV)/.ready ## Change conditions of the product one by one, and list the changes that no test notices (after make coverage)
	@$(PY) -m infra.mutation $(ARGS)

.PHONY: nightly
nightly: ## Run all that the gate leaves out: whole suites, random seeds, every Python and Spark, mutations (hours)
	@.ci/run nightly

.PHONY: check
check: $(VENV)/.ready ## Lint, formatting, types and import rules
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -m mypy
	@$(VENV)/bin/lint-imports --no-logo
	@$(PY) -m infra.template --check

# One line says what cannot be looked up: such a package fails the run, like one that is vulnerable.
LOCKED_PYTHON := $(wildcard requirements/*.txt functions/requirements.txt console/requirements.txt infra/spark/requirements.txt)
LOCKED_NPM := . tests/generators benchmarks/peers

.PHONY: audit
audit: $(AUDIT_VENV)/.ready ## Look up every locked package of Python and npm in the lists of known vulnerabilities (each night; takes the network)
	@failed=; \
	$(AUDIT_VENV)/bin/pip-audit --strict --vulnerability-service osv --progress-spinner off --desc off \
	  --disable-pip --require-hashes $(LOCKED_PYTHON:%=--requirement %) $(ARGS) || failed=1; \
	for folder in $(LOCKED_NPM); do (cd $$folder && npm audit --package-lock-only) || failed=1; done; \
	test -z "$$failed"

.PHONY: local-template
local-template: $(VENV)/.ready ## Write anew what the local service needs of template.yaml
	@$(PY) -m infra.template

.PHONY: docs
docs: $(VENV)/.ready ## Write the tables of docs/reference/ from the code, and build the site into build/site/
	@$(PY) -m infra.reference
	@$(PY) -m infra.site $(VENV)/bin/zensical

.PHONY: coming-from
coming-from: $(VENV)/.ready ## Write our side of the coming-from pages anew from docs/coming-from/index.md
	@$(PY) -m infra.coming_from

.PHONY: bench
bench: $(VENV)/.ready ## Measure throughput, latency and cost per task
	@$(PY) -m benchmarks $(ARGS)

.PHONY: test-browser
test-browser: $(VENV)/.ready node_modules/.ready ## Use the console in Chromium: journeys, accessibility, speed
	@$(PY) -m pytest tests/browser $(ARGS)

.PHONY: test-generators
test-generators: $(VENV)/.ready $(GENERATORS_VENV)/.ready tests/generators/node_modules/.ready ## Generate clients from the OpenAPI document with four generators, and compile them
	@$(PY) -m pytest tests/generators $(ARGS)

.PHONY: screenshots
screenshots: $(VENV)/.ready ## Draw every page of the console into build/screenshots/
	@$(PY) -m tests.browser.screenshots $(ARGS)

.PHONY: bench-peers
bench-peers: $(VENV)/.ready $(PEERS_VENV)/.ready benchmarks/peers/node_modules/.ready ## Measure workers beside RQ, Celery, Procrastinate, PgQueuer, Dramatiq, Huey and BullMQ
	@$(PY) -m benchmarks.peers --python $(PEERS_VENV)/bin/python $(ARGS)

.PHONY: test-peers
test-peers: $(VENV)/.ready $(PEERS_VENV)/.ready benchmarks/peers/node_modules/.ready ## Run what the coming-from pages show of Celery, RQ, Dramatiq, Huey, BullMQ (Node.js, Redis) and Sidekiq (Ruby, Redis)
	@PEERS_PYTHON=$(PEERS_VENV)/bin/python $(PY) -m pytest -rs tests/peers $(ARGS)

.PHONY: test-spark
test-spark: $(SPARK_VENV)/.ready $(LOCAL_TABLES) ## Run the tests of the data pipeline on Spark (one session, some minutes)
	@$(SPARK_VENV)/bin/python -m pytest tests/pipeline -m "not slow" $(ARGS)

.PHONY: test-spark-slow
test-spark-slow: $(SPARK_VENV)/.ready $(LOCAL_TABLES) ## Run the longer ones, those that kill processes, and those of the package
	@$(SPARK_VENV)/bin/python -m pytest tests/pipeline -m slow $(ARGS)

.PHONY: test-spark-matrix
test-spark-matrix: $(SPARK_MATRIX:%=test-spark-%) $(SPARK_VENV)/.ready ## Run what may differ between versions of Spark on each that is supported
	@$(call test_spark,$(SPARK_VENV))

.PHONY: $(SPARK_MATRIX:%=test-spark-%)
$(SPARK_MATRIX:%=test-spark-%): test-spark-%: $(SPARK_VENV)-%/.ready $(LOCAL_TABLES)
	@$(call test_spark,$(SPARK_VENV)-$*)

test_spark = $(1)/bin/python -c 'import pyspark; print("Spark", pyspark.__version__, flush=True)' && \
	  $(1)/bin/python -m pytest -q -m versions $(shell grep -l 'mark.versions' tests/pipeline/test_*.py) $(ARGS)

.PHONY: check-spark
check-spark: $(SPARK_VENV)/.ready ## Check the types of the data pipeline against PySpark's own
	@$(PY) -m mypy --python-executable $(SPARK_VENV)/bin/python functions/headrace/spark examples/ngsi/spark benchmarks/spark tests/pipeline

.PHONY: bench-spark
bench-spark: $(SPARK_VENV)/.ready ## Measure the data pipeline on Spark beside other ways, and judge its bars
	@$(SPARK_VENV)/bin/python -m benchmarks.spark $(ARGS)

##@ Ship
# AWS tools ask for a region even where nothing is sent; any one will do.
sam = PYTHONPATH= PATH="$(CURDIR)/$(BUILD_VENV)/bin:$$PATH" SAM_CLI_TELEMETRY=0 \
      AWS_DEFAULT_REGION="$${AWS_DEFAULT_REGION:-us-east-1}" $(BUILD_VENV)/bin/python -P -m samcli

# `make build` builds whatever is there; `make e2e` only what has changed since.
BUILT := .aws-sam/build/template.yaml
built_from := $(shell find functions console \( -name __pycache__ -o -name '*.egg-info' \) -prune -o -type f -print)

.PHONY: build
build: $(VENV)/.ready $(BUILD_VENV)/.ready ## Validate template.yaml, build the Lambda packages into .aws-sam/, their bills of materials into build/bom/, and start them
	@$(sam_build)
	@mkdir -p build/bom
	@$(call bom,functions)
	@$(call bom,console)
	@$(PY) -m infra.packages
	@$(PY) -m infra.starts

sam_build = $(BUILD_VENV)/bin/hadolint Dockerfile && $(sam) validate --lint && $(sam) build $(SAM_ARGS)

$(BUILT): template.yaml $(built_from) $(BUILD_VENV)/.ready | $(VENV)/.ready
	@$(sam_build)

# A bill of materials in CycloneDX's format: each library of a package, its version and its hashes.
# To hold it against CycloneDX's schema takes three times as long as to make it, and always agrees.
bom = $(BUILD_VENV)/bin/python -P -W ignore -m cyclonedx_py requirements $(1)/requirements.txt \
      --pyproject pyproject.toml --output-reproducible --no-validate --of JSON --output-file build/bom/$(1).cdx.json

.PHONY: package-spark
package-spark: $(VENV)/.ready ## Build what EMR Serverless runs (ARGS='--lake s3://bucket' puts it there)
	@$(PY) -m infra.spark $(ARGS)

.PHONY: e2e
e2e: $(BUILT) $(VENV)/.ready node_modules/.ready $(E2E_VENV)/.ready ## Deploy to an emulator of AWS, and test through its API Gateway (under ten minutes)
	@$(PY) -m tests.e2e $(ARGS)

.PHONY: lock
lock: $(VENV)/.packages ## Write the requirements files anew from pyproject.toml (ARGS=--upgrade for newer versions)
	@echo "Locking requirements"
	@$(lock) --group lambda --output-file functions/requirements.txt
	@$(lock) --group console $(patsubst %,--no-emit-package %,$(CHALICE_CLI)) --output-file console/requirements.txt
	@$(lock) pyproject.toml --extra server --output-file requirements/server.txt
	@$(lock) pyproject.toml --extra server --group dev --output-file requirements/dev.txt
	@$(lock) --group uv --output-file requirements/uv.txt
	@$(lock) --group build --output-file requirements/build.txt
	@$(lock) --group audit --output-file requirements/audit.txt
	@$(lock) --group peers --output-file requirements/peers.txt
	@$(lock) --group generators --output-file requirements/generators.txt
	@$(lock) --group e2e --output-file requirements/e2e.txt
	@$(lock) pyproject.toml --extra server --extra iceberg --group spark --output-file requirements/spark.txt
	@$(foreach version,$(SPARK_MATRIX),$(lock) pyproject.toml --extra server --extra spark --group spark-$(version) --output-file requirements/spark-$(version).txt && ):
	@$(lock) pyproject.toml --extra spark --extra iceberg --constraint requirements/spark.txt --no-emit-package pyspark --no-emit-package py4j $(patsubst %,--no-emit-package %,$(DELTA)) --output-file infra/spark/requirements.txt

# What only a lake in a folder needs.
DELTA := arro3-core deltalake deprecated wrapt

# What only the command line of Chalice needs, which nobody calls.
CHALICE_CLI := ansicon blessed click editor inquirer jinxed packaging pip pyyaml readchar runs setuptools wcwidth wheel xmod

lock = $(VENV)/bin/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header \
       --no-strip-extras --universal --python-version 3.11 $(ARGS)

##@ Else
.PHONY: clean
clean: ## Remove what make has set up and built (queue data in .headrace/ stays)
	@rm -rf $(VENV) $(BUILD_VENV) $(PEERS_VENV) $(GENERATORS_VENV) $(SPARK_VENV) $(SPARK_VENV)-* $(VENV)-3.* $(E2E_VENV) $(AUDIT_VENV) node_modules tests/generators/node_modules benchmarks/peers/node_modules .aws-sam build dist bench-*.json
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis functions/*.egg-info
	@find functions console infra examples benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile

# ---- Setting up: each stamp is renewed when the file that pins its contents changes.

# uv fills environments in a tenth of pip's time.  Where it finds no index (one that pip alone has
# been configured for), the pip of $(VENV) does: the one that a Python brings may trip over pinned extras.
install = { $(VENV)/bin/uv pip install --quiet --python $(1)/bin/python $(2) 2>/dev/null || \
  $(PY) -m pip --python $(1)/bin/python install -qq --no-compile --disable-pip-version-check $(2); }
pinned = $(call install,$(1),--require-hashes --requirement $(2))
editable = $(call install,$(1),--no-build-isolation --no-deps --editable .)
# PySpark comes as a source of 450 MB.  Where an index lets nothing be kept, uv's cache would take up
# three gigabytes more with each install (source, wheel, what is in it) and use none of them again.
uncached = export UV_NO_CACHE=1; $(call pinned,$(1),$(2))

$(VENV)/.packages: requirements/uv.txt requirements/dev.txt
	@$(PYTHON) -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Headrace needs Python 3.11 or newer with venv: install it, or name it: make PYTHON=/path/to/python3"; exit 1; }
	@echo "Setting up $(VENV): Python packages (a minute, once)"
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install -qq --no-compile --disable-pip-version-check --require-hashes --requirement requirements/uv.txt
	@$(call pinned,$(VENV),requirements/dev.txt)
	@touch $@

# Compiled at once: `make build` copies folders that others would be writing to beside it.
$(VENV)/.ready: $(VENV)/.packages pyproject.toml
	@$(call editable,$(VENV))
	@$(PY) -m compileall -q functions console infra
	@touch $@

$(VENV)-3.%/.ready: requirements/dev.txt pyproject.toml
	@echo "Setting up $(@D): another Python for the tests (a minute, once)"
	@test -x $(@D)/bin/python || $(OTHER_PYTHON) -m venv --without-pip $(@D)
	@$(call pinned,$(@D),requirements/dev.txt)
	@$(call editable,$(@D))
	@touch $@

node_modules/.ready: package.json package-lock.json
	@command -v npm >/dev/null || { \
	  echo "DynamoDB Local and axe-core come through npm: install Node.js 18 or newer"; exit 1; }
	@echo "Setting up node_modules: DynamoDB Local, axe-core"
	@npm ci --loglevel=error --no-audit --no-fund >/dev/null
	@mkdir -p node_modules && touch $@

# An environment with the Lambda runtime's Python; one with another is made anew.
is_lambda = -c 'import sys, ensurepip; sys.exit("%d.%d" % sys.version_info[:2] != "$(LAMBDA_PYTHON)")' 2>/dev/null
lambda_venv = $(1)/bin/python $(is_lambda) || { \
	  $(BUILD_PYTHON) $(is_lambda) || { \
	    echo "This needs Python $(LAMBDA_PYTHON) with venv, the Lambda runtime's: install it, or name it: make BUILD_PYTHON=/path/to/python$(LAMBDA_PYTHON)"; exit 1; }; \
	  rm -rf $(1); $(BUILD_PYTHON) -m venv $(1); }

# Where it is there, each start of SAM compiles 38 grammars, two seconds of CPU, for a format of text
# that no template has: jsonschema brings it for who validates bills of materials.
$(BUILD_VENV)/.ready: requirements/build.txt | $(VENV)/.packages
	@echo "Setting up $(BUILD_VENV): AWS SAM CLI (a minute, once)"
	@$(call lambda_venv,$(BUILD_VENV))
	@$(call pinned,$(BUILD_VENV),requirements/build.txt)
	@$(VENV)/bin/uv pip uninstall --quiet --python $(BUILD_VENV)/bin/python rfc3987-syntax
	@touch $@

$(AUDIT_VENV)/.ready: requirements/audit.txt | $(VENV)/.packages
	@echo "Setting up $(AUDIT_VENV): pip-audit (once)"
	@test -x $(AUDIT_VENV)/bin/python || $(PYTHON) -m venv --without-pip $(AUDIT_VENV)
	@$(call pinned,$(AUDIT_VENV),requirements/audit.txt)
	@touch $@

$(GENERATORS_VENV)/.ready: requirements/generators.txt | $(VENV)/.packages
	@echo "Setting up $(GENERATORS_VENV): openapi-python-client, openapi-generator (half a minute, once)"
	@test -x $(GENERATORS_VENV)/bin/python || $(PYTHON) -m venv --without-pip $(GENERATORS_VENV)
	@$(call pinned,$(GENERATORS_VENV),requirements/generators.txt)
	@touch $@

tests/generators/node_modules/.ready: tests/generators/package.json tests/generators/package-lock.json
	@command -v npm >/dev/null || { echo "Two of the generators come through npm: install Node.js 20.19 or newer"; exit 1; }
	@echo "Setting up tests/generators/node_modules: openapi-typescript, hey-api, TypeScript"
	@cd tests/generators && npm ci --loglevel=error --no-audit --no-fund >/dev/null
	@touch $@

$(PEERS_VENV)/.ready: requirements/peers.txt | $(VENV)/.packages
	@echo "Setting up $(PEERS_VENV): the peers that bench-peers measures (a minute, once)"
	@test -x $(PEERS_VENV)/bin/python || $(PYTHON) -m venv --without-pip $(PEERS_VENV)
	@$(call pinned,$(PEERS_VENV),requirements/peers.txt)
	@touch $@

# Without npm there is no BullMQ: bench-peers says so, and measures the others.
benchmarks/peers/node_modules/.ready: benchmarks/peers/package.json benchmarks/peers/package-lock.json
	@if command -v npm >/dev/null; then \
	  echo "Setting up benchmarks/peers/node_modules: BullMQ" && cd benchmarks/peers && \
	  npm ci --loglevel=error --no-audit --no-fund >/dev/null && touch node_modules/.ready; fi

$(E2E_VENV)/.ready: requirements/e2e.txt | $(VENV)/.packages
	@echo "Setting up $(E2E_VENV): ministack, an emulator of AWS (half a minute, once)"
	@$(call lambda_venv,$(E2E_VENV))
	@$(call pinned,$(E2E_VENV),requirements/e2e.txt)
	@touch $@

$(SPARK_VENV)/.packages: requirements/spark.txt | $(VENV)/.packages
	@echo "Setting up $(SPARK_VENV): PySpark, and a Java for machines without one (two minutes, once)"
	@test -x $(SPARK_VENV)/bin/python || $(PYTHON) -m venv --without-pip $(SPARK_VENV)
	@$(call uncached,$(SPARK_VENV),requirements/spark.txt)
	@touch $@

$(SPARK_VENV)/.ready: $(SPARK_VENV)/.packages pyproject.toml
	@$(call editable,$(SPARK_VENV))
	@touch $@

$(SPARK_VENV)-%/.ready: requirements/spark-%.txt pyproject.toml | $(VENV)/.packages
	@echo "Setting up $(@D): an older PySpark, and a Java for it (two minutes, once)"
	@test -x $(@D)/bin/python || $(PYTHON) -m venv --without-pip $(@D)
	@$(call uncached,$(@D),$<)
	@$(call editable,$(@D))
	@touch $@
