# Every target of the house; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CACHE := $(or $(MUSTER_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/muster)
VENV = $(shell tools/venv.sh --path-only)
PY = PYTHONPATH=operator:tools $(VENV)/bin/python
TOOL = PYTHONPATH=tools python3 -m
# --name value for each of these variables that is set.
options = $(foreach option,$(1),$(if $($(option)),--$(shell echo $(option) | tr A-Z a-z) $($(option))))
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ What a user runs first
.PHONY: demo recipes test
demo: venv images ## The main job: find a bad node, train, lose a process, a pod and a node, finish with the right weights (KEEP=1 keeps it)
	@$(PY) -u -m demo

recipes: venv images ## Seven training frameworks on a cluster, with the demo's faults (RECIPES="lightning jax-orbax" for a part; KEEP=1)
ifneq ($(CLUSTER),existing)
	@$(TOOL) imagebuild --only recipes
endif
	@$(PY) -u -m recipes $(call options,RECIPES)

test: lint verify test-unit test-integration test-e2e ## The gate: what must hold before a change lands

##@ Tests
.PHONY: lint verify test-unit test-integration test-e2e test-long test-gpu simulate fuzz attack
lint: venv ## ruff, mypy, import-linter, yamllint
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@MYPYPATH=operator:tools:. $(VENV)/bin/mypy
	@PYTHONPATH=operator $(VENV)/bin/lint-imports --no-logo
	@test ! -e operator/__init__.py || { echo "operator/__init__.py shadows the standard library: remove it"; exit 1; }
	@$(VENV)/bin/yamllint --strict manifests examples crds

generate: venv ## Render crds/ and the generated reference from the models and metrics
	@$(PY) -m muster.api.render
	@$(PY) -m monitoring.page
	@$(PY) -m monitoring.dashboards

verify: venv ## Regenerate, then the tree must be what it was
	@tools/verify.sh

# What explores, plants defects or takes minutes: `make test-all` runs it beside the gate.
LONG_UNIT := $(addprefix tests/unit/,fuzz/test_rounds.py lifecycle/test_random_lives.py simulate/test_fleets.py \
	simulate/test_lives.py simulate/test_many.py whatif/test_beside_the_simulator.py)
LONG_INTEGRATION := $(addprefix tests/integration/,test_kwok.py checkpoint/test_stores.py controller/test_cost.py \
	controller/test_crash_points.py controller/test_dashboards.py install/test_replicas.py page/test_page.py \
	preflight_probes/test_real_torch.py)
# The end-to-end tests of the gate, on one cluster of four nodes.
GATE_E2E := $(addprefix tests/e2e/test_,faults.py::test_a_killed_rank_restarts_in_place \
	faults.py::test_a_deleted_pod_comes_back_on_its_node faults.py::test_a_node_that_loses_power_is_replaced \
	faults.py::test_a_drained_node_is_left_after_a_new_checkpoint \
	jobs.py::test_a_plain_job_is_rebuilt_after_any_failure \
	jobs.py::test_two_jobs_never_share_a_node_and_the_second_says_what_it_waits_for \
	placement.py::test_a_job_that_waits_is_explained_and_starts_when_there_is_room control_plane.py \
	health.py::test_xid_79_moves_the_job_and_the_node_is_used_again_after_a_reboot \
	burn_in.py::test_a_node_whose_sums_differ_is_replaced_and_the_others_keep_their_pods)
# Lanes of the other end-to-end tests, each on a cluster of its own.
ON_EIGHT := $(addprefix tests/e2e/test_,cut_off.py existing.py recipes.py upgrade.py)
# They test nodes, which is work for the processors: on a cluster that has nothing else to do.
ON_TESTED := $(addprefix tests/e2e/test_,burn_in.py corruption.py)
LANES := test-e2e-four test-e2e-eight test-e2e-tested
.PHONY: test-all $(LANES)

test-unit: venv ## Pure functions and single processes
	@PYTHONHASHSEED=0 $(PY) -m pytest tests/unit $(addprefix --ignore=,$(LONG_UNIT)) -q -m "not long" -n 4 --dist worksteal

test-integration: venv ## Against a real API server
	@$(TOOL) localcluster build
	@$(PY) -m pytest tests/integration $(addprefix --ignore=,$(LONG_INTEGRATION)) -q -m "not long" -n 4 --dist loadfile

test-e2e: venv images ## Real nodes, real containers, real faults
	@$(MAKE) --no-print-directory cluster-up
	@$(PY) -m pytest $(GATE_E2E) -q --durations=10

test-all: test ## The gate, then what explores and what takes long
	@PYTHONHASHSEED=0 $(PY) -m pytest $(LONG_UNIT) -q -m "not long" -n 2 --dist worksteal
	@$(TOOL) localcluster build
	@$(PY) -m pytest $(LONG_INTEGRATION) tests/e2e/test_localcluster.py -q -m "not long" -n 4 --dist loadfile
	@for lane in $(LANES); do $(MAKE) --no-print-directory $$lane; done

