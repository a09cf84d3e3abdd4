"""References in commands and variables, resolved as Kubernetes would, but at each start."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, a_job

from muster.api.gang import Member
from muster.pods.worker_pod import LAUNCHER_PATH, worker_manifest
from muster.protocol.expansion import REFERRING, expanded, resolved, with_identity
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
    assert resolved([written], ENVIRONMENT) == [read]


def manifest(env: dict[str, str], *command: str) -> dict[str, Any]:
    """The container that trains, in the pod."""
    listed = [{"name": name, "value": value} for name, value in env.items()]
    container = {"name": "main", "image": "i", "command": list(command[:2]), "args": list(command[2:]), "env": listed}
    job = a_job(template={"spec": {"containers": [container]}})
    found = worker_manifest(job, Member(index=0, node="n1"), SETTINGS)["spec"]["containers"][0]
    return dict(found)


def by_the_kubelet(made: dict[str, Any]) -> dict[str, str]:
    """The variables of a pod's container, each resolved by those before it."""
    found: dict[str, str] = {}
    for each in made["env"]:
        found[each["name"]] = resolved([each.get("value", "")], found)[0]
    return found


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("echo $$ $(RANK) $$(RANK) $$$(RANK) $HOME", "echo $ 3 $(RANK) $3 $HOME"),
        ("$(OWN) $$(OWN) $$$$(OWN)", "own $(OWN) $$(OWN)"),
        ("x=$(PATH) $(nproc)", "x=$(PATH) $(nproc)"),  # of the image, and what a shell is to run
        ("--nproc-per-node=$(PET_NPROC_PER_NODE)", "--nproc-per-node=8"),
        ("$(MUSTER_RESUME_PATH)", "$(MUSTER_RESUME_PATH)"),  # a start from scratch has none
        ("$", "$"),
    ],
)
def test_a_command_is_what_kubernetes_would_make_of_it_if_it_knew_musters_variables(written: str, read: str) -> None:
    made = manifest({"OWN": "own"}, "sh", "-c", written)
    assert made["command"][:4] == ["python3", "-I", LAUNCHER_PATH, "--"]
    # The kubelet knows the container's variables, of which RANK might be one.
    command = resolved(made["command"][4:], {**by_the_kubelet(made), "RANK": "wrong"})
    in_image = {"PATH": "/bin", "OWN": "own", "RANK": "3", "PET_NPROC_PER_NODE": "8"}
    assert expanded(command, in_image) == ["sh", "-c", read]


def test_only_variables_whose_own_text_refers_to_musters_are_completed() -> None:
    own = {"ENDPOINT": "$(MASTER_ADDR):29400", "URL": "tcp://$(ENDPOINT)", "OTHER": "$$(OWN) $$", "TEXT": "$$(RANK)"}
    told = by_the_kubelet(manifest(own, "x"))
    others = {"FROM_CONFIGMAP": "echo $$(RANK) $(RANK)", "OF_THE_IMAGE": "$(RANK)"}
    found = with_identity({**told, **others, **ENVIRONMENT})
    assert {name: found[name] for name in own} == {
        "ENDPOINT": "10.0.0.1:29400",
        "URL": "tcp://10.0.0.1:29400",
        "OTHER": "$(OWN) $",
        "TEXT": "$(RANK)",
    }
    assert {name: found[name] for name in others} == others
    assert {name: found[name] for name in ENVIRONMENT} == ENVIRONMENT
    assert with_identity({REFERRING: '["GONE"]'}) == {REFERRING: '["GONE"]'}


def test_paths_and_patterns_of_the_job_reach_the_launcher_as_written() -> None:
    checkpoint = {"directory": "/c/$(OWN)", "localDirectory": "/l/$$(A)"}
    container = {"name": "main", "image": "i", "command": ["x"], "env": [{"name": "OWN", "value": "own"}]}
    job = a_job(
        checkpoint=checkpoint, progress={"stepPattern": "a$$(b)$(OWN)"}, template={"spec": {"containers": [container]}}
    )
    found = by_the_kubelet(worker_manifest(job, Member(index=0, node="n1"), SETTINGS)["spec"]["containers"][0])
    assert found["MUSTER_CHECKPOINT_DIRECTORY"] == "/c/$(OWN)"
    assert found["MUSTER_LOCAL_CHECKPOINT_DIRECTORY"] == "/l/$$(A)"
    assert found["MUSTER_STEP_PATTERN"] == "a$$(b)$(OWN)"


@pytest.mark.parametrize("mode", ["Managed", "Plain"])
@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("$(NODE_RANK)", "1"),
        ("$(MASTER_ADDR):29500", "10.0.0.1:29500"),
        ("$$(MASTER_ADDR)", "$(MASTER_ADDR)"),
        ("$$$(NODE_RANK)", "$1"),
        ("$$$$(NODE_RANK)", "$$(NODE_RANK)"),
        ("$(OWN) $$(OWN) $$ $", "own $(OWN) $ $"),
    ],
)
def test_variables_that_refer_to_musters_get_musters_values(written: str, read: str, mode: str) -> None:
    """The container and the kubelet may say otherwise."""
    env = [("NODE_RANK", "0"), ("MASTER_ADDR", "job-0.svc"), ("OWN", "own"), ("SHARD", written)]
    container = {"name": "main", "image": "i", "command": ["x"], "env": [{"name": n, "value": v} for n, v in env]}
    job = a_job(launch={"mode": mode}, template={"spec": {"containers": [container]}})
    member = Member(index=1, rank=1, node="n1")
    listed = worker_manifest(job, member, SETTINGS)["spec"]["containers"][0]["env"]
    assert len({each["name"] for each in listed}) == len(listed)
    in_container: dict[str, str] = {}
    service = {"MASTER_ADDR": "tcp://10.96.0.7"}  # as a Service of the namespace may be called
    for each in listed:
        in_container[each["name"]] = resolved([each.get("value", "")], {**service, **in_container})[0]
    if mode == "Plain":
        assert in_container["NODE_RANK"] == "1"
        assert in_container["SHARD"] == read.replace("10.0.0.1", in_container["MASTER_ADDR"])
        return
    assert not {"NODE_RANK", "MASTER_ADDR"} & set(in_container)
    ours = {"NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1"}
    assert with_identity({**in_container, **ours})["SHARD"] == read


@pytest.mark.parametrize(
    ("command", "starter"),
    [
        (["torchrun", "train.py"], "torchrun"),
        (["/opt/conda/bin/torchrun", "--nproc-per-node=8", "train.py"], "torchrun"),
        (["python3", "-m", "torch.distributed.run", "train.py"], "torchrun"),
        (["accelerate", "launch", "train.py"], "accelerate"),
        (["composer", "-n", "4", "train.py"], "composer"),
        (["deepspeed", "train.py", "--deepspeed"], "deepspeed"),
        (["env", "NAME=a b", "torchrun", "train.py"], "torchrun"),
        (["accelerate-launch", "train.py"], "accelerate"),
        (["lightning", "run", "model", "train.py"], "fabric"),
        (["lightning", "fit"], ""),
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
