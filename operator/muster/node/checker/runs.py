"""Runs one order: which probe comes next, and what result the answers give. Pure: times are passed in.

Tests: tests/unit/checker/test_core.py.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Mapping, Optional

from muster.node.checker import translate
from muster.node.checker.facts import CPU, CUDA, Facts, facts_of, no_cuda, unfitness
from muster.node.checker.probes import node, outcome
from muster.protocol.checks import GANG, NODE, PAIR, CheckAnswer, CheckOrder, ProbeReport
from muster.protocol.messages import MAX_NUMBER
from muster.protocol.profiles import PROFILES, ProfileProbes, Step

_LOOK = Step("Devices", 10)
_MAX_ADDRESS_CHARACTERS = 253
_KINDS = (NODE, PAIR, GANG)


def refusal(order: CheckOrder) -> str:
    """Return why this checker cannot run an order at all; "" where it can."""
    if order.kind not in _KINDS:
        return "this checker does not know orders of the kind %.64s" % order.kind
    if order.profile not in PROFILES:
        return "this checker does not know the profile %.64s" % order.profile
    if order.kind != NODE and order.nodes < 2:
        return "an all-reduce between nodes needs two, not %d" % order.nodes
    if len(order.master_address) > _MAX_ADDRESS_CHARACTERS:
        return "the address of the first node is no address"
    return ""


def environment_answer(order: CheckOrder, words: str, seconds: float = 0.0, given_back: bool = True) -> CheckAnswer:
    """Return an answer that says nothing about the hardware."""
    return _answer(order, translate.ENVIRONMENT, words, seconds, given_back)


def _answer(order: CheckOrder, how: str, words: str, seconds: float, given_back: bool) -> CheckAnswer:
    return CheckAnswer(
        order=order.id,
        kind=order.kind[:64] or "?",
        outcome=how,
        round=min(max(0, order.round), MAX_NUMBER),
        peer=order.peer[:253],
        message=translate.cut(words),
        seconds=round(max(0.0, seconds), 3),
        given_back=given_back,
    )


class Run:
    """An inspection of the devices, and then the probes of an order where there is one.

    Attributes:
        order: None for an inspection alone.
        facts: the known facts about this node; an inspection renews them.
        looked: the answer of the inspection, once there is one.
        given_back: whether the GPUs were seen to be free after the last probe.
        leaving: why the run ends early; "" while it does not.
        is_acknowledged: whether the coordinator has confirmed that it passes on what this node's processes put.
    """

    def __init__(
        self, order: Optional[CheckOrder], facts: Optional[Facts], key: Mapping[str, Any], began: float, looks: bool
    ) -> None:
        self.order = order
        self.facts = facts
        self.looked: Optional[Dict[str, Any]] = None
        self.given_back = True
        self.leaving = ""
        self.is_acknowledged = False
        self._key = key
        self._began = began
        self._steps: List[Step] = [self._inspect()] if looks else []
        self._planned = False

    def next(self, now: float) -> Optional[Dict[str, Any]]:
        """Return the next probe for the zygote, without an id; None: there is none left."""
        if self.leaving:
            return None
        if not self._steps and not self._planned:
            self._planned = True
            self._steps = self._plan()
        if not self._steps:
            return None
        step = self._steps.pop(0)
        return self._ask(step, now)

    def note_answer(self, asked: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Note the answer of a probe."""
        answer = {"probe": asked["probe"], "device": asked["device"], "outcome": outcome.REFUSED, "parts": [], **answer}
        if "given_back" in answer:
            self.given_back = answer["given_back"].get("free") is True
        if self.looked is None and asked["probe"] == _LOOK.probe:
            self.looked = answer
            seen = facts_of(answer, self._key)
            self.facts = seen if seen is not None else self.facts
        self._note_answer(answer)

    def abort(self, asked: Mapping[str, Any], name: str, words: str) -> None:
        """Note that the zygote has ended during a probe: that probe has no result but the outcome `name`, and later
        ones do not run.
        """
        self.given_back = asked["device"] == CPU
        self._planned, self._steps = True, []
        self._note_answer({"probe": asked["probe"], "device": "node", "outcome": name, "message": words, "parts": []})

    def answer(self, now: float) -> CheckAnswer:
        """Return the result of the order."""
        assert self.order is not None
        return environment_answer(self.order, self.leaving, now - self._began, self.given_back)

    def _inspect(self) -> Step:
        return _LOOK

    def _plan(self) -> List[Step]:
        return []

    def _ask(self, step: Step, now: float) -> Optional[Dict[str, Any]]:
        if step.probe == _LOOK.probe:
            return node.order_of(step, "", CPU, [])
        indexes = list(self.facts.indexes) if self.facts is not None else []
        return node.order_of(step, "", self._device(), indexes)

    def _device(self) -> str:
        return CPU if self.facts is None else self.facts.device

    def _not_owed(self) -> str:
        """Return a message where an order asks a node with GPUs for a test without GPUs; else "".

        A test of the host's CPU says nothing about its GPUs: neither a pass nor a figure may count for them.
        """
        without = self.order is not None and self.order.gpus == 0
        return "without GPUs nothing is tested on a node that has some" if without and self._device() == CUDA else ""

    def _note_answer(self, answer: Mapping[str, Any]) -> None:
        pass


