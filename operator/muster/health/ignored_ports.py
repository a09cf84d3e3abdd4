"""Ports of the network that the FleetPolicy leaves out: agents report them, and nothing about them counts. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster.api.fleetpolicy import IgnoredPorts
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
        "NicFailed",
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
class IgnoredPortFilter:
    """The network ports that the FleetPolicy leaves out of all verdicts, by labels of the node."""

    _entries: tuple[_Entry, ...] = ()

    @classmethod
    def from_policy(cls, policy: Iterable[IgnoredPorts]) -> "IgnoredPortFilter":
        """Return the ignored ports of `spec.health.ignoredPorts`."""
        return cls(tuple(_Entry(frozenset(entry.node_selector.items()), _pattern(entry.names)) for entry in policy))

    def ignores(self, labels: Mapping[str, str], evidence: Evidence, agent: AgentStatus | None) -> bool:
        """Whether a piece of a node's evidence is only about ports that the policy ignores there.

        Evidence of too few ports names none. It is ignored if all ports that count are up.

        Args:
            labels: of the node.
            evidence: from the node's agent.
            agent: the report of that agent; None: there is none.
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
        return up >= int(expected[1]) - self._ignored_count(patterns, agent)

    def ports_that_count(self, labels: Mapping[str, str], agent: AgentStatus) -> int | None:
        """Return the most ports that a machine has had up at once, without ignored ports; None: its agent does not
        report them.

        Args:
            labels: of the node.
            agent: the report of the node's agent.
        """
        patterns = self._of_node(labels)
        if agent.ports_expected is None or not patterns:
            return agent.ports_expected
        return max(0, agent.ports_expected - self._ignored_count(patterns, agent))

    def _of_node(self, labels: Mapping[str, str]) -> list[re.Pattern[str]]:
        return [entry.names for entry in self._entries if all(labels.get(key) == value for key, value in entry.labels)]

    @staticmethod
    def _ignored_count(patterns: list[re.Pattern[str]], agent: AgentStatus) -> int:
        return sum(_is_among(name, patterns) for name in agent.ports_expected_up)


def _is_among(subject: str, patterns: list[re.Pattern[str]]) -> bool:
    name = subject.removeprefix("PCI:")
    device = name.rpartition("/")[0]
    return any(pattern.fullmatch(name) or (device and pattern.fullmatch(device)) for pattern in patterns)


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Return one pattern that matches any of these names, in which `*` and `?` stand for characters.

    Each part between stars is searched once, at its first place, so that many stars take no longer.
    """
    return re.compile("|".join(_regex(name) for name in names))


def _regex(name: str) -> str:
    parts = [_PLAIN.sub(lambda match: re.escape(match[0]), part).replace("?", ".") for part in re.split(r"\*+", name)]
    if len(parts) == 1:
        return parts[0]
    first, *middle, last = parts
    return first + "".join(f"(?>.*?{part})" for part in middle) + f".*{last}"
