"""The life of evidence: appears, is sustained, counted in bursts, cleared, expired; never without bound."""

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.agent.signals import WALL, assert_that_it_is_gone_for_longer_each_time, at, hot

from muster.api.nodehealth import NodeHealthStatus
from muster.node.agent import kinds
from muster.node.agent.earlier import stored_evidence
from muster.node.agent.facts import Clock, FaultEvent, Signal
from muster.node.agent.ledger import MAX_KEPT, MAX_SENT, Ledger, Stored


@pytest.fixture
def ledger() -> Ledger:
    return Ledger("boot", burst_seconds=180)


def xid(code: int = 79, subject: str = "GPU-1", age: float = 0.0, expires: float = 86400) -> FaultEvent:
    return FaultEvent(kinds.XID, subject, expires, code, message=f"Xid {code}", age_seconds=age)


def test_a_signal_counts_once_it_is_sustained(ledger: Ledger) -> None:
    ledger.sample([hot(True, sustain=10)], at(0))
    ledger.sample([hot(True, sustain=10)], at(9))
    assert ledger.evidence() == []
    ledger.sample([hot(False, sustain=10)], at(9.5))
    ledger.sample([hot(True, sustain=10)], at(10))
    ledger.sample([hot(True, sustain=10)], at(19))
    assert ledger.evidence() == []
    ledger.sample([hot(True, sustain=10)], at(20))
    assert [item["kind"] for item in ledger.evidence()] == [kinds.TEMPERATURE]


def test_a_signal_has_to_stay_good(ledger: Ledger) -> None:
    ledger.sample([hot(True, clear=30)], at(0))
    ledger.sample([hot(False, clear=30)], at(1))
    ledger.sample([hot(True, clear=30)], at(25))
    ledger.sample([hot(False, clear=30)], at(26))
    ledger.sample([hot(False, clear=30)], at(55))
    assert len(ledger.evidence()) == 1
    ledger.sample([hot(False, clear=30)], at(56))
    assert ledger.evidence() == []


@pytest.mark.parametrize(("pause", "clear"), [(1, 0.0), (61, 60.0)])
def test_what_comes_and_goes_is_gone_for_longer_each_time(pause: int, clear: float) -> None:
    assert_that_it_is_gone_for_longer_each_time(pause, clear, 3 * 3600)


def test_what_comes_back_after_an_hour_is_as_soon_gone_as_the_first_time() -> None:
    ledger = Ledger("boot", burst_seconds=180, growth=4.0)
    for began, lasts in ((0, 30), (40, 120), (200, 480), (200 + 480 + 3601, 30)):
        ledger.sample([hot(True, clear=30)], at(began))
        ledger.sample([hot(False, clear=30)], at(began))
        ledger.sample([hot(False, clear=30)], at(began + lasts - 1))
        assert len(ledger) == 1
        ledger.sample([hot(False, clear=30)], at(began + lasts))
        assert len(ledger) == 0


def test_what_is_not_known_changes_nothing(ledger: Ledger) -> None:
    ledger.sample([hot(True)], at(0))
    ledger.sample([], at(1000))
    assert len(ledger.evidence()) == 1


def test_more_of_what_is_counted_is_one_more_occurrence(ledger: Ledger) -> None:
    ledger.sample([hot(True, counter=1)], at(0))
    ledger.sample([hot(True, counter=1)], at(500))
    assert ledger.evidence()[0]["count"] == 1
    ledger.sample([hot(True, counter=2)], at(600))
    ledger.sample([hot(True, counter=3)], at(610))
    assert ledger.evidence()[0]["count"] == 2


def test_news_is_what_appears_goes_or_changes_its_code(ledger: Ledger) -> None:
    seen = []
    for moment, signal in enumerate((hot(True, code=1), hot(True, code=1), hot(True, code=2), hot(False))):
        ledger.sample([signal], at(moment))
        seen.append(ledger.news)
        ledger.news = False
    assert seen == [True, False, True, True]


