"""All formats, in the order in which a directory is asked whether it is one of them: the first that it is, it is."""

from __future__ import annotations

from typing import Tuple

from muster.checkpoint.formats.accelerate import ACCELERATE
from muster.checkpoint.formats.base import Format
from muster.checkpoint.formats.composer import COMPOSER
from muster.checkpoint.formats.deepspeed import DEEPSPEED, DEEPSPEED_UNIVERSAL
from muster.checkpoint.formats.dlrover import DLROVER
from muster.checkpoint.formats.hugging_face import HUGGING_FACE
from muster.checkpoint.formats.lightning import LIGHTNING, LIGHTNING_DEEPSPEED, LIGHTNING_SHARDED
from muster.checkpoint.formats.manifest import MANIFEST
from muster.checkpoint.formats.megatron import MEGATRON, MEGATRON_DCP, MEGATRON_LEGACY, MEGATRON_SWIFT, NEMO
from muster.checkpoint.formats.nemo_framework import NEMO_AUTO, NEMO_RL
from muster.checkpoint.formats.orbax import ORBAX
from muster.checkpoint.formats.own import own
from muster.checkpoint.formats.torch_dcp import TORCH_DCP
from muster.checkpoint.formats.torchtune import TORCHTUNE
from muster.checkpoint.formats.verl import SKYRL, VERL

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
    NEMO_RL,
    NEMO_AUTO,
    ORBAX,
    TORCHTUNE,
    DLROVER,
    LIGHTNING,
    COMPOSER,
)


def formats_by(pattern: str) -> Tuple[Format, ...]:
    """Those that count in a job's own directories: what its pattern describes and nothing else, or all that are known.

    Args:
        pattern: spec.checkpoint.pattern; "" = none.

    Raises:
        ValueError: it is no pattern.
    """
    return (own(pattern),) if pattern else FORMATS
