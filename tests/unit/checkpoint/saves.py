"""A save of each format: what frameworks wrote, or what their sources say that they write."""

from __future__ import annotations

import argparse
import json
import pickle
import re
from typing import NamedTuple

from tests.unit.checkpoint.recordings import StorageInfo, Written, archive, recorded, safetensors


class Save(NamedTuple):
    """One save of a framework.

    Attributes:
        written: its files, the first that was finished first.
        found: step and path of what is complete in the end.
        format: as people are told it.
        dispensable: a pattern of what the framework does without when it loads.
        lasting: of what was there before.
    """

    written: Written
    found: tuple[int, str]
    format: str
    dispensable: str = r"\Z."
    lasting: Written | tuple[()] = ()

    @property
    def needed(self) -> set[str]:
        return {path for path, _ in self.written if not re.search(self.dispensable, path)}


def only(written: Written, folder: str) -> Written:
    return [item for item in written if item[0].startswith(folder)]


def pieces() -> list[StorageInfo]:
    return [StorageInfo(f"__{rank}_0.distcp", 100 * part, 100) for rank in range(2) for part in range(2)]


def dcp(prefix: str, optimizer: str = "optimizer.state.exp_avg") -> Written:
    """Two shards and what names them, with a tensor's name."""
    shards = [(f"{prefix}__{rank}_0.distcp", bytes([rank]) * 200) for rank in range(2)]
    return [*shards, (f"{prefix}.metadata", pickle.dumps([optimizer, pieces()], protocol=4))]


def megatron(prefix: str) -> Written:
    """The order of `save` in megatron/core/dist_checkpointing/serialization.py of megatron-core 0.16."""
    config = {"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch"}
    common = (f"{prefix}common.pt", archive({"global_step": 500, "iteration": 500}))
    return [common, *dcp(prefix), (f"{prefix}metadata.json", json.dumps(config).encode())]


ACCELERATE = recorded("accelerate-1.15")
NEMO = "model--val_loss=1.25-epoch=3-step=500-consumed_samples=256000.0-last"
# megatron/training/checkpointing.py, save_checkpoint: each rank its file, then the tracker.
ARGUMENTS = argparse.Namespace(
    encoder_tensor_model_parallel_size=0,
    tensor_model_parallel_size=2,
    pipeline_model_parallel_size=2,
    expert_model_parallel_size=1,
)
MEGATRON_LEGACY = [
    (f"iter_0000500/mp_rank_{tensor:02}_{pipeline:03}/{name}", archive({"args": ARGUMENTS, "iteration": 500}))
    for tensor in range(2)
    for pipeline in range(2)
    for name in ("model_optim_rng.pt", "distrib_optim.pt")
] + [("latest_checkpointed_iteration.txt", b"500")]


def deepspeed(**told: object) -> bytes:
    """What deepspeed/runtime/engine.py has in the model's states (_save_checkpoint, _save_moe_checkpoint), as far as it
    counts here."""
    return archive({"module": None, **told, "global_steps": 1, "ds_version": "0.14.2"})


def pipeline(tag: str) -> Written:
    """Two stages, two tensor ranks: each stage its layers, of which 1 and 4 have no state, then the states of its
    ranks."""
    stages = [(0, 2), (3, 5)]
    layers = [(layer, tensor) for stage in stages for layer in stage for tensor in range(2)]
    shapes = [[{f"{layer}.weight": 1 for layer in stage}] for stage in stages for _ in range(2)]
    states = [deepspeed(optimizer=None, param_shapes=one, dp_world_size=2, mp_world_size=4) for one in shapes]
    return [
        *(
            (f"{tag}/layer_{layer:02}-model_{tensor:02}-model_states.pt", archive({"weight": 1}))
            for layer, tensor in layers
        ),
        *((f"{tag}/mp_rank_{rank:02}_model_states.pt", content) for rank, content in enumerate(states)),
        *(
            (f"{tag}/bf16_zero_pp_rank_{data}_mp_rank_{rank:02}_optim_states.pt", archive({"optimizer_state_dict": 1}))
            for data in range(2)
            for rank in range(4)
        ),
    ]


def experts(tag: str) -> Written:
    """Two layers with four and two experts on two ranks, without ZeRO: each rank its experts and its optimizer, then
    the rest."""
    files = []
    for rank in range(2):
        mine = [(0, 2 * rank), (0, 2 * rank + 1), (1, rank)]
        files += [
            (f"{tag}/layer_{layer}_expert_{one}_mp_rank_00_model_states.pt", archive({"w": 1})) for layer, one in mine
        ]
        files += [(f"{tag}/expp_rank_{rank}_mp_rank_00_optim_states.pt", archive({"optimizer": {"state": 1}}))]
    return [
        *files,
        (f"{tag}/mp_rank_00_model_states.pt", deepspeed(num_experts=[4, 2], dp_world_size=2, mp_world_size=1)),
    ]


