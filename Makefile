# Everything a person needs, each one command. `make` shows the list.
PY = .venv/bin/python
.DEFAULT_GOAL := help

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: ## the environment: .venv with .venv/bin/dmq
	@scripts/setup.sh

setup-dev:
	@scripts/setup.sh dev

up: setup ## three brokers from 127.0.0.1:9092 on (Ctrl-C stops them): make up ARGS="--port 19092"
	@.venv/bin/dmq up --brokers $(or $(BROKERS),3) $(ARGS)

check: setup-dev ## format, lint, types, layers
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports

test: check ## check, then all tests (20 to 25 minutes on 2 cores); Spark's need Java 17, see scripts/java.sh
	$(PY) tests/foreign/programs.py
	JAVA_HOME="$$(scripts/java.sh)" && export JAVA_HOME && \
		$(PY) -m pytest -m "not slow" -n $(or $(JOBS),2) $(ARGS)

model: setup-dev ## the storage model: make model N=10000
	$(PY) -m tests.model --runs $(or $(N),10000)

crash: setup-dev ## kill -9 under load: make crash N=1000
	$(PY) -m tests.crash --kills $(or $(N),1000)

sim: setup-dev ## one simulated cluster, with its trace: make sim SEED=7 KIND=clusters
	$(PY) -m tests.sim --seed $(or $(SEED),1) --kind $(or $(KIND),replicas)

sim-many: setup-dev ## many of them: make sim-many N=20000 KIND=coordinators; FAST=1 compiles `replicas` first
	$(PY) -m tests.sim$(if $(FAST),.fast) --many $(or $(N),1000) --jobs $(or $(JOBS),2) --kind $(or $(KIND),replicas)

jepsen: setup-dev ## real processes under faults: make jepsen MINUTES=30 ARGS="--brokers 5"
	$(PY) -m tests.jepsen --minutes $(or $(MINUTES),30) $(ARGS)

chain: setup-dev ## exactly-once under kill -9 of members and brokers: make chain N=100
	$(PY) -m tests.chain --kills $(or $(N),100) $(ARGS)

failover: setup-dev ## how long writes stand still when a leader goes: make failover N=100
	$(PY) -m tests.jepsen.failover --kills $(or $(N),100) $(ARGS)

spark-kills: setup-dev ## exactly-once on Spark under random kills: make spark-kills N=50
	PYTHONPATH=tests:. $(PY) -m tests.spark.kills --kills $(or $(N),50) $(ARGS)

bench: setup-dev ## throughput and latency as ratios: make bench ARGS="--quick --peer kafka"
	$(PY) -m bench $(ARGS)

demo: setup-dev ## three brokers, a shop's events, a pipeline on Spark, a table and a picture: below three minutes
	@JAVA_HOME="$$(scripts/java.sh)" && export JAVA_HOME && $(PY) -m demo $(ARGS)

lock: setup-dev ## pin the dependencies anew
	scripts/lock.sh

clean: ## remove the environment and caches
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.PHONY: help setup setup-dev up check test model crash sim sim-many jepsen chain failover spark-kills bench demo lock clean
