# Everything a person or CI runs here. Each target works on a fresh clone: what is missing is installed first.
#   make run          a node on localhost:9092          make quick       the tests that take a moment
#   make test         unit tests, then the compat tests make unit        the unit tests alone
#   make lint         ruff, mypy, import-linter, ...    make test-long   the long runs
#   make bench        pykbroker beside Apache Kafka     make generate    messages from wire/schemas
#   make image        the container image                make base-image  its base, where none can be pulled
#   make up           three nodes with Docker Compose    make down        and their end; their volumes stay
#   make sim SEED=7   one simulated run of the cluster, told
#   make pipeline     events through Spark, from a node of its own to pictures
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
PIPELINE_ARGS ?=
BENCH_ARGS ?=

.PHONY: install constraints dist changelog run image base-image apache-kafka-image spark-image up down quick test unit compat sim sim-long faults test-long timings test-env lint-env system java pipeline lint audit bench generate schemas clean
.DEFAULT_GOAL := install

# --- what each target says at its start: what it installs where that is missing, and how long it takes ---------------

# Measured on two cores, with packages that are in pip's and uv's caches. A target that another one asks for is silent.
# tests/test_makefile.py looks that none is left out.
ALL := Debian's packages for the tests as root (JDK, Maven, kcat, Go, Node, Docker), Docker's daemon, three environments
SAYS_install := installs pykbroker into .venv, 35 s once
SAYS_run := installs pykbroker into .venv, 35 s once; then a node until Ctrl-C
SAYS_pipeline := installs a JDK as root and Spark into .venv, a minute once; then runs until its pictures are drawn
SAYS_bench := installs $(ALL), 1.5 min once; then measures for hours (BENCH_ARGS chooses less)
SAYS_image := installs pykbroker into .venv, 35 s once; then builds an image with Docker
SAYS_base-image := downloads Debian's packages and makes an image of them; wants root and debootstrap
SAYS_apache-kafka-image := installs $(ALL), and Apache Kafka's jars through Maven
SAYS_spark-image := installs $(ALL), and Spark into .venv; then builds two images with Docker
SAYS_up := builds the image if there is none; then starts containers and waits until they serve
SAYS_down := installs nothing; stops the containers of make up
SAYS_quick := installs small packages into .venv, 15 s once; tests take a minute or less, without those that are slow
SAYS_unit := installs Spark and clients into .venv, a minute once, and no package of the system; tests take 16 min
SAYS_test := installs $(ALL), 1.5 min once; tests take 45 min
SAYS_compat := installs $(ALL), 1.5 min once; tests take 27 min
SAYS_test-env := installs $(ALL), 1.5 min where Debian's packages are there
SAYS_lint-env := installs ruff, mypy and what they look at into .venv, 5 s after make test-env, else a minute
SAYS_lint := installs ruff, mypy and what they look at into .venv, a minute once; checks take 10 s, and two minutes the first time
SAYS_constraints := resolves the development environment anew in an environment that it removes, two minutes
SAYS_dist := installs pykbroker and uv into .venv, 35 s once; builds a source archive and two wheels in 5 s
SAYS_changelog := installs what the tests need into .venv, a minute once; then shows, or writes, what changed
SAYS_timings := runs make test and stores what each file of tests used; 45 min on a machine that does nothing else
SAYS_test-long := installs $(ALL), 1.5 min once; all long tests take 8 hours, and go on where they were
SAYS_sim := installs what the tests need into .venv, a minute once; one seed takes a second or two
SAYS_sim-long := installs what the tests need into .venv, a minute once; 12,000 seeds take 3 hours on two cores
SAYS_faults := installs what the tests need into .venv, a minute once; 1,000 faults take 2 hours
SAYS_audit := installs pykbroker into .venv, 35 s once, and pip-audit into an environment that it removes
SAYS_generate := installs pykbroker into .venv, 35 s once; writes messages and pages in 5 s
SAYS_schemas := installs $(ALL); writes wire/schemas from the jars of KAFKA
SAYS_system := installs Debian's packages for the tests where it is root, and starts Docker's daemon
SAYS_java := installs a JDK where it is root
SAYS_clean := removes the environments and caches of this directory
# The first prerequisite of a target, so that it speaks before anything is installed.
say-%:
	@:$(if $(filter $*,$(or $(MAKECMDGOALS),$(.DEFAULT_GOAL))),$(info make $*: $(SAYS_$*)))

