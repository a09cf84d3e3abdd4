"""Reads what an earlier agent has written of this machine, and what of it still counts: in the same boot all evidence,
after a boot the inventory.

A machine does not lose a GPU or a port of its network by booting: how many it has had is kept by its hardware (the
mainboard's UUID), until a human releases the node with fewer. What cannot be understood is left out.

Tests: tests/unit/agent/test_boots.py.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from muster.node.agent import kinds
from muster.node.agent.facts import clean
from muster.node.agent.ledger import Stored

_MOST = 128
_TOO_FEW = (kinds.GPU_COUNT, kinds.NVML_FAILED)
_MISSED_PORTS = (kinds.IB_PORT_DOWN, kinds.IB_DEVICE_MISSING)
_KNOWN_PORTS = (*_MISSED_PORTS, kinds.IB_PORT_OFF, kinds.FRONT_END_DOWN)


@dataclass(frozen=True)
class Earlier:
    """What earlier agents have written about this machine.

    Attributes:
        another_boot: whether an agent has written in another boot than this one.
        stood: whether evidence stood against the node in another boot than this one: from any writer, or what the
            operator has on record, e.g. of a line of the log that is too old to be evidence.
        of_this_boot: the earlier agent's evidence of this boot.
        of_the_boot_before: the evidence of the same machine in another boot, unless a human has released the node
            since.
        gpus: the most GPUs that the machine has had.
        links: NVLinks that were up at best, by the UUID of the GPU.
        missed_ports: InfiniBand ports and devices that were missing.
        flapping_ports: ports that went up and down in this boot.
        ports: the largest number of ports that were up at once.
        port_names: the names of these ports at that time.
        front_end: ports and devices of the node's own network that were missing in this boot.
        resets_watched_since: seconds after the boot since which agents have watched for resets of GPUs. 0: since the
            boot; None: no earlier agent of this boot did.
    """

    another_boot: bool
    stood: bool
    of_this_boot: tuple[Stored, ...]
    of_the_boot_before: tuple[Stored, ...]
    gpus: int
    links: Mapping[str, int]
    missed_ports: tuple[str, ...]
    flapping_ports: tuple[str, ...]
    ports: int
    resets_watched_since: float | None = None
    port_names: tuple[str, ...] = ()
    front_end: tuple[str, ...] = ()

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any], boot_id: str, system_uuid: str) -> "Earlier":
        """Read a stored NodeHealth.

        Args:
            stored: the NodeHealth as JSON.
            boot_id: the present boot.
            system_uuid: identity of this machine; "" where it is unknown, and then nothing of another boot counts.
        """
        status = _mapping(stored.get("status"))
        agent = _mapping(status.get("agent"))
        stored_boot_id = agent.get("bootId") or ""
        evidence = stored_evidence(status)
        of_this_boot = tuple(item for item in evidence if item.boot_id == boot_id)
        same_machine = bool(system_uuid) and agent.get("systemUuid") == system_uuid
        released = _released(stored)
        of_other_boots = tuple(
            item
            for item in evidence
            if same_machine and item.boot_id != boot_id and (released is None or item.first_wall > released)
        )
        gpus, ports = [0], [0]
        port_names: tuple[str, ...] = ()
        forgiven = [item for item in evidence if item not in (*of_this_boot, *of_other_boots)]
        if stored_boot_id == boot_id or same_machine:
            gpus.append(_count(agent.get("gpus")))
            ports.append(_count(agent.get("ports")))
            # Fewer GPUs may answer than the machine has, and nothing says how many: a GPU is lost, or the library
            # hangs.
            if not any(item.kind in _TOO_FEW for item in forgiven):
                gpus.append(_count(agent.get("gpusExpected")))
            if not any(item.kind in _MISSED_PORTS for item in forgiven):
                ports.append(_count(agent.get("portsExpected")))
                port_names = _texts(agent.get("portsExpectedUp"))
        links: dict[str, int] = {}
        for item in (*of_this_boot, *of_other_boots):
            expected = item.threshold.split(" ")[0]
            if item.kind in _TOO_FEW and expected.isdecimal():
                gpus.append(min(int(expected), _MOST))
            if item.kind == kinds.IB_PORT_DOWN and not item.subject and expected.isdecimal():
                ports.append(min(int(expected), _MOST))
            if item.kind == kinds.NVLINK_DOWN and expected.isdecimal():
                links[item.subject] = max(links.get(item.subject, 0), int(expected))
        # After a boot ports may have other names: where their number is known, that counts.
        named = of_this_boot if max(ports) else (*of_this_boot, *of_other_boots)
        missed = tuple(item.subject for item in named if item.kind in _KNOWN_PORTS)
        front_end = tuple(item.subject for item in of_this_boot if item.kind == kinds.FRONT_END_DOWN)
        flapping = tuple(item.subject for item in of_this_boot if item.kind == kinds.IB_PORT_FLAP)
        another = bool(stored_boot_id) and stored_boot_id != boot_id
        stood = len(of_this_boot) < len(evidence) or (another and _is_found_sick(status))
        since = agent.get("resetsWatchedSince")
        watched = 0.0 if another else None
        if isinstance(since, int) and not isinstance(since, bool) and since >= 0 and stored_boot_id == boot_id:
            watched = float(since)
        return cls(
            another_boot=another,
            stood=stood,
            of_this_boot=of_this_boot,
            of_the_boot_before=of_other_boots,
            gpus=max(gpus),
            links=links,
            missed_ports=missed,
            flapping_ports=flapping,
            ports=max(ports),
            resets_watched_since=watched,
            port_names=port_names,
            front_end=front_end,
        )


def stored_evidence(status: Mapping[str, Any]) -> list[Stored]:
    """Return the evidence in a stored status; entries that cannot be understood are left out."""
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


def _is_found_sick(status: Mapping[str, Any]) -> bool:
    """Whether the operator has a finding that takes the node out of use."""
    findings = status.get("findings")
    severities = (_mapping(finding).get("severity") for finding in findings) if isinstance(findings, list) else ()
    return any(severity in ("Degraded", "Fatal") for severity in severities)


def _released(stored: Mapping[str, Any]) -> float | None:
    """Return when a human has released the node; None if that has not happened."""
    human = _mapping(_mapping(stored.get("spec")).get("override"))
    if human.get("decision") != "Release":
        return None
    try:
        return datetime.fromisoformat(human["time"]).timestamp()
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(clean(text, 100) for text in value[:_MOST] if isinstance(text, str)) if isinstance(value, list) else ()


def _count(value: Any) -> int:
    return min(max(value, 0), _MOST) if isinstance(value, int) else 0
