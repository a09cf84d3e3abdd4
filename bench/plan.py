"""Which system runs which cases at which size, so that the whole bench ends within about half an hour. Pure."""

from __future__ import annotations

from dataclasses import dataclass

SYSTEMS = ("bare", "job", "jobset", "jobset+kueue", "muster")
BINDINGS = ("Scheduler", "Direct")
MODES = ("Plain", "Managed")
SIZES = (64, 512, 1024, 2048)
CASES = ("Start", "FailOnePod", "FailEightPods", "FailOneNode")
RUNS = 3
PEERS_LARGEST = 1024
# By default peers take over 350 s or never: one run shows it, at whatever size. The same goes for eight failed pods of
# a plain Job, whose back-off doubles with each.
HOPELESS_SIZE = 64
# Where eight failed pods cost what one costs, because all of the gang is made anew, the smaller sizes show it.
WHOLE_GANG_LARGEST = 512
# A dead node is detected for 20 s, however the new pod is bound.
MUSTER_NODE = ("Direct", (64, 1024))
# The largest size is there for the operator's memory and for the comparison with bare.
LARGEST_VARIANT = ("Direct", "Managed")


@dataclass(frozen=True)
class Variant:
    """A system as it is set up."""

    system: str
    binding: str | None = None
    mode: str | None = None

    def __str__(self) -> str:
        return " ".join(part for part in (self.system, self.binding, self.mode) if part)


@dataclass(frozen=True)
class Selection:
    """What was asked for on the command line."""

    systems: tuple[str, ...] = SYSTEMS
    bindings: tuple[str, ...] = BINDINGS
    modes: tuple[str, ...] = MODES
    cases: tuple[str, ...] = CASES
    runs: int = RUNS


def variants(selection: Selection) -> list[Variant]:
    """Muster comes last: what age does to a control plane is to its disadvantage."""
    peers = [Variant(system) for system in SYSTEMS if system in selection.systems and system != "muster"]
    if "muster" not in selection.systems:
        return peers
    return [*peers, *(Variant("muster", binding, mode) for mode in selection.modes for binding in selection.bindings)]


def runs_of(variant: Variant, size: int, case: str, selection: Selection) -> int:
    """How often a case is run; 0 where it is left out."""
    if case not in selection.cases:
        return 0
    if variant.system == "muster":
        return selection.runs if _muster_runs(variant, size, case) else 0
    if variant.system == "bare":
        return 0 if case == "FailOneNode" else selection.runs  # it has nobody who would notice
    if size > PEERS_LARGEST:
        return 0
    if case == "FailOneNode" or (case == "FailEightPods" and variant.system == "job"):
        return 1 if size == HOPELESS_SIZE else 0
    return 0 if case == "FailEightPods" and size > WHOLE_GANG_LARGEST else selection.runs


def _muster_runs(variant: Variant, size: int, case: str) -> bool:
    if size > PEERS_LARGEST and (variant.binding, variant.mode) != LARGEST_VARIANT:
        return False
    if case == "FailOneNode":
        binding, sizes = MUSTER_NODE
        return variant.mode == "Managed" and variant.binding == binding and size in sizes
    return variant.mode == "Managed" or case != "FailEightPods" or size <= WHOLE_GANG_LARGEST
