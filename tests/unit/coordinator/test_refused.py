"""Workers whose tokens are refused: who counts, and what a tenant, or anybody on the network, cannot make count."""

from typing import Any

import jwt
import pytest
from tests.unit.clock import Clock

from muster.coordinator import refused
from muster.coordinator.auth import AuthError, Caller
from muster.coordinator.http import Head
from muster.coordinator.hub import Hub
from muster.coordinator.refused import FORGOTTEN_SECONDS, REFUSED_SECONDS, RefusedWorkers, Scope
from muster.coordinator.server import CoordinatorServer
from muster.protocol.checks import CHECK_PATH
from muster.protocol.messages import REPORT_PATH

WORKER = Caller("team", "worker-0", "pod-uid", "node-1", "node-uid")


def refuse_for(workers: RefusedWorkers, clock: Clock, seconds: float) -> None:
    """The worker asks every second, as a launcher does."""
    for _ in range(int(seconds)):
        workers.refuse(WORKER, "the token is not valid", clock(), is_proven=True)
        clock.advance(1.0)


def of_namespace(workers: RefusedWorkers, clock: Clock) -> int:
    return workers.count(clock(), {})[Scope.NAMESPACE]


def refused_workers(clock: Clock, *, is_proven: bool = True, **by_namespace: int) -> RefusedWorkers:
    """So many workers of each namespace ask every second for more than half a minute, and are refused."""
    workers = RefusedWorkers()
    for _ in range(int(REFUSED_SECONDS) + 1):
        for namespace, number in by_namespace.items():
            for index in range(number):
                caller = Caller(namespace, f"worker-{index}", f"{namespace}-{index}", "node-1", "node-uid")
                workers.refuse(caller, "the token is not valid", clock(), is_proven=is_proven)
        clock.advance(1.0)
    return workers


def counts(fleet: int = 0, namespace: int = 0, unproven: int = 0) -> dict[Scope, int]:
    return {Scope.FLEET: fleet, Scope.NAMESPACE: namespace, Scope.UNPROVEN: unproven}


def test_a_worker_counts_once_it_was_refused_for_so_long(clock: Clock) -> None:
    workers = RefusedWorkers()
    refuse_for(workers, clock, REFUSED_SECONDS - 1)
    assert of_namespace(workers, clock) == 0
    refuse_for(workers, clock, 2)
    assert of_namespace(workers, clock) == 1


def test_a_worker_that_is_accepted_meanwhile_does_not_count(clock: Clock) -> None:
    """Whoever knows its uid sends refused tokens in its name all the time."""
    workers = RefusedWorkers()
    for _ in range(30):
        refuse_for(workers, clock, 10)
        workers.accept(WORKER.pod_uid)
        refuse_for(workers, clock, 10)
        assert of_namespace(workers, clock) == 0


def test_a_worker_that_asks_no_more_is_forgotten(clock: Clock) -> None:
    workers = RefusedWorkers()
    refuse_for(workers, clock, REFUSED_SECONDS + 1)
    assert of_namespace(workers, clock) == 1
    clock.advance(FORGOTTEN_SECONDS)
    assert of_namespace(workers, clock) == 0


def test_other_pods_that_know_every_workers_uid_raise_no_alert(clock: Clock) -> None:
    """They send bad tokens with the claims of each worker, from their own addresses."""
    workers = refused_workers(clock, is_proven=False, one=40, two=40)
    assert workers.count(clock(), {"one": 5, "two": 5}) == counts(unproven=80)
    assert of_namespaces() == {}


def test_another_pod_does_not_make_a_workers_own_refusals_last(clock: Clock) -> None:
    workers = RefusedWorkers()
    for _ in range(int(REFUSED_SECONDS) + 1):
        workers.refuse(WORKER, "the token is not valid", clock(), is_proven=False)
        clock.advance(1.0)
    workers.refuse(WORKER, "the token has expired", clock(), is_proven=True)
    assert workers.count(clock(), {}) == counts(unproven=1)


