"""What a job's status says of how its program is started."""

from typing import Any

import pytest
from tests.unit.counting import CountedWork
from tests.unit.lifecycle.builders import a_job

from muster.pods.launching import is_shell_line, start_text
from muster.protocol.starters import commands_of
from muster.status.template import problem
from muster.world.fleet import Fleet


def said(*command: str, env: dict[str, str] | None = None, **spec: Any) -> str:
    listed = [{"name": name, "value": value} for name, value in (env or {}).items()]
    container = {"name": "main", "image": "i", "command": list(command), "env": listed}
    return start_text(a_job(**{"gpusPerNode": 8, "template": {"spec": {"containers": [container]}}, **spec}))


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
        (said("bash", "-c", "torchrun --nproc_per_node=$N train.py"), ""),
        (
            said("bash", "-c", "torchrun train.py"),
            "torchrun starts 8 processes on each node, one for each GPU (PET_NPROC_PER_NODE)",
        ),
        (said("bash", "-c", "pip install deepspeed && cd /opt/deepspeed; python3 -m pip install accelerate"), ""),
        (said("bash", "-c", "accelerate launch --num_machines $NNODES --machine_rank $NODE_RANK train.py # don't"), ""),
        (said("accelerate", "launch", "--multi_gpu", "--num_processes=8", "train.py"), ""),
        (said("accelerate-launch", "train.py"), ""),
        (said("accelerate", "launch", "--config_file=a.yaml", "train.py"), ""),
        (said("fabric", "run", "--devices=8", "--node-rank=$(NODE_RANK)", "train.py"), ""),
        (said("torchrun", "--nproc-per-node=8", "--nnodes=$(NNODES)", "--node_rank=$(NODE_RANK)", "train.py"), ""),
        (said("torchrun", "--nproc-per-node=8", "--nnodes=3", "train.py", "--standalone", "--max-restarts=3"), ""),
        (said("torchrun", "--nproc-per-node=8", "--nnodes=1", "train.py", nodes=1), ""),
        (said("torchrun", "--nproc-per-node=8", "--nnodes=1:3", "--max-restarts=0", "train.py"), ""),
        (said("torchrun", "--nproc-per-node=8", "--nnodes=1:4", "--rdzv-backend=c10d", "train.py", nodes=2), ""),
        (said("accelerate", "launch", "--machine_rank=0", "--rdzv_backend=c10d", "train.py"), ""),
        (said("accelerate", "launch", "--num_machines=2", "--rdzv_backend=c10d", "train.py"), ""),
        (said("mpirun", "-np", "8", "./train", nodes=1, gpusPerNode=1), ""),
        (said("/workspace/run.sh"), ""),
        (said("python3", "train.py", gpusPerNode=1), ""),
        (said("python3", "-m", "MaxText.train", "configs/base.yml", "run_name=a"), ""),
        (said("python3", "train.py", launch={"processesPerNode": 8}), ""),
        (said("accelerate", "launch", "--machine_rank=$(NODE_RANK)", "train.py"), ""),
        (said("accelerate", "launch", "train.py", nodes=1), ""),
        (said("deepspeed", "-H", "/hosts", "--no_ssh", "train.py"), ""),
        (said("fabric", "run", "--node_rank=$(NODE_RANK)", "train.py"), ""),
        (said("fabric", "run", "train.py", nodes=1), ""),
        (said("tune", "run", "--rdzv_endpoint=$(MASTER_ADDR):$(MASTER_PORT)", "full_finetune_distributed"), ""),
        (said("tune", "run", "lora", env={"PET_RDZV_ENDPOINT": "$(MASTER_ADDR):$(MASTER_PORT)"}), ""),
        (said("python3", "train.py", launch={"mode": "Plain"}), ""),
    ],
)
def test_what_is_as_it_should_be_is_said_in_few_words(found: str, expected: str) -> None:
    assert found == expected


def test_a_program_that_leaves_gpus_to_one_process_is_told() -> None:
    assert "set launch.processesPerNode to 8" in said("python3", "train.py")


