"""An agent that is silent: what follows after how long, and when so many are that nothing does."""

import pytest

from muster.api.nodehealth import Severity
from muster.health.pools import Pools
from muster.health.silence import AgentContacts, AgentSilence, pools_silent_at_once

SUSPECT, AVOIDED = Severity.WARNING, Severity.DEGRADED


@pytest.mark.parametrize(
    ("quiet", "weighs", "next_seconds"),
    [
        (AgentSilence(0, 0), None, 30),
        (AgentSilence(30, 30), None, 90),
        (AgentSilence(119, 119), None, 1),
        (AgentSilence(120, 120), SUSPECT, 480),
        (AgentSilence(599, 599), SUSPECT, 1),
        (AgentSilence(600, 600), AVOIDED, None),
        pytest.param(AgentSilence(11, 11, avoid_seconds=60), None, 1, id="another time is set"),
        pytest.param(AgentSilence(12, 12, avoid_seconds=60), SUSPECT, 48, id="another time is set: a fifth of it"),
        pytest.param(AgentSilence(60, 60, avoid_seconds=60), AVOIDED, None, id="another time is set: all of it"),
        pytest.param(AgentSilence(300, 10), None, 110, id="a new Pod"),
        pytest.param(AgentSilence(300, 300, starting=True), None, 300, id="its image is pulled"),
        pytest.param(AgentSilence(600, 10), AVOIDED, 110, id="one Pod after the other"),
        pytest.param(AgentSilence(600, 600, starting=True), AVOIDED, None, id="an image that never comes"),
        pytest.param(AgentSilence(-40, -40), None, 70, id="nothing was heard of any"),
    ],
)
def test_what_follows_after_how_long(quiet: AgentSilence, weighs: Severity | None, next_seconds: float | None) -> None:
    assert quiet.weighs is weighs
    assert quiet.next_seconds() == next_seconds


@pytest.mark.parametrize(
    ("silent", "heard", "percent", "crowd"),
    [
        (10, 90, 10, False),
        (11, 89, 10, True),
        (1, 1, 10, False),
        (2, 8, 10, True),
        (1, 0, 10, True),
        pytest.param(100, 0, 100, True, id="all are too many whatever the share"),
        pytest.param(99, 1, 100, False, id="no bound"),
        pytest.param(1, 9, 0, False, id="one may always be"),
    ],
)
def test_many_at_once_are_no_nodes_fault(silent: int, heard: int, percent: int, crowd: bool) -> None:
    quiet = {f"s{number}": AgentSilence(31, 31) for number in range(silent)}
    well = [f"h{number}" for number in range(heard)]
    pools = dict.fromkeys((*quiet, *well), "p")
    assert pools_silent_at_once(
        quiet, Pools(pools, {"p": len(pools)}), well, lambda _pool, nodes: max(1, nodes * percent // 100)
    ) == ({"p": silent} if crowd else {})


def test_a_moments_silence_does_not_count_and_each_pool_counts_by_itself() -> None:
    quiet = {"a": AgentSilence(31, 31), "b": AgentSilence(29, 29), "c": AgentSilence(31, 31)}
    pools = Pools({"a": "p", "b": "p", "c": "q", "d": "p"}, {"p": 3, "q": 1})
    assert pools_silent_at_once(quiet, pools, ["d"], lambda *_: 1) == {"q": 1}


@pytest.mark.parametrize(("was_away", "is_away", "weighs"), [(True, False, AVOIDED), (False, True, None)])
def test_a_silence_counts_anew_when_its_node_comes_or_goes(
    was_away: bool, is_away: bool, weighs: Severity | None
) -> None:
    contacts = AgentContacts()
    contacts.note_ready("another")
    contacts.note_silent("n", 0.0, paused=was_away)
    assert contacts.note_silent("n", 10.0, paused=is_away)
    contacts.changed(5000.0, Pools({}, {"": 100}), lambda *_: 5, lambda _: "silent")
    silence = contacts.silence_of("n")
    assert silence is not None
    assert silence.weighs is weighs


def test_an_agent_that_falls_silent_without_a_pod_counts_from_then_on() -> None:
    """None is starting, and the agent is not counted as Ready beside the others."""
    contacts = AgentContacts()
    contacts.note_ready("n")
    contacts.note_ready("another")
    assert contacts.note_silent("n", 1000.0, paused=False)
    assert not contacts.note_silent("n", 1005.0, paused=False)
    assert contacts.ready == {"another"}
    for now, weighs in ((1119.0, None), (1120.0, SUSPECT)):
        contacts.changed(now, Pools({}, {"": 100}), lambda *_: 5, lambda _: "silent")
        silence = contacts.silence_of("n")
        assert silence is not None
        assert silence.weighs is weighs