@pytest.mark.parametrize("others", [{}, {"hostile": 60}, {"honest": 2}, {"honest": 20, "third": 20}])
def test_one_namespace_pages_nobody_but_its_own_people(clock: Clock, others: dict[str, int]) -> None:
    """It has most workers of the fleet, or all of them, and has all of them send bad tokens."""
    workers = refused_workers(clock, hostile=60)
    assert workers.count(clock(), others) == counts(namespace=60)
    assert of_namespaces() == {"hostile": 60.0}
    clock.advance(FORGOTTEN_SECONDS)
    assert workers.count(clock(), others) == counts()
    assert of_namespaces() == {}


def of_namespaces() -> dict[str, float]:
    """What is published of each namespace."""
    (published,) = refused._refused_of_namespace.collect()
    return {sample.labels["namespace"]: sample.value for sample in published.samples}


def test_one_namespace_and_a_few_workers_of_another_raise_no_alert(clock: Clock) -> None:
    workers = refused_workers(clock, hostile=60, honest=20)
    assert workers.count(clock(), {"hostile": 60, "honest": 40}) == counts(namespace=80)


def test_a_few_workers_of_a_large_namespace_count_for_it_though_it_has_most_of_them(clock: Clock) -> None:
    """Else its people's alert would be silent for the fleet's, which needs more than half of all workers."""
    workers = refused_workers(clock, large=10, small=6)
    assert workers.count(clock(), {"large": 1000, "small": 10}) == counts(namespace=16)


@pytest.mark.parametrize(
    ("by_namespace", "expected"),
    [
        ({"large": 90, "small": 10}, {"large": 90, "small": 10}),  # the API server's keys were changed
        ({"large": 90, "small": 10}, {}),  # and their pods have been replaced since
    ],
)
def test_workers_of_all_namespaces_count_for_the_fleet(
    clock: Clock, by_namespace: dict[str, int], expected: dict[str, int]
) -> None:
    workers = refused_workers(clock, **by_namespace)
    assert workers.count(clock(), expected) == counts(fleet=sum(by_namespace.values()))


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

    def __init__(self, host: str) -> None:
        self.host = host

    def refuse(self, status: int, body: bytes) -> None:
        pass


def token_of(uid: str) -> str:
    bound = {"namespace": "team", "pod": {"name": "worker-0", "uid": uid}, "node": {"name": "n", "uid": "n"}}
    return "Bearer " + jwt.encode({"kubernetes.io": bound}, "anybody's" * 8, algorithm="HS256")


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    noted: list[tuple[str, bool]] = []

    def refuse(_: RefusedWorkers, worker: Caller, problem: str, now: float, *, is_proven: bool) -> None:
        noted.append((worker.pod_uid, is_proven))

    monkeypatch.setattr(RefusedWorkers, "refuse", refuse)
    return noted


async def ask(authorization: str, path: str = REPORT_PATH, verifier: Any = None, host: str = "10.0.0.7") -> None:
    server = CoordinatorServer(
        Hub(),
        verifier or Verifier(),
        lambda _: None,
        lambda caller: caller.pod_uid == "pod-uid",
        lambda: "",
        addresses_of=lambda caller: {"10.0.0.7", "192.168.0.1"},
    )
    connection: Any = Refused(host)
    await server._identify(connection, Head("POST", path, 2, authorization, keep=True))


@pytest.mark.parametrize(("host", "is_proven"), [("10.0.0.7", True), ("192.168.0.1", True), ("10.0.0.8", False)])
async def test_a_refused_token_of_a_worker_is_noted_with_whether_it_came_from_there(
    noted: list[tuple[str, bool]], host: str, is_proven: bool
) -> None:
    await ask(token_of("pod-uid"), host=host)
    assert noted == [("pod-uid", is_proven)]


@pytest.mark.parametrize("authorization", ["", "Bearer nonsense", token_of("another-uid")])
async def test_refusals_of_others_raise_no_count(noted: list[tuple[str, bool]], authorization: str) -> None:
    await ask(authorization)
    assert noted == []


async def test_what_is_no_report_of_a_worker_raises_no_count(noted: list[tuple[str, bool]]) -> None:
    await ask(token_of("pod-uid"), CHECK_PATH)
    assert noted == []


async def test_keys_that_cannot_be_read_are_no_refusal(noted: list[tuple[str, bool]]) -> None:
    verifier = Verifier()
    verifier.status = 503
    await ask(token_of("pod-uid"), verifier=verifier)
    assert noted == []
