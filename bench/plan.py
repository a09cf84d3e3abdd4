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
# By default peers take over 350 s or never: one run shows it, at whatever size.
PEERS_NODE_SIZE = 64
MUSTER_NODE_SIZES = (64, 1024)
# Plain rebuilds the whole gang whatever failed: what the smaller sizes show need not be shown again.
PLAIN_LARGEST = 1024


@dataclass(frozen=True)
class Variant:
    """A system as it is set up."""

    system: str
    binding: str | None = None
    mode: str | None = None

    def __str__(self) -> str:
        return " ".join(part for part in (self.system, self.binding, self.mode) if part)


@dataclass(frozen=True)
class Wish:
    """What was asked for on the command line."""

    systems: tuple[str, ...] = SYSTEMS
    bindings: tuple[str, ...] = BINDINGS
    modes: tuple[str, ...] = MODES
    cases: tuple[str, ...] = CASES
    runs: int = RUNS


def variants(wish: Wish) -> list[Variant]:
    """Muster comes last: what age does to a control plane is to its disadvantage."""
    peers = [Variant(system) for system in SYSTEMS if system in wish.systems and system != "muster"]
    if "muster" not in wish.systems:
        return peers
    return [*peers, *(Variant("muster", binding, mode) for mode in wish.modes for binding in wish.bindings)]


def runs_of(variant: Variant, size: int, case: str, wish: Wish) -> int:
    """How often a case is run; 0 where it is left out."""
    if case not in wish.cases:
        return 0
    if variant.system == "muster":
        if variant.mode == "Plain" and (size > PLAIN_LARGEST or case == "FailOneNode"):
            return 0
        return 0 if case == "FailOneNode" and size not in MUSTER_NODE_SIZES else wish.runs
    if variant.system == "bare":
        return 0 if case == "FailOneNode" else wish.runs  # it has nobody who would notice
    if size > PEERS_LARGEST:
        return 0
    if case == "FailOneNode":
        return 1 if size == PEERS_NODE_SIZE else 0
    return wish.runs
