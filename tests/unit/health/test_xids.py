import re

import pytest
from tests.unit.health.builders import after, evidence, facts, rules, sick

from muster.api.nodehealth import RecommendedAction, Severity
from muster.health import xids
from muster.health.assess import assess
from muster.health.kinds import sign_of
from muster.health.node_world import NodeWorld
from muster.health.signs import Clears, Repetition
from muster.node.agent.kinds import stands_until_reset

EVERY_CODE = range(1, 178)


@pytest.mark.parametrize("code", [8, 11, 13, 25, 31, 32, 39, 43, 45, 60, 68, 69, 80, 96, 137, 139, 174])
@pytest.mark.parametrize("count", [1, 1000])
def test_what_a_program_can_cause_takes_no_node_out_however_often(code: int, count: int) -> None:
    sign = sign_of(evidence("Xid", code, count=count, last=3600), after(3600))
    assert sign.severity in (Severity.INFO, Severity.WARNING)
    assert sign.action in (RecommendedAction.NONE, RecommendedAction.INSPECT)


@pytest.mark.parametrize(
    ("code", "severity", "action"),
    [
        (46, "Fatal", "Reset"),
        (48, "Fatal", "Reset"),
        (54, "Fatal", "Inspect"),
        (62, "Fatal", "Reset"),
        (63, "Degraded", "Reset"),
        (64, "Fatal", "Reset"),
        (74, "Degraded", "Reset"),
        (79, "Fatal", "Reboot"),
        (92, "Warning", "None"),
        (94, "Degraded", "Reset"),
        (95, "Fatal", "Reset"),
        (106, "Info", "None"),
        (109, "Degraded", "Reset"),
        (110, "Fatal", "Reset"),
        (119, "Fatal", "Reset"),
        (175, "Fatal", "Reset"),
        (120, "Fatal", "Reset"),
        (140, "Fatal", "Reset"),
        (143, "Fatal", "Reset"),
        (144, "Warning", "None"),
        (150, "Warning", "None"),
        (151, "Fatal", "Reboot"),
        (155, "Degraded", "Reset"),
        (156, "Degraded", "Reset"),
        (157, "Warning", "Inspect"),
        (158, "Fatal", "Reset"),
        (168, "Warning", "Inspect"),
        (176, "Warning", "Inspect"),
        (177, "Degraded", "Reset"),
    ],
)
def test_what_a_program_cannot_cause(code: int, severity: str, action: str) -> None:
    row = xids.xid(code)
    assert (row.severity, row.action) == (severity, action)


@pytest.mark.parametrize("code", EVERY_CODE)
def test_every_number_of_the_catalogue_has_a_row(code: int) -> None:
    assert code in xids.XIDS


@pytest.mark.parametrize("code", [0, -5, 178, 999_999_999])
def test_an_unknown_number_warns_and_no_more(code: int) -> None:
    for row in (xids.xid(code), xids.sxid(code)):
        assert (row.severity, row.fault) == (Severity.WARNING, xids.XidClass.UNKNOWN)


@pytest.mark.parametrize(
    ("words", "severity", "action"),
    [
        ("Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", 0, 1),
        ("recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", 0, 2),
        ("recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", 0, 4),
        ("recovery action changed from 0x0 (None) to 0x3 (Drain P2P)", 0, 3),
        ("recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)", 0, 0),
    ],
)
def test_154_is_followed(words: str, severity: int, action: int) -> None:
    _, wanted, do = xids.RECOVERY_ACTIONS[action]
    row = xids.xid(154, words)
    assert (row.severity, row.action) == (wanted, do)


@pytest.mark.parametrize("value", range(12))
def test_154_weighs_what_the_field_weighs_whatever_its_name_is(value: int) -> None:
    line = (
        f"Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x4 (Drain and Reset) to 0x{value:x} (Of A New "
        "Driver)"
    )
    asked = sign_of(evidence("Xid", 154, message=line), after(0))
    field = sign_of(evidence("RecoveryAction", value), after(0))
    assert (asked.severity, asked.action) == (field.severity, field.action)


@pytest.mark.parametrize("words", ["", "recovery action changed", "\x00\xff garbage"])
def test_154_that_says_nothing_warns(words: str) -> None:
    assert xids.xid(154, words).severity is Severity.WARNING


@pytest.mark.parametrize(
    ("value", "severity", "action"),
    [
        (0, "Info", "None"),
        (1, "Fatal", "Reset"),
        (2, "Fatal", "Reboot"),
        (3, "Fatal", "Inspect"),
        (4, "Degraded", "Reset"),
        (5, "Degraded", "Inspect"),
        (6, "Fatal", "Reset"),
        (7, "Fatal", "Reboot"),
        (8, "Warning", "Inspect"),
        (-1, "Warning", "Inspect"),
    ],
)
def test_the_drivers_recovery_action_is_followed_and_a_new_value_warns(value: int, severity: str, action: str) -> None:
    sign = sign_of(evidence("RecoveryAction", value), after(0))
    assert (sign.severity, sign.action) == (severity, action)
    assert re.fullmatch(r"RecoveryAction[A-Z][A-Za-z0-9]+", sign.reason)