def universal(tag: str) -> Written:
    """The order of deepspeed/checkpoint/ds_to_universal.py: parameters, the optimizer's state, the copied model's
    states."""
    names = [(name, kept) for name in ("embed.weight", "layers.0.weight") for kept in ("fp32", "exp_avg", "exp_avg_sq")]
    files = [(f"{tag}/zero/{name}/{kept}.pt", archive({"param": 1})) for name, kept in names]
    states = deepspeed(optimizer=None, dp_world_size=2, mp_world_size=2)
    models = [(f"{tag}/mp_rank_{rank:02}_model_states.pt", states) for rank in range(2)]
    return [*files, (f"{tag}/zero/optimizer_state.pt", archive({"optimizer_state": 1})), *models]


def lightning_deepspeed(name: str) -> Written:
    """What a run with `strategy="deepspeed"` leaves: the files of DeepSpeed's own recording, under Lightning's
    names."""
    files = only(recorded("deepspeed-0.19-zero2"), "global_step1/")
    renamed = [(path.replace("global_step1/", f"{name}/checkpoint/"), content) for path, content in files]
    return [*renamed, (f"{name}/latest", b"checkpoint")]


SAVES = {
    "Hugging Face's Trainer, two ranks": Save(
        recorded("hugging-face-5.23"), (1, "checkpoint-1"), "HuggingFaceTrainer", r"training_args|rng_state_1"
    ),
    "Accelerate, two ranks": Save(
        only(ACCELERATE, "checkpoint_1/"),
        (1, "checkpoint_1"),
        "Accelerate",
        "scheduler|random_states_1",
        only(ACCELERATE, "checkpoint_0/"),
    ),
    "DeepSpeed, ZeRO 2, two ranks": Save(recorded("deepspeed-0.19-zero2"), (1, "global_step1"), "DeepSpeed"),
    "DeepSpeed, ZeRO 3, two ranks": Save(recorded("deepspeed-0.19-zero3"), (1, "global_step1"), "DeepSpeed"),
    "DeepSpeed without ZeRO, two ranks": Save(recorded("deepspeed-0.19-zero0"), (1, "global_step1"), "DeepSpeed"),
    "DeepSpeed, a pipeline": Save(pipeline("global_step1"), (1, "global_step1"), "DeepSpeed"),
    "DeepSpeed, experts without ZeRO": Save(
        experts("global_step2"),
        (2, "global_step2"),
        "DeepSpeed",
        lasting=[*experts("global_step1"), ("latest", b"global_step1")],
    ),
    "DeepSpeed, universal": Save(
        universal("global_step1_universal"), (1, "global_step1_universal"), "DeepSpeedUniversal", r"zero/[^/]+/.*"
    ),
    "Lightning with DeepSpeed": Save(
        lightning_deepspeed("epoch=0-step=500.ckpt"), (500, "epoch=0-step=500.ckpt"), "LightningDeepSpeed"
    ),
    "Lightning, one file": Save(only(recorded("lightning-2.6"), "epoch"), (1, "epoch=0-step=1.ckpt"), "Lightning"),
    "Megatron Core": Save(megatron("iter_0000500/"), (500, "iter_0000500"), "Megatron", r"common\.pt"),
    "Megatron-LM of old": Save(MEGATRON_LEGACY, (500, "iter_0000500"), "MegatronLegacy"),
    "NeMo 2": Save(
        megatron(f"{NEMO}/weights/"),
        (500, NEMO),
        "NeMo",
        r"common\.pt",
    ),
    "Composer": Save(
        [("ep1-ba500-rank0.pt", archive({"state": {"model": {}, "optimizers": {}}, "rng": []}))],
        (500, "ep1-ba500-rank0.pt"),
        "Composer",
    ),
    "DLRover": Save(
        [("500/rank_0.pt", archive({"model": {}, "optimizer": {}})), ("dlrover_latest.txt", b"500")],
        (500, "500"),
        "DLRover",
    ),
    "torchtune": Save(
        [
            ("epoch_3/ft-model-00001-of-00002.safetensors", safetensors()),
            ("epoch_3/ft-model-00002-of-00002.safetensors", safetensors()),
            ("recipe_state/recipe_state.pt", archive({"optimizer": {}, "epochs_run": 4})),
        ],
        (3, "epoch_3"),
        "torchtune",
    ),
}


FLASH = [
    *((f"500/rank_{rank}.pt", archive({"model": {}, "optimizer": {}})) for rank in range(2)),
    ("dlrover_latest.txt", b"500"),
]