class NodeRun(Run):
    """The probes of one node, one after the other, within the profile's time."""

    def __init__(
        self,
        order: CheckOrder,
        facts: Optional[Facts],
        key: Mapping[str, Any],
        began: float,
        directory: str,
        ethernet: bool,
    ) -> None:
        self._profile: ProfileProbes = PROFILES[order.profile]
        self._expected = order.gpus
        super().__init__(order, facts, key, began, looks=True)
        self._directory = directory
        self._ethernet = ethernet
        self._probes: List[ProbeReport] = []
        self._transport = ""
        self._cut = False  # whether the running probe has less time than its own deadline

    def _inspect(self) -> Step:
        return dataclasses.replace(_LOOK, parameters={"expected": self._expected})

    def _plan(self) -> List[Step]:
        if self.looked is None or self.facts is None or self.looked["outcome"] != outcome.DONE:
            return []
        why = self._not_owed() or no_cuda(self.facts)
        if why:
            self._not_run("Context", outcome.UNFIT, why)
            return []
        return node.steps_of(self._profile, self._device(), self._directory or None)

    def _ask(self, step: Step, now: float) -> Optional[Dict[str, Any]]:
        left = self._profile.limit_seconds - (now - self._began)
        if step.probe == _LOOK.probe:
            return super()._ask(step, now)
        if left <= 0:
            for late in [step, *self._steps]:
                self._not_run(late.probe, outcome.NO_TIME, "the profile's %g s are over" % self._profile.limit_seconds)
            self._steps = []
            return None
        self._cut = left < step.deadline_seconds
        return super()._ask(dataclasses.replace(step, deadline_seconds=min(step.deadline_seconds, left)), now)

    def _not_run(self, probe: str, name: str, words: str) -> None:
        self._note_answer({"probe": probe, "device": "node", "outcome": name, "message": words, "parts": []})

    def _note_answer(self, answer: Mapping[str, Any]) -> None:
        answer = node.in_time(answer, self._profile, self._cut)
        taken_names = {probe.probe for probe in self._probes}
        self._probes += translate.probe_reports(answer, taken_names)
        if answer["probe"] == "AllReduce" and self.facts is not None:
            transports = answer.get("transports") or ()
            self._transport = translate.transport_of(transports, self.facts.model, self._ethernet, across=False)

    def answer(self, now: float) -> CheckAnswer:
        """Return the results of all probes of the order; `transport` is that of the all-reduce inside the node."""
        assert self.order is not None
        how = translate.ENVIRONMENT if self.leaving else translate.overall(self._probes)
        bad = [probe for probe in self._probes if probe.wrong or probe.outcome != translate.RESULT]
        words = self.leaving or "; ".join("%s: %s" % (probe.probe, probe.message) for probe in bad)
        plain = _answer(self.order, how, words, now - self._began, self.given_back)
        return dataclasses.replace(plain, probes=tuple(self._probes), transport=self._transport)


class ReduceRun(Run):
    """An all-reduce with other nodes."""

    def __init__(
        self,
        order: CheckOrder,
        facts: Optional[Facts],
        key: Mapping[str, Any],
        began: float,
        looks: bool,
        ethernet: bool,
    ) -> None:
        super().__init__(order, facts, key, began, looks=looks or facts is None)
        self._ethernet = ethernet
        self._reduced: Optional[Mapping[str, Any]] = None
        self._problem = ""

    def _plan(self) -> List[Step]:
        assert self.order is not None
        self._problem = self._why_not()
        if self._problem:
            return []
        profile, device = PROFILES[self.order.profile], self._device()
        sizes = (profile.pair if self.order.kind == PAIR else profile.gang)[device]
        deadline = profile.deadline_seconds[device]
        parameters = {
            "nodes": self.order.nodes,
            "node_rank": self.order.node_rank,
            "master": self.order.master_address,
            "port": self.order.master_port,
            "sizes": [list(row) for row in sizes],
            # The deadline is the limit, and the phase at that time shows whether the nodes had met.
            "wait_seconds": deadline,
        }
        return [Step("AllReduce", deadline, parameters)]

    def _why_not(self) -> str:
        """Return why there is no device for the all-reduce; "" where there is one."""
        if self.facts is None:
            return translate.failure_text(self.looked) if self.looked else "the devices are not known"
        if self._device() == CPU or self._not_owed():
            return self._not_owed()
        if self.looked is not None and self.looked["outcome"] != outcome.DONE:
            return unfitness(self.looked, self.facts) or translate.failure_text(self.looked)
        return no_cuda(self.facts)

    def _note_answer(self, answer: Mapping[str, Any]) -> None:
        if answer["probe"] == "AllReduce":
            self._reduced = answer
        elif answer["outcome"] == outcome.UNFIT:
            self._problem = str(answer.get("message"))

    def answer(self, now: float) -> CheckAnswer:
        """Return the result that this end of the all-reduce reports."""
        assert self.order is not None
        seconds = now - self._began
        if self.leaving or self._reduced is None:
            words = self.leaving or self._problem or "it was not begun"
            return environment_answer(self.order, words, seconds, self.given_back)
        model = self.facts.model if self.facts is not None else ""
        reduced = translate.reduced(self._reduced, model, self._ethernet)
        if reduced.how == translate.COULD_NOT_CONNECT and not self.is_acknowledged:
            words = "the coordinator has passed nothing on, so no other node could be met"
            return environment_answer(self.order, words, seconds, self.given_back)
        plain = _answer(self.order, reduced.how, reduced.message, seconds, self.given_back)
        return dataclasses.replace(
            plain, gbps=reduced.gbps, retransmits=reduced.retransmits, transport=reduced.transport
        )


def run_of(
    order: CheckOrder,
    facts: Optional[Facts],
    key: Mapping[str, Any],
    now: float,
    looks: bool,
    directory: str,
    ethernet: bool,
) -> Run:
    """Return the run of an order that is not refused."""
    if order.kind == NODE:
        return NodeRun(order, facts, key, now, directory, ethernet)
    return ReduceRun(order, facts, key, now, looks, ethernet)
