"""Each row of the table against a Node object as its system writes it, and what is beyond one row."""

from typing import Any

import pytest
from tests.unit.health.builders import NOW, after, facts_of, rules
from tests.unit.health.marks import Example, condition, examples, node_with

from muster.api.nodehealth import Finding, Severity
from muster.health.facts import NodeFacts
from muster.health.signs import Sign
from muster.health.sources import ROWS, in_charge

_EKS = "AcceleratedHardwareReady"
BAD = [one for one in examples() if one.bad]
GOOD = [one for one in examples() if not one.bad]
HERE = [row.name for row in ROWS if row.removal is None]
"""The rows with examples here. Those of removals are files of the corpus: tests/unit/reports/test_marks.py."""


def signs(facts: NodeFacts, known: list[Finding] | None = None, **health: Any) -> list[Sign]:
    found = {(f.source, f.reason, f.subject): f for f in known or []}
    return rules(**health).signs(facts, found, NOW)[0]


def seen_before(source: str, reason: str) -> Finding:
    """A mark without a time of its own was seen an hour ago."""
    return Finding(source=source, reason=reason, since=after(-3600))


def bad_node(row: str) -> dict[str, Any]:
    return next(one.node for one in BAD if one.row == row)


def of_source(example: Example, found: list[Sign]) -> list[Sign]:
    return [sign for sign in found if sign.source == example.row.partition("/")[0]]


@pytest.mark.parametrize("row", HERE)
def test_every_row_has_a_bad_and_a_good_example(row: str) -> None:
    assert {one.bad for one in (*BAD, *GOOD) if one.row == row} == {True, False}, (
        "tests/data/health/marks.yaml has them"
    )


def test_every_example_has_its_row() -> None:
    assert {one.row for one in (*BAD, *GOOD)} <= {*HERE}
    assert len(ROWS) == len({row.name for row in ROWS})


@pytest.mark.parametrize("example", BAD, ids=str)
def test_a_row_is_read_from_the_node_as_its_system_writes_it(example: Example) -> None:
    source, right = example.row.partition("/")[0], example.right
    (sign,) = of_source(example, signs(facts_of(example.node), [seen_before(source, right["reason"])]))
    repaired_by = in_charge([sign], cordoned=False)
    read: dict[str, Any] = {"reason": sign.reason, "severity": sign.severity, "action": sign.action}
    read |= ({"planned": True} if sign.planned else {}) | ({"repairedBy": repaired_by} if repaired_by else {})
    assert read == right
    assert sign.offence is (not sign.planned and sign.severity in (Severity.DEGRADED, Severity.FATAL))
    assert sign.since <= after(-3600)


@pytest.mark.parametrize("example", GOOD, ids=str)
def test_the_opposite_of_a_row_is_nothing(example: Example) -> None:
    assert [sign.reason for sign in of_source(example, signs(facts_of(example.node)))] == example.right


@pytest.mark.parametrize("example", BAD, ids=str)
def test_a_source_that_is_switched_off_says_nothing(example: Example) -> None:
    off = [{"name": example.row.partition("/")[0], "enabled": False}]
    assert of_source(example, signs(facts_of(example.node), sources=off)) == []


def test_a_healthy_node_shows_no_sign() -> None:
    assert signs(facts_of(node_with())) == []


def test_absence_is_nothing_known() -> None:
    bare = {"metadata": {"name": "n"}}
    assert rules().signs(facts_of(bare), {}, NOW) == ([], None)


def test_a_condition_that_is_too_young_counts_later() -> None:
    young = facts_of(node_with(condition("KernelDeadlock", "True", "DockerHung", at="2026-11-20T09:41:00Z")))
    found, ripe = rules().signs(young, {}, NOW)
    assert (found, ripe) == ([], after(-7 + 30))
    assert [s.severity for s in rules().signs(young, {}, after(23))[0]] == [Severity.DEGRADED]


def test_a_mark_without_a_time_counts_from_when_it_was_first_seen() -> None:
    short = facts_of(node_with(allocatable={"nvidia.com/gpu": "0"}))
    (first,), ripe = rules().signs(short, {}, NOW)
    assert (first.severity, first.since, ripe) == (Severity.INFO, NOW, after(120))
    (later,), _ = rules().signs(short, {first.key: first.finding()}, after(120))
    assert (later.severity, later.since) == (Severity.DEGRADED, NOW)