@pytest.mark.parametrize(
    "command", [["accelerate", "launch", "--cpu"], ["bash", "-lc", "exec accelerate launch --cpu train.py"]]
)
def test_nodes_that_would_train_alone_are_told_with_the_options_to_add(command: list[str]) -> None:
    told = said(*command, nodes=4)
    assert "each node would train alone: add --num_machines=$(NNODES) --machine_rank=$(NODE_RANK)" in told
    assert "--num_processes=32" in told


@pytest.mark.parametrize(
    "command",
    [["deepspeed", "--num_gpus=8", "train.py"], ["bash", "-lc", "set -e\nPYTHONPATH=/a exec deepspeed \\\n train.py"]],
)
def test_deepspeed_alone_is_told_also_in_a_line_of_a_shell(command: list[str]) -> None:
    assert "start the program with torchrun" in said(*command)
    assert said(*command, nodes=1) == ""


def test_fabric_alone_is_told_with_the_options_to_add() -> None:
    for command in (["fabric", "run", "--devices=8", "t.py"], ["lightning", "run", "model", "t.py"]):
        told = said(*command)
        assert "each node would train alone: add --num-nodes=$(NNODES) --node-rank=$(NODE_RANK)" in told
        assert "processesPerNode" not in told


def test_processes_of_all_nodes_on_each_of_them_are_told() -> None:
    told = said("accelerate", "launch", "--num_processes", "16", "train.py")
    assert told.endswith("which has 8 GPUs and not 16: write --num_processes=8")
    assert "no node would know its rank" in said("accelerate", "launch", "--num_machines=2", "train.py")


@pytest.mark.parametrize(
    ("options", "env", "named"),
    [
        (["--standalone"], {}, "--standalone"),
        ([], {"PET_STANDALONE": "1"}, "--standalone"),
        (["--nnodes=1"], {}, "--nnodes=1"),
        (["--nnodes", "1:1"], {}, "--nnodes=1:1"),
        (["--nnodes=1:4"], {}, "--nnodes=1:4"),  # torchrun's own rendezvous waits for four
        (
            ["--nnodes=2", "--node_rank", "0", "--master_addr=localhost"],
            {},
            "--node-rank=0, --master-addr=localhost",
        ),
        (
            ["--rdzv_backend=c10d", "--rdzv_endpoint=localhost:29400"],
            {},
            "--rdzv-endpoint=localhost:29400",
        ),
    ],
)
def test_a_torchrun_that_would_not_meet_the_others_is_told_by_its_option(
    options: list[str], env: dict[str, str], named: str
) -> None:
    direct = said("torchrun", "--nproc_per_node=8", *options, "train.py", env=env, nodes=2)
    then = "each train alone" if named in ("--standalone", "--nnodes=1", "--nnodes=1:1") else "not find each other"
    assert direct.startswith(
        f"torchrun {named} counts in place of what Muster sets, so that the 2 nodes would {then}: take it out"
    )
    line = " ".join(["cd /w && torchrun --nproc_per_node=8", *options, "train.py"])
    assert said("bash", "-euo", "pipefail", "-c", line, env=env, nodes=2) == direct


def test_options_that_a_line_keeps_in_a_variable_are_looked_into() -> None:
    line = (
        "NODES=1\nDISTRIBUTED_ARGS=(\n  --nproc_per_node 8\n  --nnodes $NODES\n)\ntorchrun ${DISTRIBUTED_ARGS[@]} "
        "pretrain_gpt.py"
    )
    assert said("bash", "-c", line, nodes=2).startswith("torchrun --nnodes=1 counts in place of what Muster sets")


@pytest.mark.parametrize(
    ("command", "named", "remedy"),
    [
        ("accelerate launch --num_machines=2 --machine_rank 0 t.py", "--machine-rank=0", "--machine-rank=$(NODE_RANK)"),
        (
            "accelerate launch --machine_rank=$(NODE_RANK) --main_process_ip=10.0.0.1 t.py",
            "--main-process-ip=10.0.0.1",
            "--main-process-ip=$(MASTER_ADDR)",
        ),
        ("composer -n 8 --node_rank 0 --world_size 16 t.py", "--node-rank=0", "--node-rank=$(NODE_RANK)"),
        ("fabric run --node-rank=1 t.py", "--node-rank=1", "--node-rank=$(NODE_RANK)"),
        ("deepspeed --no_ssh --hostfile /h --node_rank=0 t.py", "--node-rank=0", "--node-rank=$(NODE_RANK)"),
    ],
)
def test_who_a_node_is_cannot_be_written_out(command: str, named: str, remedy: str) -> None:
    told = said(*command.split(), nodes=2)
    assert f"{named} is the same on each of 2 nodes" in told
    assert told.endswith(f"write {remedy}")
    assert "is the same" not in said(*command.split(), nodes=1)


