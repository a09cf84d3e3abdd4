"""The largest records that there can be fit into etcd."""

import json

from tests.unit.lifecycle.builders import an_incident, at

from muster.api.gang import GangSpec, Ghost, Level, Member, Proof
from muster.lifecycle.commit import FEW_INCIDENTS, MAX_BYTES, bounded

ETCD = 1_572_864
UID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def a_record(workers: int, name: int, lost: bool) -> GangSpec:
    """A gang of so many workers on nodes with names so long; `lost`: all of it has been placed anew."""
    nodes = [f"gpu-{index:05}-".ljust(name, "x") for index in range(workers)]
    begun = {} if lost else {"pod_uid": UID, "boot": "0f8fad5b", "fence_seconds": 240, "reads_marker": True}
    ghosts = [
        Ghost(
            pod=f"llama-3-405b-pretraining-0f8fa-{index}-12",
            pod_uid=UID,
            node=node,
            boot="0f8fad5b",
            fenced_time=at(0.0),
            fence_seconds=240,
            attempt=12,
            proof=Proof.MARKER,
        )
        for index, node in enumerate(nodes)
    ]
    return GangSpec(
        job_uid=UID,
        attempt=13,
        time=at(0.0),
        level=Level.REBUILD,
        reason="NodeUnreachable",
        members=[Member(index=i, rank=i, node=node, incarnation=12, **begun) for i, node in enumerate(nodes)],
        ghosts=ghosts if lost else [],
        incidents=[an_incident(i, message="w" * (2048 if i >= 240 else 160)) for i in range(256)],
        excluded_nodes={node: at(index) for index, node in enumerate(nodes)},
    )


def size(spec: GangSpec) -> int:
    return len(json.dumps(spec.to_json(), separators=(",", ":")))


def test_a_gang_of_4096_fits_whole_or_lost() -> None:
    for lost in (False, True):
        spec = bounded(a_record(4096, 42, lost))
        assert size(spec) < ETCD - 100_000
        assert len(spec.members) == 4096
        assert len(spec.ghosts) == (4096 if lost else 0)
        assert spec.incidents


def test_also_on_nodes_with_long_names() -> None:
    spec = bounded(a_record(4096, 63, lost=True))
    assert size(spec) < ETCD
    assert spec.incidents


def test_what_does_not_fit_gives_up_what_is_oldest() -> None:
    spec = bounded(a_record(4096, 120, lost=True))
    assert len(spec.incidents) == FEW_INCIDENTS
    assert spec.excluded_nodes == {}


def test_what_is_small_stays_as_it_is() -> None:
    spec = a_record(100, 63, lost=True)
    assert size(spec) < MAX_BYTES
    assert bounded(spec) == spec


def test_what_goes_without_saying_is_not_said_and_is_read_all_the_same() -> None:
    spec = a_record(3, 20, lost=False)
    plain = spec.model_copy(update={"members": [Member(index=i, rank=i, node=f"n{i}") for i in range(3)]})
    assert plain.to_json()["members"][0] == {"index": 0, "rank": 0, "node": "n0", "incarnation": 1}
    for record in (spec, plain, a_record(3, 20, lost=True)):
        assert GangSpec.model_validate(record.to_json()) == record


def test_members_of_a_record_of_old_have_their_place_for_index_and_rank() -> None:
    """Also where the API server has filled in what an earlier definition had for defaults."""
    body = {"jobUid": UID, "attempt": 1, "time": "2026-01-01T00:00:00Z", "level": "Start", "reason": "Started"}
    bare = {"node": "n", "incarnation": 1, "podUid": "p"}
    for old in (bare, {**bare, "index": -1, "rank": -1}):
        record = GangSpec.model_validate({**body, "members": [old, old, old]})
        assert [(member.index, member.rank) for member in record.members] == [(0, 0), (1, 1), (2, 2)]
    moved = GangSpec.model_validate({**body, "members": [{**bare, "index": 7}]})
    assert [(member.index, member.rank) for member in moved.members] == [(7, 7)]
