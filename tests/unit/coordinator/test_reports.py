"""The fast decoder: it takes what the protocol's own takes, and says the same of the rest."""

import dataclasses
import json
import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.counting import CountedWork

from fuzz.samples import CHECKED
from muster.coordinator import reports
from muster.coordinator.reports import decode_check_report, decode_report
from muster.protocol import checks, messages
from muster.protocol.checkpoints import UNVERIFIED, UNVERIFIED_FOR_NOW
from muster.protocol.checks import CheckReport
from muster.protocol.messages import (
    MAX_PARTS,
    MAX_REPORT_BYTES,
    CheckpointReport,
    LocalReport,
    PeerReport,
    ProtocolError,
    RankReport,
    Report,
    StackReport,
)


def filled(part: RankReport) -> RankReport:
    """The same, each field that has its default set to something else."""
    values: dict[Any, Any] = {int: 3, float: 1.5, str: "x", bool: True}
    kinds = {name: (*typing.get_args(hint), hint)[0] for name, hint in typing.get_type_hints(RankReport).items()}
    return dataclasses.replace(part, **{name: values[kinds[name]] for (name,) in unset(part)})


def unset(report: Any) -> list[tuple[str, ...]]:
    """The way to each field that has its default, through the first of its parts."""
    found: list[tuple[str, ...]] = []
    for field in dataclasses.fields(report):
        value = getattr(report, field.name)
        if value == field.default:
            found.append((field.name,))
        elif isinstance(value, tuple):
            found += [(field.name, *rest) for rest in unset(value[0])]
    return found