def test_a_burst_counts_once(ledger: Ledger) -> None:
    for second in range(180):
        ledger.record(xid(), at(second))
    assert ledger.evidence()[0]["count"] == 1
    ledger.record(xid(), at(200))
    assert ledger.evidence()[0]["count"] == 2
    assert ledger.counted


def test_what_is_read_twice_counts_once(ledger: Ledger) -> None:
    ledger.record(xid(age=0), at(5000))
    ledger.record(xid(age=3000), at(5001))
    ledger.record(xid(age=0.5), at(5001))
    found = ledger.evidence()[0]
    assert found["count"] == 1
    seconds = datetime.fromisoformat(found["lastSeen"]) - datetime.fromisoformat(found["firstSeen"])
    assert 2990 < seconds.total_seconds() < 3010


@pytest.mark.parametrize("first", ["NVML", "the log"])
def test_who_tells_more_is_quoted_whoever_comes_first(ledger: Ledger, first: str) -> None:
    told = [
        FaultEvent(kinds.XID, "GPU-1", 86400, 31, message="NVML reports XID 31", brief=True),
        FaultEvent(kinds.XID, "GPU-1", 86400, 31, message="NVRM: Xid 31, pid=476, MMU Fault", age_seconds=0.1),
    ]
    for event in told if first == "NVML" else reversed(told):
        ledger.record(event, at(5000))
    found = ledger.evidence()[0]
    assert (found["message"], found["count"]) == ("NVRM: Xid 31, pid=476, MMU Fault", 1)


def test_a_gpu_with_two_names_keeps_the_fuller_message(ledger: Ledger) -> None:
    ledger.record(FaultEvent(kinds.XID, "PCI:0000:11:00", 86400, 31, message="NVRM: Xid 31, pid=476"), at(0))
    ledger.record(FaultEvent(kinds.XID, "GPU-1", 86400, 31, message="NVML reports XID 31", brief=True), at(1))
    ledger.rename({"PCI:0000:11:00": "GPU-1"})
    assert [item["message"] for item in ledger.evidence()] == ["NVRM: Xid 31, pid=476"]


def test_events_expire(ledger: Ledger) -> None:
    ledger.record(xid(expires=100), at(0))
    ledger.expire(at(100))
    assert len(ledger.evidence()) == 1
    ledger.expire(at(101))
    assert ledger.evidence() == []
    ledger.record(xid(expires=100, age=101), at(200))
    assert ledger.evidence() == []


@pytest.mark.parametrize("jump", [-1e9, -3600.0, 3600.0, 1e8], ids=str)
def test_clock_jumps_clear_and_expire_nothing(ledger: Ledger, jump: float) -> None:
    ledger.record(xid(), at(0))
    ledger.sample([hot(True, clear=30)], at(0))
    ledger.sample([hot(False, clear=30)], at(1, WALL + jump))
    ledger.sample([hot(True, clear=30)], at(2, WALL + jump))
    ledger.record(xid(), at(2, WALL + jump))
    ledger.expire(at(3, WALL + jump))
    found = ledger.evidence()
    assert [item["count"] for item in found] == [1, 1]
    assert all(item["lastSeen"] >= item["firstSeen"] for item in found)
    NodeHealthStatus.model_validate({"evidence": found})


def test_the_strongest_are_sent_and_the_rest_is_bounded(ledger: Ledger) -> None:
    for number in range(2 * MAX_KEPT):
        ledger.record(xid(code=31, subject=f"PCI:{number}"), at(number))
    ledger.sample([Signal(kinds.GPU_LOST, "GPU-1", True)], at(5000))
    ledger.record(xid(code=79), at(0))
    assert len(ledger) == MAX_KEPT
    sent = ledger.evidence()
    assert len(sent) == MAX_SENT
    assert [(item["kind"], item["code"]) for item in sent[:2]] == [(kinds.GPU_LOST, 0), (kinds.XID, 79)]
    assert sent[2]["subject"] == f"PCI:{2 * MAX_KEPT - 1}"  # of equals the newest


