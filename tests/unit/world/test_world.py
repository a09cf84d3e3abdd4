"""Views: whose pod is whose, what counts as dead, and when silence is everybody's."""

from dataclasses import replace

import pytest
from tests.unit.lifecycle.builders import Scene, a_fleet, a_job, a_node, running

from muster.world.fleet import SilentShare
from muster.world.names import gang_name, pod_name, shortened
from muster.world.views import ContainerView

ENDED = ContainerView("main", terminated=True, exit_code=0)


def test_names_are_the_job_s_own_for_ever() -> None:
    assert pod_name("job", "u1", 2, 3) == f"{gang_name('job', 'u1')}-2-3"
    assert gang_name("job", "u1") == gang_name("job", "u1")
    assert gang_name("job", "u1") != gang_name("job", "u2")


@pytest.mark.parametrize(
    ("changes", "ours"),
    [
        ({}, True),
        ({"owner_uid": "another"}, False),
        ({"uid": "another"}, False),
    ],
)
def test_a_pod_is_a_members_only_if_owner_and_uid_agree(changes: dict[str, str], ours: bool) -> None:
    world = Scene(a_job()).fleet().gang().pods().all(running(1)).pod(1, **changes).world()
    worker_view = world.worker_views[1]
    assert (worker_view.pod is not None) == ours
    assert (worker_view.launcher is not None) == ours
    assert worker_view.node is not None


@pytest.mark.parametrize(
    ("changes", "dead"),
    [
        ({"phase": "Failed", "containers": (ENDED,)}, True),
        ({"phase": "Running", "containers": (ENDED,)}, False),
        ({"phase": "Failed", "containers": (ENDED, ContainerView("side", running=True))}, False),
        ({"phase": "Failed", "containers": ()}, False),
    ],
)
def test_dead_is_what_the_kubelet_says_of_every_container(changes: dict[str, object], dead: bool) -> None:
    (pod,) = Scene(a_job(nodes=1)).gang().pods().pod_views.values()
    assert replace(pod, **changes).containers_dead == dead  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("silent", "total", "widespread"), [(0, 0, False), (2, 2, False), (3, 6, False), (3, 5, True), (100, 101, True)]
)
def test_silence_of_most_is_not_their_fault(silent: int, total: int, widespread: bool) -> None:
    assert SilentShare(silent, total).widespread == widespread


@pytest.mark.parametrize(
    ("silent", "total", "widespread"),
    [
        pytest.param({"mine": 3}, {"mine": 4}, True, id="alone in the cluster"),
        pytest.param({"a": 90}, {"mine": 8, "a": 100}, False, id="one other namespace"),
        pytest.param({"a": 90, "mine": 1}, {"mine": 8, "a": 100}, False, id="one other, and one of mine"),
        pytest.param({"a": 90, "mine": 6}, {"mine": 8, "a": 100}, True, id="one other, and most of mine"),
        pytest.param({"mine": 8}, {"mine": 8, "a": 100}, False, id="all of mine, while the others talk"),
        pytest.param({"a": 90, "b": 90}, {"mine": 8, "a": 100, "b": 100}, True, id="two others"),
        pytest.param({"a": 900, "b": 2}, {"mine": 8, "a": 1000, "b": 2}, False, id="one large, and one small"),
    ],
)
def test_silence_counts_without_any_one_other_namespace(
    silent: dict[str, int], total: dict[str, int], widespread: bool
) -> None:
    assert SilentShare.seen_from("mine", silent, total).widespread == widespread


def test_who_else_holds_a_node() -> None:
    fleet = a_fleet([a_node("n0")], holders={"n0": frozenset({"me", "other"})})
    assert fleet.held_by_others("n0", "me") == {"other"}
    assert fleet.held_by_others("n1", "me") == frozenset()


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (1, "n0"), (2, "n0, n1"), (3, "n0, n1 and 1 more"), (12, "n0, n1 and 10 more")]
)
def test_a_long_list_ends_with_how_many_more_there_are(count: int, text: str) -> None:
    assert shortened([f"n{number}" for number in range(count)], 2) == text
