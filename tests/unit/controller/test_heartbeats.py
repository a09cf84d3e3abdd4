"""How old heartbeats are, told from looks that lie far apart."""

import pytest

from muster.controller.heartbeats import KEPT_SECONDS, LeaseAges, Versions
from muster.fencing.ages import BREAK_SECONDS
from muster.kube.decode import NodeLease


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def leases(**versions: int) -> list[NodeLease]:
    return [NodeLease(node, f"renewal {version}", version) for node, version in versions.items()]


def test_what_is_not_newer_than_what_was_seen_had_been_written_by_then(clock: Clock) -> None:
    versions = Versions(clock)
    for version in (10, 20, 30):
        versions.seen(version)
        clock.now += 2.0
    written = [versions.written_by(version) for version in (5, 10, 11, 20, 30, 31)]
    assert written == [1000.0, 1000.0, 1002.0, 1002.0, 1004.0, clock.now]


def test_an_old_version_says_nothing_of_now(clock: Clock) -> None:
    """An answer that was long under way, and the same once more."""
    versions = Versions(clock)
    versions.seen(20)
    clock.now += 5.0
    versions.seen(10)
    versions.seen(20)
    assert (versions.written_by(10), versions.written_by(20)) == (1000.0, 1000.0)


def test_a_clock_that_goes_back_for_a_while_makes_nothing_older(clock: Clock) -> None:
    """It stands where the API server was last heard, once that has been silent for a while."""
    versions = Versions(clock)
    versions.seen(10)
    clock.now -= 5.0
    versions.seen(20)
    assert versions.written_by(20) == 1000.0


def test_what_is_kept_is_bounded_and_reaches_far_enough(clock: Clock) -> None:
    versions = Versions(clock)
    for version in range(20_000):
        versions.seen(version)
        clock.now += 2.0
    assert len(versions) <= 8192
    assert clock.now - versions.written_by(0) >= KEPT_SECONDS


def test_one_look_tells_how_long_a_node_has_been_silent(clock: Clock) -> None:
    """Nobody had looked at its lease since: the leader's own lease beside it tells how the counter went on."""
    ages = LeaseAges(clock)
    ages.note_leases(leases(n0=10, n1=11), 12)
    for version in range(14, 40, 2):
        clock.now += 2.0
        ages.versions.seen(version)
    ages.note_leases(leases(n0=14, n1=38), 39)
    assert (ages.age_seconds("n0"), ages.age_seconds("n1")) == (24.0, 0.0)
    assert ages.older_than(20.0) == ["n0"]


def test_a_new_leader_knows_what_it_saw_while_it_stood_by(clock: Clock) -> None:
    ages = LeaseAges(clock)
    for version in (10, 20, 30):
        ages.versions.seen(version)
        clock.now += 10.0
    ages.note_leases(leases(n0=9, n1=31), 32)
    assert (ages.age_seconds("n0"), ages.age_seconds("n1")) == (30.0, 0.0)
    assert not ages.has_renewed("n0"), "the first sight of a lease is no sign of life"


def test_between_two_looks_nobody_grows_older(clock: Clock) -> None:
    ages = LeaseAges(clock)
    ages.note_leases(leases(n0=10), 11)
    clock.now += 60.0
    assert ages.age_seconds("n0") == 0.0
    ages.note_leases(leases(n0=10), 12)
    assert ages.age_seconds("n0") == 60.0


def test_an_answer_is_as_old_as_its_question(clock: Clock) -> None:
    """What was renewed while the answer was under way is no silence."""
    ages = LeaseAges(clock)
    ages.note_leases(leases(n0=10), 11)
    clock.now += 30.0
    ages.note_leases(leases(n0=10), 12, under_way_seconds=12.0)
    assert ages.age_seconds("n0") == 18.0


def test_who_changes_something_else_in_a_lease_is_not_its_kubelet(clock: Clock) -> None:
    ages = LeaseAges(clock)
    ages.note_leases(leases(n0=10), 11)
    clock.now += 30.0
    labelled = NodeLease("n0", "renewal 10", 40)
    ages.note_leases([labelled], 41)
    assert (ages.age_seconds("n0"), ages.has_renewed("n0")) == (30.0, False)
    assert ages.lease("n0") == labelled


def test_a_server_whose_history_went_back_makes_nobody_silent(clock: Clock) -> None:
    ages = LeaseAges(clock)
    ages.note_leases(leases(n0=1000), 1001)
    clock.now += 30.0
    ages.note_leases(leases(n0=500), 501)
    assert ages.age_seconds("n0") == 0.0
    clock.now += 30.0
    ages.note_leases(leases(n0=500), 502)
    assert ages.age_seconds("n0") == 30.0


def test_a_lease_that_is_gone_is_no_silence(clock: Clock) -> None:
    ages = LeaseAges(clock)
    ages.note_leases(leases(n0=10, n1=11), 12)
    clock.now += 30.0
    ages.note_leases(leases(n1=11), 13)
    assert (ages.age_seconds("n0"), ages.lease("n0"), ages.older_than(20.0)) == (0.0, None, ["n1"])


def test_looks_that_miss_every_other_renewal_see_no_break(clock: Clock) -> None:
    """A kubelet renews every ten seconds, and is looked at every fifteen."""
    ages, begun = LeaseAges(clock), clock.now
    for second in range(301):
        clock.now = begun + second
        if second % 2 == 0:
            ages.versions.seen(1000 + second)
        if second % 15 == 0:
            ages.note_leases(leases(n0=1000 + second // 10 * 10), 1000 + second)
    assert 270.0 <= ages.beats.lasting_seconds("n0", begun) <= 300.0


def test_a_break_is_seen_whenever_one_looks(clock: Clock) -> None:
    ages = LeaseAges(clock)
    ages.note_leases(leases(n0=10), 11)
    began = clock.now
    for version in (20, 30, 40, 50):
        clock.now += (BREAK_SECONDS + 10.0) / 4
        ages.versions.seen(version)
    ages.note_leases(leases(n0=49), 51)
    clock.now += 10.0
    ages.note_leases(leases(n0=60), 61)
    assert ages.beats.lasting_seconds("n0", began) == 0.0
