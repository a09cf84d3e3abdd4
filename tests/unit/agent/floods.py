"""Floods of lines in the kernel log."""

from typing import Any

from muster.node.agent import kinds

XID = "NVRM: Xid (PCI:0000:11:00): 79, pid=1, GPU has fallen off the bus."


def assert_that_a_flood_of_one_xid_is_one(node: Any, run: Any, thousands: int) -> None:
    agent = run()
    agent.wait_until_looking()
    before = len(agent.wrote.offers)
    stamp = int(agent.clock() * 1e6)
    for number in range(1, thousands + 1):
        node.log(*[f"4,{number},{stamp},-;{XID}"] * 1000)
        agent.wait_for_log(1000 * number)
    assert [(item["kind"], item["count"]) for item in agent.evidence] == [(kinds.XID, 1)]
    assert sum(urgent for _, urgent in agent.wrote.offers[before:]) == 1
    assert len(agent.wrote.offers) - before <= 3


def assert_that_noise_has_no_verdict(node: Any, run: Any, lines: int) -> None:
    agent = run()
    agent.wait_until_looking()
    node.log(*[f"NVRM: Xid (PCI:0000:{number:04x}:00): x{number}" for number in range(lines)])
    node.log(*["\x00\xff Xid nvme I/O error mlx5_core Oops" for _ in range(lines)])
    agent.wait(lambda: agent.agent._log.lines >= 2 * lines)
    assert agent.evidence == []
