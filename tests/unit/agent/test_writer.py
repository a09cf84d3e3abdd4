"""When the writer writes; and what it makes of an API server that is away, forgets or answers nonsense."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.clock import Clock

from localcluster.patience import PATIENCE_SECONDS
from muster.node.agent.client import ApiError
from muster.node.agent.earlier import stored_evidence
from muster.node.agent.thresholds import DEFAULTS, Thresholds
from muster.node.agent.writer import Pace, Writer

BEGIN = 1000.0
"""What the clock says at first."""
QUICK = Thresholds({**DEFAULTS.values, "write.pause": 0.2, "write.counts": 1.0, "write.check": 2.0})


class Server:
    """Stands in for the client; keeps what was written, and when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.status: dict[str, Any] = {}
        self.applied: list[tuple[float, dict[str, Any]]] = []
        self.reads = 0
        self.away = False
        self.status_of_refusal = 0

    def read(self) -> dict[str, Any] | None:
        if self.away:
            raise ApiError("no answer: away")
        self._refuse()
        self.reads += 1
        return {"status": self.status}

    def apply(self, status: dict[str, Any]) -> None:
        if self.away:
            raise ApiError("no answer: away")
        self._refuse()
        self.status = status
        self.applied.append((self._clock.now - BEGIN, status))

    def _refuse(self) -> None:
        if self.status_of_refusal:
            raise ApiError("no", self.status_of_refusal)


class TimeIsUpError(Exception):
    """The simulated time has passed."""


class Simulation:
    """A writer's thread in the test's own, in simulated time: the clock moves only where the writer waits or sleeps.

    It stands in for the writer's condition.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = 0.0
        self._events: list[tuple[float, Callable[[], None]]] = []

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        """Something that happens so long after the begin, while the writer waits."""
        self._events.append((BEGIN + seconds, act))

    def run(self, writer: Writer, seconds: float) -> None:
        """The writer's thread, from its begin."""
        self._events.sort(key=lambda event: event[0])
        self._until = BEGIN + seconds
        writer._changed = self  # type: ignore[assignment]
        with pytest.raises(TimeIsUpError):
            writer._run()

    def wait(self, seconds: float) -> None:
        """Until something happens, or the time has passed."""
        end = self._clock.now + seconds
        if self._events and self._events[0][0] <= end:
            moment, act = self._events.pop(0)
            self._move(max(self._clock.now, moment))
            act()
        else:
            self._move(end)

    def sleep(self, seconds: float) -> None:
        """While it sleeps, things happen."""
        end = self._clock.now + seconds
        while self._clock.now < end:
            self.wait(end - self._clock.now)

    def _move(self, moment: float) -> None:
        if moment > self._until:
            raise TimeIsUpError
        self._clock.now = moment

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def notify_all(self) -> None: ...


@pytest.fixture
def server(clock: Clock) -> Server:
    return Server(clock)