def test_a_gpu_that_gets_its_name_keeps_its_evidence(ledger: Ledger) -> None:
    ledger.record(xid(subject="PCI:0000:11:00"), at(0))
    ledger.record(xid(subject="GPU-1"), at(50))
    ledger.rename({"PCI:0000:11:00": "GPU-1", "PCI:0000:12:00": "GPU-2"})
    found = ledger.evidence()
    assert [(item["subject"], item["count"]) for item in found] == [("GPU-1", 1)]
    assert found[0]["firstSeen"] < found[0]["lastSeen"]


def test_an_adopted_event_expires_by_its_age(ledger: Ledger) -> None:
    stored = Stored(kinds.XID, "GPU-1", 79, "", "", "", WALL - 100, WALL - 50, 3, "boot")
    ledger.adopt([stored], {kinds.XID: 60.0}, at(0))
    assert ledger.evidence()[0]["count"] == 3
    ledger.expire(at(9))
    assert len(ledger) == 1
    ledger.expire(at(11))
    assert len(ledger) == 0


def test_evidence_that_only_a_later_agent_knows_stays_until_the_next_boot(ledger: Ledger) -> None:
    of_later = [
        Stored("Tachyons", "GPU-1", code, "9", "5", "too fast", WALL - 1e6, WALL - 50, 3, boot)
        for code, boot in ((1, "boot"), (2, "boot"), (3, "boot before"))
    ]
    ledger.adopt(of_later, {kinds.XID: 60.0}, at(0))
    ledger.sample([hot(False)], at(1e6))
    ledger.expire(at(1e6))
    assert [(item["kind"], item["code"], item["count"]) for item in ledger.evidence()] == [
        ("Tachyons", 1, 3),
        ("Tachyons", 2, 3),
    ]
    ledger.restart("next boot")
    assert ledger.evidence() == []


def test_what_is_told_from_the_future_is_not_believed(ledger: Ledger) -> None:
    stored = Stored(kinds.XID, "GPU-1", 79, "", "", "", WALL + 1e9, WALL + 2e9, 1, "boot")
    ledger.adopt([stored], {kinds.XID: 60.0}, at(0))
    ledger.expire(at(61))
    assert len(ledger) == 0


_signals = st.builds(
    Signal,
    st.sampled_from(kinds.STRONGEST_FIRST),
    st.text(max_size=200),
    st.booleans(),
    st.integers(0, 5),
    value=st.text(max_size=300),
    threshold=st.text(max_size=300),
    message=st.text(max_size=1000),
    counter=st.none() | st.floats(0, 1e12),
    sustain_seconds=st.sampled_from([0.0, 5.0]),
    clear_seconds=st.sampled_from([0.0, 5.0]),
)
_events = st.builds(
    FaultEvent,
    st.sampled_from(kinds.STRONGEST_FIRST),
    st.text(max_size=200),
    st.floats(0, 1e5),
    st.integers(-5, 2**70),
    st.text(max_size=300),
    st.text(max_size=1000),
    st.floats(-1e6, 1e6),
)
_moments = st.tuples(st.floats(0, 1e4), st.floats(0, 4e9))


@given(st.lists(st.tuples(_moments, _signals | _events), max_size=60))
def test_whatever_happens_the_api_takes_it(happened: list[tuple[tuple[float, float], Any]]) -> None:
    ledger = Ledger("boot", 180)
    mono = 0.0
    for (step, wall), what in happened:
        mono += step
        now = Clock(mono, wall)
        if isinstance(what, Signal):
            ledger.sample([what], now)
        else:
            ledger.record(what, now)
        ledger.expire(now)
    status = NodeHealthStatus.model_validate({"evidence": ledger.evidence()})
    for item in status.evidence:
        assert item.last_seen >= item.first_seen
        assert len(item.threshold) <= 128
        assert len(item.message) <= 512


def link(value: str, message: str, age: float = 0.0, brief: bool = False) -> FaultEvent:
    return FaultEvent(kinds.XID, "GPU-1", 86400, 145, value, message, age, brief)


