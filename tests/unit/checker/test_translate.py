"""What the zygote's answers come to in the coordinator's words, row by row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from muster.api.preflight import LimitedProbe
from muster.node.checker import translate
from muster.node.checker.probes import outcome
from muster.node.checker.probes.catalog import PROBES
from muster.node.checker.translate import FIGURES, deciding_bandwidth, probe_reports, reduced, transport_of
from muster.preflight.baselines import FLOORS, floor
from muster.preflight.outcomes import How
from muster.protocol.checks import MAX_WORDS_CHARS, ProbeReport
from muster.protocol.profiles import PROFILES

OUTCOMES = [value for name, value in vars(outcome).items() if name.isupper() and isinstance(value, str)]


def part(device: int, name: str = "Done", message: str = "", **figures: Any) -> dict[str, Any]:
    return {"device": device, "outcome": name, "figures": figures, **({"message": message} if message else {})}


def answer(probe: str, *parts: dict[str, Any], device: str = "cuda", **more: Any) -> dict[str, Any]:
    name = outcome.worst([each["outcome"] for each in parts]) if parts else "Done"
    return {"probe": probe, "device": device, "outcome": name, "seconds": 1.5, "parts": list(parts), **more}


def test_words_of_the_ends_are_those_of_the_judges() -> None:
    own = (
        translate.RESULT,
        translate.NO_RESULT,
        translate.COULD_NOT_CONNECT,
        translate.OTHER_ENDED,
        translate.LATE,
        translate.ENVIRONMENT,
    )
    assert set(own) == {how.value for how in How} - {How.UNHEARD.value}


def test_every_probe_has_a_name_and_every_floor_a_probe() -> None:
    assert set(FIGURES) == set(PROBES)
    names = {figure.name: figure.unit for figures in FIGURES.values() for figure in figures}
    for each in FLOORS:
        assert names[each.probe] == each.unit
        assert each.transport in ("", "NVLink")


def test_every_probe_that_can_be_limited_is_one_that_a_checker_tells() -> None:
    names = {figure.name for figures in FIGURES.values() for figure in figures}
    names |= {"gemm-bf16-16384", "pair"}  # of another size; of two nodes
    assert {str(probe) for probe in LimitedProbe} <= names


@pytest.mark.parametrize("name", OUTCOMES)
def test_each_end_of_a_probe_has_a_word(name: str) -> None:
    about = {"Done": "Result", "Hung": "NoResult"} | dict.fromkeys(("Wrong", "Missing", "Crashed", "Failed"), "Result")
    about |= dict.fromkeys(("NoTime", "NoResult", "CouldNotConnect"), "Late")
    assert translate.result_of_probe(name) == about.get(name, "Environment")


GOOD = {
    "the worst device counts, and is named": (
        answer("Gemm", part(0, best_tflops=640.0), part(3, best_tflops=512.3), part(5, best_tflops=600.0)),
        [("gemm-bf16", 512.3, "TFLOP/s", "GPU 3: 512.3 TFLOP/s; the best: 640 TFLOP/s")],
    ),
    "of seconds the longest": (
        answer("Context", part(0, context_seconds=0.5), part(1, context_seconds=4.0)),
        [("context", 4.0, "s", "GPU 1: 4 s; the best: 0.5 s")],
    ),
    "two figures of one probe": (
        answer("HostCopies", part(0, to_device={"best_gb_per_s": 55.0}, from_device={"best_gb_per_s": 57.0})),
        [("host-to-device", 55.0, "GB/s", ""), ("device-to-host", 57.0, "GB/s", "")],
    ),
    "no figure is no fault": (answer("Bits", part(0, passes=3)), [("bit-exact", None, "", "")]),
    "a count": (answer("Devices", part(0, found=8), device="node"), [("devices", 8.0, "GPUs", "")]),
    "inside a node, of the largest size": (
        answer(
            "AllReduce",
            part(0, backend="nccl", world=8, sizes=[{"bytes": 2**20, "best_bus_gb_per_s": 90.0},
                                                    {"bytes": 2**30, "best_bus_gb_per_s": 460.0}]),
        ),
        [("all-reduce-node", 460.0, "GB/s", "")],
    ),
    "one GPU moves nothing": (
        answer("AllReduce", part(0, backend="nccl", world=1, sizes=[{"bytes": 2**20, "best_bus_gb_per_s": 0.0}])),
        [("all-reduce-node", None, "GB/s", "")],
    ),
    "storage": (
        answer("Storage", part(0, write_gb_per_s=1.0, read_gb_per_s=2.0), device="node"),
        [("storage", 1.0, "GB/s", ""), ("storage-read", 2.0, "GB/s", "")],
    ),
    "what is no number is none": (answer("Gemm", part(0, best_tflops=float("nan"))),
        [("gemm-bf16", None, "TFLOP/s", "")]),
    "what no reader takes is bounded": (answer("Gemm", part(0, best_tflops=1e30)), [("gemm-bf16", 1e8, "TFLOP/s", "")]),
}  # fmt: skip


@pytest.mark.parametrize(("told", "wanted"), GOOD.values(), ids=GOOD.keys())
def test_figures(told: dict[str, Any], wanted: list[Any]) -> None:
    found = probe_reports(told)
    assert [(each.probe, each.figure, each.unit, each.message) for each in found] == wanted
    assert {(each.outcome, each.wrong, each.seconds) for each in found} == {("Result", False, 1.5)}


def test_a_second_size_is_another_probe() -> None:
    first = probe_reports(answer("Gemm", part(0, best_tflops=600.0, size=8192)))
    second = probe_reports(answer("Gemm", part(0, best_tflops=650.0, size=16384)), [each.probe for each in first])
    assert [each.probe for each in (*first, *second)] == ["gemm-bf16", "gemm-bf16-16384"]
    third = probe_reports(answer("Gemm", part(0, "Hung", "hung")), [each.probe for each in (*first, *second)])
    assert [each.probe for each in third] == ["gemm-bf16-3"]


def bits(device: int, bits: str = "a", **mark: Any) -> dict[str, Any]:
    found = part(device, fingerprints={"bfloat16 4096x4096x4096": bits})
    return {**found, "mark": {"model": "H200", "driver": "580", "uuid": f"GPU-{device}", **mark}}


def test_what_all_devices_have_computed_is_told_with_its_kind() -> None:
    def told(*parts: dict[str, Any]) -> str:
        (found,) = probe_reports(answer("Bits", *parts))
        return found.fingerprint

    both = told(bits(0), bits(1))
    kind, _, value = both.partition(":")
    assert (len(kind), len(value)) == (16, 16)
    assert told(bits(4)) == both, "whose it is does not matter"
    assert told(bits(0, "b")).partition(":") == (kind, ":", told(bits(0, "b")).rpartition(":")[2]) != both
    assert told(bits(0, driver="590")).partition(":")[0] != kind
    assert told(bits(0), bits(1, model="A100")) == "", "of several kinds"
    (found,) = probe_reports(answer("Context", part(0, context_seconds=0.5)))
    assert found.fingerprint == ""


BAD = {
    "a wrong device that is known": (
        answer("Bits", {**part(3, "Wrong", "other bits than 7 of 8 devices"), "mark": {"uuid": "GPU-5c6"}}),
        ("bit-exact", "Result", True, "GPU 3 (GPU-5c6): other bits than 7 of 8 devices"),
    ),
    "a wrong device": (
        answer("Bits", part(0), part(3, "Wrong", "other bits than 7 of 8 devices")),
        ("bit-exact", "Result", True, "GPU 3: other bits than 7 of 8 devices"),
    ),
    "the worst first": (
        answer("Gemm", part(1, "InUse", "GPU 1 is in use: pid 7"), part(2, "Crashed", "ended with SIGSEGV")),
        ("gemm-bf16", "Result", True, "GPU 2: ended with SIGSEGV; GPU 1: GPU 1 is in use: pid 7"),
    ),
    "a hang": (
        answer("HostCopies", part(0, "Hung", "hung after 15.0 s in pin on GPU 0"), part(1, "Cancelled", "waited")),
        ("host-to-device", "NoResult", False, "GPU 0: hung after 15.0 s in pin on GPU 0; GPU 1: waited"),
    ),
    "somebody has it": (
        answer("Gemm", part(0, "InUse", "pid 7")),
        ("gemm-bf16", "Environment", False, "GPU 0: pid 7"),
    ),
    "nothing was forked": (
        {"probe": "Gemm", "outcome": "Unfit", "message": "it cannot be started here", "parts": []},
        ("gemm-bf16", "Environment", False, "it cannot be started here"),
    ),
    "no words at all": ({"probe": "Dance", "outcome": "Refused"}, ("dance", "Environment", False, "Refused")),
    "of a processor": (answer("Gemm", part(0, "Failed", "no"), device="cpu"), ("gemm-bf16", "Result", True, "no")),
}


@pytest.mark.parametrize(("told", "wanted"), BAD.values(), ids=BAD.keys())
def test_failures(told: dict[str, Any], wanted: Any) -> None:
    (found,) = probe_reports(told)
    assert (found.probe, found.outcome, found.wrong, found.message) == wanted
    assert found.figure is None


def test_words_are_as_short_as_they_have_to_be() -> None:
    parts = [part(device, "Failed", "x" * 300) for device in range(8)]
    (found,) = probe_reports(answer("Gemm", *parts))
    assert len(found.message) == MAX_WORDS_CHARS
    assert found.message.startswith("GPU 0: x")


def sizes(bus: float = 40.0, sent: int = 10_000, again: int = 0) -> list[dict[str, Any]]:
    small = {"best_bus_gb_per_s": 0.1, "segments": sent // 2, "segments_again": again}
    return [
        {"bytes": 4096, **small},
        {"bytes": 65536, **small, "segments_again": 0},
        {"bytes": 2**20, "best_bus_gb_per_s": bus, "segments": 5000, "segments_again": 900},
    ]


def network(name: str = "Done", message: str = "", transports: Any = ("TCP",), **figures: Any) -> dict[str, Any]:
    found = {"backend": "gloo", "world": 2, "sizes": sizes(), **figures}
    return answer("AllReduce", part(0, name, message, **found), device="cpu", transports=list(transports))


PAIRS = {
    "a result": (network(), ("Result", 40.0, 0.0, "TCP", "")),
    "lost segments": (network(sizes=sizes(again=35)), ("Result", 40.0, 3.5, "TCP", "")),
    "one of few is no share": (network(sizes=sizes(sent=100, again=1)), ("Result", 40.0, 1.0, "TCP", "")),
    "InfiniBand has no segments": (
        network(transports=["NET/IB/GDRDMA", "P2P/CUMEM"], sizes=sizes(again=35)),
        ("Result", 40.0, 0.0, "IB", ""),
    ),
    "a wrong sum is worth nothing": (network("Wrong", "2 words"), ("Result", 0.0, 0.0, "TCP", "2 words")),
    "never met": (
        network("CouldNotConnect", "connect: timeout"),
        ("CouldNotConnect", 0.0, 0.0, "TCP", "connect: timeout"),
    ),
    "the port was taken": (
        network("CouldNotConnect", "connect: The server socket has failed to bind to port, EADDRINUSE"),
        ("Environment", 0.0, 0.0, "TCP", "connect: The server socket has failed to bind to port, EADDRINUSE"),
    ),
    "the other went": (network("OtherEnded", "reset"), ("OtherEnded", 0.0, 0.0, "TCP", "reset")),
    "no result": (network("NoResult", "late"), ("NoResult", 0.0, 0.0, "TCP", "late")),
    "hung": (network("Hung", "in the kernel"), ("NoResult", 0.0, 0.0, "TCP", "in the kernel")),
    "crashed": (network("Crashed", "SIGSEGV"), ("NoResult", 0.0, 0.0, "TCP", "SIGSEGV")),
    "in use": (network("InUse", "pid 7"), ("Environment", 0.0, 0.0, "TCP", "pid 7")),
    "nothing": ({"outcome": "Refused", "message": "no"}, ("Environment", 0.0, 0.0, "", "no")),
}


@pytest.mark.parametrize(("told", "wanted"), PAIRS.values(), ids=PAIRS.keys())
def test_pairs(told: dict[str, Any], wanted: Any) -> None:
    assert tuple(reduced(told, "NVIDIA H200", ethernet=False)) == wanted


def test_of_several_devices_the_slowest_counts() -> None:
    parts = [part(device, backend="nccl", world=16, sizes=sizes(bus=bus)) for device, bus in enumerate((50.0, 48.0))]
    assert reduced(answer("AllReduce", *parts), "NVIDIA H200", ethernet=False).gbps == 48.0


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_one_size_is_judged_in_every_profile(profile: str, device: str) -> None:
    """A profile with longer messages reaches more: nodes that it has tested would make those of another look slow."""
    parameters = [step.parameters for step in PROFILES[profile].node[device] if step.probe == "AllReduce"]
    for table in (
        PROFILES[profile].pair[device],
        PROFILES[profile].gang[device],
        *(each["sizes"] for each in parameters),
    ):
        found = [{"bytes": size, "best_bus_gb_per_s": float(size)} for size, _ in table]
        assert deciding_bandwidth(found, device) == (2.0**20 if device == "cpu" else 2.0**28)


def test_where_the_judged_size_was_not_measured_the_largest_counts() -> None:
    assert (
        deciding_bandwidth([{"bytes": size, "best_bus_gb_per_s": float(size)} for size in (4096, 2**26)], "cuda")
        == 2.0**26
    )
    assert deciding_bandwidth([], "cuda") is None


REAL = json.loads((Path(__file__).parents[2] / "fixtures" / "burn-in.json").read_text())


@pytest.mark.parametrize(
    ("run", "figures"),
    [
        ("Quick on an H200", {"gemm-bf16": 768.682, "memory-bandwidth": 4265.61, "host-to-device": 55.434}),
        ("Quick on an H100", {"gemm-bf16": 772.06, "memory-bandwidth": 3006.36, "host-to-device": 54.3904}),
    ],
)
def test_what_a_real_gpu_has_answered_is_read_and_above_the_published_floors(
    run: str, figures: dict[str, float]
) -> None:
    """Recorded with driver 580.159, torch 2.11.0 and NCCL 2.28.9; the rate of patterns was not told by rounds then."""
    key, reports = REAL[run]["key"], [report for told in REAL[run]["answers"] for report in probe_reports(told)]
    found = {report.probe: report.figure for report in reports}
    assert {name: found[name] for name in figures} == figures
    assert {report.outcome for report in reports} == {"Result"}
    assert not any(report.wrong for report in reports)
    assert translate.overall(reports) == "Result"
    least = {each.probe: each for each in (floor(report.probe, key["model"]) for report in reports) if each is not None}
    assert {"gemm-bf16", "host-to-device"} <= set(least)
    assert all((found[name] or 0.0) >= each.floor for name, each in least.items())


def test_a_probe_that_ran_out_of_memory_says_nothing_of_the_node() -> None:
    (report,) = probe_reports(REAL["out of memory"])
    assert (report.outcome, report.wrong, report.figure) == ("Environment", False, None)
    assert "CUDA out of memory" in report.message


@pytest.mark.parametrize(
    ("transports", "model", "ethernet", "across", "wanted"),
    [
        (["NET/IB/GDRDMA", "P2P/CUMEM"], "NVIDIA H200", False, True, "IB"),
        (["NET/IB/GDRDMA"], "NVIDIA H200", True, True, "RoCE"),
        (["NET/IB", "NET/Socket"], "NVIDIA H200", False, True, "TCP"),
        (["NET/GPUDirectTCPX_v7"], "NVIDIA H100 80GB HBM3", False, True, "TCPX"),
        (["NET/AWS Libfabric/GDRDMA"], "NVIDIA H200", False, True, "EFA"),
        (["P2P/MNNVL"], "NVIDIA GB200", False, True, "NVLink"),
        (["NET/IB/GDRDMA", "P2P/CUMEM"], "NVIDIA H200", False, False, "NVLink"),
        (["NVLS", "P2P/CUMEM"], "NVIDIA H100 80GB HBM3", False, False, "NVLink"),
        (["P2P/CUMEM"], "NVIDIA A100-PCIE-40GB", False, False, "P2P"),
        (["P2P/IPC", "SHM/direct"], "NVIDIA H200", False, False, "SHM"),
        (["TCP"], "Xeon", False, False, "TCP"),
        ([], "NVIDIA H200", False, False, ""),
    ],
)
def test_transports(transports: list[str], model: str, ethernet: bool, across: bool, wanted: str) -> None:
    assert transport_of(transports, model, ethernet, across) == wanted


@pytest.mark.parametrize(
    ("probes", "wanted"),
    [
        ([("Result", False)], "Result"),
        ([("Result", False), ("Environment", False)], "Environment"),
        ([("Result", True), ("Environment", False)], "Result"),
        ([("Result", False), ("Late", False), ("Environment", False)], "Late"),
        ([("Result", True), ("Late", False)], "Result"),
        ([("NoResult", False), ("Late", False)], "NoResult"),
        ([("Result", True), ("NoResult", False)], "NoResult"),
        ([], "Environment"),
    ],
)
def test_what_a_node_order_is_called(probes: list[tuple[str, bool]], wanted: str) -> None:
    assert translate.overall([ProbeReport("p", how, wrong=wrong) for how, wrong in probes]) == wanted
