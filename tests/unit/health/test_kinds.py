import pytest
from tests.unit.health.builders import NOW, after, evidence

from muster.api.nodehealth import Severity
from muster.health.kinds import KINDS, latched, sign_of
from muster.health.signs import Clears
from muster.node.agent import kinds as agent_kinds


def test_every_kind_that_the_agent_sends_has_a_row_and_no_other() -> None:
    assert set(KINDS) == set(agent_kinds.STRONGEST_FIRST)


@pytest.mark.parametrize(
    ("kind", "severity", "action"),
    [
        ("GpuLost", "Fatal", "Reboot"),
        ("ResetRequired", "Fatal", "Reset"),
        ("GpuCount", "Fatal", "Reboot"),
        ("NvmlHang", "Degraded", "Reboot"),
        ("EccUncorrected", "Fatal", "Reset"),
        ("EccCorrected", "Warning", "None"),
        ("SramThreshold", "Fatal", "Replace"),
        ("RowRemapPending", "Degraded", "Reset"),
        ("RowRemapFailed", "Fatal", "Replace"),
        ("NvLinkDown", "Fatal", "Reset"),
        ("FabricState", "Fatal", "Inspect"),
        ("Throttle", "Degraded", "Inspect"),
        ("IbPortDown", "Fatal", "Inspect"),
        ("IbPortFlap", "Degraded", "Inspect"),
        ("ReadOnlyFilesystem", "Degraded", "Reboot"),
        ("EnergyCounter", "Info", "None"),
        ("DriverDrift", "Warning", "Inspect"),
        ("GpuUnreachable", "Fatal", "Reboot"),
        ("GpuInit", "Fatal", "Reboot"),
        ("NvmlFailed", "Degraded", "Reboot"),
        ("PcieGeneration", "Warning", "Inspect"),
        ("PcieAerFatal", "Fatal", "Reboot"),
        ("PcieAerUncorrected", "Degraded", "Inspect"),
        ("PcieAerCorrected", "Info", "None"),
        ("PcieAerElsewhere", "Warning", "Inspect"),
        ("HostErrorUncorrected", "Degraded", "Inspect"),
        ("HostErrorCorrected", "Info", "None"),
        ("EfaUnresponsive", "Degraded", "Reboot"),
        ("SysfsHang", "Degraded", "Reboot"),
        ("ClockSource", "Warning", "Inspect"),
        ("PersistenceMode", "Info", "None"),
        ("DriverFatal", "Fatal", "Reboot"),
        ("NvLinkDiscovery", "Degraded", "Reboot"),
        ("AmdGpuError", "Fatal", "Reboot"),
        ("AcceleratorError", "Fatal", "Reboot"),
        ("AcceleratorReset", "Warning", "Inspect"),
        ("NicFailed", "Degraded", "Reboot"),
        ("IommuFault", "Warning", "Inspect"),
        ("HostThermal", "Warning", "Inspect"),
    ],
)
def test_what_a_kind_weighs(kind: str, severity: str, action: str) -> None:
    sign = sign_of(evidence(kind, value="7", threshold="8", message="as seen"), NOW)
    assert (sign.severity, sign.action, sign.reason) == (severity, action, kind)
    assert sign.message == f"{KINDS[kind].meaning}: 7, allowed 8: as seen"


@pytest.mark.parametrize(
    ("kind", "count", "hours", "severity"),
    [
        ("KernelHang", 2, 0.5, "Warning"),
        ("KernelHang", 3, 0.5, "Degraded"),
        ("TaskHang", 30, 1.0, "Warning"),
        ("IbCounters", 3, 1.0, "Degraded"),
        ("IbCounters", 3, 5.0, "Warning"),
        ("NvLinkErrors", 3, 20.0, "Degraded"),
        ("PcieReplay", 2, 1.0, "Warning"),
        ("PcieAerCorrected", 4, 5.0, "Info"),
        ("PcieAerCorrected", 5, 5.0, "Warning"),
        ("HostErrorCorrected", 5, 5.0, "Warning"),
    ],
)
def test_what_weighs_more_when_it_comes_often(kind: str, count: int, hours: float, severity: str) -> None:
    assert sign_of(evidence(kind, count=count, last=hours * 3600), after(hours * 3600)).severity == severity


def test_a_kind_of_a_newer_agent_warns_and_no_more() -> None:
    sign = sign_of(evidence("FluxCapacitor", 79, count=10_000), NOW)
    assert sign.severity is Severity.WARNING
    assert sign.clears is Clears.EVIDENCE


def test_times_to_come_count_as_now() -> None:
    sign = sign_of(evidence("Xid", 79, at=86400, last=2 * 86400), NOW)
    assert (sign.since, sign.newest) == (NOW, NOW)


@pytest.mark.parametrize(("kind", "newest"), [("Xid", 60.0), ("DiskError", 60.0), ("RowRemapFailed", 0.0)])
def test_what_happens_is_news_each_time_and_what_lasts_only_once(kind: str, newest: float) -> None:
    assert sign_of(evidence(kind, 79, last=60), after(90)).newest == after(newest)


@pytest.mark.parametrize("count", [1, 1000])
def test_shared_storage_never_condemns_a_node(count: int) -> None:
    assert sign_of(evidence("NetworkDiskError", subject="rbd0", count=count), NOW).severity == "Warning"


@pytest.mark.parametrize("subject", ["nvme0n1", "sda1", "dm-0", "/var/lib", ""])
def test_a_disk_of_the_node_still_does(subject: str) -> None:
    assert sign_of(evidence("DiskError", subject=subject), NOW).severity == "Degraded"


@pytest.mark.parametrize(("subject", "stands"), [("dm-0", True), ("nvme0n1p1", True), ("/var", False)])
def test_a_file_system_that_only_the_log_tells_of_stands_until_a_boot(subject: str, stands: bool) -> None:
    """XFS that has shut down is writable by its mount; the line was gone after a day, and the node came back with
    it."""
    sign = sign_of(evidence("ReadOnlyFilesystem", subject=subject), after(0))
    assert (sign.clears is Clears.BOOT) is stands
    kept = latched(sign.finding(), after(2 * 86400))
    assert (kept is not None) is stands


@pytest.mark.parametrize("control", ["\x1b[2J", "\r", "\u202e"])
def test_no_report_moves_the_text_of_a_status(control: str) -> None:
    sign = sign_of(evidence(f"New{control}", subject=f"GPU {control}0", message=f"{control}all is well"), NOW)
    assert not any(control in text for text in (sign.reason, sign.subject, sign.message))
    assert sign.message.endswith("all is well")
