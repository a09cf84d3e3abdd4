"""Whether the first node of a pair reaches the second one: what is told where it does, does not, or cannot be looked
at."""

import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.clock import Clock

from muster.node.checker.probes import outcome, reduce, ways
from muster.node.checker.probes.worker import Worker


class Store:
    """torch's, as far as it is asked."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def set(self, key: str, value: str) -> None:
        self.kept[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.kept for key in keys)

    def get(self, key: str) -> bytes:
        return self.kept[key]


@pytest.fixture
def port() -> int:
    """One that nobody has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_who_listens_is_reached_without_doing_anything_for_it(port: int) -> None:
    store = Store()
    listener = ways.listen(store, 1, "127.0.0.1", port)
    assert listener is not None
    assert ways.problem(store, 1, port) == ""
    listener.close()
    assert ways.problem(store, 1, port).startswith(f"no connection to 127.0.0.1 port {port}: ")


def test_who_drops_what_comes_in_is_given_up_in_time(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    monkeypatch.setattr(ways, "CONNECT_SECONDS", 0.2)
    # Whose queue is full answers no more, like a wall that drops.
    listener = ways.listen(store, 1, "127.0.0.1", port)
    assert listener is not None
    listener.listen(0)
    waiting = []
    for _ in range(4):
        each = socket.socket()
        each.setblocking(False)
        each.connect_ex(("127.0.0.1", port))
        waiting.append(each)
    # In the end the kernel gives up, too, and says "[Errno 110] Connection timed out".
    assert ways.problem(store, 1, port) == f"no connection to 127.0.0.1 port {port}: timed out"
    for each in (*waiting, listener):
        each.close()


def test_nothing_is_looked_at_where_somebody_has_the_port_or_the_second_is_older(
    port: int, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways, "time", SimpleNamespace(monotonic=clock, sleep=clock.advance))
    began = clock.now
    store = Store()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert ways.listen(store, 1, "127.0.0.1", port) is None
    assert ways.problem(store, 1, port) == ""
    assert clock.now == began, "nothing is waited for"
    assert ways.problem(Store(), 1, port) == ""
    assert clock.now == pytest.approx(began + ways.SAYS_SECONDS, abs=0.1)


class Sum:
    """A tensor of one number."""

    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def add_(self, more: float) -> "Sum":
        self.value += more
        return self

    def __getitem__(self, _: int) -> float:
        return self.value


@pytest.mark.parametrize(
    ("node_rank", "from_the_other", "listens", "words"),
    [
        (0, 0.0, True, ""),
        (0, 0.0, False, "connect: no connection to 127.0.0.2 port"),
        (1, 1.0, True, "connect: the other node of the pair cannot connect to this one"),
        (1, 0.0, False, "connect: no connection to 127.0.0.2 port"),
        (1, 0.0, True, ""),
    ],
)
def test_both_ends_tell_the_same_and_measure_nothing_where_one_is_not_reached(
    node_rank: int, from_the_other: float, listens: bool, words: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, steps = Store(), list[str]()
    other = socket.create_server(("127.0.0.2", port))  # another machine's address
    store.set(f"muster/way/{1 - node_rank}", "127.0.0.2")
    if not listens:
        other.close()
    monkeypatch.setattr(reduce, "_store", lambda *_: (store, "lo"))
    monkeypatch.setattr(reduce, "_measure", lambda *_: steps.append("measured") or {"wrong_words": 0})

    def all_reduce(tensor: Sum) -> None:
        tensor.add_(from_the_other)

    group = SimpleNamespace(
        init_process_group=lambda *_, **__: None, all_reduce=all_reduce, barrier=lambda: steps.append("left")
    )
    torch: Any = SimpleNamespace(distributed=group, zeros=lambda *_, **__: Sum())
    order = {"device": "cpu", "devices": [], "nodes": 2, "node_rank": node_rank, "master": "127.0.0.1", "port": port}
    worker = Worker(torch, {**order, "wait_seconds": 5, "sizes": [[4, 1]]}, 0, 1, 0, 0)
    say: Callable[[dict[str, Any]], None] = lambda _: None  # noqa: E731
    monkeypatch.setattr(worker, "send_line", say)
    if not words:
        assert reduce.all_reduce(worker)["world"] == 2
        assert steps == ["measured", "left"]
        other.close()
        return
    with pytest.raises(outcome.ProblemError) as found:
        reduce.all_reduce(worker)
    assert found.value.outcome == outcome.COULD_NOT_CONNECT
    assert str(found.value).startswith(words)
    assert steps == ["left"]  # the other one has its answer first
    other.close()
