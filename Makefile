# tidelog: everything people and CI call. `make help` lists it.
SHELL := /bin/bash
PYTHON ?= python3
# Without byte code each broker that a test starts would compile all its modules, and pytest rewrite 600 files.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
# What is in the environment: each stage is a file, made when what the stage installs is there.
SERVE := $(VENV)/.serve
TEST := $(VENV)/.test
CHECK := $(VENV)/.check
SPARK := $(VENV)/.spark
INSTALL := $(PYTHON) tools/pip_from_outside.py --python $(BIN)/python install --quiet --disable-pip-version-check
# Jars for the tests, fetched before any of them waits; again where that fails, for a mirror may falter.
FETCH := $(BIN)/python tests/oracle/apache_kafka.py fetch
ORACLES := 3.9.1 4.1.1 0.10.2.2
TOOLS := tools-3.9.1 tools-4.1.1 connect-3.9.1 connect-4.1.1
# By the Python of the image. Where the packages come from is left out: it differs from machine to machine.
LOCK = CUSTOM_COMPILE_COMMAND='make lock' $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links $(UPGRADE)
# Many tests wait for a broker or a disk, so two more than there are cores keep the cores busy.
WORKERS ?= $(shell echo $$(( $$(nproc) + 2 )))
# Two that start JVMs need some 5 GB; more are for machines with more (tests/heavy.py shares the tests out).
HEAVY_WORKERS ?= 2
HEAVY := -n $(HEAVY_WORKERS) --dist loadgroup --no-loadscope-reorder
HEAVIEST := oracle or clients or docker or spark or long
FAST := not (slow or $(HEAVIEST))
# Which tests `make test` and `make test-slow` run: all, or some (TESTS="tests/config tests/protocol").
TESTS ?=
DATA ?= data
LISTEN ?= 127.0.0.1:9092
HTTP ?= 127.0.0.1:8080
SEEDS ?= 20000
FROM ?= 1
ROUNDS ?= 200
SEED ?= 1
MINUTES ?= 60
ROOM ?= storage
MUTANTS ?= 20

.DEFAULT_GOAL := help
.PHONY: help setup serve fetch test test-all test-slow test-long test-clients test-docker test-spark simulate simulate-clocks nemesis soak oracle check style types imports derived manifests derive rewrite bench bench-cluster bench-full bench-logs bench-partitions bench-pipeline bench-silence bench-streaming fuzz-kernels mutants image lock compose-up compose-down compose-cluster-up compose-cluster-down fuzz clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(CHECK) ## make .venv with everything needed to serve, test and check

