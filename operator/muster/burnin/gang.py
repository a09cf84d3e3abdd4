"""The all-reduce of a whole gang: when it is made, and what it has come to, in words. It measures, and blames no node.
Pure.

All links at once show what no pair does: an uplink that many share, a switch that drops under load. Whose fault that is
cannot be told from one figure, so no node is left out for it, and none is left untested.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from muster.burnin.orders import Orders
from muster.preflight import single_node
from muster.preflight.outcomes import NVLINK, How, PairOutcome
from muster.protocol.checks import CheckAnswer, CheckOrder
from muster.protocol.profiles import GANG_NODES
from muster.world.names import shortened

# Two are a pair, and have been tested as one.
LEAST_NODES = 3
# Of what pairs have reached over the same transport; less is worth a warning. All at once share what pairs have each to
# themselves, and on a CPU the sums of a large gang wait for the slowest of many.
MUCH_LESS = 0.25


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of the all-reduce of a whole gang, for people.

    Attributes:
        message: the result as text; "" where none was made.
        is_odd: whether the result differs from what the pairs have shown, so that people should look.
        is_wrong: whether the all-reduce ended and its sums were wrong.
    """

    message: str = ""
    is_odd: bool = False
    is_wrong: bool = False


def is_measured(devices: Sequence[str]) -> bool:
    """Whether a gang with these devices is measured as a whole: three nodes at least, all of one kind, and not too
    many.

    Args:
        devices: "cuda" or "cpu", for each member.
    """
    kinds = set(devices)
    return len(kinds) == 1 and LEAST_NODES <= len(devices) <= GANG_NODES.get(kinds.pop(), 0)


def has_begun(orders: Orders) -> bool:
    """Whether the all-reduce of the whole gang is under way, or has been made."""
    # One that is too large for it is not searched for it at each look.
    return len(orders.members) <= max(GANG_NODES.values()) and orders.has_begun(orders.gang_id)


def gang_orders_due(orders: Orders, free: Iterable[str], *, begins: bool) -> dict[str, CheckOrder]:
    """Return the orders of the all-reduce of the whole gang, by node; empty where it is not to be made.

    An all-reduce that has begun goes on with the nodes that are left.

    Args:
        orders: of the burn-in.
        free: nodes whose checkers can test now.
        begins: whether it may begin now.
    """
    if has_begun(orders):
        ready_nodes = {*free, *(node for node in orders.members if orders.answer(node, orders.gang_id))}
    elif begins:
        ready_nodes = set(free)
        if len(ready_nodes) < len(orders.members) or not is_measured([orders.device_on(node) for node in ready_nodes]):
            return {}
    else:
        return {}
    return {node: order for node, order in orders.of_gang().items() if node in ready_nodes}


def gang_measurement(orders: Orders, pairs: Iterable[PairOutcome], transport: str) -> Measured:
    """Return the result of the all-reduce of the whole gang; empty where it was not made.

    Args:
        orders: of the burn-in.
        pairs: the results of its pairs.
        transport: the transport that is expected; "": any.
    """
    if not has_begun(orders):
        return Measured()
    answers = {node: answer for node in orders.members if (answer := orders.answer(node, orders.gang_id))}
    return measured(orders.members, answers, pairs, transport)


def measured(
    nodes: Sequence[str], answers: Mapping[str, CheckAnswer], pairs: Iterable[PairOutcome], transport: str
) -> Measured:
    """Return what the answers of a gang's nodes to the all-reduce come to.

    Args:
        nodes: all members' nodes, by index.
        answers: by node; absent: the node has not answered in time.
        pairs: the results of pairs of these nodes.
        transport: the transport that is expected; "": any.
    """
    wrong = next((node for node in nodes if node in answers and single_node.has_wrong_sums(answers[node])), None)
    if wrong is not None:
        words = f"the all-reduce of the whole gang gave wrong sums: {wrong}: {answers[wrong].message}"
        return Measured(words, is_odd=True, is_wrong=True)
    why = _why_not(nodes, answers)
    if why:
        return Measured(f"the all-reduce of the whole gang gave no result: {why}", is_odd=True)
    slowest = min(answers.values(), key=lambda answer: answer.gbps)
    words = f"all-reduce over {len(nodes)} nodes: {slowest.gbps:.3g} GB/s ({slowest.transport or 'transport unknown'})"
    if transport and slowest.transport not in (transport, NVLINK):
        return Measured(f"{words}, where {transport} is expected", is_odd=True)
    reached = [
        pair.gbps
        for pair in pairs
        if pair.how is How.RESULT and pair.gbps > 0.0 and pair.transport == slowest.transport
    ]
    if reached and slowest.gbps < MUCH_LESS * median(reached):
        return Measured(f"{words}, where pairs of them reach {median(reached):.3g} GB/s", is_odd=True)
    return Measured(words)


def _why_not(nodes: Sequence[str], answers: Mapping[str, CheckAnswer]) -> str:
    silent = [node for node in nodes if node not in answers]
    if len(silent) == len(nodes):
        return "no node answered in time"
    if silent:
        return f"no answer in time from {shortened(silent, 1)}"
    failed = [(node, answers[node]) for node in nodes if not _has_figure(answers[node])]
    # A node that reports that another has gone is a victim.
    failed.sort(key=lambda entry: single_node.how_ended(entry[1].outcome) is How.OTHER_ENDED)
    return next((f"{node}: {answer.message or answer.outcome}" for node, answer in failed), "")


def _has_figure(answer: CheckAnswer) -> bool:
    return single_node.how_ended(answer.outcome) is How.RESULT and answer.gbps > 0.0
