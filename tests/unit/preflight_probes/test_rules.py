"""What needs no process: orders, output, outcomes, votes, profiles, the driver's answers."""

import ctypes
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from muster.node.checker.probes import bits, nvml, orders, outcome, reduce, storage
from muster.node.checker.probes.catalog import PROBES
from muster.node.checker.probes.node import order_of, steps_of
from muster.node.checker.probes.output import FLOOD_BYTES, Output
from muster.node.checker.probes.worker import MAX_LINE_BYTES, Worker
from muster.protocol.profiles import PROFILES

GEMM = {"id": "1", "probe": "Gemm", "device": "cuda", "devices": [0, 1], "deadline_seconds": 9, "size": 8}
FULL = {**GEMM, "seconds": 1, "burst_seconds": 0.1}


def test_an_order_is_read() -> None:
    order = orders.parse(json.dumps({**FULL, "environment": {"NCCL_IB_HCA": "mlx5"}}).encode(), PROBES)
    assert isinstance(order, orders.Order)
    assert (order.probe, order.devices, order.processes, order.cuda) == ("Gemm", (0, 1), 2, True)
    assert order.environment == {"NCCL_IB_HCA": "mlx5"}


@pytest.mark.parametrize(("line", "order_id"), [('{"cancel": "7"}', "7"), ('{"cancel": null}', None)])
def test_a_cancel_is_read(line: str, order_id: str | None) -> None:
    assert orders.parse(line.encode(), PROBES) == orders.Cancel(order_id)


@pytest.mark.parametrize(
    "change",
    [
        {"id": ""},
        {"id": 7},
        {"probe": ["Gemm"]},
        {"devices": []},
        {"devices": [0, 0]},
        {"devices": [True]},
        {"devices": list(range(65))},
        {"deadline_seconds": True},
        {"deadline_seconds": float("nan")},
        {"deadline_seconds": 1e9},
        {"seconds": -1},
        {"seconds": "long"},
        {"size": 10**9},
        {"size": 0.5},
        {"expected": "eight"},
        {"directory": "here"},
        {"sizes": [[4096]]},
        {"shapes": [["complex64", 1, 1, 1]]},
        {"shapes": [["float32", 1, 1, 0]]},
        {"nodes": 2, "node_rank": 2, "master": "a", "port": 1},
        {"nodes": 2, "node_rank": 1},
        {"device": "cpu"},
        {"device": "cpu", "devices": [], "processes": 1000},
        {"environment": {"LD_PRELOAD": "x"}},
        {"environment": {"NCCL_NET_PLUGIN": "x"}},
        {"environment": {"NCCL_TOPO_FILE": "x"}},
        {"environment": {"NCCL_DEBUG": 1}},
    ],
    ids=str,
)
def test_a_bad_order_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(orders.OrderError):
        orders.parse(json.dumps({**FULL, **change}).encode(), PROBES)


@pytest.mark.parametrize("line", [b"", b"nonsense", b"[]", b"\xff", b"null"])
def test_what_is_no_order_is_refused(line: bytes) -> None:
    with pytest.raises(orders.OrderError):
        orders.parse(line, PROBES)


def test_transports_are_found_wherever_a_read_ends() -> None:
    text = (
        b"node:7:9 [0] NCCL INFO Using network IB\n"
        b"node:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA\n"
        b"node:7:9 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n"
        b"node:7:9 [0] NCCL INFO Channel 01/0 : 9[1] -> 0[0] [receive] via NET/Socket/1\n"
        b"node:7:9 [0] NCCL INFO Channel 00/0 : 3[3] -> 8[0] [send] via NET/IB/0(1)/GDRDMA/Shared\n"
        b"node:7:9 [0] NCCL INFO Channel 03 : 4[901c0] -> 12[1] [send] via NET/AWS Libfabric/3\n"
        b"node:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 2[2] via P2P/indirect/1[1]\n"
        b"node:7:9 [0] via NET/Other/1, says somebody else\n"
    )
    output = Output()
    for at in range(0, len(text), 7):
        output.feed(text[at : at + 7])
    assert output.transports == {
        "NET/IB/GDRDMA",
        "NET/AWS Libfabric",
        "NET/Socket",
        "P2P/CUMEM",
        "P2P/indirect",
    }
    assert output.networks == {"IB"}