@pytest.mark.parametrize(
    ("code", "words", "severity"),
    [
        (12020, "Fatal, Link 12", "Fatal"),
        (23001, "", "Fatal"),
        (23017, "", "Fatal"),
        (20034, "Fatal, Link 28", "Degraded"),
        (20034, "Non-fatal, Link 28", "Warning"),
        (12020, "Non-fatal, Link 12", "Fatal"),
        (20001, "Non-fatal, Link 3", "Info"),
        (10003, "", "Warning"),
        (12028, "", "Degraded"),
        (12033, "Fatal, Link 30 egress credit timeout (First)", "Degraded"),
        (12033, "Non-fatal, Link 30 egress credit timeout (First)", "Warning"),
        (14010, "Non-fatal, Link 02 TS crumbstore fatal ECC (First)", "Warning"),
        (12033, "", "Warning"),
    ],
)
def test_sxids(code: int, words: str, severity: str) -> None:
    assert xids.sxid(code, words).severity == severity


def test_nothing_that_weighs_ends_by_growing_old() -> None:
    """SXids that need a reboot, and XID 54, were gone after a day."""
    rows = [("Xid", code, xids.xid(code)) for code in xids.XIDS] + [("SXid", c, xids.sxid(c)) for c in xids.SXIDS]
    weighing = [(kind, code, row) for kind, code, row in rows if row.severity in (Severity.DEGRADED, Severity.FATAL)]
    assert len(weighing) > 80
    for kind, code, row in weighing:
        assert row.clears is Clears.BOOT or stands_until_reset(kind, code, ""), (kind, code)


def test_only_another_boot_ends_what_needs_one() -> None:
    assert xids.xid(79).clears is Clears.BOOT
    assert xids.xid(48).clears is Clears.EVIDENCE
    assert xids.xid(154, "to 0x2 (Node Reboot Required)").clears is Clears.BOOT


@pytest.mark.parametrize(
    ("count", "hours", "severity"),
    [(1, 0, "Info"), (4, 1, "Info"), (5, 23, "Warning"), (5, 25, "Info"), (50, 30, "Warning")],
)
def test_repetition_is_a_rate(count: int, hours: float, severity: str) -> None:
    sign = sign_of(evidence("Xid", 43, count=count, last=hours * 3600), after(hours * 3600))
    assert sign.severity == severity


def test_repetition_with_a_clock_that_went_back() -> None:
    often = Repetition(2, 60, Severity.WARNING, RecommendedAction.INSPECT)
    assert often.reached(2, after(100), after(0))
    assert not often.reached(1, after(100), after(0))


# NVIDIA's "XID 144-150 Decode" (severity and resolution of each part), lines as gpud and NVSentinel have them in their
# tests, and TensorRT-LLM #4816.
NVLINK5 = [
    ("144, SAW_MVB Nonfatal XC0 i0 Link 00 (0x00000001 0x00000001 0x00000000 0x00000000)", "Info", "None"),
    ("144, SAW_MVB Fatal XC0 i0 Link 00 (0x00000001 0x00000002 0x00000000 0x00000000)", "Fatal", "Reset"),
    ("145, RLW_REMAP Nonfatal XC0 i0 Link 02 (0x00000004 0x00000001 0x00000000 0x00000000)", "Info", "None"),
    ("145, RLW_REMAP Fatal XC1 i0 Link 10 (0x00000082 0x00000040 0x00000000 0x00000000)", "Fatal", "Reset"),
    ("145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000008 0x00000000 0x00000000)", "Info", "None"),
    ("145, pid=4, name=<unknown>, RLW_SRC_TRACK Fatal XC0 i1 Link 00 (0x00000001 0x00000002)", "Fatal", "Reset"),
    ("146, TLW_RX/TLW_RX_PIPE0 Fatal XC0 i0 Link 00 (0x0000000a 0x00000004 0x00000000)", "Fatal", "Reset"),
    ("147, TREX Nonfatal XC0 i0 Link 00 (0x0000000e 0x00000001 0x00000000 0x00000000)", "Info", "None"),
    ("148, NVLPW_CTRL/NVLPW Nonfatal XC0 i0 Link 00 (0x0000000f 0x80000000 0x00000000)", "Info", "None"),
    ("149, NETIR/NETIR_INT Fatal XC0 i0 Link 00 (0x00000018 0x00000000 0x00000000 0x00000000)", "Degraded", "Reset"),
    ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000 0x00000000)", "Degraded", "Reset"),
    ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 09 (0x004525c6 0x00000000 0x00000000)", "Degraded", "Reset"),
    ("149, NETIR_LINK_DOWN Fatal XC0 i0 Link 00 (0x02600011 0x00000000 0x00000000)", "Warning", "Inspect"),
    ("149, NETIR_LINK_DOWN Fatal XC0 i0 Link 00 (0x02800011 0x00000000 0x00000000)", "Warning", "Inspect"),
    ("149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 01 (0x00082226 0x00000001 0x00000000)", "Info", "None"),
    ("149, NETIR_MFDE_EVENT Fatal XC0 i0 Link 00 (0x00000014 0x00000001 0x00000000)", "Fatal", "Reset"),
    ("149, NETIR_MFDE_EVENT Nonfatal XC0 i0 Link 00 (0x00000014 0x00000003 0x00000000)", "Info", "None"),
    ("149, NETIR_LINK_EVT Fatal XC 1 i 2 Link 01 [0x0000000a]", "Degraded", "Reset"),
    ("150, MSE_WATCHDOG Fatal XC0 i0 Link 00 (0x00000000 0x00000000 0x00000000 0x00000000)", "Fatal", "Reset"),
    ("149, something else", "Warning", "None"),
]


