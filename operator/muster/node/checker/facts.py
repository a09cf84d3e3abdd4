"""Describes this node as its own Devices probe has seen it, and the digest that a pass is bound to. Pure.

Tests: tests/unit/checker/test_keeping.py, tests/unit/checker/test_process.py.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, Dict, Mapping, Optional, Tuple

from muster.node.checker.probes import outcome

_MAX_CHARACTERS = 128
CUDA, CPU = "cuda", "cpu"


@dataclasses.dataclass(frozen=True)
class Facts:
    """The hardware and software that figures and passes of this node belong to.

    Attributes:
        indexes: NVML's indexes of the GPUs; none on a CPU.
        uuids: the UUIDs of the GPUs, in that order.
        model: the GPUs' product name, or all where they differ; the CPU's where there are none.
        key: versions of torch, CUDA, NCCL and the probes, as the zygote reports them.
    """

    indexes: Tuple[int, ...]
    uuids: Tuple[str, ...]
    model: str
    instructions: str
    driver: str
    key: Mapping[str, Any]

    @property
    def device(self) -> str:
        """Return the kind of device that the probes run on."""
        return CUDA if self.indexes else CPU

    @property
    def library(self) -> str:
        """Return the libraries that made the figures, in one text."""
        words = ["torch-%s" % self.key.get("torch")]
        words += ["%s-%s" % (name, self.key[name]) for name in ("cuda", "nccl") if self.indexes and self.key.get(name)]
        return "/".join(words if self.indexes else [*words, "gloo"])[:_MAX_CHARACTERS]

    @property
    def version(self) -> str:
        """Return the version of the probes."""
        return str(self.key.get("version") or "")[:_MAX_CHARACTERS]

    def identity(self, boot_id: str) -> str:
        """Return the digest of everything that a pass depends on: another boot, GPU, driver, library or probe changes
        it."""
        parts = [boot_id, self.version, self.key.get("torch"), self.key.get("cuda"), self.key.get("nccl")]
        parts += [*self.uuids, self.driver] if self.indexes else [self.model, self.instructions]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def facts_of(answer: Mapping[str, Any], key: Mapping[str, Any]) -> Optional[Facts]:
    """Return what a Devices probe has seen; None where it has seen nothing. A probe with a fault may still have seen
    the devices."""
    part: Dict[str, Any] = next(iter(answer.get("parts") or ()), {})
    gpus = part.get("figures", {}).get("gpus")
    if gpus is None:
        return None
    mark = part.get("mark", {})
    models = sorted({str(gpu["model"]) for gpu in gpus}) or [str(mark.get("model") or "")]
    return Facts(
        tuple(gpu["index"] for gpu in gpus),
        tuple(str(gpu["uuid"]) for gpu in gpus),
        " + ".join(models)[:_MAX_CHARACTERS],
        str(mark.get("instructions") or ""),
        str(part["figures"].get("driver") or ""),
        dict(key),
    )


def unfitness(answer: Mapping[str, Any], facts: Optional[Facts]) -> str:
    """Return why no test can run here after this inspection; "" where one can.

    GPUs in use by other processes become free again, and missing GPUs are a finding of the operator.
    """
    if answer["outcome"] not in (outcome.DONE, outcome.IN_USE, outcome.MISSING):
        return str(answer.get("message") or answer["outcome"])
    if facts is None:
        return "the probe of the devices has reported nothing"
    return no_cuda(facts)


def no_cuda(facts: Facts) -> str:
    """Return the message for a node with GPUs whose torch cannot use them; else ""."""
    return "the torch of this image has no CUDA" if facts.indexes and facts.key.get("cuda") is None else ""
