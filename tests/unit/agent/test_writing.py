"""When the writer writes; and what it makes of an API server that is away, forgets or answers nonsense."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from muster.agent.client import ApiError
from muster.agent.earlier import stored_evidence
from muster.agent.thresholds import DEFAULTS, Thresholds
from muster.agent.writer import Pace, Writer

QUICK = Thresholds({**DEFAULTS.values, "write.pause": 0.2, "write.counts": 1.0, "write.check": 2.0})


class Server:
    """Stands in for the client."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {}
        self.applied: list[tuple[float, dict[str, Any]]] = []
        self.reads = 0
        self.away = False

    def read(self) -> dict[str, Any] | None:
        if self.away:
            raise ApiError("no answer: away")
        self.reads += 1
        return {"status": self.status}

    def apply(self, status: dict[str, Any]) -> None:
        if self.away:
            raise ApiError("no answer: away")
        self.status = status
        self.applied.append((time.monotonic(), status))


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def writer(server: Server) -> Writer:
    return Writer(server, QUICK, lambda _: None)  # type: ignore[arg-type]


def status(number: int) -> dict[str, Any]:
    return {"evidence": [{"kind": "Xid", "count": number}], "agent": {"version": "1"}}


def wait(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_news_is_written_at_once_and_never_faster_than_the_pause(server: Server, writer: Writer) -> None:
    writer.start()
    wait(lambda: server.reads == 1)
    for number in range(100):
        writer.offer(status(number), urgent=True)
        time.sleep(0.01)
    wait(lambda: server.status == status(99))
    moments = [moment for moment, _ in server.applied]
    assert all(later - earlier >= 0.2 for earlier, later in itertools.pairwise(moments))
    assert len(moments) >= 3


def test_counts_alone_wait(server: Server, writer: Writer) -> None:
    writer.start()
    writer.offer(status(1), urgent=True)
    wait(lambda: len(server.applied) == 1)
    for number in range(2, 30):
        writer.offer(status(number), urgent=False)
        time.sleep(0.01)
    wait(lambda: server.status == status(29))
    moments = [moment for moment, _ in server.applied]
    assert all(later - earlier >= 1.0 for earlier, later in itertools.pairwise(moments))


def test_news_does_not_wait_for_counts(server: Server) -> None:
    patient = Thresholds({**QUICK.values, "write.counts": 3600.0})
    writer = Writer(server, patient, lambda _: None)  # type: ignore[arg-type]
    writer.start()
    writer.offer(status(1), urgent=True)
    wait(lambda: len(server.applied) == 1)
    writer.offer(status(2), urgent=False)
    writer.offer(status(3), urgent=True)
    wait(lambda: server.status == status(3))


@pytest.mark.parametrize("every", [1.0, 29.0, 31.0, 360.0, 900.0])
def test_what_only_counts_is_written_ten_times_an_hour_at_most(every: float) -> None:
    pace, moments, now = Pace(DEFAULTS), list[float](), 0.0
    for _ in range(int(86400 / every)):
        now += every
        if now >= pace.due(urgent=False):
            pace.wrote(now, urgent=False)
            moments.append(now)
    assert max(sum(first <= other < first + 3600 for other in moments) for first in moments) <= 10
    assert len(moments) >= 24 * min(4.9, 3600 / every)
    assert moments[0] == every


def test_what_is_grave_never_waits_for_what_counts() -> None:
    pace = Pace(DEFAULTS)
    for number in range(5):
        pace.wrote(30.0 * number, urgent=False)
    assert pace.due(urgent=True) == 121.0
    assert pace.due(urgent=False) > 600.0


def test_while_the_server_is_away_the_newest_waits(server: Server, writer: Writer) -> None:
    writer.start()
    wait(lambda: server.reads == 1)
    server.away = True
    writer.offer(status(1), urgent=True)
    wait(lambda: writer.problem == "no answer: away")
    writer.offer(status(2), urgent=True)
    server.away = False
    wait(lambda: bool(server.applied))
    time.sleep(0.5)
    assert [found for _, found in server.applied] == [status(2)]
    assert writer.problem == ""


def test_nothing_is_written_before_the_object_was_read(server: Server, writer: Writer) -> None:
    server.away = True
    writer.start()
    writer.offer(status(1), urgent=True)
    wait(lambda: writer.errors >= 1)
    assert server.applied == []
    server.away = False
    wait(lambda: bool(server.applied))
    assert server.reads == 1


def test_an_object_that_somebody_deleted_is_made_again(server: Server, writer: Writer) -> None:
    writer.start()
    writer.offer(status(1), urgent=True)
    wait(lambda: len(server.applied) == 1)
    server.status = {}
    wait(lambda: len(server.applied) == 2)
    assert server.status == status(1)


def test_what_another_agent_wrote_is_let_be(server: Server, writer: Writer) -> None:
    writer.start()
    writer.offer(status(1), urgent=True)
    wait(lambda: len(server.applied) == 1)
    server.status = status(7)
    reads = server.reads
    wait(lambda: server.reads >= reads + 1)
    assert server.status == status(7)


GOOD = {"kind": "Xid", "firstSeen": "2026-01-01T00:00:00Z", "lastSeen": "2026-01-01T00:00:01.5Z", "bootId": "b"}


def test_stored_evidence_is_read() -> None:
    (found,) = stored_evidence({"evidence": [{**GOOD, "code": 79, "count": 2, "subject": "GPU-1"}]})
    assert (found.kind, found.code, found.count, found.subject, found.boot_id) == ("Xid", 79, 2, "GPU-1", "b")
    assert found.last_wall - found.first_wall == 1.5


@pytest.mark.parametrize(
    "item", [{}, None, 7, {**GOOD, "firstSeen": "yesterday"}, {**GOOD, "firstSeen": 7}, {**GOOD, "code": "x"}], ids=str
)
def test_stored_nonsense_is_left_out(item: Any) -> None:
    assert stored_evidence({"evidence": [item, GOOD]})[0].kind == "Xid"
    assert len(stored_evidence({"evidence": [item, GOOD]})) == 1
    assert stored_evidence({"evidence": None}) == []