@pytest.mark.parametrize(("line", "severity", "action"), NVLINK5)
def test_xids_of_nvlink_5_by_what_their_line_says(line: str, severity: str, action: str) -> None:
    row = xids.xid(int(line[:3]), f"NVRM: Xid (PCI:0018:01:00): {line}")
    assert (row.severity, row.action) == (severity, action)


@pytest.mark.parametrize(
    ("info", "words"), [("0x00400011", "signal or cable"), ("0x02500011", "other end"), ("0x00000011", "reason 0")]
)
def test_a_link_that_is_down_says_why(info: str, words: str) -> None:
    line = f"NVRM: Xid (PCI:0000:04:00): 149, NETIR_LINK_DOWN Fatal XC0 i0 Link 00 ({info} 0x00000000)"
    assert words in xids.xid(149, line).meaning


# NVIDIA's WORKFLOW_NVLINK_ERR; the lines are those of NVSentinel's document and of awsome-distributed-training.
XID_74 = [
    ("link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)", "Warning", "Inspect"),
    ("link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "Degraded", "Reset"),
    ("link 6(0x40000000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "Info", "None"),
    ("link 6(0x0, 0x0, 0x0, 0x0, 0x100000, 0x0, 0x0)", "Info", "None"),
    ("link 6(0x100000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "Warning", "Inspect"),
    ("link 6(0x0, 0x0, 0x0, 0x20000, 0x0, 0x0, 0x0)", "Warning", "Inspect"),
    ("link 6(0x0, 0x0, 0x0, 0x40000, 0x0, 0x0, 0x0)", "Degraded", "Reset"),
    ("link 6(0x20, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "Degraded", "Reset"),
    ("link 6(0x400000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "Degraded", "Reset"),
    ("link 6(0x40000020, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)", "Degraded", "Reset"),
    ("link 6(0x0, 0x1, 0x0, 0x0, 0x0, 0x0, 0x0)", "Degraded", "Reset"),
    ("link 6(0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "Degraded", "Reset"),
    ("link 2", "Degraded", "Reset"),
]


@pytest.mark.parametrize(("registers", "severity", "action"), XID_74)
def test_xid_74_by_its_registers(registers: str, severity: str, action: str) -> None:
    line = (
        f"NVRM: Xid (PCI:0003:00:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on {registers}"
    )
    row = xids.xid(74, line)
    assert (row.severity, row.action) == (severity, action)


def test_xid_74_that_is_repeated_weighs_more() -> None:
    line = "NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)"
    seen = evidence("Xid", 74, message=line, count=3, last=3600)
    assert sign_of(seen, after(3600)).severity is Severity.DEGRADED


def test_143_is_reset_first_and_replaced_then() -> None:
    row = xids.xid(143)
    assert (row.severity, row.action, row.then) == ("Fatal", "Reset", "Replace")


def test_of_two_errors_of_one_number_the_graver_counts() -> None:
    lines = (
        "145, RLW_REMAP Nonfatal XC0 i0 Link 02 (0x4 0x1 0x0)",
        "145, RLW_REMAP Fatal XC0 i0 Link 02 (0x4 0x40 0x0)",
    )
    health = sick(*(evidence("Xid", 145, value=line.split()[2], message=line) for line in lines))
    verdict = assess(NodeWorld(facts(), health, rules(), after(0)))
    assert (verdict.conclusion.state, [finding.reason for finding in verdict.conclusion.findings]) == (
        "Unhealthy",
        ["Xid145"],
    )