def told(ledger: Ledger) -> set[tuple[str, str, int]]:
    return {(item["value"], item["message"], item["count"]) for item in ledger.evidence()}


def test_errors_of_one_number_that_weigh_differently_stand_side_by_side(ledger: Ledger) -> None:
    ledger.record(link("Nonfatal", "a Nonfatal"), at(0))
    ledger.news = False
    ledger.record(link("Fatal", "b Fatal"), at(1))
    assert ledger.news
    ledger.record(link("Nonfatal", "c Nonfatal"), at(2))
    assert told(ledger) == {("Nonfatal", "a Nonfatal", 1), ("Fatal", "b Fatal", 1)}


def test_an_event_and_its_lines_are_one(ledger: Ledger) -> None:
    ledger.record(link("", "NVML reports XID 145", brief=True), at(0))
    ledger.news = False
    ledger.record(link("Fatal", "b Fatal"), at(0.1))
    assert ledger.news  # the words may change what it weighs
    ledger.record(link("", "NVML reports XID 145", brief=True), at(0.2))
    assert told(ledger) == {("Fatal", "b Fatal", 1)}


def test_an_agent_that_starts_again_reads_the_same_lines(ledger: Ledger) -> None:
    ledger.record(link("Nonfatal", "a Nonfatal"), at(0))
    ledger.record(link("Fatal", "b Fatal"), at(1))
    before = ledger.evidence()
    after = Ledger("boot", burst_seconds=180)
    after.record(link("Fatal", "b Fatal", age=99), at(100))
    after.adopt(stored_evidence({"evidence": before}), {kinds.XID: 86400.0}, at(101))
    after.record(link("Nonfatal", "a Nonfatal", age=102), at(102))
    assert told(after) == {("Nonfatal", "a Nonfatal", 1), ("Fatal", "b Fatal", 1)}


def test_a_number_that_says_something_else_each_time_is_bounded(ledger: Ledger) -> None:
    for moment in range(1000):
        ledger.record(link(f"(0x{moment:x})", "registers"), at(moment))
    assert len(ledger.evidence()) == 8


def rate(bad: bool, counter: float | None = None, value: str = "v") -> Signal:
    return Signal(kinds.PCIE_REPLAY, "GPU-1", bad, 0, value, "t", "m", counter, clear_seconds=1000, episode_seconds=300)


def test_a_rate_is_quiet_and_counts_by_episodes(ledger: Ledger) -> None:
    for moment in range(0, 901, 30):
        ledger.sample([rate(True, value=f"{moment}")], at(moment))
    assert not ledger.news
    assert (ledger.evidence()[0]["count"], ledger.evidence()[0]["value"]) == (4, "900")


def test_a_rate_with_a_counter_counts_what_is_more(ledger: Ledger) -> None:
    for moment in range(0, 901, 30):
        ledger.sample([rate(True, counter=7.0 + (moment >= 600))], at(moment))
    assert ledger.evidence()[0]["count"] == 2


def test_a_rate_that_is_good_for_less_than_its_time_goes_on(ledger: Ledger) -> None:
    for moment in range(0, 3600, 900):
        ledger.sample([rate(True)], at(moment))
        ledger.sample([rate(False)], at(moment + 30))
    assert ledger.evidence()[0]["count"] == 4
    ledger.sample([rate(False)], at(5000))
    assert ledger.evidence() == []


def test_what_was_read_wrong_is_taken_back_whatever_it_said(ledger: Ledger) -> None:
    disk = [FaultEvent(kinds.DISK_ERROR, "sdb", 86400, value=value, message="m") for value in ("", "contained")]
    for event in (*disk, FaultEvent(kinds.DISK_ERROR, "sda", 86400, message="m")):
        ledger.record(event, at(0))
    ledger.retract(kinds.DISK_ERROR, "sdb")
    assert [item["subject"] for item in ledger.evidence()] == ["sda"]
