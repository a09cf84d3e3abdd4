import re

import pytest
from tests.unit.health.builders import after, evidence

from muster.api.nodehealth import RecommendedAction, Severity
from muster.health import xids
from muster.health.kinds import sign_of
from muster.health.signs import Clears, Repetition

EVERY_CODE = range(1, 174)


@pytest.mark.parametrize("code", [8, 11, 13, 25, 31, 32, 39, 43, 45, 60, 68, 69, 80, 96, 137, 139])
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
        (110, "Fatal", "Reset"),
        (119, "Fatal", "Reset"),
        (120, "Fatal", "Reset"),
        (140, "Fatal", "Reset"),
        (143, "Fatal", "Replace"),
        (144, "Warning", "None"),
        (150, "Warning", "None"),
        (151, "Fatal", "Reboot"),
        (155, "Degraded", "Reset"),
        (156, "Degraded", "Reset"),
        (157, "Degraded", "Replace"),
        (158, "Fatal", "Reset"),
        (168, "Fatal", "Reboot"),
    ],
)
def test_what_a_program_cannot_cause(code: int, severity: str, action: str) -> None:
    row = xids.xid(code)
    assert (row.severity, row.action) == (severity, action)


@pytest.mark.parametrize("code", EVERY_CODE)
def test_every_number_of_the_catalogue_has_a_row(code: int) -> None:
    assert code in xids.XIDS


@pytest.mark.parametrize("code", [0, -5, 174, 999_999_999])
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
    ],
)
def test_sxids(code: int, words: str, severity: str) -> None:
    assert xids.sxid(code, words).severity == severity


def test_only_another_boot_ends_what_needs_one() -> None:
    assert xids.xid(79).clears is Clears.BOOT
    assert xids.xid(48).clears is Clears.EVIDENCE
    assert xids.xid(154, "to 0x2 (Node Reboot Required)").clears is Clears.BOOT


@pytest.mark.parametrize(
    ("count", "hours", "severity"),
    [(1, 0, "Info"), (4, 1, "Info"), (5, 23, "Degraded"), (5, 25, "Info"), (50, 30, "Degraded")],
)
def test_repetition_is_a_rate(count: int, hours: float, severity: str) -> None:
    sign = sign_of(evidence("Xid", 109, count=count, last=hours * 3600), after(hours * 3600))
    assert sign.severity == severity


def test_repetition_with_a_clock_that_went_back() -> None:
    often = Repetition(2, 60, Severity.WARNING, RecommendedAction.INSPECT)
    assert often.reached(2, after(100), after(0))
    assert not often.reached(1, after(100), after(0))