test-e2e-four: venv images
	@$(MAKE) --no-print-directory cluster-up
	@$(PY) -m pytest tests/e2e $(addprefix --ignore=,tests/e2e/test_localcluster.py $(ON_EIGHT) $(ON_TESTED)) -q -m "not long" --durations=10

test-e2e-eight: export CLUSTER_NAME = eight
test-e2e-eight: NODES = 8
test-e2e-eight: TESTS = $(ON_EIGHT)
test-e2e-tested: export CLUSTER_NAME = tested
test-e2e-tested: NODES = 4
test-e2e-tested: TESTS = $(ON_TESTED)
test-e2e-eight test-e2e-tested: venv images
	@trap '$(TOOL) localcluster down --name $(CLUSTER_NAME)' EXIT; \
		$(TOOL) localcluster up --name $(CLUSTER_NAME) --nodes $(NODES) --from build/images/images.json; \
		$(PY) -m pytest $(TESTS) -q -m "not long" --durations=10

test-long: venv cluster-up ## Random moments, random inputs and soak; not run by CI
	@MUSTER_RANDOM=1 $(PY) -m pytest tests -q -m "long or hypothesis"

simulate: venv ## Lives of a simulated fleet with faults at random (MINUTES=3 SEED=1 JOBS=2 RECORD=docs/simulated.json, or REPLAY=build/simulate/17.json)
	@PYTHONHASHSEED=0 $(PY) -m muster.simulate $(call options,MINUTES SEED JOBS RECORD REPLAY)

fuzz: venv ## Mutated objects, reports and requests beside a healthy job (SECONDS=60 INPUTS=100000 SEED=1, or REPLAY=build/fuzz/17.json)
	@PYTHONHASHSEED=0 $(PY) -m muster.simulate.fuzz $(call options,SECONDS INPUTS SEED REPLAY)

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

HEALTH_OPTIONS := $(call options,NODES BAD RUNS)
bench-health: venv ## 200 of 2,048 nodes fall sick at once: how soon each is tainted, and whether the budget holds (NODES=256 BAD=40 RUNS=1)
	@$(PY) -m bench.health $(HEALTH_OPTIONS)

HEALTH_FLEETS_OPTIONS = $(call options,FLEETS SEED MINUTES JOBS RESUME)
# All 300 take hours of a core.
bench-health-fleets: MINUTES ?= 20
bench-health-fleets: venv ## The rules of health over a month of 300 fleets: sick nodes used again, healthy ones out, the budget (FLEETS=20 SEED=1 MINUTES=10 JOBS=2 RESUME=file)
	@PYTHONHASHSEED=0 $(PY) -m bench.health_fleets $(HEALTH_FLEETS_OPTIONS)

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

bench-goodput: venv ## What accounting of 500 jobs with 16,384 workers costs the operator, in percent of a core (SECONDS=61 for a part)
	@$(PY) -m bench.goodput $(call options,SECONDS)

bench-top: venv ## How long kubectl muster top --once takes to tell of 500 jobs on a real API server (RUNS=1 for a part)
	@$(TOOL) localcluster build
	@$(PY) -m bench.top $(call options,RUNS)

bench-what-if: venv ## What kubectl muster what-if takes for 1,024, 16,384 and 131,072 GPUs over 54 days, in seconds of a core
	@$(PY) -m bench.whatif

bench-burnin: venv ## Gangs of 64, 512 and 2,048 from bound to proved, beyond the probes' own time (SIZES=64 RUNS=1 for a part)
	@$(PY) -m bench.burnin $(call options,SIZES RUNS)

bench-give-way: venv cluster-up ## How soon the test of an idle node gives way to a gang, on the local cluster (RUNS=3 SEED=1 for a part)
	@$(PY) -m bench.giveway $(call options,RUNS SEED)

BURNIN_OPTIONS := $(call options,GANGS SEED)
bench-burnin-rules: venv ## Whom the burn-in blames in 10,000 random gangs of 8 to 2,048, and in how many rounds (GANGS=200 SEED=1 for a part)
	@$(PY) -m bench.burnin_rules $(BURNIN_OPTIONS)

##@ The pieces
.PHONY: venv print-venv lock
venv:
	@tools/venv.sh >/dev/null

print-venv: venv
	@echo $(VENV)

lock: venv ## Lock the dependencies: requirements/*.in -> requirements/*.txt
	@PATH="$(VENV)/bin:$$PATH" tools/lock.sh

.PHONY: generate images cluster-up kwok-up cluster-down clean clean-cache
images: venv ## Build the container images (cached by content)
ifeq ($(CLUSTER),existing)
	@echo "CLUSTER=existing: the images are taken from IMAGE_PREFIX=$(IMAGE_PREFIX)"
else
	@$(TOOL) imagebuild
endif

cluster-up: images ## A real Kubernetes of NODES=4 nodes on this machine, images loaded (CLUSTER_NAME=other for a second one)
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
