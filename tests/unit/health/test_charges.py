"""A removal is charged when it is decided, and a write that fails frees its place."""

import pytest
from hypothesis import settings
from tests.unit.health.builders import NOW, evidence, sick
from tests.unit.health.writes import Operator, Writes, a_fleet, all_healthy


def an_operator(*names: str) -> Operator:
    """Of two nodes, of which these are Degraded. The budgets allow one for what is not certain."""
    fleet = a_fleet(2)
    store = all_healthy(fleet)
    store |= {name: sick(evidence("RowRemapPending"), health=store[name]) for name in names}
    operator = Operator(fleet, store)
    operator.decide(NOW)
    return operator


def taken(operator: Operator) -> set[str]:
    return {name for name, order in operator.writing.items() if order.ruling.charge}


def test_the_last_place_is_taken_by_the_decision_and_not_by_the_write() -> None:
    operator = an_operator("node-00")
    assert taken(operator) == {"node-00"}
    operator.answered("node-01", is_stored=True, is_told=True)
    operator.store["node-01"] = sick(evidence("IbPortDown"), health=operator.store["node-01"])
    operator.notice("node-01")
    operator.decide(NOW)
    assert taken(operator) == {"node-00"}, "a graver fault comes too late"


def test_a_write_that_fails_gives_its_place_to_the_next() -> None:
    operator = an_operator("node-00", "node-01")
    operator.answered("node-01", is_stored=True, is_told=True)
    operator.answered("node-00", is_stored=False, is_told=False)
    operator.decide(NOW)
    assert taken(operator) == set(), "it may have been stored: the place is free when the record has been read"
    operator.store["node-00"] = sick(health=operator.store["node-00"])
    operator.rested("node-00")
    operator.decide(NOW)
    assert "node-01" in taken(operator)


def test_a_node_whose_record_is_refused_leaves_the_last_place_to_a_less_grave_one() -> None:
    operator = an_operator("node-01")
    operator.answered("node-00", is_stored=True, is_told=True)
    operator.refuse("node-01")
    operator.store["node-00"] = sick(evidence("RowRemapPending"), health=operator.store["node-00"])
    operator.store["node-01"] = sick(evidence("Xid", 79), health=operator.store["node-01"])
    operator.notice("node-00")
    operator.decide(NOW)
    assert taken(operator) == set(), "until it is tried again its place is its own"
    operator.answered("node-00", is_stored=True, is_told=True)
    operator.rested("node-01")
    operator.decide(NOW)
    assert taken(operator) == {"node-00"}


def test_a_node_whose_record_is_refused_is_tried_again_where_a_place_is_left() -> None:
    operator = an_operator("node-00")
    operator.refuse("node-00")
    operator.rested("node-00")
    operator.decide(NOW)
    assert taken(operator) == {"node-00"}


@pytest.mark.parametrize("is_stored", [None, True, False], ids=["under way", "stored", "failed"])
def test_a_node_deleted_while_charged_keeps_its_place_unless_a_write_fails(is_stored: bool | None) -> None:
    operator = an_operator("node-00")
    operator.answered("node-01", is_stored=True, is_told=True)
    operator.delete_node("node-00")
    if is_stored is not None:
        operator.answered("node-00", is_stored=is_stored, is_told=is_stored)
    operator.store["node-01"] = sick(evidence("IbPortDown"), health=operator.store["node-01"])
    operator.notice("node-01")
    operator.decide(NOW)
    assert ("node-01" in taken(operator)) is (is_stored is False)


def test_a_removal_that_is_never_stored_frees_no_place_within_the_window() -> None:
    """A node was taken out for what is not certain, and came back. It falls off the bus, but the API server refuses the
    record of that. So the window has had its one uncertain removal, and the neighbour stays held."""
    machine = Writes()
    machine.begin(shape=(3, 1, 0))
    machine.nodes_become_unhealthy(first=2, count=1, kind="IbPortDown")
    machine.everything_is_written()
    machine.a_node_becomes_healthy(index=2)
    machine.nodes_become_unhealthy(first=0, count=1, kind="IbPortDown")
    machine.everything_is_written()
    machine.nodes_become_unhealthy(first=2, count=1, kind="Xid")
    assert taken(machine.operator) == {"node-02"}
    machine.a_write_is_refused(index=0)
    assert taken(machine.operator) == set()
    machine.everything_is_written()
    machine.no_budget_is_exceeded()


class FewWrites(Writes):
    """More examples run in tests/unit/nightly/health/test_charges.py."""


FewWrites.TestCase.settings = settings(max_examples=8, stateful_step_count=30, deadline=None)
TestWrites = FewWrites.TestCase
