"""What needs a reset of a GPU stands until one was seen, however long that takes, and no longer."""

import time
from typing import Any

import pytest
from tests.unit.agent.conftest import AgentClock
from tests.unit.agent.test_boots import MACHINE, stored
from tests.unit.agent.test_faults import GPU1
from tests.unit.health.test_xids import NVLINK5, XID_74

from muster.health.signs import Clears
from muster.health.xids import DEGRADED, FATAL, RESET, XIDS
from muster.health.xids import xid as of_code
from muster.node.agent import kinds
from muster.node.agent.earlier import Earlier
from muster.node.agent.facts import Clock, FaultEvent, Signal
from muster.node.agent.ledger import Ledger, Stored
from muster.node.agent.log_lines import parse, recovery_taken_back

DAY, GPU, BOOT = 86400.0, "GPU-1", "boot-1"
EXPIRES = {kinds.XID: DAY}


def at(mono: float, ahead: float = 0.0) -> Clock:
    """A moment, with a wall clock that goes wrong by some seconds."""
    return Clock(mono, 1_800_000_000.0 + mono + ahead)


def ledger(watched_since: float = 0.0) -> Ledger:
    made = Ledger(BOOT, 180.0)
    made.watch_resets(watched_since)
    return made


def xid(code: int = 95, subject: str = GPU, **more: Any) -> FaultEvent:
    return FaultEvent(kinds.XID, subject, DAY, code, message=f"NVRM: Xid {code}", **more)


def action(value: int, subject: str = GPU) -> Signal:
    return Signal(kinds.RECOVERY_ACTION, subject, value != 0, value, clear_seconds=30.0)


def codes(of: Ledger) -> list[int]:
    return sorted(entry.code for entry in of.entries() if entry.kind == kinds.XID)


def bad_from_to(of: Ledger, signal: Signal, first: float, last: float) -> None:
    for mono in (first, last):
        of.sample([signal], at(mono))


def good_from(of: Ledger, mono: float, signal: Signal) -> None:
    for later in (0.0, 31.0):
        of.sample([signal], at(mono + later))


def stored_of(of: Ledger) -> list[Stored]:
    """As another agent reads it."""
    status = {"agent": {"bootId": BOOT}, "evidence": of.evidence()}
    return list(Earlier.from_stored({"status": status}, BOOT, MACHINE).of_this_boot)


def test_the_agent_holds_what_the_operators_table_says_needs_a_reset() -> None:
    """Of NVLink's (74, 144 to 150) the line says it: see below."""
    needing = {code for code, row in XIDS.items() if row.action is RESET and row.severity in (DEGRADED, FATAL)}
    assert needing - {74} == kinds.RESET_XIDS
    assert {48, 62, 64, 95, 119, 120, 140, 158} <= kinds.RESET_XIDS
    assert all(XIDS[code].clears is not Clears.BOOT for code in kinds.RESET_XIDS)


OF_NVLINK = [
    *(line for line, *_ in NVLINK5),
    *(f"74, NVLink: fatal error detected on {registers}" for registers, *_ in XID_74),
]


@pytest.mark.parametrize("line", OF_NVLINK)
def test_of_nvlinks_the_agent_holds_what_the_operator_says_needs_a_reset(line: str) -> None:
    fact = parse(f"NVRM: Xid (PCI:0000:1b:00): {line}")
    assert fact is not None
    row = of_code(fact.code, fact.message)
    book = ledger()
    event = FaultEvent(fact.kind, GPU, DAY, fact.code, fact.value, fact.message)
    book.record(event, at(10))
    again = ledger()
    again.adopt(stored_of(book), EXPIRES, at(11))
    for each in (book, again):
        each.expire(at(2 * DAY))
        assert codes(each) == ([fact.code] if row.action is RESET and row.severity in (DEGRADED, FATAL) else [])
        each.reset(GPU, 2 * DAY, at(2 * DAY))
        assert codes(each) == []