# Byte code is not compiled ahead: a broker needs a fifth of it, and Python keeps what it compiles.
$(SERVE): pyproject.toml setup.py protocol/records/_kernels.pyx $(wildcard protocol/records/*.pxi)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "tidelog needs Python 3.11 or newer ($(PYTHON) is older)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' || { echo "cannot make a virtual environment (on Debian: apt install python3-venv)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv --without-pip $(VENV)
	@echo "Installing the broker into $(VENV), and compiling its kernels: 70 MB, half a minute."
	@PIP_COMPILE=0 $(INSTALL) --editable .
	@touch $@

$(TEST): $(SERVE)
	@echo "Installing what the tests need into $(VENV): 550 MB more, a minute."
	@PIP_COMPILE=0 $(INSTALL) 'tidelog[test]'
	@touch $@

$(CHECK): $(TEST)
	@echo "Installing what the checks need into $(VENV): 200 MB more."
	@PIP_COMPILE=0 $(INSTALL) 'tidelog[check]'
	@touch $@

$(SPARK): $(TEST)
	@echo "Installing PySpark, and what its tests need, into $(VENV): 560 MB more."
	@PIP_COMPILE=0 $(INSTALL) 'tidelog[spark,avro,iceberg]'
	@touch $@

serve: $(SERVE) ## serve on 127.0.0.1:9092, HTTP on 127.0.0.1:8080, logs below ./data
	$(BIN)/tidelog serve --listeners PLAINTEXT://$(LISTEN) --log-dirs $(DATA) --http $(HTTP)

fetch: $(TEST) ## fetch what oracle, test-clients and test-spark need: jars, and the clients' environments
	@$(BIN)/python tests/clients/environments.py
	@for version in $(ORACLES) $(TOOLS); do $(FETCH) $$version >/dev/null || $(FETCH) $$version >/dev/null || true; done
	@$(BIN)/python -m tests.pipeline.spark_kafka
	@$(BIN)/python -m tests.pipeline.packaged_spark

test: $(TEST) ## run the tests for every change, under five minutes
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m '$(FAST)' $(TESTS)

test-slow: $(TEST) ## run the tests that are too slow for make test (what is missing is skipped with a reason)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m 'slow and not ($(HEAVIEST))' $(TESTS)

test-all: test test-slow test-docker oracle test-clients test-spark ## everything that CI runs

test-long: $(TEST) ## the long profiles: a million mutated frames, longer models, 900 rounds of faults
	TIDELOG_EVERY_CASE=1 TIDELOG_FUZZ_FRAMES=1000000 TIDELOG_FUZZ_TCP_FRAMES=1000000 TIDELOG_LOG_MODEL_RUNS=10000 $(BIN)/python -m pytest -q -m 'long or not (oracle or clients or docker or spark)' --timeout 3600

test-clients: $(TEST) ## every real client against every other; Kafka's tools, Connect and Streams on three brokers
	@$(BIN)/python tests/clients/environments.py
	@for version in $(TOOLS); do $(FETCH) $$version >/dev/null || $(FETCH) $$version >/dev/null || true; done
	$(BIN)/python -m pytest -q $(HEAVY) -m clients --timeout 1800 tests/clients tests/tools

test-docker: $(TEST) ## the image and the compose stack, with docker or podman
	$(BIN)/python -m pytest -q -s -m docker --timeout 900 tests/docker

fuzz-kernels: $(TEST) ## the kernels with address and undefined-behaviour sanitizers, and the fuzz of records
	$(BIN)/python tools/fuzz_kernels.py

mutants: $(TEST) ## faults injected in the code, and which tests catch them: ROOM=storage MUTANTS=20 SEED=1
	@PIP_COMPILE=0 $(INSTALL) 'tidelog[mutants]'
	@$(BIN)/python tools/mutants.py --room $(ROOM) --count $(MUTANTS) --seed $(SEED) --marks '$(FAST)'

simulate: $(TEST) ## runs of a cluster with faults: SEEDS=10000 FROM=1; STORE=etcd over etcd; BUG=list names mistakes
	@SEEDS=$(SEEDS) FROM=$(FROM) BUG="$(BUG)" STORE="$(STORE)" $(BIN)/python -m tests.simulation.replication.runs

simulate-clocks: $(TEST) ## runs with wrong clocks: SEEDS=20000 FROM=1; BUG=list names bugs to inject
	@SEEDS=$(SEEDS) FROM=$(FROM) BUG="$(BUG)" $(BIN)/python -m tests.simulation.clocks.runs

nemesis: $(TEST) ## rounds of faults under load: ROUNDS=200 SEED=1; STORE=etcd over etcd; TRANSACTIONS=1
	@$(BIN)/python -m tests.nemesis --rounds $(ROUNDS) --seed $(SEED) $(if $(filter etcd,$(STORE)),--etcd) $(if $(TRANSACTIONS),--transactions)

soak: $(TEST) ## one broker under a mixed load: nothing lost, and memory, descriptors, threads level: MINUTES=60
	@$(BIN)/python -m tests.soak --minutes $(MINUTES)

test-spark: $(SPARK) ## the pipeline's jobs on Spark; installs PySpark into .venv, needs Java
	@$(FETCH) 3.9.1 >/dev/null || $(FETCH) 3.9.1 >/dev/null || true
	@$(BIN)/python -m tests.pipeline.spark_kafka
	@$(BIN)/python -m tests.pipeline.packaged_spark
	$(BIN)/python -m pytest -q $(HEAVY) -m spark --timeout 600 tests/docs tests/pipeline tests/tidelog

oracle: $(TEST) ## the same requests to Apache Kafka and to tidelog, differences classified
	@for version in $(ORACLES) $(TOOLS); do $(FETCH) $$version >/dev/null || $(FETCH) $$version >/dev/null || true; done
	$(BIN)/python -m pytest -q $(HEAVY) -m 'oracle and not spark' --timeout 1800 tests

check: $(CHECK) style types imports derived manifests ## lint, types, imports, derived pages, Kubernetes' schemas

style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy tests/tidelog/jobs/typed_calls.py
	$(BIN)/mypy

imports:
	$(BIN)/lint-imports --no-logo

derived:
	$(BIN)/python tools/derive_configuration.py --check
	$(BIN)/python tools/derive_compatibility.py --check
	$(BIN)/python tools/derive_metrics.py --check
	$(BIN)/python tools/derive_security.py --check
	$(BIN)/python tools/derive_http.py --check
	$(BIN)/python tools/derive_job_options.py --check
	$(BIN)/python tools/derive_spark_options.py --check
	$(BIN)/python tools/derive_spark_versions.py --check
	$(BIN)/python tools/derive_time_picture.py --check
	$(BIN)/python tools/measure_broker.py --check
	$(BIN)/python tools/check_links.py

manifests:
	$(BIN)/kubernetes-validate --quiet --strict --kubernetes-version 1.32 deploy/kubernetes/*.yaml

derive: $(TEST) ## write the derived pages anew
	$(BIN)/python tools/derive_configuration.py
	$(BIN)/python tools/derive_compatibility.py
	$(BIN)/python tools/derive_metrics.py
	$(BIN)/python tools/derive_security.py
	$(BIN)/python tools/derive_http.py
	$(BIN)/python tools/derive_job_options.py
	$(BIN)/python tools/derive_spark_options.py
	$(BIN)/python tools/derive_spark_versions.py
	$(BIN)/python tools/derive_time_picture.py

rewrite: $(TEST) ## rewrite the expected output of the time scripts (then read the diff)
	TIDELOG_REWRITE=1 $(BIN)/python -m pytest -q tests/time

bench: $(TEST) bench-cluster ## ratios against Apache Kafka, under 13 minutes
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/logs/measure.py --small
	@echo "The pipeline beside stock Spark is measured by: make bench-pipeline (needs Java)"

bench-cluster: $(TEST) ## three brokers beside three of Apache Kafka, under 5 minutes
	$(BIN)/python benchmarks/cluster/measure.py

bench-silence: $(TEST) ## how long producers wait when a leader is killed, beside Apache Kafka; needs a JDK
	$(BIN)/python benchmarks/cluster/silence.py

bench-partitions: $(TEST) ## 10,000 partitions of three brokers over etcd: creation, fail-over, start
	$(BIN)/python benchmarks/cluster/many_partitions.py

bench-logs: $(TEST) ## lookups in 100 M records, 10,000 partitions, recovery, flushing; resumable
	$(BIN)/python benchmarks/logs/measure.py

bench-pipeline: $(SPARK) ## the pipeline beside stock Spark; installs PySpark into .venv, needs Java
	$(BIN)/python benchmarks/spark/pipeline_rows.py

bench-streaming: $(SPARK) ## ten million records streamed with kills, compared; installs PySpark, needs Java
	$(BIN)/python benchmarks/spark/streaming.py

bench-full: $(SPARK) bench-logs ## every factor, more repetitions, resumable
	$(BIN)/python benchmarks/run.py --full
	$(BIN)/python benchmarks/spark/pipeline_rows.py --full

image: ## build the image tidelog:latest with docker or podman; VERSION=1.2.3 tags it with that, too
	@docker/containers.sh image

lock: $(TEST) ## choose the versions in the image, with hashes (docker/*.lock); UPGRADE=--upgrade takes the newest
	@PIP_COMPILE=0 $(INSTALL) 'tidelog[lock]'
	$(LOCK) --only-build-deps --build-deps-for wheel --output-file docker/build.lock pyproject.toml
	$(LOCK) --extra etcd --output-file docker/requirements.lock pyproject.toml

compose-up: image ## broker, Prometheus and Grafana in containers (SERVICES=broker: it alone)
	@docker/containers.sh up $(SERVICES)

compose-down: ## stop and remove them; their volumes stay
	@docker/containers.sh down

compose-cluster-up: image ## three brokers, three members of etcd, Prometheus and Grafana in containers
	@docker/containers.sh cluster-up $(SERVICES)

compose-cluster-down: ## stop and remove them; their volumes stay
	@docker/containers.sh cluster-down

clean: ## remove what was built
	rm -rf $(SERVE) build *.egg-info protocol/records/_kernels*.so protocol/records/_kernels.c .mypy_cache .ruff_cache .pytest_cache .hypothesis
