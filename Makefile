# Every target first sets up what it needs, inside this folder.  `make` lists the targets.
# ARGS are more arguments for the tool that a target runs: make test ARGS='-k lease'
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
PYTHON ?= python3
PY := .venv/bin/python
SPARK_PY := .venv-spark/bin/python
export PYTHONPATH := $(CURDIR)/functions:$(CURDIR)
unexport PYTHONDONTWRITEBYTECODE # images set it, and each of hundreds of processes would compile everything
.PHONY: build docs FORCE
.PRECIOUS: %/.ready

pytest = -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal
# A test process waits for a fifth of its time, so more of them than processors; not in the CI.
more = $(if $(CI),,--numprocesses $(shell $(PY) -c 'import os; n = os.cpu_count() or 1; print(min(n + n // 2, 8))'))
# Collecting all other files would take each process as long as many of these tests.
slow_files = $(shell grep -rl --include='test_*.py' 'slow' tests | grep -vE '^tests/(browser|dynamodb|e2e|generators|peers|pipeline|wheel)/')
on_tables := --engine dynamodb tests/dynamodb tests/contract tests/simulation/test_on_tables.py
engine := $(if $(shell command -v npm 2>/dev/null),node_modules/.ready)
versions = -m pytest -q -m versions $(shell grep -l 'mark.versions' tests/pipeline/test_*.py)

##@ Use
demo: .venv/.ready ## See notifications travel through two queues (a minute; without Spark: make demo SPARK=no)
	@test "$(SPARK)" = no || PIP_RETRIES=1 $(MAKE) -s .venv-spark/.ready 2>/dev/null || true
	@$(PY) -m examples.ngsi.demo $(if $(filter no,$(SPARK)),--spark=no) $(ARGS)
run: .venv/.ready ## Serve the API on http://127.0.0.1:8080, data in .headrace/
	@$(PY) -m headrace.local $(ARGS)
run-dynamodb: .venv/.ready node_modules/.ready ## The same on AWS's DynamoDB Local, data in memory (Java 17+)
	@$(PY) -m tests.engine --run $(ARGS)

##@ Test
test: .venv/.ready ## Run the tests, a minute on two cores (some of them: make test ARGS='-k lease')
	@$(PY) $(pytest) $(more) -m "not slow" $(ARGS)
test-slow: .venv/.ready ## Run the tests that take seconds, or start and kill services; random seeds
	@$(PY) $(pytest) -m slow $(if $(filter tests%,$(ARGS)),,$(slow_files)) $(ARGS)
test-dynamodb: .venv/.ready node_modules/.ready ## Run the contract of stores on AWS's engine (Java 17+)
	@$(PY) $(pytest) $(on_tables) tests/functional/test_api_tasks.py tests/functional/test_api_bulk.py $(ARGS)
test-wheel: .venv/.ready ## Install the wheel where nothing else is, and run the README's first task
	@$(PY) -m pytest tests/wheel $(ARGS)
test-pythons: .venv/.ready ## Run what depends on the interpreter on each Python that is supported
	@$(PY) -m infra.pythons $(ARGS)
test-browser: .venv/.ready node_modules/.ready ## Use the console in Chromium: journeys, accessibility, speed
	@$(PY) -m pytest tests/browser $(ARGS)
test-generators: .venv/.ready .venv-tools/.ready tests/generators/node_modules/.ready ## Generate clients from the OpenAPI document, and compile them
	@$(PY) -m pytest tests/generators $(ARGS)
test-peers: .venv/.ready .venv-tools/.ready benchmarks/peers/node_modules/.ready ## Run what the coming-from pages show of other queues
	@PEERS_PYTHON=.venv-tools/bin/python $(PY) -m pytest -rs tests/peers $(ARGS)
test-spark: .venv-spark/.ready $(engine) ## Run the tests of the data pipeline on Spark (some minutes)
	@$(SPARK_PY) -m pytest -n 2 --dist loadfile tests/pipeline -m "not slow" $(ARGS)
test-spark-slow: .venv-spark/.ready $(engine) ## Run the longer ones, those that kill processes, and those of the package
	@$(SPARK_PY) -m pytest tests/pipeline -m slow $(ARGS)
test-spark-matrix: test-spark-4.0 test-spark-4.1 .venv-spark/.ready ## Run what differs between versions of Spark on each
	@$(SPARK_PY) $(versions) $(ARGS)
