"""Jobs for which others were asked to leave: who pays, and when."""

import pytest

from muster.controller.awaitedpreemptors import AwaitedPreemptors

KEY = ("ns", "urgent")
PAYS = [("ns", "uid")]


class Awaited:
    """One job for which another one leaves, with a clock and what is charged."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.charged: list[tuple[str, str]] = []
        self._preemptors = AwaitedPreemptors(lambda: self.seconds, lambda *job: self.charged.append(job))
        self.expect()

    def expect(self) -> None:
        self._preemptors.expect(KEY, "uid")

    def check(self, job_uid: str = "uid", *, holds_nodes: bool = False, has_begun: bool = False) -> None:
        self._preemptors.check(KEY, job_uid, holds_nodes=holds_nodes, has_begun=has_begun)

    @property
    def is_awaited(self) -> bool:
        return KEY in self._preemptors


@pytest.mark.parametrize(
    ("seconds", "has_begun", "charged"),
    [(599.0, False, []), (600.0, False, PAYS), (599.0, True, []), (600.0, True, [])],
)
def test_who_does_not_begin_in_time_pays_once(seconds: float, has_begun: bool, charged: list[tuple[str, str]]) -> None:
    awaited = Awaited()
    awaited.seconds += 5000.0
    awaited.check()
    awaited.check(holds_nodes=True)
    awaited.seconds += seconds
    for _ in range(2):
        awaited.check(holds_nodes=True, has_begun=has_begun)
    assert (awaited.charged, awaited.is_awaited) == (charged, not (charged or has_begun))


def test_who_loses_its_nodes_meanwhile_does_not_pay() -> None:
    awaited = Awaited()
    awaited.check(holds_nodes=True)
    awaited.seconds += 900.0
    awaited.check(holds_nodes=False)
    assert not awaited.charged
    awaited.check(holds_nodes=True)
    awaited.seconds += 600.0
    awaited.check(holds_nodes=True)
    assert awaited.charged == PAYS


@pytest.mark.parametrize("other", ["", "another"])
def test_who_wants_no_nodes_any_more_pays(other: str) -> None:
    awaited = Awaited()
    awaited.check(other)
    assert awaited.charged == PAYS


def test_the_time_of_one_for_which_another_job_leaves_too_does_not_begin_anew() -> None:
    awaited = Awaited()
    awaited.check(holds_nodes=True)
    awaited.seconds += 600.0
    awaited.expect()
    awaited.check(holds_nodes=True)
    assert awaited.charged == PAYS
