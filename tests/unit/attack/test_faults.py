from attack.faults import MAKERS, ON_THE_WAY
from attack.packets import between
from simulate.faults import KINDS


def test_what_a_fault_says_of_the_cluster_is_true() -> None:
    """Each kind of the simulator says whether and how it can be made on real nodes."""
    assert {name for name, kind in KINDS.items() if kind.on_cluster} == set(MAKERS) & set(KINDS)
    assert {name for name, kind in KINDS.items() if kind.on_cluster == "proxy"} == ON_THE_WAY


def test_a_cut_between_nodes_and_addresses() -> None:
    both = between(("node-1",), ["10.0.0.1", "10.1.0.0/24"], but=["10.1.0.7"])
    but = "ip daddr != { 10.1.0.7 } ip saddr != { 10.1.0.7 }"
    assert both.arriving == (f"ip saddr {{ 10.0.0.1, 10.1.0.0/24 }} {but}",)
    assert both.leaving[0].startswith("ip daddr { 10.0.0.1, 10.1.0.0/24 } ")
    outwards = between(("node-1",), ["10.0.0.1"], but=[], one_way=True)
    assert (outwards.arriving, outwards.leaving) == ((), ("ip daddr { 10.0.0.1 }",))