def test_output_is_kept_within_bounds() -> None:
    output = Output()
    for _ in range(FLOOD_BYTES // 2**20 + 1):
        output.feed(b"z" * 2**20)
    assert output.flooded
    assert len(output.tail) < 5000
    short = Output()
    short.feed(b"one\n")
    short.feed(b"two\n")
    assert (short.tail, short.flooded) == ("one\ntwo", False)


@pytest.mark.parametrize(
    ("text", "connected", "wanted"),
    [
        ("Timed out after 6 seconds waiting for clients", False, "CouldNotConnect"),
        ("Timed out waiting 2000ms for recv operation to complete", True, "NoResult"),
        ("Read error [10.0.0.1]:1: Connection reset by peer", True, "OtherEnded"),
        ("Connection closed by peer [10.0.0.1]:1", True, "OtherEnded"),
        ("ncclRemoteError: A call failed possibly due to a network error", True, "OtherEnded"),
        ("CUDA error: an illegal memory access", True, "Failed"),
    ],
)
def test_errors_of_communication_are_told_apart(text: str, connected: bool, wanted: str) -> None:
    assert outcome.of_network(text, connected) == wanted


def test_the_whole_is_called_after_the_worst_that_tells_of_the_node() -> None:
    assert outcome.worst(["Done", "Done"]) == "Done"
    assert outcome.worst(["Cancelled", "Hung", "Wrong"]) == "Wrong"
    assert outcome.worst(["Done", "InUse"]) == "InUse"


def part(device: int, fingerprint: str, model: str = "H200") -> dict[str, Any]:
    figures = {"fingerprints": {"bfloat16": fingerprint}}
    mark = {"model": model, "uuid": f"GPU-{device}"}
    return {"device": device, "outcome": "Done", "mark": mark, "figures": figures}


@pytest.mark.parametrize(
    ("parts", "wrong"),
    [
        ([part(0, "a"), part(1, "a"), part(2, "a")], []),
        ([part(0, "a"), part(1, "b"), part(2, "a")], [1]),
        ([part(0, "a"), part(1, "b")], [0, 1]),
        ([part(0, "a"), part(1, "b", "H100")], []),
        ([part(0, "a"), {**part(1, ""), "figures": {}, "outcome": "Hung"}], []),
    ],
    ids=["all alike", "one differs", "two without a majority", "other models", "one without an answer"],
)
def test_devices_that_compute_other_bits_are_named(parts: list[dict[str, Any]], wrong: list[int]) -> None:
    bits.conclude(parts)
    assert [each["device"] for each in parts if each["outcome"] == "Wrong"] == wrong


@pytest.mark.parametrize("name", sorted(PROFILES))
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_profiles_are_orders_that_fit_into_their_time(name: str, device: str) -> None:
    profile = PROFILES[name]
    devices = [0, 1] if device == "cuda" else []
    seconds = 0.0
    for step in steps_of(profile, device, "/checkpoints"):
        order = orders.parse(json.dumps(order_of(step, "1", device, devices)).encode(), PROBES)
        assert isinstance(order, orders.Order)
        wanted = order.parameters.get("seconds", 1)
        assert order.deadline_seconds >= min(2 * wanted, wanted + 150)
        seconds += wanted + (1.5 if device == "cuda" else 0.1)  # a context on each device
    assert seconds < profile.limit_seconds
    assert not [step for step in steps_of(profile, device, None) if step.probe == "Storage"]


@dataclass
class Driver:
    """Answers like libnvidia-ml, for one GPU."""

    pids: list[int] = field(default_factory=list)
    used: int = 0
    mig: int = 0
    code: int = 0
    free_after: int = 10**9

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.code or self.answer(name, *arguments)

    def answer(self, name: str, *arguments: Any) -> int:
        if name == "nvmlDeviceGetCount_v2":
            arguments[0]._obj.value = 1
        elif name == "nvmlDeviceGetMemoryInfo_v2":
            self.free_after -= 1
            arguments[1]._obj.total, arguments[1]._obj.used = 2**37, self.used if self.free_after > 0 else 0
        elif name == "nvmlDeviceGetMigMode":
            arguments[1]._obj.value = self.mig
        elif name == "nvmlDeviceGetComputeRunningProcesses_v3":
            arguments[1]._obj.value = len(self.pids)
            for place, pid in enumerate(self.pids):
                arguments[2][place].pid = pid
        elif name == "nvmlDeviceGetGraphicsRunningProcesses_v3":
            arguments[1]._obj.value = 0
        elif name in ("nvmlDeviceGetName", "nvmlDeviceGetUUID"):
            arguments[1].value = b"H200"
        return 0


@pytest.mark.parametrize(
    ("driver", "used", "cut"),
    [
        (Driver(), False, False),
        (Driver(pids=[7]), True, False),
        (Driver(used=2**33), True, False),
        (Driver(mig=1), False, True),
    ],
    ids=["free", "a process", "a process in another container", "slices"],
)
def test_gpus_that_others_have_are_seen(driver: Driver, used: bool, cut: bool) -> None:
    gpu = nvml.inspect_gpus(driver)[0]
    assert (gpu.used_by_others, gpu.mig, gpu.model) == (used, cut, "H200")
    assert gpu.use


def test_a_lost_gpu_is_an_error_that_names_the_call() -> None:
    with pytest.raises(nvml.DriverError, match="nvmlDeviceGetHandleByIndex_v2 answers 15"):
        nvml.inspect_gpu(Driver(code=15), 0)


def test_gpus_that_are_free_again_are_waited_for_within_bounds() -> None:
    assert nvml.wait_until_free(Driver(used=2**33, free_after=3), [0], 600)[0]
    assert not nvml.wait_until_free(Driver(used=2**33), [0], 0.1)[0]


def test_the_layouts_of_the_driver_have_the_sizes_of_its_header() -> None:
    """nvml.h: nvmlMemory_v2_t has 40 bytes, nvmlProcessInfo_t 24."""
    assert ctypes.sizeof(nvml._Memory) == 40
    assert ctypes.sizeof(nvml._Process) == 24


class Sheet(Worker):
    """A worker that writes down what it says."""

    def __init__(self, **parameters: Any) -> None:
        super().__init__(None, {"device": "cpu", **parameters}, 0, 1, -1, -1)
        self.said: list[dict[str, Any]] = []

    def send_line(self, message: dict[str, Any]) -> None:
        self.said.append(message)


def test_storage_is_written_read_and_left_clean(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("a checkpoint")
    figures = storage.storage(Sheet(directory=str(tmp_path), bytes=8 * 2**20))
    assert (figures["bytes"], figures["wrong_blocks"]) == (8 * 2**20, 0)
    assert min(figures["write_gb_per_s"], figures["read_gb_per_s"]) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_storage_that_reads_back_otherwise_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = storage._read_all

    def flip(descriptor: int, into: bytearray) -> None:
        read(descriptor, into)
        into[12345] ^= 4

    monkeypatch.setattr(storage, "_read_all", flip)
    with pytest.raises(outcome.ProblemError, match="2 of 2 blocks") as caught:
        storage.storage(Sheet(directory=str(tmp_path), bytes=8 * 2**20))
    assert caught.value.outcome == "Wrong"
    assert not list(tmp_path.iterdir())


def test_storage_does_not_follow_a_link_that_waits_for_it(tmp_path: Path) -> None:
    import socket

    (tmp_path / "precious").write_text("keep")
    (tmp_path / f".muster-probe-{socket.gethostname()}").symlink_to(tmp_path / "precious")
    storage.storage(Sheet(directory=str(tmp_path), bytes=4 * 2**20))
    assert (tmp_path / "precious").read_text() == "keep"


def test_a_directory_that_is_not_there_is_nobodys_fault(tmp_path: Path) -> None:
    with pytest.raises(outcome.ProblemError) as caught:
        storage.storage(Sheet(directory=str(tmp_path / "none"), bytes=1))
    assert caught.value.outcome == "Unfit"


def test_the_interface_to_this_machine_itself_is_its_loopback() -> None:
    assert reduce.interface_to("127.0.0.1", 20000) == "lo"
    assert all(count >= 0 for count in reduce.segments())


def test_the_longest_answer_of_a_probe_fits_a_line() -> None:
    gpu = nvml.Gpu(7, "GPU-" + "0" * 36, "NVIDIA " + "x" * 60, 2**38, 2**38, False, tuple(range(64)))
    assert orders.MAX_CREW // 4 * (len(str(gpu)) + 100) < MAX_LINE_BYTES
