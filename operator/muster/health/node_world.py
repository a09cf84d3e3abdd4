"""All that the decision about one node reads, as one frozen value.

Tests: tests/unit/health/test_assess.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from muster.api.nodehealth import Decision, Finding, HumanDecision, NodeHealth, NodeHealthStatus
from muster.health.equals import Lack
from muster.health.facts import NodeFacts
from muster.health.maintenance import MaintenanceState
from muster.health.memory import MachineOffences, identity, may_be_same, same_machine
from muster.health.repairs import RepairStatus
from muster.health.silence import Silence
from muster.health.sources import Rules
from muster.world.jobfailures import JobFailureReport

CLOCK_ERROR_SECONDS = 300
"""A user's release with a time further in the future waits for that time, or it would cover faults not seen yet."""


@dataclass(frozen=True, slots=True)
class FailedBurnIn:
    """A burn-in test that a node has failed: Muster's own checkers measured it, beside nodes that are proven.

    Attributes:
        boot: the node's boot id at that time; "" if it was not known.
        probe: the name of the failed probe.
        message: what was measured.
        time: when the test failed.
        job: `namespace/name` of the job that the node was tested for; "" for a node that no job had.
    """

    boot: str
    probe: str
    message: str
    time: datetime
    job: str = ""


@dataclass(frozen=True)
class NodeWorld:
    """What is known of one node: stored objects and the time, and what the leader has heard.

    Attributes:
        facts: the Node object.
        health: the node's NodeHealth: evidence, decisions of users, and the last verdict.
        rules: the fleet's policy.
        now: the time.
        memory: the offences of all machines; None: none is remembered.
        reports: failures of jobs that have followed the node.
        burn_ins: tests that the node has failed, as far as records of gangs still hold them.
        passed: when the node last passed a test, if the pass still holds; None: it has none.
        answered: failures of jobs before this time do not count, because the node passed a thorough test then, or was
            another machine. None: all count.
        silence: of the node's agent; None: the agent is not silent.
        lack: what the machine has less of than its peers; None: nothing.
        repair: the state of the node's RepairRequest; None: there is none.
        time_is_sure: whether `now` may end a quarantine: the clock has shown for a while that the offences have faded.
    """

    facts: NodeFacts
    health: NodeHealth
    rules: Rules
    now: datetime
    memory: MachineOffences | None = None
    reports: Sequence[JobFailureReport] = ()
    burn_ins: Sequence[FailedBurnIn] = ()
    passed: datetime | None = None
    answered: datetime | None = None
    silence: Silence | None = None
    lack: Lack | None = None
    repair: RepairStatus | None = None
    time_is_sure: bool = True

    @property
    def before(self) -> NodeHealthStatus:
        """The record of the last verdict, beside the agent's report."""
        return self.health.status

    @cached_property
    def machine(self) -> str:
        """The identity of the machine now; "" if unknown."""
        return identity(self.before.agent)

    @cached_property
    def is_replaced(self) -> bool:
        """Whether another machine bears the node's name now.

        A virtual machine may get another board by a new start. That proves nothing as long as no GPU answers and the
        Node is the same.
        """
        hardware = self.before.offences.hardware
        if not self.machine or not hardware or same_machine(self.machine, hardware):
            return False
        return self.before.node_uid != self.facts.node.uid or not may_be_same(self.machine, hardware)

    @property
    def earlier(self) -> Sequence[Finding]:
        """The findings on record, as far as they are of this machine."""
        return () if self.is_replaced else self.before.findings

    @cached_property
    def known(self) -> Mapping[tuple[str, str, str], Finding]:
        """These findings by source, reason and subject: the key of a sign."""
        return {(finding.source, finding.reason, finding.subject): finding for finding in self.earlier}

    @property
    def boot(self) -> str:
        """The node's boot id; "" if unknown."""
        agent = self.before.agent
        return agent.boot_id if agent and agent.boot_id else self.facts.node.boot_id

    @property
    def decision(self) -> HumanDecision | None:
        """The user's decision in NodeHealth's spec; None: there is none."""
        return self.health.spec.override

    @property
    def is_cordoned(self) -> bool:
        """Whether a user has cordoned the node."""
        return self.decision is not None and self.decision.decision is Decision.CORDON

    @cached_property
    def released(self) -> datetime | None:
        """The time up to which a user's release covers all findings; None: there is no release."""
        human = self.decision
        if human is None or human.decision is not Decision.RELEASE:
            return None
        if human.time > self.now + timedelta(seconds=CLOCK_ERROR_SECONDS):
            return None
        return min(human.time, self.now)

    @property
    def window(self) -> MaintenanceState | None:
        """The maintenance window that applies now; None: none does."""
        return self._window_and_change[0]

    @property
    def window_changes(self) -> datetime | None:
        """When the window changes by time alone; None: never."""
        return self._window_and_change[1]

    @cached_property
    def _window_and_change(self) -> tuple[MaintenanceState | None, datetime | None]:
        return self.rules.windows.state_of_node(self.facts.node, self.now)
