"""References in commands and variables, resolved as Kubernetes would, but at each start."""

from __future__ import annotations

import pytest
from tests.unit.lifecycle.builders import SETTINGS, a_job

from muster.api.gang import Member
from muster.launcher.expansion import expanded, with_identity
from muster.lifecycle.worker_pod import LAUNCHER_PATH, worker_manifest
from muster.protocol.starters import option, starter_of

ENVIRONMENT = {"RANK": "3", "MASTER_ADDR": "10.0.0.1", "A.B": "c", "EMPTY": ""}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("--node-rank=$(RANK)", "--node-rank=3"),
        ("tcp://$(MASTER_ADDR):$(RANK)", "tcp://10.0.0.1:3"),
        ("$(A.B)$(EMPTY)!", "c!"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(RANK)", "$(RANK)"),
        ("$$$(RANK)", "$3"),
        ("$$$$(RANK)", "$$(RANK)"),
        ("$(RANK", "$(RANK"),
        ("$RANK ${RANK} 5$", "$RANK ${RANK} 5$"),
        ("$($(RANK))", "$($(RANK))"),
        ("echo $$ $(date)", "echo $ $(date)"),
    ],
)
def test_references_are_resolved_by_the_rules_of_kubernetes(written: str, read: str) -> None:
    assert expanded([written], ENVIRONMENT) == [read]


def test_variables_may_refer_to_musters_and_only_to_those() -> None:
    names = {**ENVIRONMENT, "PET_RDZV_ENDPOINT": "$(MASTER_ADDR):29400", "OTHER": "$(A.B) $$(RANK)", "NODE_RANK": "1"}
    found = with_identity(names)
    assert found["PET_RDZV_ENDPOINT"] == "10.0.0.1:29400"
    assert found["OTHER"] == "$(A.B) $$(RANK)"
    assert {name: found[name] for name in ENVIRONMENT} == ENVIRONMENT


def test_what_the_kubelet_makes_of_the_pods_command_is_what_was_written() -> None:
    written = ["sh", "-c", "echo $$ $(RANK) $$(RANK) $HOME", "$"]
    container = {"name": "main", "image": "i", "command": written[:2], "args": written[2:]}
    job = a_job(template={"spec": {"containers": [container]}})
    command = worker_manifest(job, Member(index=0, node="n1"), SETTINGS)["spec"]["containers"][0]["command"]
    assert command[:4] == ["python3", "-I", LAUNCHER_PATH, "--"]
    # The kubelet knows the container's variables, of which RANK might be one.
    assert expanded(command[4:], {"RANK": "wrong"}) == written


@pytest.mark.parametrize(
    ("command", "starter"),
    [
        (["torchrun", "train.py"], "torchrun"),
        (["/opt/conda/bin/torchrun", "--nproc-per-node=8", "train.py"], "torchrun"),
        (["python3", "-m", "torch.distributed.run", "train.py"], "torchrun"),
        (["accelerate", "launch", "train.py"], "accelerate"),
        (["composer", "-n", "4", "train.py"], "composer"),
        (["deepspeed", "train.py", "--deepspeed"], "deepspeed"),
        (["python", "train.py", "--launcher", "torchrun"], ""),
        (["bash", "-c", "torchrun train.py"], ""),
        ([], ""),
    ],
)
def test_programs_that_start_processes_are_recognised(command: list[str], starter: str) -> None:
    assert starter_of(command) == starter


def test_options_are_found_before_the_program_that_is_started() -> None:
    command = ["composer", "--world_size", "16", "-n=4", "train.py", "--nproc", "3"]
    assert option(command, "--world-size") == "16"
    assert option(command, "-n", "--nproc") == "4"
    assert option(command, "--nproc") is None
    assert option(["a", "--last"], "--last") == ""