@pytest.mark.parametrize(
    "rank",
    ["${HOSTNAME##*-}", "$(hostname | cut -d- -f4-)", "$(hostname -s|awk -F- '{print $NF}')", "`hostname | tail -c 2`"],
)
def test_a_rank_that_a_line_takes_from_the_pods_name_is_told(rank: str) -> None:
    told = said("bash", "-c", f"export NODE={rank}; composer -n 8 --node_rank $NODE train.py", nodes=2)
    assert told == (
        f"{rank} is no rank: the end of a pod's name counts its replacements. Where the line needs the number of the "
        "node, write $NODE_RANK"
    )
    assert said("bash", "-c", "echo $(hostname) on $HOSTNAME | tee log; composer -n 8 train.py", nodes=2) == ""


def test_a_deadline_of_the_pod_is_told_and_not_used() -> None:
    container = {"name": "main", "image": "i", "command": ["torchrun", "--nproc-per-node=8", "train.py"]}
    told = start_text(a_job(template={"spec": {"containers": [container], "activeDeadlineSeconds": 3600}}))
    assert told.startswith("activeDeadlineSeconds is not used")


@pytest.mark.parametrize("name", ["mpirun", "horovodrun", "srun"])
def test_programs_that_reach_other_machines_by_themselves_are_told(name: str) -> None:
    direct = said(name, "-np", "16", "python", "train.py", nodes=2)
    assert direct.startswith(f"{name} {'asks Slurm' if name == 'srun' else 'starts ranks by ssh'}")
    assert direct.endswith(
        "start the program with torchrun in its place, or by itself with spec.launch.processesPerNode"
    )
    assert said("bash", "-c", f"set -e; if true; then exec {name} -np 16 python train.py; fi", nodes=2) == direct
    assert name not in said("bash", "-c", f"echo {name}; python train.py", nodes=2)


def test_a_shells_line_that_is_too_long_to_be_looked_into_is_told() -> None:
    assert "is not looked into" in said("bash", "-c", "#" * 40_000 + "\ncomposer train.py")


def test_the_lines_of_many_jobs_are_read_once_and_not_at_each_look() -> None:
    lines = ["torchrun t.py;" * 100 + f"#{number}" for number in range(300)]
    for line in lines:
        commands_of(["bash", "-c", line])
    with CountedWork() as counted:
        for line in lines:
            commands_of(["bash", "-c", line])
    assert counted.steps < 100 * len(lines)


def test_a_torchrun_that_starts_ranks_again_is_told() -> None:
    told = said("torchrun", "--nproc_per_node=8", "--max-restarts=3", "train.py", nodes=1)
    assert told.startswith("torchrun --max-restarts=3 starts ranks again by itself")
    assert said("torchrun", "--nproc_per_node=8", "train.py", env={"PET_MAX_RESTARTS": "3"}) == told


@pytest.mark.parametrize("starter", [["accelerate", "launch", "--machine_rank=0"], ["tune", "run"]])
def test_others_that_hand_restarts_to_torchrun_are_told(starter: list[str]) -> None:
    assert f"{starter[0]} --max-restarts=3 starts ranks again" in said(*starter, "--max_restarts", "3", "t.py", nodes=1)
    assert "starts ranks again" not in said(*starter, "t.py", "--max_restarts", "3", nodes=1)


@pytest.mark.parametrize(
    "program",
    [["-m", "pkg.train"], ["--module", "--tee=3", "pkg.train"], ["--no_python", "/opt/train"], ["$ARGS", "train.py"]],
)
def test_options_of_the_program_are_not_taken_for_torchruns(program: list[str]) -> None:
    own = ["--nnodes", "1", "--max-restarts", "3", "--standalone"]
    assert said("torchrun", "--nproc-per-node=8", *program, *own, nodes=2) == ""
    assert "--nnodes=1" in said("torchrun", "--nproc-per-node=8", "-t", "3", "--nnodes=1", *program, nodes=2)


