"""JAX on several hosts, data parallel, with checkpoints by Orbax's CheckpointManager."""

# mypy: disable-error-code="import-not-found"
import argparse
import contextlib
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--checkpoints", required=True)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--save-every", type=int, default=20)
parser.add_argument("--pause-seconds", type=float, default=0.2, help="of each step, so that there is time to do harm")
options = parser.parse_args()

# Where the first process is it reads by itself (JAX_COORDINATOR_ADDRESS); the rest it only knows of Slurm, MPI and
# TPUs.
jax.distributed.initialize(
    num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"])
)
mesh = jax.make_mesh((jax.device_count(),), ("data",))
split, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())


def start() -> dict[str, Any]:
    """Weights and momenta of the first step, the same on every host."""
    keys = jax.random.split(jax.random.key(1), 3)
    weights = [np.asarray(jax.random.normal(key, (128, 128)) / 11.3) for key in keys]
    place = lambda array: jax.make_array_from_callback(array.shape, whole, lambda index: array[index])  # noqa: E731
    return {"weights": [place(w) for w in weights], "momenta": [place(np.zeros_like(w)) for w in weights]}


def loss_of(weights: list[jax.Array], batch: jax.Array) -> jax.Array:
    """Mean square error."""
    found = batch
    for layer in weights:
        found = jnp.tanh(found @ layer)
    return jnp.mean((found - jnp.flip(batch, 1)) ** 2)


@jax.jit
def train(state: dict[str, Any], batch: jax.Array) -> tuple[dict[str, Any], jax.Array]:
    """One step of momentum."""
    loss, gradients = jax.value_and_grad(loss_of)(state["weights"], batch)
    momenta = [0.9 * m + g for m, g in zip(state["momenta"], gradients, strict=True)]
    weights = [w - 0.05 * m for w, m in zip(state["weights"], momenta, strict=True)]
    return {"weights": weights, "momenta": momenta}, loss


followed = 0  # the highest number of a request that the ranks have agreed on


def asked(step: int) -> str:
    """What Muster asks for, "Save", "Leave" or "" for nothing new; the same on every rank, whichever sees it first."""
    global followed
    newest = 0
    with contextlib.suppress(FileNotFoundError):
        request = json.loads(Path(os.environ.get("MUSTER_REQUESTS") or "-").read_text(encoding="utf-8"))
        if request["kind"] in ("Save", "Leave"):
            newest = 2 * request["number"] + (request["kind"] == "Leave")
    number, leaves = divmod(int(multihost_utils.process_allgather(np.int32(newest)).max()), 2)
    if number <= followed:
        return ""
    followed = number
    with Path(os.environ.get("MUSTER_PROGRESS", os.devnull)).open("a", encoding="utf-8") as progress:
        progress.write(json.dumps({"step": step, "request": number}) + "\n")
    return "Leave" if leaves else "Save"


manager = ocp.CheckpointManager(options.checkpoints, options=ocp.CheckpointManagerOptions(max_to_keep=3))
state, step = start(), 0
if "MUSTER_RESUME_STEP" in os.environ:
    step = int(os.environ["MUSTER_RESUME_STEP"])
    state = manager.restore(step, args=ocp.args.StandardRestore(state))

while step < options.steps:
    data = np.random.default_rng(1000 * step + jax.process_index()).standard_normal((16, 128), dtype=np.float32)
    state, loss = train(state, jax.make_array_from_process_local_data(split, data))
    loss.block_until_ready()
    step += 1
    if jax.process_index() == 0:
        with Path(os.environ.get("MUSTER_PROGRESS", os.devnull)).open("a", encoding="utf-8") as progress:
            progress.write(json.dumps({"step": step}) + "\n")
    request = asked(step)
    if step % options.save_every == 0 or request:
        manager.save(step, args=ocp.args.StandardSave(state))  # it goes on beside the training
        if jax.process_index() == 0:
            print(f"step {step} of {options.steps}, loss {float(loss):.4f}, saving", flush=True)
    if request == "Leave":
        manager.wait_until_finished()
        multihost_utils.sync_global_devices("the leave")
        os._exit(0)  # what stands behind the loop is for a model that is finished
    time.sleep(options.pause_seconds)

manager.wait_until_finished()
if jax.process_index() == 0:
    digest = hashlib.sha256()
    for layer in state["weights"]:
        digest.update(np.asarray(layer.addressable_data(0)).tobytes())
    print(f"weights {digest.hexdigest()}", flush=True)
multihost_utils.sync_global_devices("the end")
os._exit(0)