def test_a_condition_that_is_dated_ahead_is_not_old() -> None:
    ahead = node_with(condition("KernelDeadlock", "True", "DockerHung", at="2027-01-01T00:00:00Z"))
    assert rules().signs(facts_of(ahead), {}, NOW) == ([], after(30))


def test_what_a_silent_writer_said_stands() -> None:
    said = node_with(condition(_EKS, "False", "NvidiaXID79Error"))
    (sign,) = signs(facts_of(said))
    silent = facts_of(node_with(condition(_EKS, "Unknown", "NodeMonitoringAgentGone")))
    (still,) = signs(silent, [sign.finding()])
    assert (still.reason, still.severity, still.source) == ("NvidiaXID79Error", Severity.FATAL, "eks")
    assert signs(silent) == []


@pytest.mark.parametrize(
    ("code", "severity"), [(13, "Info"), (31, "Info"), (63, "Degraded"), (109, "Degraded"), (95, "Fatal")]
)
def test_an_xid_weighs_what_it_weighs_whoever_reports_it(code: int, severity: str) -> None:
    (sign,) = signs(facts_of(node_with(condition(_EKS, "False", f"NvidiaXID{code}Error"))))
    assert sign.severity == severity


@pytest.mark.parametrize(
    ("message", "severity", "action"),
    [
        ("ErrorCode:31 PCI:0002:00:00 GPU_UUID:GPU-2 kernel: NVRM: Xid (PCI:0002:00:00): 31 Recommended Action=NONE;",
         "Warning", "None"),
        ("ErrorCode:DCGM_FR_XID_ERROR GPU:4 PCI:0000:c4:00.0 Detected XID 31 for GPU 4 .Recommended Action=NONE;",
         "Warning", "None"),
        ("ErrorCode:45 GPU:0 Recommended Action=NONE;ErrorCode:79 GPU:3 Recommended Action=RESTART_BM;", "Fatal",
         "Reboot"),
        ("ErrorCode:79 GPU:3 Recommended Action=RESTART_BM;ErrorCode:45 GPU:0 Recommended Action=NONE;", "Fatal",
         "Reboot"),
        ("ErrorCode:48 GPU:3 Recommended Action=COMPONENT_RESET;ErrorCode:64 GPU:3 Recommended Action=REPLACE_VM;",
         "Fatal", "Replace"),
        ("ErrorCode:44 GPU:0 Recommended Action=REPORT_ISSUE;ErrorCode:45 GPU:0 Recommended Action=NONE;", "Fatal",
         "Inspect"),
    ],
)  # fmt: skip
def test_of_several_faults_in_a_message_of_nvsentinel_the_gravest_counts(
    message: str, severity: str, action: str
) -> None:
    node = node_with(condition("SysLogsXIDError", "True", "SysLogsXIDErrorIsNotHealthy", message))
    (sign,) = signs(facts_of(node))
    assert (sign.severity, sign.action, sign.offence) == (severity, action, severity == "Fatal")


@pytest.mark.parametrize(
    ("source", "cordoned", "repaired_by"),
    [("eks", True, "eks"), ("eks", False, ""), ("autopilot", True, "")],
)
def test_a_cordon_says_that_those_who_cordon_have_begun(source: str, cordoned: bool, repaired_by: str) -> None:
    name = {"eks": "eks/hardware", "autopilot": "autopilot/evict"}[source]
    assert in_charge(signs(facts_of(bad_node(name))), cordoned) == repaired_by


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("nvsentinel/state", "kubectl label node ip-10-0-3-17.ec2.internal dgxc.nvidia.com/nvsentinel-state-"),
        (
            "kubernetes/out-of-service",
            "kubectl taint node ip-10-0-3-17.ec2.internal node.kubernetes.io/out-of-service-",
        ),
        ("aws-nth/spot", ""),
        ("eks/hardware", ""),
    ],
)
def test_a_mark_that_may_be_left_behind_names_the_command_that_removes_it(name: str, command: str) -> None:
    spot = {"key": "aws-node-termination-handler/spot-itn", "value": "event", "effect": "NoSchedule"}
    node = bad_node(name) if name != "aws-nth/spot" else node_with(taints=[spot])
    [message] = {sign.message for sign in signs(facts_of(node)) if sign.source == name.partition("/")[0]}
    assert f"`{command}`" in message if command else "kubectl" not in message