def test_an_event_is_held_until_its_line_says_that_it_was_light() -> None:
    light, grave = "(0x40000000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "(0x20, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
    for line, left in ((light, []), (grave, [74])):
        for order in (1, -1):
            book = ledger()
            for told in ({"brief": True}, {"value": line})[::order]:
                book.record(xid(74, **told), at(10))
            book.expire(at(2 * DAY))
            assert codes(book) == left, (line, order)


@pytest.mark.parametrize("code", sorted(kinds.RESET_XIDS))
def test_what_needs_a_reset_does_not_grow_old(code: int) -> None:
    book = ledger()
    book.record(xid(code), at(10))
    book.record(xid(79), at(10))
    book.expire(at(30 * DAY))
    assert codes(book) == [code]


@pytest.mark.parametrize("value", sorted(kinds.RESET_ACTIONS))
def test_a_driver_that_asks_for_nothing_any_more_ends_it(value: int) -> None:
    book = ledger()
    book.record(xid(), at(10))
    book.record(xid(79), at(10))
    book.record(xid(subject="GPU-2"), at(10))
    bad_from_to(book, action(value), 11, 500)
    good_from(book, 600, action(0))
    assert codes(book) == [79, 95]
    assert [entry.subject for entry in book.entries() if entry.code == 95] == ["GPU-2"]
    (reset,) = [entry for entry in book.entries() if entry.kind == kinds.GPU_RESET]
    assert (reset.subject, reset.value) == (GPU, "500.000 s after the boot")  # by the last bad look


@pytest.mark.parametrize("value", [3, 5])
def test_what_no_reset_takes_back_proves_none(value: int) -> None:
    book = ledger()
    book.record(xid(), at(10))
    bad_from_to(book, action(value), 11, 500)
    good_from(book, 600, action(0))
    assert codes(book) == [95]


def test_what_came_after_the_last_bad_look_may_have_come_after_the_reset() -> None:
    book = ledger()
    book.record(xid(95), at(10))
    bad_from_to(book, action(1), 11, 500)
    book.record(xid(119), at(520))
    good_from(book, 600, action(0))
    assert codes(book) == [119]


def test_a_driver_that_never_asked_for_anything_proves_nothing() -> None:
    book = ledger()
    book.record(xid(), at(10))
    good_from(book, 600, action(0))
    assert codes(book) == [95]


@pytest.mark.parametrize(
    "kind",
    [
        kinds.RESET_REQUIRED,
        kinds.ECC_UNCORRECTED,
        kinds.SRAM_UNCORRECTED,
        kinds.ROW_REMAP_PENDING,
        kinds.REPAIR_PENDING,
    ],
)
def test_what_only_a_reset_ends_proves_it(kind: str) -> None:
    book = ledger()
    book.record(xid(48), at(10))
    bad_from_to(book, Signal(kind, GPU, bad=True), 11, 500)
    book.sample([Signal(kind, GPU, bad=False)], at(600))
    assert codes(book) == []


def test_a_wall_clock_that_jumps_decides_nothing() -> None:
    book = ledger()
    book.record(xid(95), at(10, ahead=7200.0))
    book.sample([action(1)], at(500))
    book.sample([action(0)], at(600, ahead=-7200.0))
    book.sample([action(0)], at(631, ahead=-7200.0))
    book.record(xid(119), at(640, ahead=-90000.0))
    assert codes(book) == [119]


def test_what_is_older_than_the_watching_stands_until_a_reset_too() -> None:
    """That a reset may have been missed proves none, and an old fault is none the better for it."""
    book = ledger(watched_since=2 * DAY)
    book.record(xid(95, age_seconds=DAY / 2), at(2 * DAY + 60))
    book.record(xid(48, age_seconds=1.5 * DAY), at(2 * DAY + 60))
    book.expire(at(9 * DAY))
    assert codes(book) == [48, 95]
    book.reset(GPU, 9 * DAY, at(9 * DAY))
    assert codes(book) == []


def test_an_agent_that_starts_again_holds_on_and_knows_of_resets() -> None:
    first = ledger()
    first.record(xid(95), at(10))
    first.record(xid(48, subject="GPU-2"), at(10))
    bad_from_to(first, action(1), 11, 500)
    good_from(first, 600, action(0))
    second = ledger()
    second.adopt(stored_of(first), EXPIRES, at(5 * DAY))
    # It reads the log of the whole boot again, whose clock is a little off.
    second.record(xid(95, age_seconds=5 * DAY - 40, replayed=True), at(5 * DAY))
    second.record(xid(48, subject="GPU-2", age_seconds=5 * DAY - 10, replayed=True), at(5 * DAY))
    second.expire(at(30 * DAY))
    assert [(entry.code, entry.subject) for entry in second.entries() if entry.kind == kinds.XID] == [(48, "GPU-2")]
    second.record(xid(95, age_seconds=5 * DAY - 4000, replayed=True), at(5 * DAY))
    assert codes(second) == [48, 95]  # one from after the reset


def test_a_reset_while_no_agent_ran_is_seen_by_the_next_one() -> None:
    first = ledger()
    first.record(xid(95), at(10))
    bad_from_to(first, action(1), 11, 12)
    second = ledger()
    second.adopt(stored_of(first), EXPIRES, at(4000))
    second.record(xid(95, age_seconds=3990.0, replayed=True), at(4000))
    good_from(second, 4001, action(0))
    assert codes(second) == []


def test_names_are_found_later() -> None:
    book = ledger()
    book.record(xid(subject="PCI:0000:19:00"), at(10))
    bad_from_to(book, action(1, "GPU 3"), 11, 500)
    book.rename({"PCI:0000:19:00": GPU, "GPU 3": GPU})
    good_from(book, 600, action(0))
    assert codes(book) == []
    book.record(xid(age_seconds=700.0, replayed=True), at(700))
    assert codes(book) == []


def test_a_reset_is_renamed_with_its_gpu() -> None:
    book = ledger()
    book.reset("PCI:0000:19:00", 500, at(600))
    book.reset(GPU, 400, at(600))
    book.rename({"PCI:0000:19:00": GPU})
    (entry,) = book.entries()
    assert (entry.subject, entry.value) == (GPU, "500.000 s after the boot")
    book.record(xid(age_seconds=250.0), at(700))  # at 450
    assert codes(book) == []


def test_what_was_bad_goes_on_to_last_under_its_proper_name() -> None:
    book = ledger()
    lasting = Signal(kinds.GPU_UNREACHABLE, "GPU 3", bad=True, sustain_seconds=60.0)
    book.sample([lasting], at(10))
    book.rename({"GPU 3": GPU})
    book.sample([Signal(kinds.GPU_UNREACHABLE, GPU, bad=True, sustain_seconds=60.0)], at(70))
    assert book.has(kinds.GPU_UNREACHABLE, GPU)


def test_another_boot_knows_of_nothing() -> None:
    book = ledger()
    book.record(xid(), at(10))
    book.reset(GPU, 5, at(10))
    book.restart("boot-2")
    book.watch_resets(0.0)
    book.record(xid(), at(3))
    assert codes(book) == [95]


LINE = "NVRM: Xid (PCI:0000:11:00): 154, GPU recovery action changed from {} to {}"
NONE, ASKS, P2P = "0x0 (None)", "0x1 (GPU Reset Required)", "0x3 (Drain P2P)"


@pytest.mark.parametrize(
    ("line", "taken_back"),
    [
        (LINE.format(ASKS, NONE), True),
        (LINE.format("0x2 (Node Reboot Required)", NONE), True),
        (LINE.format(P2P, NONE), False),
        (LINE.format(NONE, ASKS), None),
        (LINE.format(ASKS, P2P), None),
        ("NVRM: Xid (PCI:0000:11:00): 154, GPU recovery action changed", None),
        ("NVRM: Xid (PCI:0000:11:00): 95, changed from 0x1 (GPU Reset Required) to 0x0 (None)", None),
    ],
)
def test_the_drivers_word_in_the_log(line: str, taken_back: bool | None) -> None:
    fact = parse(line)
    assert fact is not None
    assert recovery_taken_back(fact) is taken_back


def test_the_newest_word_of_the_driver_counts() -> None:
    book = ledger()
    for mono, text in ((10, "to drain"), (20, "to reset")):
        book.record(FaultEvent(kinds.XID, GPU, DAY, 154, message=text), at(mono))
    (entry,) = book.entries()
    assert entry.message == "to reset"
    book.expire(at(9 * DAY))
    assert codes(book) == [154]
    book.sample([action(0)], at(9 * DAY))  # whatever it asked for
    assert codes(book) == []


def test_the_driver_may_ask_and_be_done_before_anybody_asks_it() -> None:
    book = ledger()
    book.record(FaultEvent(kinds.XID, GPU, DAY, 154), at(10))
    book.sample([action(0)], at(20))
    assert codes(book) == [154]  # it may be about to say so there, too
    book.sample([action(0)], at(41))
    assert codes(book) == []


def kmsg(line: str) -> str:
    return f"3,1,{int(time.monotonic() * 1e6)},-;{line}"


def test_an_agent_tells_of_a_reset_and_what_it_ended(node: Any, run: Any) -> None:
    agent = run(thresholds={"xid.expires": 100.0})
    agent.wait_until_looking()
    node.log(kmsg("NVRM: Xid (PCI:0000:11:00): 95, pid=1, uncontained"))
    assert agent.wait_for(kinds.XID)["subject"] == GPU1
    node.faults("recovery_action=1@gpu1")
    agent.wait_for(kinds.RECOVERY_ACTION)
    agent.look_for(200.0)
    assert agent.about(kinds.XID)  # older than anything else may grow
    node.faults()
    assert agent.wait_for(kinds.GPU_RESET)["subject"] == GPU1
    agent.wait_until_gone(kinds.XID)


def test_an_agent_believes_the_log(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults("recovery_action=1@gpu1")
    node.log(kmsg("NVRM: Xid (PCI:0000:11:00): 95, pid=1, uncontained"), kmsg(LINE.format(NONE, ASKS)))
    agent.wait(lambda: {item["code"] for item in agent.about(kinds.XID)} >= {95, 154})
    node.log(kmsg(LINE.format(ASKS, NONE)))
    agent.wait_until_gone(kinds.XID)
    assert agent.about(kinds.GPU_RESET)


def test_a_driver_that_fails_altogether_proves_no_reset(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.log(kmsg("NVRM: Xid (PCI:0000:11:00): 95, pid=1, uncontained"))
    agent.wait_for(kinds.XID)
    node.faults("recovery_action=1@gpu1")
    agent.wait_for(kinds.RECOVERY_ACTION)
    for fault in ("every_call_fails=999", "gpu_fails=999@gpu1", "count=0", "hang_seconds=3600"):
        node.faults(fault, "recovery_action=1@gpu1")
        if fault == "hang_seconds=3600":
            for _ in range(2):
                agent.let_nvml_hang()
        else:
            agent.look_for(30.0)
        assert not agent.about(kinds.GPU_RESET), fault
        assert agent.about(kinds.XID), fault


@pytest.mark.parametrize(
    ("before", "since"),
    [
        pytest.param(stored(), 0, id="since the boot"),
        pytest.param({"agent": {"bootId": "boot-1", "resetsWatchedSince": 7}}, 7, id="since an agent before this one"),
        pytest.param({"agent": {"bootId": "boot-1"}}, None, id="an old agent saw none"),
        pytest.param({"agent": {"bootId": "boot-1", "resetsWatchedSince": True}}, None, id="nonsense"),
        pytest.param({}, None, id="nobody was there"),
    ],
)
def test_since_when_resets_are_seen_is_told(run: Any, before: dict[str, Any], since: int | None) -> None:
    agent = run(stored=before, clock=AgentClock(held=5000.25))
    agent.wait_until_looking()
    told = agent.status["agent"]["resetsWatchedSince"]
    assert told == (since if since is not None else 5001)
