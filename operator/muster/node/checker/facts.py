"""What this node is, as its own Devices probe has seen it, and the digest that a pass is bound to. Pure."""

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
    """What figures and passes of this node belong to.

    Attributes:
        indexes: of the GPUs, as NVML counts; none on a CPU.
        uuids: of the GPUs, in that order.
        model: the GPUs' product name, or all where they differ; the CPU's where there are none.
        key: versions of torch, CUDA, NCCL and the probes, as the zygote tells them.
    """

    indexes: Tuple[int, ...]
    uuids: Tuple[str, ...]
    model: str
    instructions: str
    driver: str
    key: Mapping[str, Any]

    @property
    def device(self) -> str:
        """What the probes run on."""
        return CUDA if self.indexes else CPU

    @property
    def library(self) -> str:
        """What the figures were made with, in one text."""
        words = ["torch-%s" % self.key.get("torch")]
        words += ["%s-%s" % (name, self.key[name]) for name in ("cuda", "nccl") if self.indexes and self.key.get(name)]
        return "/".join(words if self.indexes else [*words, "gloo"])[:_MAX_CHARACTERS]

    @property
    def version(self) -> str:
        """Of the probes."""
        return str(self.key.get("version") or "")[:_MAX_CHARACTERS]

    def identity(self, boot_id: str) -> str:
        """Digest of what a pass is about: another boot, GPU, driver, library or probe is another node to it."""
        what = [boot_id, self.version, self.key.get("torch"), self.key.get("cuda"), self.key.get("nccl")]
        what += [*self.uuids, self.driver] if self.indexes else [self.model, self.instructions]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()


def facts_of(answer: Mapping[str, Any], key: Mapping[str, Any]) -> Optional[Facts]:
    """What a Devices probe has seen; None where it has seen nothing. It may have found fault and seen all the same."""
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
    """Why nothing can be tested here after such a look; "" where something can.

    GPUs in use by others get free again, and those that are missing are a finding of who expects them.
    """
    if answer["outcome"] not in (outcome.DONE, outcome.IN_USE, outcome.MISSING):
        return str(answer.get("message") or answer["outcome"])
    if facts is None:
        return "the probe of the devices has told nothing"
    return no_cuda(facts)


def no_cuda(facts: Facts) -> str:
    """The words where there are GPUs and a torch that cannot use them; else ""."""
    return "the torch of this image has no CUDA" if facts.indexes and facts.key.get("cuda") is None else ""
