"""The beat: what the loop said last, and that it stands still when it says nothing any more."""

import asyncio
import urllib.error
import urllib.request

import pytest
from tests.unit.clock import Clock

from localcluster.patience import PATIENCE_SECONDS
from muster.coordinator import probes
from muster.coordinator.probes import STANDS_STILL_SECONDS, LoopHeartbeat
from muster.serve import Server


def ask(server: Server, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize(("wrong", "status"), [("", 200), ("informer gangs is stale", 503)])
def test_probes_say_what_the_loop_said(wrong: str, status: int) -> None:
    server = Server(("127.0.0.1", 0), LoopHeartbeat(lambda: wrong, lambda: wrong, Clock()).endpoints())
    for path in ("/healthz", "/readyz"):
        assert ask(server, path) == (status, f"{wrong or 'ok'}\n")
    assert ask(server, "/metrics")[0] == 404
    server.close()


def test_a_loop_that_stands_still_fails_both_probes_until_it_turns_again() -> None:
    clock = Clock()
    beat = LoopHeartbeat(str, str, clock)
    server = Server(("127.0.0.1", 0), beat.endpoints())
    clock.advance(STANDS_STILL_SECONDS)
    assert ask(server, "/healthz") == (200, "ok\n")
    clock.advance(1)
    for path in ("/healthz", "/readyz"):
        assert ask(server, path) == (503, "the event loop has stood still for 11 s\n")
    beat.write()
    assert ask(server, "/healthz") == (200, "ok\n")
    server.close()


def test_the_probes_thread_calls_nothing_of_the_loops() -> None:
    problems = ["first"]
    beat = LoopHeartbeat(lambda: problems[0], lambda: problems[0], Clock())
    problems[0] = "second"
    assert (beat.not_healthy(), beat.not_ready()) == ("first", "first")
    beat.write()
    assert (beat.not_healthy(), beat.not_ready()) == ("second", "second")


async def test_the_loop_writes_it_by_itself_and_one_that_is_blocked_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "BEAT_SECONDS", 0.01)
    clock = Clock()
    beat = LoopHeartbeat(str, str, clock)
    server = Server(("127.0.0.1", 0), beat.endpoints())
    async with beat.running():
        clock.advance(60)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await asyncio.to_thread(ask, server, "/healthz") != (200, "ok\n"):
                pass
        clock.advance(60)
        assert ask(server, "/healthz")[0] == 503, "this call blocks the loop, and is answered all the same"
    server.close()
