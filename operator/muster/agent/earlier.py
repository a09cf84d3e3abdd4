"""What an earlier agent has written of this machine, and what of it still counts: in the same boot all, after a boot what there was.

A machine does not lose a GPU by booting: how many it has had is kept by its hardware (the mainboard's UUID), until a human
releases the node with fewer. What cannot be understood is left out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from muster.agent import kinds
from muster.agent.ledger import Stored

_MOST_GPUS = 64
_TOO_FEW = (kinds.GPU_COUNT, kinds.NVML_FAILED)


@dataclass(frozen=True)
class Earlier:
    """What is known of before.

    Attributes:
        another_boot: an agent has written in another boot than this one.
        of_other_boots: there is evidence of another boot than this one, whoever wrote it.
        of_this_boot: its evidence of this boot.
        of_the_boot_before: its evidence of the same machine in another boot, as far as no human has released it.
        gpus: the most GPUs that the machine has had.
        links: NVLinks that were up at best, by the UUID of the GPU.
        ports: InfiniBand ports and devices that were missed.
        resets_watched_since: seconds after the boot: since then agents see resets of GPUs; 0: since the boot; None: none did in
            this boot before this one.
    """

    another_boot: bool
    of_other_boots: bool
    of_this_boot: tuple[Stored, ...]
    of_the_boot_before: tuple[Stored, ...]
    gpus: int
    links: Mapping[str, int]
    ports: tuple[str, ...]
    resets_watched_since: float | None = None

    @classmethod
    def of(cls, stored: Mapping[str, Any], boot_id: str, system_uuid: str) -> "Earlier":
        """From a NodeHealth as it is stored.

        Args:
            boot_id: of now.
            system_uuid: of this machine; "" where it is not known, and then nothing is known of another boot.
        """
        status = _mapping(stored.get("status"))
        agent = _mapping(status.get("agent"))
        before = agent.get("bootId") or ""
        evidence = stored_evidence(status)
        here = tuple(item for item in evidence if item.boot_id == boot_id)
        same_machine = bool(system_uuid) and agent.get("systemUuid") == system_uuid
        released = _released(stored)
        there = tuple(
            item
            for item in evidence
            if same_machine and item.boot_id != boot_id and (released is None or item.first_wall > released)
        )
        gpus = [0]
        if before == boot_id or same_machine:
            gpus.append(_count(agent.get("gpus")))
            # Fewer may answer than there are, and nothing says of how many: a GPU that is lost, a library that hangs.
            if not any(item.kind in _TOO_FEW for item in evidence if item not in (*here, *there)):
                gpus.append(_count(agent.get("gpusSeen")))
        links: dict[str, int] = {}
        for item in (*here, *there):
            expected = item.threshold.split(" ")[0]
            if item.kind in _TOO_FEW and expected.isdecimal():
                gpus.append(min(int(expected), _MOST_GPUS))
            if item.kind == kinds.NVLINK_DOWN and expected.isdecimal():
                links[item.subject] = max(links.get(item.subject, 0), int(expected))
        missed = (kinds.IB_PORT_DOWN, kinds.IB_DEVICE_MISSING)
        ports = tuple(item.subject for item in (*here, *there) if item.kind in missed)
        others = len(here) < len(evidence)
        another = bool(before) and before != boot_id
        since = agent.get("resetsWatchedSince")
        watched = 0.0 if another else None
        if isinstance(since, int) and not isinstance(since, bool) and since >= 0 and before == boot_id:
            watched = float(since)
        return cls(another, others, here, there, max(gpus), links, ports, watched)


def stored_evidence(status: Mapping[str, Any]) -> list[Stored]:
    """The evidence in a status that was read; what cannot be understood is left out."""
    return list(_evidence(status))


def _evidence(status: Mapping[str, Any]) -> Iterator[Stored]:
    for item in status.get("evidence") or ():
        try:
            yield Stored(
                kind=str(item["kind"]),
                subject=str(item.get("subject", "")),
                code=int(item.get("code", 0)),
                value=str(item.get("value", "")),
                threshold=str(item.get("threshold", "")),
                message=str(item.get("message", "")),
                first_wall=datetime.fromisoformat(item["firstSeen"]).timestamp(),
                last_wall=datetime.fromisoformat(item["lastSeen"]).timestamp(),
                count=int(item.get("count", 1)),
                boot_id=str(item.get("bootId", "")),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            continue


def _released(stored: Mapping[str, Any]) -> float | None:
    """When a human has released the node; None: not at all."""
    human = _mapping(_mapping(stored.get("spec")).get("human"))
    if human.get("decision") != "Release":
        return None
    try:
        return datetime.fromisoformat(human["time"]).timestamp()
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: Any) -> int:
    return min(max(value, 0), _MOST_GPUS) if isinstance(value, int) else 0
