"""What a job's status says of how its program is started."""

from typing import Any

import pytest
from tests.unit.lifecycle.builders import a_job

from muster.lifecycle.launching import words
from muster.lifecycle.template import problem
from muster.world.fleet import Fleet


def said(*command: str, env: dict[str, str] | None = None, **spec: Any) -> str:
    listed = [{"name": name, "value": value} for name, value in (env or {}).items()]
    container = {"name": "main", "image": "i", "command": list(command), "env": listed}
    return words(a_job(**{"gpusPerNode": 8, "template": {"spec": {"containers": [container]}}, **spec}))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            said("torchrun", "train.py"),
            "torchrun starts 8 processes on each node, one for each GPU (PET_NPROC_PER_NODE)",
        ),
        (said("torchrun", "--nproc_per_node", "4", "train.py"), ""),
        (said("torchrun", "train.py", env={"PET_NPROC_PER_NODE": "4"}), ""),
        (said("composer", "train.py"), ""),
        (said("bash", "-c", "torchrun train.py"), ""),
        (said("/workspace/run.sh"), ""),
        (said("python3", "train.py", gpusPerNode=1), ""),
        (said("python3", "-m", "MaxText.train", "configs/base.yml", "run_name=a"), ""),
        (said("python3", "train.py", launch={"processesPerNode": 8}), ""),
        (said("accelerate", "launch", "--machine_rank=$(NODE_RANK)", "train.py"), ""),
        (said("accelerate", "launch", "train.py", nodes=1), ""),
        (said("deepspeed", "-H", "/hosts", "--no_ssh", "train.py"), ""),
        (said("python3", "train.py", launch={"mode": "Plain"}), ""),
    ],
)
def test_what_is_as_it_should_be_is_said_in_few_words(found: str, expected: str) -> None:
    assert found == expected


def test_a_program_that_leaves_gpus_to_one_process_is_told() -> None:
    assert "set launch.processesPerNode to 8" in said("python3", "train.py")


def test_nodes_that_would_train_alone_are_told_with_the_options_to_add() -> None:
    told = said("accelerate", "launch", "train.py", nodes=4)
    assert "each node would train alone: add --num_machines=$(NNODES) --machine_rank=$(NODE_RANK)" in told
    assert "--num_processes=32" in told
    assert "start the program with torchrun" in said("deepspeed", "--num_gpus=8", "train.py")


def test_a_conflict_is_told_by_name() -> None:
    env = {"MASTER_ADDR": "job-worker-0.job", "RANK": "0", "OMP_NUM_THREADS": "4", "PET_NPROC_PER_NODE": "8"}
    assert said("torchrun", "train.py", env=env) == (
        "Muster sets MASTER_ADDR, RANK at each start: what the template's env says of them is not used"
    )
    plain = said("torchrun", "train.py", env=env, launch={"mode": "Plain"})
    assert plain == "Muster sets MASTER_ADDR in each pod: what the template's env says of them is not used"


@pytest.mark.parametrize(
    ("args", "remedy"),
    [
        (["train.py", "--lr=1"], "write command: [python3] beside args (they begin with train.py)"),
        (["torchrun", "train.py"], "write command: [torchrun] and take it out of args"),
        (["--config", "a.yaml"], "write the image's entry point there beside args, e.g. command: [python3, train.py]"),
        ([], "write the image's entry point there, e.g. command: [python3, train.py]"),
    ],
)
def test_args_alone_are_refused_with_the_line_to_write(args: list[str], remedy: str) -> None:
    container = {"name": "main", "image": "trainer:1", "args": args}
    found = problem(a_job(template={"spec": {"containers": [container]}}), Fleet())
    assert found is not None
    assert found[0] == "CommandMissing"
    assert remedy in found[1]


@pytest.mark.parametrize("shapeless", [{"command": 5}, {"command": "train"}, {"command": ["train"], "args": 5}])
def test_a_command_that_is_no_list_is_no_reason_to_fall_silent(shapeless: dict[str, Any]) -> None:
    job = a_job(gpusPerNode=1, template={"spec": {"containers": [{"name": "main", "image": "i", **shapeless}]}})
    assert words(job) == ""
