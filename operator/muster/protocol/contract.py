"""Name the trainer contract's variables that Muster always sets: a process's identity, and the addresses of the others.

Muster sets any other variable only where the container does not. docs/trainer-contract.md has the whole table.
"""

from __future__ import annotations

from typing import FrozenSet

IDENTITY: FrozenSet[str] = frozenset(
    (
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "NODE_RANK",
        "NNODES",
        "MASTER_ADDR",
        "MASTER_PORT",
        "PET_NNODES",
        "PET_NODE_RANK",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
        "JAX_COORDINATOR_ADDRESS",
        "JAX_COORDINATOR_IP",
        "JAX_COORDINATOR_PORT",
        "JAX_PROCESS_ID",
        "JAX_NUM_PROCESSES",
        "MUSTER_ATTEMPT",
        "MUSTER_PROGRESS",
        "MUSTER_REQUESTS",
        "MUSTER_RESUME_DIRECTORY",
        "MUSTER_RESUME_PATH",
        "MUSTER_RESUME_STEP",
    )
)
"""Set again at each start of a rank in mode Managed."""

PLAIN_IDENTITY: FrozenSet[str] = frozenset(("NODE_RANK", "NNODES", "MASTER_ADDR", "MASTER_PORT"))
"""Set once in each pod in mode Plain."""
