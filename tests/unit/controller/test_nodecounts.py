"""The running sum of what namespaces hold: right after any change, and not worked out again for what has not
changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.lifecycle.builders import a_node

from muster.controller.nodecounts import NodeCounts
from muster.placement.eligibility import is_out_of_service
from muster.world.fleet import Fleet

NODES, UIDS, NAMESPACES = ("n0", "n1", "n2", "gone"), ("a", "b", "c"), {"a": "x", "b": "x", "c": "y"}

_uids, _nodes = st.sampled_from(UIDS), st.frozensets(st.sampled_from(NODES))
_steps = st.one_of(
    st.tuples(st.just("record"), _uids, _nodes),
    st.tuples(st.just("size"), _uids, st.integers(0, 3)),
    st.tuples(st.just("pods"), _uids, _nodes),
    st.tuples(st.just("job"), _uids, st.booleans()),
    st.tuples(st.just("node"), st.sampled_from(NODES[:3]), st.booleans()),
    st.tuples(st.just("ask"), _uids, st.just(None)),
)


class Namespaces:
    def __init__(self) -> None:
        self.fleet = Fleet()
        self.named: dict[str, set[str]] = {}
        self.sizes: dict[str, int] = {}
        self.counts = NodeCounts(self.fleet, self.named, self.sizes)
        self.jobs: set[str] = set()
        for name in NODES[:3]:
            self.fleet.put_node(a_node(name))

    def do(self, what: str, name: str, value: object) -> None:
        if what == "record":
            assert isinstance(value, frozenset)
            for node in NODES:
                (self.named.setdefault(node, set()).add if node in value else self.named.get(node, set()).discard)(name)
            self.counts.note(name)
            self.fleet.occupy(("gang", name), name, value)
        elif what == "size":
            assert isinstance(value, int)
            self.sizes[name] = value
            self.counts.note(name)
        elif what == "pods":
            assert isinstance(value, frozenset)
            self.fleet.occupy(("pod", name), name, value)
        elif what == "job":
            (self.jobs.add if value else self.jobs.discard)(name)
            self.counts.add(NAMESPACES[name], name) if value else self.counts.drop(name)
        elif what == "node":
            self.fleet.put_node(a_node(name, ready=bool(value)))
        else:
            self.counts.held(NAMESPACES[name])

    def expected(self, namespace: str, besides: str) -> int:
        jobs = [uid for uid in self.jobs if NAMESPACES[uid] == namespace and uid != besides]
        return sum(max(self.sizes.get(uid, 0), self.in_service(uid)) for uid in jobs)

    def in_service(self, uid: str) -> int:
        return sum(
            uid in self.named.get(node, ()) or not is_out_of_service(node, self.fleet)
            for node in self.fleet.nodes_of(uid)
        )


@given(st.lists(_steps, max_size=30))
def test_it_is_what_counting_all_of_it_gives(steps: list[tuple[str, str, object]]) -> None:
    found = Namespaces()
    for step in steps:
        found.do(*step)
    for namespace in ("x", "y"):
        for besides in ("", *UIDS):
            assert found.counts.held(namespace, besides) == found.expected(namespace, besides)


def test_only_jobs_of_which_something_has_changed_are_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    counts, counted = NodeCounts(fleet, {}, {}), []
    count = NodeCounts._count
    monkeypatch.setattr(NodeCounts, "_count", lambda self, uid: counted.append(uid) or count(self, uid))
    for number in range(100):
        fleet.put_node(a_node(f"n{number}"))
        counts.add("ns", f"j{number}")
        fleet.occupy(("gang", number), f"j{number}", frozenset({f"n{number}"}))
    assert (counts.held("ns"), len(counted)) == (100, 100)
    counted.clear()
    fleet.occupy(("gang", 7), "j7", frozenset())
    fleet.occupy(("pod", "p"), "pod/other/p", frozenset({"n7"}))
    assert (counts.held("ns"), counted) == (99, ["j7"])
    assert (counts.held("ns", "j8"), counted) == (98, ["j7"])
    for number in range(100):
        counts.drop(f"j{number}")
    assert (counts.held("ns"), counts._counts, counts._sums, counts._leaving) == (0, {}, {}, {})
