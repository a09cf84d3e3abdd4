"""What is kept in files, how it is read again, and the settings and fabrics of a host."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import pytest

from muster.node.checker import host, memory
from muster.node.checker.facts import Facts
from muster.node.checker.memory import MAX_FIGURES, MAX_PASSES, MAX_SPENT, Measured, Pass, Passes
from muster.node.checker.settings import SettingsError, from_environment
from muster.node.checker.store import File
from muster.node.checker.talk import fitting
from muster.protocol.checks import (
    CheckAnswer,
    CheckGrant,
    CheckReport,
    FigureReport,
    ProbeReport,
    decode_check_report,
)
from muster.protocol.messages import MAX_REPORT_BYTES, encode

FACTS = Facts((0,), ("GPU-1",), "NVIDIA H200", "sm_90", "580", {"torch": "2.9", "cuda": "12.8", "version": "v1"})
MEASURED = Measured("gemm-bf16", "", 640.0, "TFLOP/s", "ml", FACTS.model, FACTS.library, FACTS.version, 900.0)
PASSES = Passes((Pass("g", "Quick", "identity", 900.0, 8),), ("old",))


class Log:
    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, event: str, **_: Any) -> None:
        self.events.append(event)


class TestFiles:
    def test_what_is_saved_is_loaded(self, tmp_path: Path) -> None:
        log = Log()
        file = File(str(tmp_path / "new/passes.json"), log)
        assert file.load(functools.partial(memory.passes_from_json, now=1000.0), "none") == "none"
        assert file.save(memory.passes_to_json(PASSES))
        assert file.load(functools.partial(memory.passes_from_json, now=1000.0), "none") == PASSES
        assert log.events == []
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["passes.json"]

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"passes": 7}', b"[" * 100_000, b"null"])
    def test_what_cannot_be_read_is_begun_anew_with_one_line(self, tmp_path: Path, content: bytes) -> None:
        log = Log()
        (tmp_path / "passes.json").write_bytes(content)
        file = File(str(tmp_path / "passes.json"), log)
        assert file.load(functools.partial(memory.passes_from_json, now=1000.0), Passes()) == Passes()
        assert log.events == ["a file cannot be read and starts again empty"]

    def test_a_disk_that_takes_nothing_is_told_once(self, tmp_path: Path) -> None:
        log = Log()
        (tmp_path / "place").write_text("")
        file = File(str(tmp_path / "place/passes.json"), log)
        assert not file.save({})
        assert not file.save({})
        assert log.events == ["a file cannot be written"]
        (tmp_path / "place").unlink()
        assert file.save({})
        (tmp_path / "place/passes.json").unlink()

    @pytest.mark.parametrize(
        "change",
        [
            {"figure": -1.0},
            {"figure": 1e300},
            {"figure": True},
            {"measured_at": "now"},
            {"probe": ""},
            {"probe": 7},
            {"namespace": "n" * 64},
            {"unit": "\ud800"},
        ],
        ids=str,
    )
    def test_a_figure_that_the_coordinator_would_not_take_is_not_loaded(self, change: Any) -> None:
        data = memory.figures_to_json([dataclasses.replace(MEASURED, **change)] if "probe" in change else [], 0.0, 0.0)
        data = {"figures": [{**dataclasses.asdict(MEASURED), **change}]}
        with pytest.raises(ValueError):
            memory.figures_from_json(json.loads(json.dumps(data)), 1000.0, 5000.0)

    def test_figures_keep_their_age_over_a_boot(self) -> None:
        data = memory.figures_to_json([MEASURED], now=1000.0, wall=50_000.0)
        (found,) = memory.figures_from_json(data, now=10.0, wall=50_200.0)
        (told,) = memory.figure_reports([found], FACTS, 10.0)
        assert told == FigureReport("gemm-bf16", 640.0, 300.0, "TFLOP/s", "", "ml")

    def test_a_clock_that_was_set_back_makes_them_young(self) -> None:
        data = memory.figures_to_json([MEASURED], now=1000.0, wall=50_000.0)
        (found,) = memory.figures_from_json(data, now=10.0, wall=1000.0)
        assert memory.figure_reports([found], FACTS, 10.0)[0].age_seconds == 0.0

    def test_a_pass_of_the_future_is_of_another_boot(self) -> None:
        assert memory.passes_from_json(memory.passes_to_json(PASSES), now=800.0).held == ()


class TestFigures:
    def test_the_newest_of_each_probe_and_transport(self) -> None:
        newer = dataclasses.replace(MEASURED, figure=600.0, measured_at=950.0)
        other = dataclasses.replace(MEASURED, transport="IB")
        assert memory.with_figures((MEASURED, other), [newer]) == (other, newer)

    def test_they_are_bounded(self) -> None:
        many = [dataclasses.replace(MEASURED, probe=f"p{index}") for index in range(100)]
        assert memory.with_figures((), many) == tuple(many[-MAX_FIGURES:])

    def test_those_of_another_library_are_not_told(self) -> None:
        assert memory.figure_reports([dataclasses.replace(MEASURED, version="v0")], FACTS, 1000.0) == ()


class TestPasses:
    def test_they_are_bounded_and_none_comes_back(self) -> None:
        grants = [CheckGrant(str(index), "Quick") for index in range(MAX_PASSES + 9)]
        passes = Passes().with_grants(grants, "identity", 1.0)
        assert [each.granted for each in passes.held] == [grant.id for grant in grants[9:]]
        assert passes.with_grants(grants, "identity", 2.0) is passes
        for index in range(500):
            passes = passes.with_grants([CheckGrant(f"more {index}", "Quick")], "identity", 3.0)
        assert len(passes.spent) <= MAX_SPENT

    def test_nothing_changes_where_nothing_is_new(self) -> None:
        assert PASSES.of_identity("identity") is PASSES
        assert PASSES.of_identity("other") == Passes((), ("old", "g"))


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(FACTS, uuids=("GPU-2",)),
        dataclasses.replace(FACTS, driver="590"),
        dataclasses.replace(FACTS, key={**FACTS.key, "torch": "2.10"}),
        dataclasses.replace(FACTS, key={**FACTS.key, "nccl": "2.29"}),
        dataclasses.replace(FACTS, key={**FACTS.key, "version": "v2"}),
    ],
)
def test_what_makes_another_node(other: Facts) -> None:
    assert other.identity("boot") != FACTS.identity("boot")
    assert FACTS.identity("other boot") != FACTS.identity("boot") == FACTS.identity("boot")


@pytest.mark.parametrize("words", ["x" * 400, "\u2026" * 400])
def test_a_report_that_is_too_long_loses_its_words(words: str) -> None:
    probes = tuple(ProbeReport(f"probe-{index}", "Result", 1.0, "GB/s", True, words) for index in range(12))
    answers = tuple(CheckAnswer(str(index), "Node", "Result", probes=probes) for index in range(128))
    report = CheckReport(1, answers=answers)
    assert len(encode(report)) > MAX_REPORT_BYTES
    sent = encode(fitting(report))
    assert len(sent) <= MAX_REPORT_BYTES
    assert len(decode_check_report(sent).answers) == 128
    assert fitting(CheckReport(1)) == CheckReport(1)


POD = {
    "MUSTER_COORDINATOR": "https://muster-coordinator.muster-system.svc:8443",
    "MUSTER_TOKEN_FILE": "/token",
    "MUSTER_CA_FILE": "/ca.crt",
    "MUSTER_ADDRESS": "10.0.0.1",
}


def test_settings_have_defaults() -> None:
    settings = from_environment(POD)
    assert (settings.endpoint.host, settings.endpoint.port) == ("muster-coordinator.muster-system.svc", 8443)
    assert settings.endpoint.server_name == "muster-coordinator.muster-system.svc"
    assert (settings.run_directory, settings.lib_directory) == ("/run/muster-check", "/var/lib/muster-check")
    assert (settings.storage_directory, settings.listen) == ("", ("127.0.0.1", 9476))


@pytest.mark.parametrize(
    "change",
    [
        *({name: ""} for name in POD),
        {"MUSTER_COORDINATOR": "http://c:1"},
        {"MUSTER_COORDINATOR": "https://c:port"},
        {"MUSTER_STORAGE": "here"},
        {"MUSTER_LISTEN": "9476x"},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_named(change: dict[str, str]) -> None:
    (name,) = change
    with pytest.raises(SettingsError, match=name):
        from_environment(POD | change)


@pytest.mark.parametrize(
    ("ports", "wanted"),
    [
        ([("4: ACTIVE", "InfiniBand"), ("1: DOWN", "Ethernet")], False),
        ([("4: ACTIVE", "Ethernet"), ("1: DOWN", "InfiniBand")], True),
        ([("4: ACTIVE", "Ethernet"), ("4: ACTIVE", "InfiniBand")], False),
        ([], False),
    ],
)
def test_ethernet_under_infiniband(tmp_path: Path, ports: list[tuple[str, str]], wanted: bool) -> None:
    for index, (state, layer) in enumerate(ports):
        folder = tmp_path / f"class/infiniband/mlx5_{index}/ports/1"
        folder.mkdir(parents=True)
        (folder / "state").write_text(state + "\n")
        (folder / "link_layer").write_text(layer + "\n")
    assert host.infiniband_is_ethernet(str(tmp_path)) is wanted
