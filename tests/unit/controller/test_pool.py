"""Who may perform: a share for each namespace, room for one that has none, recoveries first."""

from muster.controller.pool import Pool


class Door:
    """A pool, and who was let in after a wait."""

    def __init__(self, passes: int, share: int) -> None:
        self.pool = Pool(passes, share)
        self.started: list[str] = []

    def wait(self, namespace: str, name: str, *, urgent: bool = False) -> None:
        self.pool.wait(namespace, urgent=urgent, start=lambda: self.started.append(name))


def test_no_namespace_has_more_than_its_share() -> None:
    pool = Pool(4, 2)
    assert [pool.enter("a") for _ in range(3)] == [True, True, False]
    assert [pool.enter("b") for _ in range(3)] == [True, True, False]


def test_a_namespace_with_nothing_under_way_is_let_in_though_the_pool_is_full() -> None:
    pool = Pool(2, 2)
    assert [pool.enter("a"), pool.enter("a"), pool.enter("b"), pool.enter("b"), pool.enter("c")] == [
        True,
        True,
        True,
        False,
        True,
    ]


def test_recoveries_go_first_whatever_their_namespace() -> None:
    door = Door(1, 1)
    assert door.pool.enter("a")
    door.wait("a", "start")
    door.wait("a", "recovery", urgent=True)
    door.pool.leave("a")
    assert door.started == ["recovery"]
    door.pool.leave("a")
    assert door.started == ["recovery", "start"]


def test_namespaces_take_turns() -> None:
    door = Door(2, 2)
    assert door.pool.enter("a")
    assert door.pool.enter("a")
    for number in range(3):
        door.wait("a", f"a{number}")
    assert door.pool.enter("b")
    for number in range(3):
        door.wait("b", f"b{number}")
    for namespace in ("a", "a", "b"):
        door.pool.leave(namespace)
    assert door.started == ["a0", "b0"] or door.started == ["a0", "b0", "a1"]
    assert door.pool.waiting == 6 - len(door.started)


def test_who_comes_later_does_not_pass_those_of_its_namespace_who_wait() -> None:
    door = Door(1, 1)
    assert door.pool.enter("a")
    door.wait("a", "first")
    assert not door.pool.enter("a")
    door.pool.leave("a")
    assert door.started == ["first"]
    assert door.pool.waiting == 0