def test_rules_of_the_policy_are_rows_too() -> None:
    own = [
        {"name": "a", "condition": {"type": "GpuSick", "reason": "Burnt"}, "severity": "Fatal", "action": "Replace"},
        {"name": "b", "condition": {"type": "example.org/Fit", "badWhenFalse": True}, "severity": "Warning"},
        {"name": "c", "label": {"key": "example.org/gpu.health"}, "severity": "Degraded", "planned": True},
        {"name": "d", "taint": {"key": "example.org/repair", "value": "yes"}, "severity": "Degraded"},
    ]
    node = node_with(
        condition("GpuSick", "True", "Burnt"),
        condition("example.org/Fit", "False", "Tired"),
        labels={"example.org/gpu.health": "bad"},
        taints=[{"key": "example.org/repair", "value": "yes", "effect": "NoSchedule"}],
    )
    found = {s.source: (s.reason, s.severity, s.action, s.planned) for s in signs(facts_of(node), rules=own)}
    assert found == {
        "rule/a": ("Burnt", "Fatal", "Replace", False),
        "rule/b": ("Tired", "Warning", "None", False),
        "rule/c": ("MarkedByRule", "Degraded", "None", True),
        "rule/d": ("MarkedByRule", "Degraded", "None", False),
    }
    others = node_with(
        condition("GpuSick", "True", "Dusty"),
        condition("example.org/Fit", "True", "Rested"),
        labels={"example.org/gpuXhealth": "bad"},
        taints=[{"key": "example.org/repair", "value": "no", "effect": "NoSchedule"}],
    )
    assert signs(facts_of(others), rules=own) == []


def two_rules(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """A policy with these two rules, of which the second one is Fatal."""
    return {"rules": [{"name": "a", **one, "severity": "Warning"}, {"name": "b", **other, "severity": "Fatal"}]}


OF_EKS = {"name": "eks", "condition": {"type": _EKS, "badWhenFalse": True}, "severity": "Warning"}
NOBODY = [{"name": name, "enabled": False} for name in (*{row.source for row in ROWS}, "agent", "burn-in", "jobs")]
CONTRADICTIONS = {
    "observe": ({"enforcement": "Observe", "budgets": [{"nodes": "5%"}]}, "health.budgets has no effect"),
    "against a row of the table": ({"rules": [OF_EKS]}, "matches marks that eks/hardware (Fatal) matches, too"),
    "two labels": (
        two_rules({"label": {"key": "x/y"}}, {"label": {"key": "x/y", "value": "z"}}),
        "a (Warning) and b (Fatal) can match the same mark",
    ),
    "two conditions": (
        two_rules({"condition": {"type": "T"}}, {"condition": {"type": "T", "reason": "R"}}),
        "The stronger counts",
    ),
    "two taints": (
        two_rules({"taint": {"key": "x/t"}}, {"taint": {"key": "x/t", "value": "v"}}),
        "The stronger counts",
    ),
    "nothing is listened to": ({"sources": NOBODY}, "switches off every source"),
}


@pytest.mark.parametrize(("health", "says"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_contradiction_is_told_with_what_to_do(health: dict[str, Any], says: str) -> None:
    assert any(says in problem for problem in rules(**health).problems)


SENSE = {
    "nothing": {},
    "observe": {"enforcement": "Observe"},
    "a budget": {"budgets": [{"nodes": "30%"}]},
    "a rule in place of a source": {"sources": [{"name": "eks", "enabled": False}], "rules": [OF_EKS]},
    "two values": two_rules({"label": {"key": "x/y", "value": "1"}}, {"label": {"key": "x/y", "value": "2"}}),
}


@pytest.mark.parametrize("health", SENSE.values(), ids=SENSE)
def test_what_makes_sense_is_no_problem(health: dict[str, Any]) -> None:
    assert rules(**health).problems == ()
