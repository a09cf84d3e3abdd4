# Every target of the house; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CACHE := $(or $(MUSTER_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/muster)
VENV = $(shell PYTHON='$(PYTHON)' tools/venv.sh --path-only)
PY = PYTHONPATH=operator:tools $(VENV)/bin/python
TOOL = PYTHONPATH=tools $(or $(PYTHON),python3) -m
# --name value for each of these variables that is set.
options = $(foreach option,$(1),$(if $($(option)),--$(shell echo $(option) | tr A-Z a-z) $($(option))))
# Each process of a test reads the modules as they were compiled once, and pytest the tests as it once rewrote them.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONHASHSEED := 0

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ What a user runs first
.PHONY: demo recipes test
demo: prepared ## The main job: find a bad node, train, lose a process, a pod and a node, finish with the right weights (KEEP=1 keeps it)
	@$(PY) -u -m demo

recipes: prepared ## The examples of training programs on a cluster, with the demo's faults, and asked to leave (RECIPES="lightning jax-orbax" for a part; KEEP=1)
ifneq ($(CLUSTER),existing)
	@$(TOOL) imagebuild --only recipes
endif
	@$(PY) -u -m recipes $(call options,RECIPES)

test: ## The gate: what must hold before a change lands (lint, verify, unit, integration, e2e), with a table at the end
	@$(TOOL) gate

##@ Tests
.PHONY: lint format verify test-unit test-integration test-e2e test-all test-gpu simulate fuzz attack
# Kept over clones; each tool checks by content what it finds there. Two mypy at once spoil it for each other.
LINT_CACHE := $(CACHE)/lint
lint: venv ## ruff, mypy, import-linter, yamllint
	@mkdir -p $(LINT_CACHE)
	@$(VENV)/bin/ruff check --cache-dir $(LINT_CACHE)/ruff .
	@$(VENV)/bin/ruff format --check --cache-dir $(LINT_CACHE)/ruff .
	@MYPYPATH=operator:tools:. flock $(LINT_CACHE)/mypy.lock $(VENV)/bin/mypy --cache-dir $(LINT_CACHE)/mypy
	@PYTHONPATH=operator:tools $(VENV)/bin/lint-imports --no-logo --cache-dir $(LINT_CACHE)/imports
	@test ! -e operator/__init__.py || { echo "operator/__init__.py shadows the standard library: remove it"; exit 1; }
	@$(VENV)/bin/yamllint --strict manifests examples crds

format: venv ## Format the code, and repair what ruff can repair
	@$(VENV)/bin/ruff check --fix --quiet . || true
	@$(VENV)/bin/ruff format .

generate: venv ## Render crds/ and the generated reference from the models and metrics
	@$(PY) -m apidocs.render
	@$(PY) -m monitoring.page
	@$(PY) -m monitoring.dashboards

verify: venv ## Regenerate, then the tree must be what it was
	@tools/verify.sh

# T=folder, file or test; K=words that its name matches. Without T a level leaves its folder nightly/ to `make test-all`.
quoted = '$(subst ','\'',$(1))'
PYTEST = $(PY) -m pytest -p gate.results -q $(if $(K),-k $(call quoted,$(K)))
tests_of = $(if $(T),$(call quoted,$(T)),tests/$(1) --ignore=tests/$(1)/nightly)
side_by_side = $(if $(T)$(K),,-n $(2) --dist $(1))
many_examples = $(if $(findstring tests/unit/nightly,$(T)),--hypothesis-profile=nightly)

test-unit: venv ## Pure functions and single processes (T=tests/unit/queueing K=order for a part)
	@$(PYTEST) $(many_examples) $(call tests_of,unit) $(call side_by_side,worksteal,3)

test-integration: venv binaries ## Against a real API server (T=, K=)
	@$(PYTEST) $(call tests_of,integration) $(call side_by_side,loadfile,4)

test-e2e: cluster-up ## Real nodes, real containers, real faults, on a cluster of four (T=, K=)
	@$(PYTEST) $(call tests_of,e2e) --reruns 1

test-all: ## Everything, in parts; goes on after a failure and where it was stopped (PART=oldest, PART=e2e-faults, AGAIN=1)
	@$(TOOL) gate.everything $(call options,PART) $(if $(AGAIN),--again)

