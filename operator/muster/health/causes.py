"""The causes for which nodes are taken out, as the breaker's budget counts them, and which faults are certain.

A cause is something that one defect can raise on many nodes at once. Another system is one cause, whatever reasons it
gives. It chooses its reasons itself, and a monitor with a new reason for each node must not get a budget for each. For
Muster's own sources the reason counts, too, because each reason is measured in its own way.

A fault is certain when two independent measurements agree, about the same GPU where both name one. One is a line that
only the kernel can have written, the other an answer of the driver's library. No program in a container writes either
of them, and a defect in reading one does not affect the other. One sign alone is not certain, however grave: a wrong
pattern finds XID 79 on every node.

Tests: tests/unit/health/test_budgets.py.
"""

import re
from collections.abc import Iterable

from muster.health.signs import AGENT, BURN_IN, JOBS, MAINTENANCE, WEIGHT, Sign
from muster.health.xids import DEGRADED, FATAL

_OWN = frozenset({AGENT, BURN_IN, JOBS})

_UUID = re.compile(r"GPU-[0-9a-f]{8}-", re.IGNORECASE)
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}$")

_DRIVER_SAYS_RESET = frozenset(
    {
        "ResetRequired",
        "RecoveryActionReset",
        "RecoveryActionReboot",
        "RecoveryActionDrainP2p",
        "RecoveryActionBusReset",
        "RecoveryActionSystemReboot",
    }
)
_GONE = frozenset({"GpuLost", "GpuCount"})
_MEMORY = frozenset({"EccUncorrected", "SramUncorrected", "SramThreshold", "RowRemapFailed"})


def _xids(*codes: int) -> frozenset[str]:
    return frozenset(f"Xid{code}" for code in codes)


CERTAIN: tuple[tuple[frozenset[str], frozenset[str]], ...] = (
    # Off the bus, by the kernel. The library finds the GPU lost or missing, or the driver recommends a reset.
    (_xids(79), _GONE | _DRIVER_SAYS_RESET),
    # Memory errors that the driver counts, too.
    (_xids(48, 64, 95, 140, 171, 172), _MEMORY | _DRIVER_SAYS_RESET),
    # Halts of the GPU's own processors, and time-outs: the GPU is lost, or the driver recommends a reset.
    (_xids(46, 62, 119, 120, 143, 158, 167, 169, 173, 175), _GONE | _DRIVER_SAYS_RESET),
    # Links that do not come up.
    (_xids(136), frozenset({"NvLinkDown", "FabricState"}) | _DRIVER_SAYS_RESET),
)
"""Pairs of reasons: one from the kernel's log together with one from NVML makes a certain fault."""


def cause_of(source: str, reason: str) -> str:
    """Return the cause to which a finding belongs, for the breaker's budget: `agent/Xid79`, `eks`, `rule/burnt`."""
    return f"{source}/{reason}"[:128] if source in _OWN else source


def causes_of(standing: Iterable[Sign], reason: str) -> tuple[str, ...]:
    """Return the causes of the signs that take a node out, strongest first, each once.

    Where no sign takes the node out, the only cause is `muster/` and the verdict's own reason.

    Args:
        standing: the node's signs that count, strongest first.
        reason: of the node's verdict.
    """
    signs = (sign for sign in standing if sign.weighs >= WEIGHT[DEGRADED] and not sign.stays)
    weighing = [sign for sign in signs if sign.source != MAINTENANCE]
    # A fault that another system repairs anyway is charged last.
    weighing.sort(key=lambda sign: sign.repairs)
    return tuple(dict.fromkeys(cause_of(sign.source, sign.reason) for sign in weighing)) or (f"muster/{reason}",)


def is_certain(standing: Iterable[Sign]) -> bool:
    """Whether two Fatal signs of the agent, measured in independent ways, report the same fault of the same GPU.

    A missing GPU has no address any more. So a sign that counts GPUs confirms a kernel log line about any of them.

    Args:
        standing: the node's signs that count.
    """
    fatal = [sign for sign in standing if sign.source == AGENT and sign.severity is FATAL]
    return any(
        _may_be_one(log.subject, answer.subject)
        for logged, answers in CERTAIN
        for log in fatal
        if log.reason in logged
        for answer in fatal
        if answer.reason in answers
    )


def _may_be_one(subject: str, other: str) -> bool:
    """Whether two subjects of signs may be the same GPU, by UUID or by PCI address.

    An agent that does not know the UUID yet gives the address, so that an address and a UUID may be the same.
    """
    for named in (_UUID, _ADDRESS):
        if named.match(subject) and named.match(other):
            return subject == other
    return True
