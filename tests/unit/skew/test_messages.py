"""What launchers, checkers and the operator of neighbouring versions say to each other."""

from __future__ import annotations

import json

import pytest

from muster.node.launcher import peers
from muster.preflight.outcomes import How
from muster.preflight.single_node import how_ended
from muster.protocol import checks, messages

UNKNOWN = {"ofLater": {"steps": [1]}}
RANK = {"rank": 0, "localRank": 0, "alive": True, **UNKNOWN}
REPORT = {"sequence": 1, "state": "Dancing", "ranks": [RANK], "protocol": 2, **UNKNOWN}
DIRECTIVE = {"kind": "Run", "attempt": 2, "peers": [{"index": 1, "address": "a", "port": 1, **UNKNOWN}], **UNKNOWN}


def test_a_report_of_a_later_launcher_is_read():
    report = messages.decode_report(json.dumps(REPORT).encode())
    assert (report.state, report.protocol) == ("Dancing", 2)
    assert report.ranks == (messages.RankReport(0, 0, alive=True),)


def test_a_directive_of_a_later_operator_is_read():
    directive = messages.decode_directive(json.dumps(DIRECTIVE).encode())
    assert directive == messages.Directive("Run", 2, peers=(messages.Peer(1, "a", 1),))


@pytest.mark.parametrize("kind", [messages.Report, messages.Directive, checks.CheckReport, checks.CheckDirective])
def test_a_message_of_an_older_version_has_defaults(kind):
    """What a version has added since the first one has a default, so that messages without it are read."""
    oldest = {"kind": "Run"} if kind is messages.Directive else {"sequence": 1, "state": "Idle", "node": "n0"}
    assert messages.decode_from_coordinator(kind, json.dumps(oldest).encode())


def test_an_outcome_that_only_a_later_checker_knows_is_no_pass():
    answer = {"order": "a", "kind": "Node", "outcome": "Glorious", "probes": [{"probe": "gemm", "outcome": "Glorious"}]}
    report = checks.decode_check_report(json.dumps({"sequence": 1, "answers": [answer | UNKNOWN], **UNKNOWN}).encode())
    assert how_ended(report.answers[0].outcome) is How.ENVIRONMENT
    assert how_ended(report.answers[0].probes[0].outcome) is How.ENVIRONMENT


def test_a_directive_of_a_later_operator_to_a_checker_is_read():
    orders = [{"id": "a", "kind": "Torus", **UNKNOWN}]
    directive = checks.decode_check_directive(json.dumps({"orders": orders, **UNKNOWN}).encode())
    assert directive.orders == (checks.CheckOrder("a", "Torus"),)


def test_of_a_later_answer_to_a_ping_the_known_numbers_are_read():
    assert peers._numbers(b" 3 2 500") == (3, 2, 500)
    assert peers._numbers(b" 3 2 500 71 later=1 9") == (3, 2, 500, 71)