# --- the environment: made again only when pyproject.toml changes, or what is compiled -------------------------------

COMPILED := $(wildcard wire/pykbroker_wire/records/*.c)

# What every environment of this directory has. The other packages of an environment are groups of pyproject.toml.
EDITABLE := -e '.[tools]'
# Names and versions of what the development environment consists of: `make constraints` writes it anew. Who installs
# pykbroker for use is not bound by it.
CONSTRAINTS := constraints.txt
# $(call into,PYTHON,WHAT): uv installs what it has in its cache within seconds; when it may ask, it builds PySpark anew
# each time. pip does it where uv is not to be had; it knows groups from 25.1 on.
uv = $(1) -m uv pip install -q --python $(1) $(2)
into = { $(1) -m pip install -q uv && { $(call uv,$(1),--offline $(2)) 2>/dev/null || $(call uv,$(1),$(2)); }; } \
	    || { $(1) -m pip install -q 'pip>=25.1' && $(1) -m pip install -q $(2); }

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Python 3.11 or newer is needed: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.install: pyproject.toml $(COMPILED) | $(BIN)/python
	$(BIN)/python -m pip install -q $(EDITABLE)
	@touch $@

$(VENV)/.test: pyproject.toml $(COMPILED) $(CONSTRAINTS) | $(BIN)/python
	$(call into,$(BIN)/python,-c $(CONSTRAINTS) $(EDITABLE) --group test)
	@touch $@ $(VENV)/.install

# Small, and none of it needs a program beside Python: what `make quick` runs is chosen by it (tests/quick.py).
$(VENV)/.unit: pyproject.toml $(COMPILED) $(CONSTRAINTS) | $(BIN)/python
	$(call into,$(BIN)/python,-c $(CONSTRAINTS) $(EDITABLE) --group unit)
	@touch $@ $(VENV)/.install

# The newest versions that pyproject.toml allows, in an environment of their own, as names and versions.
constraints: say-constraints | $(BIN)/python
	$(BIN)/python -m pip install -q uv
	rm -rf $(VENV)-constraints && $(PYTHON) -m venv $(VENV)-constraints
	$(BIN)/python -m uv pip install -q --upgrade --python $(VENV)-constraints/bin/python \
	    -e '.[tools,pipeline]' --group test --group lint --group bench
	$(BIN)/python -m uv pip freeze -q --exclude-editable --python $(VENV)-constraints/bin/python >$(CONSTRAINTS)
	rm -rf $(VENV)-constraints

# The bytecode of all tests, as pytest keeps it. Else each worker of a first run makes it for itself.
$(VENV)/.collected: $(VENV)/.test
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -q --collect-only tests compat_tests >/dev/null 2>&1 || true
	@touch $@

$(VENV)/.lint: pyproject.toml $(COMPILED) $(CONSTRAINTS) | $(BIN)/python
	$(call into,$(BIN)/python,-c $(CONSTRAINTS) $(EDITABLE) --group test --group lint)
	@touch $@ $(VENV)/.test $(VENV)/.install

$(VENV)/.bench: pyproject.toml $(COMPILED) | $(BIN)/python
	$(call into,$(BIN)/python,$(EDITABLE) --group bench)
	@touch $@ $(VENV)/.install

$(VENV)/.pipeline: pyproject.toml $(COMPILED) | $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[pipeline]'
	@touch $@ $(VENV)/.install

# Frameworks that want other versions of clients than the tests do: compat_tests/frameworks.
FRAMEWORKS := .venv-frameworks
FRAMEWORKS_WANTED := compat_tests/frameworks/requirements.txt
$(FRAMEWORKS)/.made: pyproject.toml $(COMPILED) $(FRAMEWORKS_WANTED) | $(BIN)/python
	$(PYTHON) -m venv $(FRAMEWORKS)
	$(call into,$(FRAMEWORKS)/bin/python,-e . -r $(FRAMEWORKS_WANTED))
	@touch $@

# sslyze wants another cryptography than pykbroker: compat_tests/tls.
SSLYZE := .venv-sslyze
$(SSLYZE)/.made: compat_tests/tls/requirements.txt
	$(PYTHON) -m venv $(SSLYZE)
	$(call into,$(SSLYZE)/bin/python,-r compat_tests/tls/requirements.txt)
	@touch $@

install: say-install $(VENV)/.install

# What the compat tests need beside Python; a test whose part is still missing afterwards skips and names it.
system: say-system
	@bash compat_tests/setup/system.sh

# The part of it that Spark needs.
java: say-java
	@bash compat_tests/setup/system.sh java

test-env: say-test-env system
	@$(MAKE) --no-print-directory $(VENV)/.test
	@$(MAKE) --no-print-directory -j 3 -k $(FRAMEWORKS)/.made $(SSLYZE)/.made $(VENV)/.collected \
	    || echo "test-env: the frameworks or sslyze cannot be installed; the tests that want them skip"

# Apart from `lint`, so that nothing is installed while tests run beside it.
lint-env: say-lint-env $(VENV)/.lint

# --- running --------------------------------------------------------------------------------------------------------

run: say-run install
	$(BIN)/pykbroker start

# make pipeline PIPELINE_ARGS="--users 2000 --rate 500": the events pipeline on Spark, on this machine (docs/pipeline.md).
pipeline: say-pipeline java $(VENV)/.pipeline
	@PYTHONPATH=spark $(BIN)/python -m example.run $(PIPELINE_ARGS)

bench: say-bench test-env $(VENV)/.bench
	$(BIN)/python bench/run.py $(BENCH_ARGS)

# --- the container image: docker/README.md --------------------------------------------------------------------------

# make image BASE=debian-with-python: the base needs Python 3.11 or newer. Tools that compare the tag with a version of
# Confluent's image find the one that has Apache Kafka 4.3.
BASE ?= python:3.11-slim
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
image: say-image install
	@PYTHON=$(BIN)/python bash docker/build.sh $(BASE) pykbroker:$(VERSION) pykbroker:latest pykbroker:8.3.0

# Where no base can be pulled: `make base-image`, then `make image BASE=pykbroker-base`. Root on Debian.
base-image: say-base-image
	@bash docker/base-image.sh pykbroker-base

# Apache Kafka's jars with Debian's Java, for `make up CLUSTER=mixed`.
apache-kafka-image: say-apache-kafka-image system
	@bash docker/apache-kafka.sh $(BASE) pykbroker-apache-kafka:latest

# Spark with the pipeline, and Prometheus, for `make up CLUSTER=spark`.
spark-image: say-spark-image system $(VENV)/.pipeline
	@PYTHON=$(BIN)/python bash docker/spark.sh $(BASE) pykbroker-spark:latest pykbroker-prometheus:latest

# make up CLUSTER=single: docker/compose.single.yaml instead of docker/compose.yaml. `make down COMPOSE_ARGS=-v` removes the
# volumes. PYKBROKER_IMAGE names another image; without one the target builds pykbroker:latest where it is not there.
CLUSTER ?=
COMPOSE_ARGS ?=
up: say-up
	@docker image inspect $${PYKBROKER_IMAGE:-pykbroker:latest} >/dev/null 2>&1 || $(MAKE) --no-print-directory image
	@case "$(CLUSTER)" in mixed) more=apache-kafka ;; spark) more=spark ;; *) exit 0 ;; esac; \
	    docker image inspect pykbroker-$$more:latest >/dev/null 2>&1 || $(MAKE) --no-print-directory $$more-image
	@bash docker/cluster.sh up "$(CLUSTER)" $(COMPOSE_ARGS)

down: say-down
	@bash docker/cluster.sh down "$(CLUSTER)" $(COMPOSE_ARGS)

# --- what is released ------------------------------------------------------------------------------------------------

# The source, a wheel for every platform, and one for this machine with the record walk compiled. Both wheels are built
# from the source archive, so that nothing is missing in it. For an index the workflow builds wheels on manylinux.
DIST ?= dist
SOURCE = $(DIST)/pykbroker-$(VERSION).tar.gz
dist: say-dist $(VENV)/.install
	@$(BIN)/python -m uv --version >/dev/null 2>&1 || $(BIN)/python -m pip install -q uv
	rm -rf $(DIST)
	$(BIN)/python -m uv build -q --sdist -o $(DIST) .
	PYKBROKER_PURE=1 $(BIN)/python -m uv build -q --wheel -o $(DIST) $(SOURCE)
	$(BIN)/python -m uv build -q --wheel -o $(DIST) $(SOURCE)
	@ls $(DIST)

# make changelog: what the files of changes/ become. make changelog RELEASE=0.2.0: writes it, and removes the files.
RELEASE ?=
changelog: say-changelog $(VENV)/.test
	@$(BIN)/towncrier build $(if $(RELEASE),--yes --version $(RELEASE),--draft --version next)

# --- tests: both sessions always run; a closing line of pytest's kind is the last thing printed ---------------------

# What takes a moment and needs small packages alone: tests/quick.py has the rules. Worker processes are as many as cores.
quick: say-quick $(VENV)/.unit
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -q -r fE -W ignore -p tests.quick -m "not slow and not long" \
	    -n auto --dist worksteal tests $(PYTEST_ARGS)

# tests/whole_run runs tests/ and compat_tests/, gives a second chance to tests that failed, and adds everything up.
test: say-test test-env
	@$(BIN)/python -m tests.whole_run -- $(PYTEST_ARGS)

# No package of the system and no daemon: a test of tests/ that finds a program missing skips and names it.
unit: say-unit $(VENV)/.collected
	@$(BIN)/python -m tests.whole_run --only tests -- $(PYTEST_ARGS)

# The table of what each file of tests uses, again: tests/whole_run/timings.json. On a machine that does nothing else.
timings: say-timings test
	$(BIN)/python -m tests.whole_run.timings --store

# make compat AGAINST=apache-kafka: the same tests with Apache Kafka as the broker, to judge the tests themselves.
AGAINST ?= pykbroker
compat: say-compat test-env
	@$(BIN)/python -m tests.whole_run --only compat_tests -- --against $(AGAINST) $(PYTEST_ARGS)

# The cluster of tests/simulation/cluster_run on a virtual clock: everything that happens follows from the seed.
# make sim SEED=7 SIM_ARGS="--without 0,2": without those faults.
SEED ?= 0
SIM_ARGS ?=
sim: say-sim $(VENV)/.test
	@PYTHONPATH=.:wire:log:raft:worlds $(BIN)/python -m tests.simulation.cluster_run $(SEED) $(SIM_ARGS)

# 10,000 seeds of the cluster and 2,000 with share groups, on all cores; goes on where an interrupted run was, and keeps
# the results in docs/simulation.jsonl. SIM_LONG_ARGS="--run shares": only those.
# make sim-long SIM_LONG_ARGS=--go-on: also through changes of the code; only what has not run, or has failed.
SIM_LONG_ARGS ?=
sim-long: say-sim-long $(VENV)/.test
	@PYTHONPATH=.:wire:log:raft:worlds $(BIN)/python -m tests.simulation.cluster_run.long $(SIM_LONG_ARGS)

# 1,000 faults on three real processes, in rounds of 20; goes on where an interrupted run was, and keeps the results in
# docs/fault-runs.jsonl. One round, told: python -m tests.faults.fault_run --seed 7.
FAULT_ROUNDS ?= 50
FAULT_ARGS ?=
faults: say-faults $(VENV)/.test
	@PYTHONPATH=.:wire:log:raft:worlds $(BIN)/python -m tests.faults.fault_run --rounds $(FAULT_ROUNDS) $(FAULT_ARGS)

# Goes on where an interrupted run was, and keeps the results in docs/long-runs.md.
test-long: say-test-long test-env
	@failed=0; \
	for folder in tests compat_tests; do \
	    $(BIN)/python -m pytest $$folder -m long -p tests.long_runs $(PYTEST_ARGS); code=$$?; \
	    [ $$code -eq 0 ] || [ $$code -eq 5 ] || failed=1; \
	done; \
	$(BIN)/python -m tests.long_runs; \
	exit $$failed

# Known holes in what is installed, by pip-audit in an environment of its own. Where its service does not answer, or
# knows a package not, it says "not run" and fails: that is no pass.
audit: say-audit $(VENV)/.install
	@PYTHON="$(PYTHON)" bash compat_tests/setup/audit.sh "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

# --- lint: every check runs, so that one look shows everything ------------------------------------------------------

# Not the pages: their examples stand as a person writes them.
FORMATTED := pykbroker testkit tests compat_tests bench docker spark wire log raft worlds

lint: say-lint $(VENV)/.lint
	@failed=0; \
	check() { echo "lint: $$*"; "$$@" || { echo "lint: FAILED: $$*"; failed=1; }; }; \
	check $(BIN)/ruff check --output-format concise .; \
	check $(BIN)/ruff format --check --quiet $(FORMATTED); \
	check $(BIN)/mypy; \
	check $(BIN)/lint-imports; \
	check $(BIN)/python wire/generate --check; \
	check $(BIN)/python -m pykbroker.config.key_texts --check; \
	check $(BIN)/python -m pykbroker.config.reference --check; \
	check $(BIN)/python -m pykbroker.api.reference --check; \
	check $(BIN)/python -m pykbroker.tools.commands.reference --check; \
	check $(BIN)/python -m pykbroker.testing.reference --check; \
	check env PYTHONPATH=.:wire:log:raft:worlds $(BIN)/python -m compat_tests.differential.docs --check; \
	check env PYTHONPATH=.:wire:log:raft:worlds $(BIN)/python -m compat_tests.secured_clients.docs --check; \
	check $(BIN)/python -m bench.report --check; \
	check $(BIN)/python -m tests.long_runs --check; \
	check $(BIN)/python -m tests.whole_run.known --check; \
	check $(BIN)/python -m tests.prose; \
	check $(BIN)/python -m tests.whole_run.timings --check; \
	check env PYTHONPATH=.:wire:log:raft:worlds $(BIN)/python -m tests.simulation.cluster_run.long --check; \
	check env PYTHONPATH=.:wire:log:raft:worlds $(BIN)/python -m tests.faults.fault_run --check; \
	exit $$failed

generate: say-generate $(VENV)/.install
	$(BIN)/python wire/generate
	$(BIN)/python -m pykbroker.config.key_texts
	$(BIN)/python -m pykbroker.config.reference
	$(BIN)/python -m pykbroker.api.reference
	$(BIN)/python -m pykbroker.tools.commands.reference
	$(BIN)/python -m pykbroker.testing.reference
	PYTHONPATH=.:wire:log:raft:worlds $(BIN)/python -m compat_tests.differential.docs
	PYTHONPATH=.:wire:log:raft:worlds $(BIN)/python -m compat_tests.secured_clients.docs
	$(BIN)/python -m bench.report

# make schemas KAFKA=4.4.0: wire/schemas again, from the jars of that release that hold message definitions.
KAFKA ?= 4.4.0
schemas: say-schemas system $(VENV)/.install
	$(BIN)/python wire/generate schemas --kafka $(KAFKA)

clean: say-clean
	rm -rf $(VENV) $(FRAMEWORKS) $(SSLYZE) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist
