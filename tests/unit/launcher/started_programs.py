"""Rows of the contract's table of commands, for a real launcher: what the program on the second of two nodes is given.

In the place of torchrun and the others stand programs that print their arguments and their environment: what they make
of them is theirs, and is in their own documents.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from muster.protocol.expansion import REFERRING, referring
from muster.protocol.messages import EXITED

SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]), flush=True)\n"
MODULES = ("torch.distributed.run", "maxtext.trainers.pre_train.train")
C10D = {
    "PET_RDZV_BACKEND": "c10d",
    "PET_RDZV_ENDPOINT": "$(MASTER_ADDR):$(MASTER_PORT)",
    "PET_RDZV_ID": "$(MUSTER_ATTEMPT)",
}
PET = {
    "PET_NNODES": "2",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "127.0.0.1",
    "PET_MASTER_PORT": "29403",
    "PET_NPROC_PER_NODE": "8",
}
JAX = {"JAX_COORDINATOR_ADDRESS": "127.0.0.1:29403", "JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2"}
MAXTEXT = {"JAX_COORDINATOR_IP": "127.0.0.1", "JAX_COORDINATOR_PORT": "29403", "NNODES": "2", "NODE_RANK": "1"}
TRAIN = ("train.py",)


@dataclasses.dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        begins: the row of the page, by what stands first in it.
        command: a command in it.
        given: variables that the program has then.
        arguments: that it has; None: it is the script itself.
        environment: of the container, as the row says.
        script: the command is in a shell script.
        processes: that Muster starts.
    """

    begins: str
    command: str
    given: Mapping[str, str]
    arguments: tuple[str, ...] | None = TRAIN
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    script: bool = False
    processes: int = 1


ACCELERATE = (
    "accelerate launch --num_machines=$(NNODES) --machine_rank=$(NODE_RANK) --main_process_ip=$(MASTER_ADDR) "
    "--main_process_port=$(MASTER_PORT) --num_processes=16 train.py"
)
ROWS = [
    Row("`torchrun train.py`", "torchrun train.py", PET),
    Row("`torchrun train.py`", "torchrun train.py", PET, script=True),
    Row("`torchrun train.py`", "python -m torch.distributed.run train.py", PET),
    Row(
        "the same with",
        "torchrun train.py",
        {**PET, "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "127.0.0.1:29403", "PET_RDZV_ID": "3"},
        environment=C10D,
    ),
    Row("`composer", "composer train.py", {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "NODE_RANK": "1"}),
    Row(
        "`accelerate",
        ACCELERATE,
        {},
        (
            "launch",
            "--num_machines=2",
            "--machine_rank=1",
            "--main_process_ip=127.0.0.1",
            "--main_process_port=29403",
            "--num_processes=16",
            "train.py",
        ),
    ),
    Row(
        "`fabric",
        "fabric run --num-nodes=$(NNODES) --node-rank=$(NODE_RANK) --main-address=$(MASTER_ADDR) "
        "--main-port=$(MASTER_PORT) --devices=8 train.py",
        {},
        (
            "run",
            "--num-nodes=2",
            "--node-rank=1",
            "--main-address=127.0.0.1",
            "--main-port=29403",
            "--devices=8",
            "train.py",
        ),
    ),
    Row(
        "`python train.py` with Lightning",
        "python train.py",
        {"NODE_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29403"},
        None,
        processes=8,
    ),
    Row(
        "`tune",
        "tune run --nproc-per-node=8 --rdzv-endpoint=$(MASTER_ADDR):$(MASTER_PORT) full_finetune_distributed",
        PET,
        ("run", "--nproc-per-node=8", "--rdzv-endpoint=127.0.0.1:29403", "full_finetune_distributed"),
    ),
    Row("`deepspeed train.py` on one node", "deepspeed train.py", {}),
    Row("a program for DeepSpeed", "torchrun train.py --deepspeed", PET, ("train.py", "--deepspeed")),
    Row("`python train.py` with JAX", "python train.py", JAX, None),
    Row(
        "`python -m maxtext",
        "python -m maxtext.trainers.pre_train.train config.yml hardware=gpu",
        MAXTEXT,
        ("config.yml", "hardware=gpu"),
    ),
    Row(
        "`python train.py` with `launch",
        "python train.py",
        {"WORLD_SIZE": "16", "MASTER_PORT": "29403"},
        None,
        processes=8,
    ),
]


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """A PATH on which they are."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("torchrun", "composer", "accelerate", "fabric", "tune", "deepspeed"):
        (folder / name).write_text(f"#!{sys.executable} -S\n{SHOW}")
        (folder / name).chmod(0o755)
    (folder / "python").symlink_to(sys.executable)
    (tmp_path / "train.py").write_text(SHOW)
    (tmp_path / "run.sh").write_text('exec torchrun "$@"\n')
    for module in MODULES:
        path = tmp_path.joinpath(*module.split("."))
        path.parent.mkdir(parents=True)
        path.with_suffix(".py").write_text(SHOW)
    return f"{folder}:/usr/bin:/bin"


def name_of(row: Row) -> str:
    """In the name of its test."""
    return f"{row.begins}{' in a script' * row.script}"


def is_given_what_the_row_says(row: Row, coordinator: Any, launch: Callable[..., Any], programs: str) -> None:
    command = ["sh", "run.sh", "train.py"] if row.script else shlex.split(row.command)
    told = {"MUSTER_GPUS_PER_NODE": "8", REFERRING: json.dumps(referring(row.environment.items()))}
    launcher = launch(*command, PATH=programs, **told, **row.environment)
    fields = {"node_rank": 1, "node_count": 2, "processes_per_node": row.processes, "master_port": 29403}
    coordinator.run(3, **fields)
    report = coordinator.wait_for(lambda r: r.state == EXITED)
    assert [rank.exit_code for rank in report.ranks] == [0] * row.processes, launcher.error_text
    shown = [json.loads(line) for line in launcher.text.splitlines() if re.match(r"\[\[", line)]
    assert len(shown) == row.processes
    for arguments, environment in shown:
        assert arguments == list(row.arguments or ())
        assert {name: environment.get(name) for name in row.given} == dict(row.given)
    ranks = sorted((int(environment["RANK"]), int(environment["LOCAL_RANK"])) for _, environment in shown)
    assert ranks == [(row.processes + place, place) for place in range(row.processes)]


# A script, references in the environment, and in the command; nightly tests run the others.
IN_THE_GATE = {"`torchrun train.py` in a script", "the same with", "`accelerate"}
