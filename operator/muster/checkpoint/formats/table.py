"""All formats, in the order in which a directory is asked whether it is one of them: the first that it is, it is."""

from __future__ import annotations

from typing import Tuple

from muster.checkpoint.formats.accelerate import ACCELERATE
from muster.checkpoint.formats.base import Format
from muster.checkpoint.formats.composer import COMPOSER
from muster.checkpoint.formats.deepspeed import DEEPSPEED
from muster.checkpoint.formats.hugging_face import HUGGING_FACE
from muster.checkpoint.formats.lightning import LIGHTNING, LIGHTNING_SHARDED
from muster.checkpoint.formats.manifest import MANIFEST
from muster.checkpoint.formats.megatron import MEGATRON, MEGATRON_LEGACY, NEMO
from muster.checkpoint.formats.orbax import ORBAX
from muster.checkpoint.formats.torch_dcp import TORCH_DCP
from muster.checkpoint.formats.torchtune import TORCHTUNE

FORMATS: Tuple[Format, ...] = (
    MANIFEST,
    LIGHTNING_SHARDED,
    TORCH_DCP,
    HUGGING_FACE,
    ACCELERATE,
    DEEPSPEED,
    MEGATRON,
    MEGATRON_LEGACY,
    NEMO,
    ORBAX,
    TORCHTUNE,
    LIGHTNING,
    COMPOSER,
)