@pytest.mark.parametrize("written", ["\N{SUPERSCRIPT TWO}", "9" * 5000])
@pytest.mark.parametrize(
    "command",
    [
        ["torchrun", "--max-restarts={}", "t.py"],
        ["torchrun", "--rdzv-backend=c10d", "--nnodes=1:{}", "t.py"],
        ["accelerate", "launch", "--multi_gpu", "--num_processes={}", "t.py"],
    ],
)
def test_numbers_that_are_none_break_nothing(command: list[str], written: str) -> None:
    """Python's isdigit takes them, and its int does not; the operator looks at each job's command."""
    assert "starts ranks again" not in said(*(word.format(written) for word in command))


def test_options_of_a_module_are_not_taken_for_accelerates() -> None:
    assert "reads no variables" in said("accelerate", "launch", "--cpu", "-m", "pkg.train", "--machine_rank=1", nodes=2)


def test_a_deepspeed_that_would_reach_other_nodes_by_ssh_is_told() -> None:
    told = said("deepspeed", "--num_nodes", "2", "--hostfile", "/job/hostfile", "train.py", nodes=2)
    assert told.startswith("deepspeed with a hostfile reaches the others by ssh")
    assert "start the program with torchrun" in told


@pytest.mark.parametrize("command", [["torchrun", "train.py"], ["env", "NAME=a b", "torchrun", "train.py"]])
def test_torchruns_on_one_node_are_told(command: list[str]) -> None:
    assert "starts it 8 times on each node: leave that at 1" in said(*command, launch={"processesPerNode": 8})
    assert "torchrun starts 8 processes on each node" in said(*command)


def test_a_program_that_nobody_knows_may_start_processes_itself() -> None:
    assert said("my-launcher", "run", "train.py").startswith("my-launcher is started once on each node")
    assert said("uv", "run", "train.py").startswith("one process on each node has its 8 GPUs")
    told = said("my-launcher", "--config=a.yaml")
    assert told.startswith(
        "my-launcher is started once on each node, and has its 8 GPUs: where it starts a process for each"
    )


@pytest.mark.parametrize(
    ("command", "is_line"),
    [
        (["bash", "-c", "x"], True),
        (["bash", "-euo", "pipefail", "-c", "x"], True),
        (["bash", "-o", "pipefail", "-ec", "x"], True),
        (["bash", "+o", "posix", "--rcfile", "f", "-c", "x"], True),
        (["/usr/bin/env", "bash", "-c", "x"], True),
        (["numactl", "-N0", "bash", "-c", "x"], True),
        (["tini", "--", "/bin/sh", "-xc", "x"], True),
        (["bash", "-euo", "pipefail", "run.sh", "-c"], False),
        (["bash", "run.sh", "-c"], False),
        (["python3", "train.py", "--with", "bash", "-c"], False),
        (["torchrun", "train.py", "bash", "-c"], False),
        ([], False),
    ],
)
def test_a_line_of_a_shell_is_seen_behind_options_and_programs(command: list[str], is_line: bool) -> None:
    assert is_shell_line(command) is is_line
    container = {"name": "main", "image": "i", "command": command or ["x"]}
    checkpoint = {"directory": "/c", "resumeArgument": ["--resume", "$(MUSTER_RESUME_PATH)"]}
    found = problem(a_job(checkpoint=checkpoint, template={"spec": {"containers": [container]}}), Fleet())
    assert (found is not None and found[0] == "ResumeArgumentUnused") is is_line


def test_a_tune_run_alone_is_told_with_the_option_to_add() -> None:
    told = said("tune", "run", "--nproc_per_node=8", "full_finetune_distributed", "--config", "llama3/8B_full")
    assert "add --rdzv-endpoint=$(MASTER_ADDR):$(MASTER_PORT) before the name of the recipe" in told


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
        (["/bin/bash", "-c", "torchrun t.py"], "write command: [/bin/bash] and take it out of args"),
        (["python3.11", "-m", "pkg"], "write command: [python3.11] and take it out of args"),
        (["/usr/local/bin/train", "--lr=1"], "write command: [/usr/local/bin/train] and take it out of args"),
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
    assert start_text(job) == ""