FULL = Report(
    sequence=7,
    state=messages.EXITED,
    attempt=3,
    ranks=(filled(RankReport(8, 0, alive=True)), RankReport(9, 1, False, 1, None, True, 2.5, "ValueError: no")),
    step=12,
    step_age_seconds=0.5,
    started_age_seconds=30.0,
    standstill_seconds=0.25,
    step_seconds=1.5,
    step_p90_seconds=1.75,
    fence_seconds=20.0,
    fenced=True,
    previous_attempt=2,
    previous_ranks=(filled(RankReport(8, 0, False, None, 9)),),
    previous_step=9,
    previous_fenced=True,
    peer_port=4000,
    peers=(PeerReport(1, 0.25),),
    checkpoints=(CheckpointReport(10, "/c/10", 7, False, True, "TorchDCP", 96, 12.5, 3.5, 20.25, "cut short"),),
    stamps="10:7",
    other_directory=(CheckpointReport(20, "/base/20", 9, False, True, "NeMo", 97, 13.5, 4.5, 21.25, "empty"),),
    other_directory_error="not mounted",
    other_directory_error_kind="Unverified",
    checkpoints_scanned_for_attempt=3,
    listing_round=1,
    scanned_age_seconds=4.0,
    listed_age_seconds=1.5,
    checkpoint_error="stale handle",
    checkpoint_error_kind="UnverifiedForNow",
    checkpoint_warning="torn",
    checkpoint_trap="torn",
    lists_after_end=True,
    free_bytes=10**12,
    address="10.0.0.9",
    launcher_version="1",
    loop_age_seconds=0.125,
    first_step=11,
    progress_preset="Megatron",
    printed_loss="2.31",
    printed_tokens=7104.5,
    printed_step_seconds=0.8124,
    printed_tflops=411.2,
    printed_mfu=0.4158,
    measured_stall_seconds=12.5,
    measured_saves=3,
    likely_preset="Lightning",
    likely_pattern=r"^\s*step\s+([0-9]+)",
    likely_line="step 12 | loss nan",
    loss_not_finite_since=50,
    quiet_age_seconds=12.5,
    progress_error="the pattern takes for ever",
    reads_fence_file=True,
    fence_file_attempt=3,
    fence_file_age_seconds=1.5,
    fence_file_id="abc",
    first_step_age_seconds=20.5,
    input_wait_seconds=1.5,
    communication_seconds=2.5,
    checkpoint_stall_seconds=3.5,
    lost_steps=120,
    lost_seconds=61.5,
    lowest_restarted_step=4_000,
    step_stride=10,
    longest_wait_seconds=3.5,
    collectives="NCCL 2.27.7+cuda12.9",
    energy_joules=4,
    energy_gpu_milliseconds=5,
    fence_file_error="read-only file system",
    moved_attempt=3,
    moved="step-20 moved",
    moved_error="no rights",
    local=(LocalReport(30, "/local/30", 2, "TorchDCP"),),
    local_attempt=3,
    local_listing_round=1,
    local_error="no answer",
    stacks=(StackReport(3, "/code/data.py:12 in load", "it has none"),),
    stacks_attempt=3,
    request=2,
    request_answered=1,
    ejected=True,
    directive_seen="abc",
    hold_seconds=5.0,
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def verdict(decode: Any, data: bytes) -> Report | CheckReport | str:
    try:
        found: Report | CheckReport = decode(data)
    except ProtocolError as error:
        return str(error)
    return found


def test_every_field_arrives() -> None:
    assert unset(FULL) == [("protocol",)], "the report of this test sets every field"
    assert decode_report(messages.encode(FULL)) == FULL


def test_a_launcher_of_before_tells_the_kind_of_a_stores_error_in_the_text() -> None:
    found = decode_report(
        messages.encode(
            Report(1, "Idle", checkpoint_error="unverified: no", other_directory_error="unverified for now: away")
        )
    )
    assert (found.checkpoint_error_kind, found.other_directory_error_kind) == (UNVERIFIED, UNVERIFIED_FOR_NOW)
    assert (
        decode_report(messages.encode(Report(1, "Idle", checkpoint_error="no such directory"))).checkpoint_error_kind
        == ""
    )


def test_what_is_left_out_has_the_protocols_default() -> None:
    assert decode_report(b'{"sequence": 1, "state": "Idle", "unknown": {}}') == Report(1, "Idle")


@pytest.mark.parametrize("address", ["node-1", "10.0.0.9:80", "fe80::1%eth0", "1", " "])
def test_a_report_has_an_ip_address_or_none(address: str) -> None:
    with pytest.raises(ProtocolError, match=r"report\.address: .* is no IP address"):
        decode_report(messages.encode(Report(1, "Idle", address=address)))
    for good in ("", "10.0.0.9", "fd00::1"):
        assert decode_report(messages.encode(Report(1, "Idle", address=good))).address == good


def test_a_good_report_does_not_take_the_slow_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(_: bytes) -> Report:
        raise AssertionError("the protocol's own decoder was asked")

    monkeypatch.setattr(reports.messages, "decode_report", slow)
    assert decode_report(messages.encode(FULL)) == FULL
    failed = dataclasses.replace(FULL.ranks[1], tail="x" * 9000)
    long = decode_report(messages.encode(dataclasses.replace(FULL, ranks=(failed,), checkpoint_error="y" * 9000)))
    assert (len(long.ranks[0].tail), len(long.checkpoint_error)) == (2048, 4096), "a long text for people is cut"


def heaviest() -> bytes:
    """As many parts as a report may have, each with all that it may hold, and the very last number is wrong."""
    rank = {"rank": 1, "localRank": 1, "alive": False, "exitCode": 1, "signal": 9, "endedByLauncher": True, "tail": "x"}
    ranks = [{**rank, "exitedAgeSeconds": 1.5}] * MAX_PARTS
    checkpoints = [
        {"step": 1, "path": "/c", "writtenNs": 1, "verified": True, "incomplete": True, "format": "TorchDCP"}
    ] * MAX_PARTS
    peers = [{"index": 1, "silentSeconds": 1}] * MAX_PARTS
    ages = {"stepAgeSeconds": -1.0}
    parts = {"ranks": ranks, "previousRanks": ranks, "checkpoints": checkpoints, "peers": peers}
    return json.dumps({**json.loads(messages.encode(FULL)), **parts, **ages}).encode()


def steps_to_decode(data: bytes) -> int:
    with CountedWork() as counted:
        verdict(decode_report, data)
    return counted.steps


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(heaviest(), id="as many parts as may be, and wrong"),
        pytest.param(b'{"sequence":1,"state":"Idle","peers":[' + b"{}," * 80_000 + b"{}]}", id="an endless list"),
        pytest.param(
            b'{"sequence":1,"state":"Idle","peers":[' + b'{"index":0,"silentSeconds":0},' * 8000 + b"{}]}",
            id="an endless list of good parts",
        ),
        pytest.param(b'{"sequence":1,"state":5,"u":[' + b"{}," * 80_000 + b"{}]}", id="an endless list of no field"),
        pytest.param(
            json.dumps({"sequence": 1, "state": "Idle", "checkpointError": "x" * 260_000}).encode(), id="a long text"
        ),
    ],
)
def test_no_report_costs_the_loop_much_more_than_ordinary_ones_of_the_same_bytes(data: bytes) -> None:
    """As many bytes as a report may have, in ordinary ones, take 39,000 steps; the costliest single one 256,000."""
    assert len(data) <= MAX_REPORT_BYTES
    ordinary = messages.encode(FULL)
    usual = steps_to_decode(ordinary) * (MAX_REPORT_BYTES // len(ordinary))
    assert steps_to_decode(data) < 7 * usual


@given(st.sampled_from(sorted(json.loads(messages.encode(FULL)))), anything)
def test_both_decoders_agree_on_any_value_of_any_field(key: str, value: Any) -> None:
    data = json.dumps({**json.loads(messages.encode(FULL)), key: value}).encode()
    assert verdict(decode_report, data) == verdict(messages.decode_report, data)


@pytest.mark.parametrize("key", sorted(json.loads(messages.encode(FULL))))
def test_both_decoders_agree_on_what_is_beyond_a_limit(key: str) -> None:
    for amount in (-1, -0.5, 1e9, 2**53, 2**63, 10**30, "x" * 5000, "x" * 250_000):
        data = json.dumps({**json.loads(messages.encode(FULL)), key: amount}).encode()
        assert verdict(decode_report, data) == verdict(messages.decode_report, data), str(amount)[:40]


@pytest.mark.parametrize("key", ["ranks", "previousRanks", "peers", "checkpoints"])
def test_both_decoders_agree_on_long_lists_and_on_their_parts(key: str) -> None:
    full = json.loads(messages.encode(FULL))
    part = full[key][0]
    for items in ([part] * MAX_PARTS, [part] * (MAX_PARTS + 1), *([{**part, name: -5}] for name in part)):
        data = json.dumps({**full, key: items}).encode()
        assert verdict(decode_report, data) == verdict(messages.decode_report, data)


@given(st.integers(0, 600), st.text(st.characters(max_codepoint=127), min_size=1, max_size=3))
def test_both_decoders_agree_on_broken_text(at: int, wrong: str) -> None:
    data = messages.encode(FULL)
    data = data[:at] + wrong.encode() + data[at + len(wrong) :]
    assert verdict(decode_report, data) == verdict(messages.decode_report, data)


def test_what_people_are_shown_steers_no_terminal_and_can_be_written_down() -> None:
    report: dict[str, Any] = {
        "sequence": 1,
        "state": "Idle",
        "checkpointError": "a\n\u001b]0;x\u0007\r\udcff\u202eb",
        "fenceFileError": "für 漢\n",
    }
    report["ranks"] = [{"rank": 0, "localRank": 0, "alive": False, "tail": "\u001b[2J"}]
    data = json.dumps(report).encode()
    found = decode_report(data)
    assert found == messages.decode_report(data)
    assert (found.checkpoint_error, found.fence_file_error) == ("a\n\ufffd]0;x\ufffd\ufffd\ufffd\ufffdb", "für 漢\n")
    assert found.ranks[0].tail == "\ufffd[2J"
    json.dumps(dataclasses.asdict(found), ensure_ascii=False).encode()


@pytest.mark.parametrize("half", ["\\ud800", "\\uDC80"])
def test_half_of_a_surrogate_pair_is_no_name_and_in_words_for_people_is_replaced(half: str) -> None:
    data = json.dumps({"sequence": 1, "state": messages.IDLE, "fenceFileId": "MARK", "fenceFileError": "MARK"})
    with pytest.raises(ProtocolError, match=r"fenceFileId: .* has control characters, or is not Unicode"):
        decode_report(data.replace("MARK", half).encode())
    report = decode_report(data.replace('"MARK"', '"branch-1"', 1).replace("MARK", half).encode())
    assert (report.fence_file_id, report.fence_file_error) == ("branch-1", "\N{REPLACEMENT CHARACTER}")


STEERING = ["\n", "\t", "\x1b[31m", "\x7f", "\x9b", "\u202e", "\u2066", "\u2028", "\ufeff"]


@pytest.mark.parametrize("steering", STEERING, ids=ascii)
@pytest.mark.parametrize("key", ["checkpoints", "otherDirectory", "local"])
def test_no_checkpoint_has_a_name_that_moves_the_text_of_a_status(key: str, steering: str) -> None:
    """A tenant's program can send any report: the path of its checkpoint is shown in statuses, Events and terminals."""
    report = json.loads(messages.encode(FULL))
    report[key][0]["path"] = f"/c/step-10{steering}forged"
    for ascii_only in (True, False):
        data = json.dumps(report, ensure_ascii=ascii_only).encode()
        with pytest.raises(ProtocolError, match=r"\.path: .* has control characters, or is not Unicode"):
            decode_report(data)
        assert verdict(decode_report, data) == verdict(messages.decode_report, data)


def test_why_a_checkpoint_is_incomplete_is_short_and_readable() -> None:
    problem = "x" * 1000 + "\x1b"
    report = dataclasses.replace(FULL, checkpoints=(CheckpointReport(10, "/c/10", incomplete=True, problem=problem),))
    for decode in (decode_report, messages.decode_report):
        assert decode(messages.encode(report)).checkpoints[0].problem == "x" * 255 + "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("name", ["/für 漢字/10", "/a\u3000b/10", "/\U0001fae8/10"], ids=ascii)
def test_a_checkpoint_may_have_any_other_name(name: str) -> None:
    report = dataclasses.replace(FULL, checkpoints=(CheckpointReport(10, name),))
    assert decode_report(messages.encode(report)) == report


@pytest.mark.parametrize("key", sorted(json.loads(messages.encode(FULL))))
def test_both_decoders_agree_on_names_that_steer_a_terminal(key: str) -> None:
    full = json.loads(messages.encode(FULL))
    data = json.dumps({**full, key: "\x1b[2J" if isinstance(full[key], str) else full[key]}).encode()
    assert verdict(decode_report, data) == verdict(messages.decode_report, data)


def test_a_whole_surrogate_pair_is_text() -> None:
    data = json.dumps({"sequence": 1, "state": messages.IDLE, "fenceFileId": "\N{ROCKET}"})
    assert "\\ud83d" in data
    assert decode_report(data.encode()).fence_file_id == "\N{ROCKET}"


def test_every_field_of_a_checkers_report_arrives_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(_: bytes) -> CheckReport:
        raise AssertionError("the protocol's own decoder was asked")

    assert unset(CHECKED) == [("protocol",)]
    monkeypatch.setattr(reports.checks, "decode_check_report", slow)
    assert decode_check_report(messages.encode(CHECKED)) == CHECKED


def parts_of(report: Any) -> list[tuple[str, ...]]:
    """The way to each field of a report's JSON, through the first of its parts."""
    found: list[tuple[str, ...]] = []
    for key, value in report.items():
        found.append((key,))
        if isinstance(value, list):
            found += [(key, *rest) for rest in parts_of(value[0])]
    return found


def changed(report: Any, way: tuple[str, ...], value: Any) -> Any:
    if len(way) == 1:
        return {**report, way[0]: value}
    first, *others = report[way[0]]
    return {**report, way[0]: [changed(first, way[1:], value), *others]}


CHECK_JSON = json.loads(messages.encode(CHECKED))


@given(st.sampled_from(parts_of(CHECK_JSON)), anything)
def test_both_decoders_agree_on_any_value_of_any_field_of_a_checker(way: tuple[str, ...], value: Any) -> None:
    data = json.dumps(changed(CHECK_JSON, way, value)).encode()
    assert verdict(decode_check_report, data) == verdict(checks.decode_check_report, data)


@pytest.mark.parametrize("way", parts_of(CHECK_JSON), ids=".".join)
def test_both_decoders_agree_on_what_is_beyond_a_limit_of_a_checker(way: tuple[str, ...]) -> None:
    for amount in (-1, -0.5, 1e7, 1e9, -1e9, 2**53, 2**63, 10**30, "x" * 500, "\u202e", "x" * 250_000):
        data = json.dumps(changed(CHECK_JSON, way, amount)).encode()
        assert verdict(decode_check_report, data) == verdict(checks.decode_check_report, data), str(amount)[:40]


@pytest.mark.parametrize(
    ("way", "most"),
    [(("answers",), MAX_PARTS), (("passes",), 16), (("figures",), 64), (("answers", "probes"), 32)],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else "",
)
def test_a_checkers_lists_have_an_end(way: tuple[str, ...], most: int) -> None:
    part: Any = CHECK_JSON
    for key in way:
        part = (part[0] if isinstance(part, list) else part)[key]
    fits = json.dumps(changed(CHECK_JSON, way, part[:1] * most)).encode()
    assert isinstance(verdict(decode_check_report, fits), CheckReport)
    beyond = json.dumps(changed(CHECK_JSON, way, part[:1] * (most + 1))).encode()
    says = verdict(decode_check_report, beyond)
    assert isinstance(says, str)
    assert f".{way[-1]}: its length {most + 1} is not from 0 to {most}" in says
    assert says == verdict(checks.decode_check_report, beyond)
