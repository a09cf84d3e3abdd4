"""The probes with a real torch, on this machine's CPU: Debian's, out of the image of the example trainer.

Faults are made outside the product: a `sitecustomize` in the zygote's environment (tools/testbed) changes what it
answers.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localcluster.patience import PATIENCE_SECONDS
from muster.node.checker.probes.node import order_of, run
from muster.node.checker.probes.prober import Prober
from muster.protocol.profiles import PROFILES, Step
from testbed.faults import HOOK

ROOT = Path(__file__).resolve().parents[4]
QUICK = PROFILES["Quick"]


@pytest.fixture
def zygotes(command: tuple[str, ...]) -> Iterator[Any]:
    """`zygotes(count)`: as many, ready."""
    started: list[Prober] = []

    def begin(count: int) -> list[Prober]:
        started.extend(Prober(command) for _ in range(count))
        for prober in started:
            prober.wait_until_ready(PATIENCE_SECONDS)
        return started

    yield begin
    for prober in started:
        prober.close()


@pytest.fixture
def two_hosts() -> Iterator[tuple[str, str]]:
    """Two network namespaces with a cable between them, 10.77.0.1 and 10.77.0.2."""
    names = (f"muster-{os.getpid()}-a", f"muster-{os.getpid()}-b")
    ends = (f"m{os.getpid()}a", f"m{os.getpid()}b")

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for number, (name, end) in enumerate(zip(names, ends, strict=True), 1):
            ip("link", "set", end, "netns", name)
            ip("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
            ip("-n", name, "link", "set", "lo", "up")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield names
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], check=True, capture_output=True)


class Relay:
    """What checkers and the coordinator are to two zygotes: what a process of one puts the other is handed."""

    def __init__(self, pair: list[Prober]) -> None:
        self.pair = pair
        self.ids = ["", ""]
        self.puts: list[dict[tuple[int, str], dict[str, Any]]] = [{}, {}]
        self.lines = 0

    def send(self, number: int, order: dict[str, Any]) -> None:
        if self.ids != ["", ""] and order["id"] not in self.ids:
            self.ids, self.puts = ["", ""], [{}, {}]
        self.ids[number] = order["id"]
        self.pair[number].send(order)

    def receive(self, seconds: float, wanted: tuple[int, ...] = (0, 1)) -> list[Any]:
        """The answers of these; None for one that has not come."""
        answers: dict[int, Any] = {}
        until = time.monotonic() + seconds
        while time.monotonic() < until and not all(number in answers for number in wanted):
            for number, prober in enumerate(self.pair):
                message = prober.receive(0.02)
                if message is not None and "put" in message:
                    self.lines += 1
                    self.puts[number][message["put"]["rank"], message["put"]["key"]] = message["put"]
                    for each in (0, 1):
                        if self.ids[each]:
                            others = list(self.puts[1 - each].values())
                            self.pair[each].send({"meet": self.ids[each], "puts": others})
                elif message is not None:
                    answers[number] = message
        return [answers.get(number) for number in wanted]


def listening_in(process: int) -> set[tuple[str, int]]:
    """Addresses and ports at which a process, or any that it has started, listens by TCP."""
    tree = [process]
    for pid in tree:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                tree += map(int, task.read_text().split())
    inodes = set()
    for pid in tree:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                inodes.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    found = set()
    for family, table in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            address, _, port = fields[1].partition(":")
            if fields[3] == "0A" and fields[9] in inodes:
                words = [bytes.fromhex(address[i : i + 8])[::-1] for i in range(0, len(address), 8)]
                found.add((socket.inet_ntop(family, b"".join(words)), int(port, 16)))
    return found


def make_bad(folder: Path, fault: str) -> None:
    shutil.copy(HOOK, folder)
    (folder / "fault").write_text(fault)


def ask(prober: Prober, step: Step, **more: Any) -> dict[str, Any]:
    prober.send(order_of(step, "1", "cpu", [], **more))
    answer = prober.receive(step.deadline_seconds + 60)
    assert answer is not None
    return answer


def step(name: str) -> Step:
    return next(step for step in QUICK.node["cpu"] if step.probe == name)


def test_a_quick_profile_passes_on_a_cpu_and_says_what_it_found(command: tuple[str, ...], tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    told = subprocess.run(
        [
            sys.executable,
            "-m",
            "muster.node.checker.probes",
            "--directory",
            str(tmp_path),
            "--json",
            "--zygote",
            *command,
        ],
        cwd=ROOT / "operator",
        env={**os.environ, "TMPDIR": str(own)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    found = json.loads(told.stdout)
    assert (told.returncode, found["problems"]) == (0, [])
    assert (found["device"], found["key"]["backend"], found["key"]["transports"]) == ("cpu", "gloo", ["TCP"])
    assert found["key"]["torch"]
    figures = {answer["probe"]: answer["parts"][0]["figures"] for answer in found["answers"]}
    assert list(figures) == ["Devices", *(step.probe for step in QUICK.node["cpu"])]
    assert figures["Gemm"]["best_tflops"] >= figures["Gemm"]["median_tflops"] > 0
    assert figures["Pattern"]["bytes"] == 32 * 2**20
    assert figures["Bits"]["passes"] >= 2
    assert len(figures["AllReduce"]["sizes"]) == 3
    assert not list(tmp_path.glob(".muster*"))
    assert not list(own.glob("muster-probe-*"))


def test_two_nodes_reduce_and_see_each_other_go(zygotes: Any) -> None:
    pair = zygotes(2)
    relay = Relay(pair)
    long = {"sizes": [[16 * 2**20, 10_000]], "deadline_seconds": 300}

    def send(rank: int, port: int, **more: Any) -> None:
        network = {"nodes": 2, "node_rank": rank, "master": "127.0.0.1", "port": port, "wait_seconds": 30}
        order = {"id": str(port), "probe": "AllReduce", "device": "cpu", "deadline_seconds": 60, **network}
        relay.send(rank, {**order, "sizes": QUICK.pair["cpu"], **more})

    def receive() -> list[dict[str, Any]]:
        return relay.receive(120)

    send(0, 21017)
    send(1, 21017)
    answers = receive()
    assert relay.lines <= 16, "each is a report of a checker"
    assert [answer["outcome"] for answer in answers] == ["Done", "Done"], answers
    assert {answer["parts"][0]["figures"]["world"] for answer in answers} == {2}

    # One gives way in the middle: the other is its victim, and nobody's fault.
    send(0, 21018, **long)
    send(1, 21018, **long)
    assert relay.receive(3) == [None, None]
    pair[0].cancel()
    assert [answer["outcome"] for answer in receive()] == ["Cancelled", "OtherEnded"]

    # Nobody comes.
    send(0, 21019, wait_seconds=1)
    (answer,) = relay.receive(60, (0,))
    assert answer["outcome"] == "CouldNotConnect", answer

    # One has no result in time.
    send(0, 21020, **long)
    send(1, 21020, **{**long, "deadline_seconds": 4})
    assert [answer["outcome"] for answer in receive()] == ["OtherEnded", "NoResult"]


def test_no_port_is_open_but_on_the_interface_of_the_test_and_for_its_seconds(zygotes: Any) -> None:
    pair = zygotes(2)
    relay = Relay(pair)
    before = [listening_in(prober.ready["pid"]) for prober in pair]
    network = {"nodes": 2, "master": "127.0.0.1", "port": 21061, "wait_seconds": 30, "sizes": [[2**20, 100_000]]}
    order = {"id": "1", "probe": "AllReduce", "device": "cpu", "deadline_seconds": 300, **network}

    relay.send(0, {**order, "node_rank": 0})
    assert relay.receive(3) == [None, None]
    assert [listening_in(prober.ready["pid"]) for prober in pair] == before, (
        "who waits for another node has no port open"
    )

    relay.send(1, {**order, "node_rank": 1})
    seen: set[tuple[str, int]] = set()
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until and len({port for _, port in seen}) < 3:
        assert relay.receive(0.2) == [None, None]
        seen |= set().union(*(listening_in(prober.ready["pid"]) for prober in pair))
    assert len({port for _, port in seen}) >= 3, "gloo's on both, and the order's"
    assert {address for address, _ in seen} == {"127.0.0.1"}

    pair[0].cancel()
    pair[1].cancel()
    assert [answer["outcome"] for answer in relay.receive(60)] == ["Cancelled", "Cancelled"]
    assert [listening_in(prober.ready["pid"]) for prober in pair] == before == [set(), set()]


def test_a_node_that_takes_or_makes_no_connections_fails_whoever_of_the_two_is_first(
    command: tuple[str, ...], two_hosts: tuple[str, str]
) -> None:
    pair = [Prober(("ip", "netns", "exec", host, *command)) for host in two_hosts]
    try:
        for prober in pair:
            prober.wait_until_ready(PATIENCE_SECONDS)

        relay = Relay(pair)

        def ended(first: int, port: int) -> list[str]:
            network = {"nodes": 2, "master": f"10.77.0.{first + 1}", "port": port, "wait_seconds": 12}
            order = {"probe": "AllReduce", "device": "cpu", "deadline_seconds": 12, "sizes": [[4096, 10]], **network}
            for number in (0, 1):
                relay.send(number, {**order, "id": str(port), "node_rank": int(number != first)})
            return [answer["outcome"] for answer in relay.receive(120)]

        assert [ended(first, 21031 + first) for first in (0, 1)] == [["Done", "Done"]] * 2
        wall_of = (
            "table inet t { chain c { type filter hook %s priority 0; iifname != lo oifname != lo tcp dport "
            "21000-28999 %s; }; }"
        )
        for number, fault in enumerate((("input", "drop"), ("input", "reject"), ("output", "reject"))):
            wall = ["ip", "netns", "exec", two_hosts[1], "nft"]
            subprocess.run([*wall, wall_of % fault], check=True)
            assert [ended(first, 21041 + 2 * number + first) for first in (0, 1)] == [["CouldNotConnect"] * 2] * 2
            subprocess.run([*wall, "flush ruleset"], check=True)
    finally:
        for prober in pair:
            prober.close()


def test_a_flipped_bit_is_found(zygotes: Any, tmp_path: Path) -> None:
    make_bad(tmp_path, "flip")
    [prober] = zygotes(1)
    answer = ask(prober, step("Bits"))
    assert answer["outcome"] == "Wrong", answer
    assert "gave other bits" in answer["message"]


def test_a_probe_that_hangs_ends_alone(zygotes: Any, tmp_path: Path) -> None:
    make_bad(tmp_path, "hang")
    [prober] = zygotes(1)
    hanging = Step("Gemm", 2, step("Gemm").parameters)
    profile = dataclasses.replace(QUICK, limit_seconds=120, node={"cpu": (hanging, step("Bandwidth"))})
    found = run(prober, profile)
    assert [answer["outcome"] for answer in found.answers] == ["Done", "Hung", "Done"]
    assert found.problems == ["Gemm: Hung: hung after 2.0 s in gemm on CPU"]
