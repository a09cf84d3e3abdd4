"""Workers whose tokens are refused: who counts, and what anybody on the network cannot make count."""

from typing import Any

import jwt
import pytest
from tests.unit.clock import Clock

from muster.coordinator.auth import AuthError, Caller
from muster.coordinator.http import Head
from muster.coordinator.hub import Hub
from muster.coordinator.refused import FORGOTTEN_SECONDS, REFUSED_SECONDS, RefusedWorkers
from muster.coordinator.server import CoordinatorServer
from muster.protocol.checks import CHECK_PATH
from muster.protocol.messages import REPORT_PATH

WORKER = Caller("team", "worker-0", "pod-uid", "node-1", "node-uid")


def refuse_for(workers: RefusedWorkers, clock: Clock, seconds: float) -> None:
    """The worker asks every second, as a launcher does."""
    for _ in range(int(seconds)):
        workers.refuse(WORKER, "the token is not valid", clock())
        clock.advance(1.0)


def test_a_worker_counts_once_it_was_refused_for_so_long(clock: Clock) -> None:
    workers = RefusedWorkers()
    refuse_for(workers, clock, REFUSED_SECONDS - 1)
    assert workers.count(clock()) == 0
    refuse_for(workers, clock, 2)
    assert workers.count(clock()) == 1


def test_a_worker_that_is_accepted_meanwhile_does_not_count(clock: Clock) -> None:
    """Whoever knows its uid sends refused tokens in its name all the time."""
    workers = RefusedWorkers()
    for _ in range(30):
        refuse_for(workers, clock, 10)
        workers.accept(WORKER.pod_uid)
        refuse_for(workers, clock, 10)
        assert workers.count(clock()) == 0


def test_a_worker_that_asks_no_more_is_forgotten(clock: Clock) -> None:
    workers = RefusedWorkers()
    refuse_for(workers, clock, REFUSED_SECONDS + 1)
    assert workers.count(clock()) == 1
    clock.advance(FORGOTTEN_SECONDS)
    assert workers.count(clock()) == 0


class Verifier:
    """Refuses every token, as the API server's new keys would."""

    status = 401

    def known(self, authorization: str) -> None:
        return None

    async def verify(self, authorization: str) -> Caller:
        raise AuthError("the token is signed with a key that the API server does not publish", self.status)


class Refused:
    """A connection that is refused."""

    is_open = True

    def refuse(self, status: int, body: bytes) -> None:
        pass


def token_of(uid: str) -> str:
    bound = {"namespace": "team", "pod": {"name": "worker-0", "uid": uid}, "node": {"name": "n", "uid": "n"}}
    return "Bearer " + jwt.encode({"kubernetes.io": bound}, "anybody's" * 8, algorithm="HS256")


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    noted: list[str] = []
    monkeypatch.setattr(RefusedWorkers, "refuse", lambda _, worker, problem, now: noted.append(worker.pod_uid))
    return noted


async def ask(authorization: str, path: str = REPORT_PATH, verifier: Any = None) -> None:
    server = CoordinatorServer(
        Hub(), verifier or Verifier(), lambda _: None, lambda caller: caller.pod_uid == "pod-uid", lambda: ""
    )
    connection: Any = Refused()
    await server._identify(connection, Head("POST", path, 2, authorization, keep=True))


async def test_a_refused_token_of_a_worker_is_noted(noted: list[str]) -> None:
    await ask(token_of("pod-uid"))
    assert noted == ["pod-uid"]


@pytest.mark.parametrize("authorization", ["", "Bearer nonsense", token_of("another-uid")])
async def test_refusals_of_others_raise_no_count(noted: list[str], authorization: str) -> None:
    await ask(authorization)
    assert noted == []


async def test_what_is_no_report_of_a_worker_raises_no_count(noted: list[str]) -> None:
    await ask(token_of("pod-uid"), CHECK_PATH)
    assert noted == []


async def test_keys_that_cannot_be_read_are_no_refusal(noted: list[str]) -> None:
    verifier = Verifier()
    verifier.status = 503
    await ask(token_of("pod-uid"), verifier=verifier)
    assert noted == []
