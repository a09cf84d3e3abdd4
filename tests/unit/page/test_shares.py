"""What a user of the page takes of the core, by a clock of the test and counted CPU."""

import asyncio

import pytest
from tests.unit.clock import Clock
from tests.unit.page.conftest import Ask, Fleet

from muster.page import shares
from muster.page.server import HANDSHAKE_SECONDS, UNKNOWN
from muster.page.shares import BURST_SECONDS, SHARE_OF_USER, Metered, Shares


class Requests:
    """Requests of one user, each of which takes so much of the core."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.slept = 0.0
        self.shares = Shares(self.clock, self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.clock.advance(seconds)

    async def ask(self, cost: float, times: int, user: str = "greedy") -> float:
        """Return for how long these requests waited."""
        before = self.slept
        for _ in range(times):
            assert await self.shares.wait_for_share(user)
            self.clock.advance(cost)
            self.shares.charge(user, cost)
        return self.slept - before


async def test_a_user_takes_its_share_and_no_more() -> None:
    requests = Requests()
    begun = requests.clock()
    await requests.ask(0.05, 2000)
    span = requests.clock() - begun
    allowed = SHARE_OF_USER * span + BURST_SECONDS + 0.05
    assert allowed >= 2000 * 0.05


async def test_a_reader_never_waits_beside_a_user_that_asks_all_the_time() -> None:
    requests = Requests()
    await requests.ask(0.05, 200)
    assert await requests.ask(0.1, 10, "anna") == 0.0
    requests.clock.advance(10.0)
    assert await requests.ask(0.1, 10, "anna") == 0.0, "a hundredth of a second each second, as a browser asks"


async def test_a_user_has_all_its_burst_again_after_a_quiet_time() -> None:
    requests = Requests()
    await requests.ask(0.05, 200)
    requests.clock.advance(BURST_SECONDS / SHARE_OF_USER + 1)
    assert await requests.ask(0.05, int(BURST_SECONDS / 0.05)) == 0.0


async def test_a_request_whose_client_has_gone_waits_no_longer() -> None:
    requests = Requests()
    requests.shares.charge("greedy", 100.0)
    assert not await requests.shares.wait_for_share("greedy", lambda: False)


def test_users_that_owe_nothing_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "MAX_ACCOUNTS", 8)
    requests = Requests()
    for number in range(100):
        requests.shares.charge(number, 0.1)
        requests.clock.advance(0.5)
    assert len(requests.shares._shares) <= 8


async def test_what_other_tasks_compute_is_not_counted() -> None:
    cpu, turn = Clock(), asyncio.Event()

    async def answer() -> str:
        cpu.advance(2.0)
        await turn.wait()
        cpu.advance(1.0)
        return "answer"

    answering = Metered(answer(), cpu)
    task = asyncio.ensure_future(_awaited(answering))
    await asyncio.sleep(0)
    cpu.advance(50.0)
    turn.set()
    assert await task == "answer"
    assert answering.seconds == 3.0


async def test_what_is_awaited_sees_errors_and_its_cancellation() -> None:
    async def refused() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await Metered(refused())
    seen: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = asyncio.ensure_future(_awaited(Metered(waits())))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert seen == ["cancelled"]


async def _awaited(answering: Metered[str] | Metered[None]) -> object:
    return await answering


async def test_only_the_requests_of_a_user_beyond_its_share_wait(fleet: Fleet, ask: Ask) -> None:
    anna, greedy = fleet.reviews.tenant("anna", "team-a"), fleet.reviews.tenant("greedy", "team-g")
    for token in (anna, greedy):
        assert (await ask("/api/jobs", token))[0] == 200
    fleet.page.shares = Shares(fleet.clock, fleet.sleep)
    fleet.page.shares.charge("greedy", BURST_SECONDS + 1.0)
    for _ in range(3):
        assert (await ask("/api/jobs", anna))[0] == 200
    assert fleet.sleeps == []
    assert (await ask("/api/jobs", greedy))[0] == 200
    assert sum(fleet.sleeps) == pytest.approx(1.0 / SHARE_OF_USER)


async def test_unknown_tokens_on_a_readers_connection_do_not_make_the_reader_wait(fleet: Fleet, ask: Ask) -> None:
    """A gateway sends a hostile user's requests over the connection of another one."""
    anna = fleet.reviews.tenant("anna", "team-a")
    assert (await ask("/api/jobs", anna))[0] == 200
    fleet.page.shares = Shares(fleet.clock, fleet.sleep)
    fleet.page.shares.charge(("anna", UNKNOWN), BURST_SECONDS + 1.0)
    assert (await ask("/api/jobs", anna))[0] == 200
    assert fleet.sleeps == []
    assert (await ask("/api/jobs", "no-token"))[0] == 401
    assert fleet.sleeps


async def test_each_answer_and_each_new_connection_is_charged(fleet: Fleet, ask: Ask) -> None:
    charged: list[tuple[object, float]] = []
    fleet.page.shares.charge = lambda user, seconds: charged.append((user, seconds))  # type: ignore[method-assign]
    for _ in range(2):
        assert (await ask("/api/jobs"))[0] == 200
    (_, handshake), (user, answer) = charged
    assert (handshake, user) == (HANDSHAKE_SECONDS, "admin")
    assert answer > 0
