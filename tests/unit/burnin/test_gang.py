"""What people are told of the all-reduce of a whole gang."""

from typing import Any

import pytest

from muster.burnin.gang import is_measured, measured
from muster.preflight.outcomes import How, PairOutcome
from muster.protocol.checks import GANG, CheckAnswer

NODES = ["n0", "n1", "n2"]


def answers(**changes: Any) -> dict[str, CheckAnswer]:
    """Good ones of all, but for these; None: it has not answered."""
    usual = {"outcome": "Result", "gbps": 40.0, "transport": "IB"}
    told = {node: changes.get(node, {}) for node in NODES}
    return {node: CheckAnswer("o", GANG, **{**usual, **change}) for node, change in told.items() if change is not None}


def pairs(*gbps: float, transport: str = "IB") -> list[PairOutcome]:
    return [PairOutcome(1, "n0", "n1", How.RESULT, each, transport=transport) for each in gbps]


NO_RESULT = "the all-reduce of the whole gang gave no result: "
CASES: dict[str, tuple[dict[str, CheckAnswer], list[PairOutcome], str, tuple[str, bool]]] = {
    "the slowest node's figure": (
        answers(n1={"gbps": 38.25}), pairs(48.0), "IB", ("all-reduce over 3 nodes: 38.2 GB/s (IB)", False)
    ),
    "another transport than expected": (
        answers(n0={"transport": "TCP", "gbps": 1.0}), [], "IB",
        ("all-reduce over 3 nodes: 1 GB/s (TCP), where IB is expected", True),
    ),
    "much less than pairs": (
        answers(n2={"gbps": 9.0}), pairs(48.0, 44.0, 2.0), "",
        ("all-reduce over 3 nodes: 9 GB/s (IB), where pairs of them reach 44 GB/s", True),
    ),
    "pairs inside a domain are no measure": (
        answers(), pairs(400.0, transport="NVLink"), "", ("all-reduce over 3 nodes: 40 GB/s (IB)", False)
    ),
    "a wrong sum": (
        answers(n0={"outcome": "OtherEnded"}, n1={"gbps": 0.0, "message": "8 words of the sums are wrong"}), [], "",
        ("the all-reduce of the whole gang gave wrong sums: n1: 8 words of the sums are wrong", True),
    ),
    "victims are not the reason": (
        answers(n0={"outcome": "OtherEnded"}, n1={"outcome": "Environment", "message": "GPU 0 is in use"},
                n2={"outcome": "OtherEnded"}), [], "",
        (f"{NO_RESULT}n1: GPU 0 is in use", True),
    ),
    "one that is gone": (
        answers(n0={"outcome": "OtherEnded"}, n1=None), [], "", (f"{NO_RESULT}no answer in time from n1", True)
    ),
    "several that are gone": (answers(n1=None, n2=None), [], "",
        (f"{NO_RESULT}no answer in time from n1 and 1 more", True)),
    "nobody is left": ({}, [], "", (f"{NO_RESULT}no node answered in time", True)),
}  # fmt: skip


@pytest.mark.parametrize(("told", "reached", "transport", "wanted"), CASES.values(), ids=CASES)
def test_words(
    told: dict[str, CheckAnswer], reached: list[PairOutcome], transport: str, wanted: tuple[str, bool]
) -> None:
    found = measured(NODES, told, reached, transport)
    assert (found.message, found.is_odd) == wanted
    assert found.is_wrong is ("wrong sums" in found.message)


@pytest.mark.parametrize(
    ("devices", "wanted"),
    [
        (["cpu"] * 2, False),
        (["cpu"] * 3, True),
        (["cpu"] * 64, True),
        (["cpu"] * 65, False),
        (["cuda"] * 256, True),
        (["cuda"] * 257, False),
        (["cuda", "cuda", "cpu"], False),
        ([], False),
    ],
)
def test_which_gangs_are_measured_as_a_whole(devices: list[str], wanted: bool) -> None:
    assert is_measured(devices) is wanted