simulate: venv ## Lives of a simulated fleet with faults at random (MINUTES=3 SEED=1 JOBS=2 RECORD=docs/simulated.json, or REPLAY=build/simulate/17.json)
	@$(PY) -m simulate $(call options,MINUTES SEED JOBS RECORD REPLAY)

fuzz: venv ## Mutated objects, reports and requests beside a healthy job (SECONDS=60 INPUTS=100000 SEED=1, or REPLAY=build/fuzz/17.json)
	@$(PY) -m fuzz $(call options,SECONDS INPUTS SEED REPLAY)

ATTACK_OPTIONS = $(call options,FAULTS SEED MINUTES CHAOS QUIET)
attack: venv cluster-up ## Faults on the real local cluster: FAULTS=build/simulate/17.json, or SEED=1 MINUTES=3 (CHAOS=all)
	@$(PY) -u -m attack $(ATTACK_OPTIONS)

test-gpu: venv ## The node agent and the burn-in with this machine's own NVIDIA driver and torch; not run by CI
	@$(PY) -m pytest tests/gpu -q -s

##@ Measurements
# Every bench-* target of this file.
BENCHES := $(shell awk -F: '/^bench-[a-z-]+:/ {print $$1}' $(MAKEFILE_LIST))
.PHONY: bench $(BENCHES)
bench: $(BENCHES) ## Every bench below; figures go to build/bench/

GANG_OPTIONS := $(call options,SYSTEMS SIZES CASES RUNS BINDINGS MODES)
bench-gang: venv ## Gangs of 64 to 2,048 pods, Muster and its peers (SIZES=64 SYSTEMS=bare,muster RUNS=1 for a part)
	@$(PY) -m bench.gang $(GANG_OPTIONS)

bench-agent: venv ## What the node agent costs: CPU and memory over ten minutes beside eight GPUs of a fake driver
	@$(PY) -m bench.agent

HEALTH_OPTIONS := $(call options,NODES BAD GANGS RUNS)
bench-health: venv ## 200 of 2,048 nodes fall sick at once: how soon each is tainted, and whether the budget holds (NODES=256 BAD=40 RUNS=1)
	@$(PY) -m bench.health $(HEALTH_OPTIONS)

HEALTH_FLEETS_OPTIONS = $(call options,FLEETS SEED MINUTES JOBS RESUME)
# All 300 take hours of a core.
bench-health-fleets: MINUTES ?= 20
bench-health-fleets: venv ## The rules of health over a month of 300 fleets: sick nodes used again, healthy ones out, the budget (FLEETS=20 SEED=1 MINUTES=10 JOBS=2 RESUME=file)
	@$(PY) -m bench.health_fleets $(HEALTH_FLEETS_OPTIONS)

QUIET_OPTIONS := $(call options,NODES SECONDS RATE)
bench-quiet: venv ## What 16,384 nodes cost the operator while nothing happens (NODES=1024 SECONDS=30 for a part)
	@$(PY) -m bench.quiet $(QUIET_OPTIONS)

.PHONY: tornsaves
tornsaves: venv ## Six frameworks' saves cut short at 200 moments and by 10 SIGKILLs: what is called complete they load (FRAMEWORKS="torch orbax")
	@$(TOOL) imagebuild --only recipes
	@$(PY) -u -m tornsaves $(call options,FRAMEWORKS)

CHECKPOINTS_OPTIONS := $(call options,TENSORS RANKS RUNS)
bench-checkpoints: venv ## Judging eight checkpoints of 873 tensors on 512 ranks: the newest, all, and again (TENSORS=90 RANKS=64 RUNS=1)
	@$(PY) -m bench.checkpoints $(CHECKPOINTS_OPTIONS)

bench-placement: venv ## Placing gangs on 16,384 nodes, queues of 1,000 jobs, and the longest step of a plan, in milliseconds
	@$(PY) -m bench.placement

# The default takes some ten minutes of a core.
QUEUE_OPTIONS := $(call options,NODES DAYS LOAD SEED SEEDS WORKLOADS POLICIES REQUIRED)
bench-queue: venv ## Waits by size in Muster's queue beside FIFO, EASY, conservative backfill and an oracle, 30 days of 256 nodes (NODES=2048 SEEDS=1 WORKLOADS=kalos POLICIES=muster,easy2)
	@$(PY) -m bench.queueing $(QUEUE_OPTIONS)

