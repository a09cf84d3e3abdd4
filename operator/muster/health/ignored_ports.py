"""Ports of the network that the FleetPolicy leaves out: agents report them, and nothing about them counts. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster.api.fleetpolicy import IgnoredPorts as Policy
from muster.api.nodehealth import AgentStatus, Evidence

_OF_PORTS = frozenset(
    {
        "IbPortDown",
        "IbPortFlap",
        "IbDeviceMissing",
        "IbPortOff",
        "FrontEndDown",
        "IbCounters",
        "EfaUnresponsive",
        "SysfsHang",
        "NicError",
    }
)
"""Kinds of evidence about ports, devices, interfaces and cards of the network."""
_EXPECTED = re.compile(r"(\d{1,3}) ports up")
_PLAIN = re.compile(r"[^*?]+")


@dataclass(frozen=True, slots=True)
class _Entry:
    labels: frozenset[tuple[str, str]]
    names: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class IgnoredPorts:
    """What a policy leaves out, by node."""

    _entries: tuple[_Entry, ...] = ()

    @classmethod
    def from_policy(cls, policy: Iterable[Policy]) -> "IgnoredPorts":
        """What `spec.health.ignoredPorts` says."""
        return cls(tuple(_Entry(frozenset(each.node_selector.items()), _pattern(each.names)) for each in policy))

    def ignores(self, labels: Mapping[str, str], evidence: Evidence, agent: AgentStatus | None) -> bool:
        """Whether a piece of a node's evidence is about what is left out there.

        Too few ports, of which the evidence names none, are left out if the ports that count are all up.
        """
        patterns = self._of_node(labels)
        if not patterns or evidence.kind not in _OF_PORTS:
            return False
        if evidence.subject:
            return _is_among(evidence.subject, patterns)
        expected = _EXPECTED.fullmatch(evidence.threshold)
        if agent is None or expected is None:
            return False
        up = sum(not _is_among(name, patterns) for name in agent.ports_up)
        return up >= int(expected[1]) - self._left_out(patterns, agent)

    def ports_that_count(self, labels: Mapping[str, str], agent: AgentStatus) -> int | None:
        """The most ports that a machine has had up at once, without those that are left out; None: its agent does not
        tell."""
        patterns = self._of_node(labels)
        if agent.ports_expected is None or not patterns:
            return agent.ports_expected
        return max(0, agent.ports_expected - self._left_out(patterns, agent))

    def _of_node(self, labels: Mapping[str, str]) -> list[re.Pattern[str]]:
        return [entry.names for entry in self._entries if all(labels.get(key) == value for key, value in entry.labels)]

    @staticmethod
    def _left_out(patterns: list[re.Pattern[str]], agent: AgentStatus) -> int:
        return sum(_is_among(name, patterns) for name in agent.ports_expected_up)


def _is_among(subject: str, patterns: list[re.Pattern[str]]) -> bool:
    name = subject.removeprefix("PCI:")
    device = name.rpartition("/")[0]
    return any(each.fullmatch(name) or (device and each.fullmatch(device)) for each in patterns)


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    """One for all of these, that takes no longer the more stars there are: what follows a star is looked for once, at
    the first place."""
    return re.compile("|".join(_regex(name) for name in names))


def _regex(name: str) -> str:
    parts = [_PLAIN.sub(lambda found: re.escape(found[0]), part).replace("?", ".") for part in re.split(r"\*+", name)]
    if len(parts) == 1:
        return parts[0]
    first, *middle, last = parts
    return first + "".join(f"(?>.*?{part})" for part in middle) + f".*{last}"