test-spark-4.%: .venv-spark-4.%/.ready $(engine)
	@.venv-spark-4.$*/bin/python $(versions) $(ARGS)
e2e: .venv-build/.ready .venv-e2e/.ready node_modules/.ready ## Deploy to an emulator of AWS, and test the deployment (ten minutes)
	@$(PY) -m infra.build --if-changed
	@$(PY) -m tests.e2e $(ARGS)
coverage: .venv/.ready .venv-3.13/.ready node_modules/.ready ## Fail if domain, store and ops have branches without tests, over 5 %
	@mkdir -p build  # a traced thread of 3.11 can loop for ever while an exception waits for another thread
	@.venv-3.13/bin/python $(pytest) -m "not slow" --cov --cov-context=test --cov-report= --cov-fail-under=0 $(ARGS)
	@.venv-3.13/bin/python $(pytest) $(on_tables) -m "not slow" --cov --cov-context=test --cov-append --cov-report=term
mutation: .venv/.ready ## Change conditions of the product, and list the changes that no test notices (after make coverage)
	@$(PY) -m infra.mutation $(ARGS)
nightly: ## Run all that the gate leaves out (hours)
	@.ci/run nightly

##@ Check, measure, write
check: .venv/.ready ## Lint, formatting, types and import rules
	@$(PY) -m ruff check && $(PY) -m ruff format --check
	@$(PY) -m mypy
	@.venv/bin/lint-imports --no-logo
	@$(PY) -m infra.template --check
check-spark: .venv/.ready .venv-spark/.ready ## Check the types of the data pipeline against PySpark's own
	@$(PY) -m mypy --python-executable $(SPARK_PY) functions/headrace/spark examples/ngsi/spark benchmarks/spark tests/pipeline
audit: .venv-tools/.ready ## Look up every pinned package in the lists of known vulnerabilities
	@.venv-tools/bin/pip-audit --strict --vulnerability-service osv --progress-spinner off --desc off \
	  --disable-pip --require-hashes $(patsubst %,--requirement %,$(wildcard requirements/*.txt */requirements.txt infra/spark/requirements.txt)) $(ARGS)
	@for folder in . tests/generators benchmarks/peers; do (cd $$folder && npm audit --package-lock-only) || exit 1; done
bench: .venv/.ready ## Measure throughput, latency and cost per task
	@$(PY) -m benchmarks $(ARGS)
bench-peers: .venv/.ready .venv-tools/.ready benchmarks/peers/node_modules/.ready ## Measure workers beside those of seven other queues
	@$(PY) -m benchmarks.peers --python .venv-tools/bin/python $(ARGS)
bench-spark: .venv-spark/.ready ## Measure the data pipeline on Spark
	@$(SPARK_PY) -m benchmarks.spark $(ARGS)
docs: .venv/.ready ## Write the tables of docs/reference/, and build the site into build/site/
	@$(PY) -m infra.reference && $(PY) -m infra.site .venv/bin/zensical
screenshots: .venv/.ready ## Draw every page of the console into build/screenshots/
	@$(PY) -m tests.browser.screenshots $(ARGS)
local-template: .venv/.ready ## Write what the local service needs of template.yaml
	@$(PY) -m infra.template
lock: .venv/.ready ## Pin the packages of pyproject.toml in the requirements files (ARGS=--upgrade)
	@$(PY) -m infra.lock $(ARGS)

##@ Ship
build: .venv-build/.ready ## Build the Lambda packages into .aws-sam/, check them, and start them
	@$(PY) -m infra.build $(ARGS)
package-spark: .venv/.ready ## Build what EMR Serverless runs (ARGS='--lake s3://bucket' puts it there)
	@$(PY) -m infra.spark $(ARGS)
release: .venv/.ready .venv-tools/.ready ## Build the wheel and the sdist into dist/, and check them
	@$(PY) -m infra.release $(ARGS)

##@ Else
clean: ## Remove what make has set up and built (queue data in .headrace/ stays)
	@rm -rf .venv .venv-* node_modules tests/generators/node_modules benchmarks/peers/node_modules .aws-sam build dist bench-*.json
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis functions/*.egg-info
	@find functions console infra examples benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile

# infra/environments.py decides whether there is something to set up.
%/.ready: FORCE
	@$(PYTHON) -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Headrace needs Python 3.11 or newer with venv: install it, or name it: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) infra/environments.py $(@D)