bench-goodput: venv ## What accounting of 500 jobs with 16,384 workers costs the operator, in percent of a core (SECONDS=61 for a part)
	@$(PY) -m bench.goodput $(call options,SECONDS)

bench-top: venv ## How long kubectl muster top --once takes to tell of 500 jobs on a real API server (RUNS=1 for a part)
	@$(TOOL) localcluster build
	@$(PY) -m bench.top $(call options,RUNS)

bench-flood: venv ## What 64 hostile clients of each port take of the event loop behind it (SECONDS=3 ONLY=handshakes for a part)
	@$(PY) -m bench.flood $(call options,SECONDS ONLY)

bench-what-if: venv ## What kubectl muster what-if takes for 1,024, 16,384 and 131,072 GPUs over 54 days, in seconds of a core
	@$(PY) -m bench.whatif

bench-burnin: venv ## Gangs of 64, 512 and 2,048 from bound to proved, beyond the probes' own time (SIZES=64 RUNS=1 for a part)
	@$(PY) -m bench.burnin $(call options,SIZES RUNS)

bench-give-way: venv cluster-up ## How soon the test of an idle node gives way to a gang, on the local cluster (RUNS=3 SEED=1 for a part)
	@$(PY) -m bench.giveway $(call options,RUNS SEED)

BURNIN_OPTIONS := $(call options,GANGS SEED)
bench-burnin-rules: venv ## Whom the burn-in blames in 10,000 random gangs of 8 to 2,048, and in how many rounds (GANGS=200 SEED=1 for a part)
	@$(PY) -m bench.burnin_rules $(BURNIN_OPTIONS)

##@ A release
.PHONY: release
release: venv ## What users install from, into build/release (VERSION=0.2.0-rc1 REGISTRY=registry.example.org/muster KEY=cosign.key SOURCES=1)
	@test -n '$(VERSION)' || { echo "Which version? make release VERSION=1.2.3, as operator/muster/__init__.py has it"; exit 1; }
	@$(PY) -u -m release $(call options,VERSION REGISTRY KEY SOURCES)

##@ The pieces
.PHONY: venv print-venv lock
venv:
	@tools/venv.sh >/dev/null

print-venv: venv
	@echo $(VENV)

lock: venv ## Lock the dependencies: requirements/*.in -> requirements/*.txt, and the images' Debian packages (as root)
	@PATH="$(VENV)/bin:$$PATH" tools/lock.sh
	@$(PY) -m supply.debian lock

.PHONY: generate prepared binaries images cluster-up kwok-up cluster-down clean clean-cache
prepared: venv # images and Kubernetes side by side: the one waits for the network, the other for the processors
	@$(MAKE) --no-print-directory -j2 images $(if $(filter existing,$(CLUSTER)),,binaries)

binaries: ## Build etcd, Kubernetes and CoreDNS (cached by content)
	@$(TOOL) localcluster build

images: venv ## Build the container images (cached by content)
ifeq ($(CLUSTER),existing)
	@echo "CLUSTER=existing: the images are taken from IMAGE_PREFIX=$(IMAGE_PREFIX)"
else
	@$(TOOL) imagebuild
endif

cluster-up: prepared ## A real Kubernetes of NODES=4 nodes on this machine, images loaded (CLUSTER_NAME=other for a second one)
ifeq ($(CLUSTER),existing)
	@kubectl cluster-info >/dev/null || { echo "CLUSTER=existing: the cluster of the current kubeconfig does not answer"; exit 1; }
else
	@$(TOOL) localcluster up $(if $(CLUSTER_NAME),--name $(CLUSTER_NAME)) $(if $(NODES),--nodes $(NODES)) --from build/images/images.json
endif

kwok-up: ## A control plane with NODES=64 fake GPU nodes, until Ctrl-C
	@$(TOOL) localcluster.kwok --nodes $(or $(NODES),64)

cluster-down: ## Take every local cluster of this clone down and leave nothing behind
ifneq ($(CLUSTER),existing)
	@$(TOOL) localcluster down --all-mine
endif

clean: cluster-down ## Take everything down and remove build/
	@rm -rf build

clean-cache: clean ## Remove everything that was cached under the user's cache folder
	@rm -rf "$(CACHE)"
