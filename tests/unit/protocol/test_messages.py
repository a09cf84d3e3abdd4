"""The wire format: what goes in comes out, old and new understand each other, nonsense is named."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.protocol.messages import (
    LONGEST_FENCE_SECONDS,
    LONGEST_SECONDS,
    MAX_NUMBER,
    MAX_PARTS,
    MAX_TAIL_CHARS,
    MAX_TEXT_CHARS,
    CheckpointReport,
    Directive,
    Peer,
    PeerReport,
    ProtocolError,
    RankReport,
    Report,
    decode_directive,
    decode_report,
    digest,
    encode,
    limits,
)

integers = st.integers(0, 2**40)
seconds = st.floats(0, LONGEST_SECONDS)
steering = ("Cc", "Cf", "Cs", "Zl", "Zp")
text = st.text(st.characters(blacklist_categories=steering), max_size=20)
shown = st.text(st.characters(blacklist_categories=steering) | st.sampled_from("\n\t"), max_size=20)
ranks = st.builds(
    RankReport, rank=integers, local_rank=integers, alive=st.booleans(), exit_code=st.none() | integers,
    signal=st.none() | integers, exited_age_seconds=st.none() | seconds, tail=shown,
)  # fmt: skip
reports = st.builds(
    Report, sequence=integers, state=text, attempt=integers, ranks=st.lists(ranks, max_size=3).map(tuple),
    step=st.none() | integers, step_age_seconds=st.none() | seconds, fenced=st.booleans(),
    peers=st.lists(st.builds(PeerReport, integers, seconds), max_size=3).map(tuple),
    checkpoints=st.lists(st.builds(CheckpointReport, integers, text.filter(bool)), max_size=3).map(tuple),
)  # fmt: skip
directives = st.builds(
    Directive, kind=text, attempt=integers, node_rank=integers, resume_step=st.none() | integers, resume_path=text,
    peers=st.lists(st.builds(Peer, integers, text, integers), max_size=3).map(tuple), poll_seconds=seconds,
)  # fmt: skip


@given(reports)
def test_a_report_survives_the_wire(report):
    assert decode_report(encode(report)) == report


@given(directives)
def test_a_directive_survives_the_wire_with_its_digest(directive):
    received = decode_directive(encode(directive))
    assert received == directive
    assert digest(received) == digest(directive)


def test_the_bytes_stay_as_they_are():
    """Launchers say by a digest of these very bytes which directive they have seen."""
    directive = Directive("Run", 2, resume_path="/\u00e4", peers=(Peer(1, "10.0.0.1", 9),), poll_seconds=2.0)
    assert encode(directive) == (
        b'{"attempt":2,"exitCode":0,"fenceSeconds":0.0,"holdSeconds":5.0,"kind":"Run",'
        b'"masterAddress":"","masterPort":0,"neighbours":0,"nodeCount":0,"nodeRank":0,'
        b'"peers":[{"address":"10.0.0.1","index":1,"port":9}],"pollSeconds":2.0,"processesPerNode":1,'
        b'"protocol":1,"reason":"","resumePath":"/\\u00e4","verifies":true,"writesFenceFile":false}'
    )


def test_the_digest_changes_with_the_directive():
    assert digest(Directive("Run", 1)) != digest(Directive("Run", 2))


def test_unknown_fields_are_ignored_and_missing_ones_have_a_default():
    directive = decode_directive(b'{"kind": "Save", "deadlineSeconds": 5, "attempt": null}')
    assert directive == Directive("Save")


def test_a_whole_number_is_a_time_too():
    assert decode_directive(b'{"kind": "Wait", "pollSeconds": 2}').poll_seconds == 2.0


def test_names_on_the_wire_are_in_camel_case():
    assert set(json.loads(encode(Directive("Run")))) >= {"nodeRank", "processesPerNode", "holdSeconds"}


NONSENSE = {
    "not JSON": (b"<html>", "not JSON"),
    "no object": (b"[]", "report: an object is expected"),
    "missing": (b'{"state": "Idle"}', "report.sequence is missing"),
    "wrong type": (b'{"sequence": "1", "state": "Idle"}', "report.sequence: int is expected, not str"),
    "a truth value is no number": (b'{"sequence": true, "state": "Idle"}', "report.sequence: int is expected"),
    "no list": (b'{"sequence": 1, "state": "Idle", "ranks": {}}', "report.ranks: a list is expected"),
    "inside a list": (
        b'{"sequence": 1, "state": "Idle", "ranks": [{"rank": 0, "localRank": 0}]}',
        r"report.ranks\[0\].alive is missing",
    ),
    "inside an optional": (b'{"sequence": 1, "state": "Idle", "step": 1.5}', "report.step: int is expected"),
    "not a number": (b'{"sequence": 1, "state": "Idle", "stepAgeSeconds": NaN}', "not JSON: NaN is no number"),
    "infinite": (b'{"sequence": 1, "state": "Idle", "holdSeconds": 1e999}', "report.holdSeconds: inf is no time"),
    "too long": (b'{"sequence": 1, "state": "Idle", "holdSeconds": 1' + b"0" * 400 + b"}", "report.holdSeconds: 10"),
    "too deep": (b"[" * 100_000, "not JSON"),
}


@pytest.mark.parametrize(("data", "message"), NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_is_named(data, message):
    with pytest.raises(ProtocolError, match=message):
        decode_report(data)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_else(data):
    try:
        decode_report(data)
    except ProtocolError:
        return


RANK = RankReport(0, 0, alive=True)
ABSURD = {
    "a step below zero": (Report(1, "Running", step=-1), "report.step: -1"),
    "a step beyond all": (Report(1, "Running", step=MAX_NUMBER + 1), "report.step: 9007199254740992"),
    "a number before the first": (Report(-1, "Idle"), "report.sequence: -1"),
    "an age below zero": (Report(1, "Idle", step_age_seconds=-0.5), "report.stepAgeSeconds: -0.5"),
    "an age of no clock": (Report(1, "Idle", loop_age_seconds=2 * LONGEST_SECONDS), "report.loopAgeSeconds: 2"),
    "an endless fence": (Report(1, "Idle", fence_seconds=1e12), "report.fenceSeconds: 1000000000000.0"),
    "a fence of two days": (Report(1, "Idle", fence_seconds=2 * LONGEST_FENCE_SECONDS), "report.fenceSeconds: 172800"),
    "no port": (Report(1, "Idle", peer_port=65536), "report.peerPort: 65536"),
    "an endless list": (Report(1, "Idle", ranks=(RANK,) * (MAX_PARTS + 1)), "report.ranks: its length 129"),
    "an endless text": (Report(1, "Idle", address="a" * (MAX_TEXT_CHARS + 1)), "report.address: its length 4097"),
    "a name in place of an address": (Report(1, "Idle", address="node-1"), "report.address: 'node-1' is no IP address"),
    "an address with a zone": (Report(1, "Idle", address="fe80::1%eth0"), "report.address: 'fe80::1%eth0' is no IP"),
    "an address with a port": (Report(1, "Idle", address="10.0.0.9:80"), "report.address: '10.0.0.9:80' is no IP"),
    "an endless state": (Report(1, "I" * 10_000), "report.state: its length 10000"),
    "a checkpoint before the first step": (
        Report(1, "Idle", checkpoints=(CheckpointReport(5, "/b"), CheckpointReport(-1, "/a"))),
        r"report.checkpoints\[1\].step: -1",
    ),
    "a path that is too long": (
        Report(1, "Idle", checkpoints=(CheckpointReport(1, "/a" * 600),)),
        r"report.checkpoints\[0\].path: its length 1200",
    ),
    "no path": (
        Report(1, "Idle", checkpoints=(CheckpointReport(1, ""),)),
        r"report.checkpoints\[0\].path: its length 0",
    ),
    "a neighbour silent since before time": (
        Report(1, "Idle", peers=(PeerReport(1, -3.0),)),
        r"report.peers\[0\].silentSeconds: -3.0",
    ),
}


@pytest.mark.parametrize(("report", "says"), ABSURD.values(), ids=ABSURD.keys())
def test_what_no_record_could_hold_is_refused_by_name(report, says):
    with pytest.raises(ProtocolError, match=says):
        decode_report(encode(report))


def test_what_is_only_for_people_is_cut():
    long = Report(
        1,
        "Idle",
        ranks=(RankReport(0, 0, alive=False, tail="a" * 5000 + "end"),),
        checkpoint_error="b" * 50_000,
        fence_file_error="c" * 50_000,
    )
    found = decode_report(encode(long))
    assert (len(found.ranks[0].tail), found.ranks[0].tail[-4:]) == (MAX_TAIL_CHARS, "aend")
    assert (len(found.checkpoint_error), len(found.fence_file_error)) == (MAX_TEXT_CHARS, MAX_TEXT_CHARS)


BOOLEANS = {"bool", "Optional[bool]"}


def test_every_number_text_and_list_of_a_report_has_a_limit():
    for kind in (Report, RankReport, CheckpointReport, PeerReport):
        free = {field.name for field in dataclasses.fields(kind)} - limits(kind).keys()
        assert {str(field.type) for field in dataclasses.fields(kind) if field.name in free} <= BOOLEANS
