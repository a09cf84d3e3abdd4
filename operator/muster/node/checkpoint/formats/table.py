"""All formats, in the order in which a directory is tried; the first that matches counts.

Tests: tests/unit/checkpoint/test_own.py.
"""

from __future__ import annotations

from typing import Tuple

from muster.node.checkpoint.formats.accelerate import ACCELERATE
from muster.node.checkpoint.formats.base import Format
from muster.node.checkpoint.formats.composer import COMPOSER
from muster.node.checkpoint.formats.deepspeed import DEEPSPEED, DEEPSPEED_INSIDE, DEEPSPEED_UNIVERSAL
from muster.node.checkpoint.formats.dlrover import DLROVER
from muster.node.checkpoint.formats.hugging_face import HUGGING_FACE
from muster.node.checkpoint.formats.lightning import LIGHTNING, LIGHTNING_DEEPSPEED, LIGHTNING_SHARDED
from muster.node.checkpoint.formats.manifest import MANIFEST
from muster.node.checkpoint.formats.megatron import MEGATRON, MEGATRON_DCP, MEGATRON_LEGACY, MEGATRON_SWIFT, NEMO
from muster.node.checkpoint.formats.nemo_framework import NEMO_AUTO, NEMO_RL
from muster.node.checkpoint.formats.orbax import ORBAX
from muster.node.checkpoint.formats.own import own
from muster.node.checkpoint.formats.rows import ROWS
from muster.node.checkpoint.formats.torch_dcp import TORCH_DCP
from muster.node.checkpoint.formats.torchtune import TORCHTUNE
from muster.node.checkpoint.formats.tracked import FAIRSEQ, LAST_CHECKPOINT
from muster.node.checkpoint.formats.verl import EASY_R1, SKYRL, VERL

FORMATS: Tuple[Format, ...] = (
    MANIFEST,
    LIGHTNING_SHARDED,
    LIGHTNING_DEEPSPEED,
    TORCH_DCP,
    HUGGING_FACE,
    ACCELERATE,
    DEEPSPEED_UNIVERSAL,
    DEEPSPEED,
    MEGATRON,
    MEGATRON_LEGACY,
    MEGATRON_DCP,
    MEGATRON_SWIFT,
    NEMO,
    SKYRL,
    VERL,
    EASY_R1,
    NEMO_RL,
    NEMO_AUTO,
    ORBAX,
    TORCHTUNE,
    DLROVER,
    DEEPSPEED_INSIDE,
    *ROWS,
    LIGHTNING,
    COMPOSER,
    LAST_CHECKPOINT,
    FAIRSEQ,
)


def formats_by(pattern: str) -> Tuple[Format, ...]:
    """The formats that count in a job's own directories: the one that its pattern describes, or all that are known.

    Args:
        pattern: spec.checkpoint.pattern; "" = none.

    Raises:
        ValueError: the text is no pattern.
    """
    return (own(pattern),) if pattern else FORMATS