@pytest.fixture
def simulation(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    monkeypatch.setattr("muster.node.agent.writer.random.uniform", lambda _least, most: most)
    return Simulation(clock)


@pytest.fixture
def make(server: Server, clock: Clock, simulation: Simulation) -> Callable[..., Writer]:
    """`make(thresholds)`: a writer in simulated time."""

    def writer(thresholds: Thresholds = QUICK) -> Writer:
        return Writer(server, thresholds, lambda _: None, clock, simulation.sleep)  # type: ignore[arg-type]

    return writer


@pytest.fixture
def writer(make: Callable[..., Writer]) -> Writer:
    return make()


def status(number: int) -> dict[str, Any]:
    return {"evidence": [{"kind": "Xid", "count": number}], "agent": {"version": "1"}}


def test_the_thread_of_a_writer_writes(server: Server) -> None:
    writer = Writer(server, QUICK, lambda _: None)  # type: ignore[arg-type]
    writer.start()
    writer.offer(status(1), urgent=True)
    until = time.monotonic() + PATIENCE_SECONDS
    while server.status != status(1):
        assert time.monotonic() < until
        time.sleep(0.005)
    assert writer.is_alive()


def test_news_is_written_at_once_and_never_faster_than_the_pause(
    server: Server, writer: Writer, simulation: Simulation
) -> None:
    for number in range(100):
        simulation.at((number + 50) / 100, lambda number=number: writer.offer(status(number), urgent=True))
    simulation.run(writer, 10.0)
    moments = [moment for moment, _ in server.applied]
    assert moments == pytest.approx([0.5, 0.7, 0.9, 1.1, 1.3, 1.5])
    assert server.applied[0][1] == status(0)
    assert server.status == status(99)


def test_counts_alone_wait(server: Server, writer: Writer, simulation: Simulation) -> None:
    simulation.at(0.5, lambda: writer.offer(status(1), urgent=True))
    for number in range(2, 30):
        simulation.at(0.5 + number / 20, lambda number=number: writer.offer(status(number), urgent=False))
    simulation.run(writer, 10.0)
    moments = [moment for moment, _ in server.applied]
    assert moments == pytest.approx([0.5, 1.5, 2.5])
    assert server.status == status(29)


def test_news_does_not_wait_for_counts(server: Server, make: Callable[..., Writer], simulation: Simulation) -> None:
    writer = make(Thresholds({**QUICK.values, "write.counts": 3600.0}))
    simulation.at(1.0, lambda: writer.offer(status(1), urgent=True))
    simulation.at(2.0, lambda: writer.offer(status(2), urgent=False))
    simulation.at(3.0, lambda: writer.offer(status(3), urgent=True))
    simulation.run(writer, 10.0)
    assert server.applied == [(1.0, status(1)), (3.0, status(3))]


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


def test_while_the_server_is_away_the_newest_waits(server: Server, writer: Writer, simulation: Simulation) -> None:
    problems: list[str] = []

    def come_back() -> None:
        problems.append(writer.problem)
        server.away = False

    simulation.at(1.0, lambda: setattr(server, "away", True))
    simulation.at(2.0, lambda: writer.offer(status(1), urgent=True))
    simulation.at(2.1, lambda: writer.offer(status(2), urgent=True))
    simulation.at(3.5, come_back)
    simulation.run(writer, 60.0)
    assert problems == ["no answer: away"]
    assert [found for _, found in server.applied] == [status(2)]
    assert writer.problem == ""


def test_nothing_is_written_before_the_object_was_read(server: Server, writer: Writer, simulation: Simulation) -> None:
    server.away = True
    before: list[int] = []

    def come_back() -> None:
        before.append(len(server.applied))
        server.away = False

    writer.offer(status(1), urgent=True)
    simulation.at(0.5, come_back)
    simulation.run(writer, 1.9)
    assert before == [0]
    assert (writer.errors, writer.refused) == (1, 0)
    assert [found for _, found in server.applied] == [status(1)]
    assert server.reads == 1


@pytest.mark.parametrize(
    ("status_code", "is_refusal"),
    [(401, True), (403, True), (404, True), (422, True), (429, False), (500, False), (503, False)],
)
def test_what_the_api_server_refuses_is_counted_apart(
    server: Server, writer: Writer, simulation: Simulation, status_code: int, is_refusal: bool
) -> None:
    server.status_of_refusal = status_code
    writer.offer(status(1), urgent=True)
    simulation.run(writer, 5.0)
    assert writer.errors > 0
    assert writer.refused == (writer.errors if is_refusal else 0)


def test_refusals_last_until_a_request_is_carried_out(server: Server, writer: Writer, simulation: Simulation) -> None:
    seen: list[float] = []
    simulation.at(1.0, lambda: setattr(server, "status_of_refusal", 403))
    simulation.at(100.0, lambda: seen.append(writer.refused_seconds))  # nothing to write: the checks are refused
    simulation.at(101.0, lambda: setattr(server, "away", True))
    simulation.at(300.0, lambda: seen.append(writer.refused_seconds))
    simulation.at(301.0, lambda: setattr(server, "status_of_refusal", 0))
    simulation.at(302.0, lambda: setattr(server, "away", False))
    simulation.run(writer, 400.0)
    assert 60.0 < seen[0] <= seen[1] < 101.0
    assert writer.refused_seconds == 0.0


def test_a_server_that_is_away_refuses_nothing(server: Server, writer: Writer, simulation: Simulation) -> None:
    simulation.at(1.0, lambda: setattr(server, "away", True))
    simulation.at(2.0, lambda: writer.offer(status(1), urgent=True))
    simulation.run(writer, 600.0)
    assert writer.errors > 0
    assert writer.refused_seconds == 0.0


def test_an_object_that_somebody_deleted_is_made_again(server: Server, writer: Writer, simulation: Simulation) -> None:
    writer.offer(status(1), urgent=True)
    simulation.at(1.0, lambda: setattr(server, "status", {}))
    simulation.run(writer, 3.0)
    assert server.applied == [(0.0, status(1)), (2.0, status(1))]
    assert server.status == status(1)


def test_what_another_agent_wrote_is_let_be(server: Server, writer: Writer, simulation: Simulation) -> None:
    writer.offer(status(1), urgent=True)
    simulation.at(1.0, lambda: setattr(server, "status", status(7)))
    simulation.run(writer, 10.0)
    assert server.reads == 6
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
