"""Who may perform: a share for each namespace, room for one that has none, recoveries first."""

from collections import Counter
from collections.abc import ValuesView

from muster.controller.pool import Pool


class Door:
    """A pool, and who was let in after a wait."""

    def __init__(self, passes: int, share: int) -> None:
        self.pool = Pool(passes, share)
        self.started: list[str] = []

    def wait(self, namespace: str, name: str, *, urgent: bool = False) -> None:
        self.pool.wait(namespace, urgent=urgent, start=lambda: self.started.append(name))


def test_no_namespace_has_more_than_its_share() -> None:
    pool = Pool(8, 2)
    assert [pool.enter("a", urgent=False) for _ in range(3)] == [True, True, False]
    assert [pool.enter("b", urgent=False) for _ in range(3)] == [True, True, False]


def test_a_namespace_with_nothing_under_way_is_let_in_though_the_pool_is_full() -> None:
    pool = Pool(2, 2)
    assert [
        pool.enter("a", urgent=False),
        pool.enter("a", urgent=False),
        pool.enter("b", urgent=False),
        pool.enter("b", urgent=False),
        pool.enter("c", urgent=False),
    ] == [
        True,
        True,
        True,
        False,
        True,
    ]


def test_recoveries_go_first_whatever_their_namespace() -> None:
    door = Door(1, 1)
    assert door.pool.enter("a", urgent=False)
    door.wait("a", "start")
    door.wait("a", "recovery", urgent=True)
    door.pool.release("a")
    assert door.started == ["recovery"]
    door.pool.release("a")
    assert door.started == ["recovery", "start"]


def test_namespaces_take_turns() -> None:
    door = Door(2, 2)
    assert door.pool.enter("a", urgent=False)
    assert door.pool.enter("a", urgent=False)
    for number in range(3):
        door.wait("a", f"a{number}")
    assert door.pool.enter("b", urgent=False)
    for number in range(3):
        door.wait("b", f"b{number}")
    for namespace in ("a", "a", "b"):
        door.pool.release(namespace)
    assert door.started == ["a0", "b0"] or door.started == ["a0", "b0", "a1"]
    assert door.pool.waiting == 6 - len(door.started)


def test_who_comes_later_does_not_pass_those_of_its_namespace_who_wait() -> None:
    door = Door(1, 1)
    assert door.pool.enter("a", urgent=False)
    door.wait("a", "first")
    assert not door.pool.enter("a", urgent=False)
    door.pool.release("a")
    assert door.started == ["first"]
    assert door.pool.waiting == 0


def test_first_starts_leave_room_for_recoveries() -> None:
    door = Door(16, 8)
    assert [door.pool.enter("a", urgent=False) for _ in range(8)] == [True] * 6 + [False] * 2
    for number in range(3):
        door.wait("a", f"start {number}")
    assert door.started == []
    door.wait("a", "recovery", urgent=True)
    assert door.started == ["recovery"]
    assert [door.pool.enter("b", urgent=False) for _ in range(6)] == [True] * 5 + [False], "12 of all 16"
    assert [door.pool.enter("b", urgent=True) for _ in range(4)] == [True] * 3 + [False], "its share is 8"
    assert [door.pool.enter("c", urgent=urgent) for urgent in (False, False, True)] == [True, False, False]
    door.pool.release("a")
    assert door.started == ["recovery"]


def test_many_namespaces_are_not_added_up_for_each_of_them() -> None:
    """A tenant with a thousand namespaces and a slow webhook: adding up takes a million steps for each pass that
    ends."""
    pool, added_up = Pool(), list[str]()

    class Held(Counter[str]):
        def values(self) -> ValuesView[int]:
            added_up.append("all")
            return super().values()

    pool._held = Held()
    namespaces = [str(number) for number in range(100)]
    assert all(pool.enter(namespace, urgent=False) for namespace in namespaces)
    for namespace in namespaces:
        pool.wait(namespace, urgent=False, start=lambda: None)
    pool.release("0")
    assert (pool.waiting, added_up) == (99, [])
