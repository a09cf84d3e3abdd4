"""The store against every order in which the stream, lists and the answers to our own writes can arrive."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from muster.kube import decode
from muster.kube.decode import Key
from muster.kube.informer import Kind, Store
from muster.world.views import PodView

KIND = Kind("pods", "/api/v1/pods", decode.pod, decode.flat_meta, index=lambda pod: pod.node)
NAMES = st.sampled_from(["a", "b"])


def make(name: str = "a", uid: str = "u1", version: int = 1, node: str = "") -> PodView:
    return PodView(namespace="ns", name=name, uid=uid, resource_version=version, node=node)


def key(name: str = "a") -> Key:
    return ("ns", name)


class Server:
    """A server's history of one kind: the truth that the store is compared with."""

    def __init__(self) -> None:
        self.version = 0
        self.objects: dict[Key, PodView] = {}
        self.events: list[tuple[str, PodView]] = []  # the event at index i has resourceVersion i + 1
        self.past: dict[Key, list[tuple[int, PodView | None]]] = {}

    def write(self, name: str, *, delete: bool) -> PodView:
        self.version += 1
        old = self.objects.get(key(name))
        if old is None:
            new, event = make(name, f"u{self.version}", self.version), "ADDED"
        else:
            new, event = replace(old, resource_version=self.version, node=f"n{self.version % 3}"), "MODIFIED"
        if delete and old is not None:
            event = "DELETED"
            del self.objects[key(name)]
        else:
            self.objects[key(name)] = new
        self.events.append((event, new))
        self.past.setdefault(key(name), []).append((self.version, self.objects.get(key(name))))
        return new

    def states_since(self, at: Key, version: int) -> list[PodView | None]:
        """Everything that was true of a key at `version` or later."""
        states: list[PodView | None] = [None]
        for changed, state in self.past.get(at, []):
            if changed <= version:
                states = []
            states.append(state)
        return states


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.store: Store[PodView] = Store(KIND)
        self.position = 0
        self.known: dict[Key, int] = {}
        self.answers: list[PodView] = []
        self.deletions: list[tuple[Key, str, int]] = []
        self.list: tuple[list[PodView], int] | None = None
        self.fresh: tuple[list[PodView], int] | None = None
        self.mirror: dict[Key, PodView] = {}
        self.store.subscribe(self._reflect)

    def _reflect(self, old: PodView | None, new: PodView | None) -> None:
        at = ((new or old).namespace, (new or old).name)  # type: ignore[union-attr]
        assert self.mirror.get(at) == old
        if new is None:
            del self.mirror[at]
        else:
            self.mirror[at] = new

    @rule(name=NAMES, delete=st.booleans())
    def others_write(self, name: str, delete: bool) -> None:
        self.server.write(name, delete=delete)

    @rule(name=NAMES)
    def we_write(self, name: str) -> None:
        self.answers.append(self.server.write(name, delete=False))

    @rule(name=NAMES)
    def we_delete(self, name: str) -> None:
        shown, there = self.store.get(key(name)), self.server.objects.get(key(name))
        if shown is not None and there is not None and shown.uid == there.uid:
            self.server.write(name, delete=True)
            self.deletions.append((key(name), shown.uid, self.server.version))

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def answer_arrives(self, data: st.DataObject) -> None:
        value = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
        self.store.assume(value)
        self._knows((value.namespace, value.name), value.resource_version)

    @precondition(lambda self: self.deletions)
    @rule(data=st.data())
    def deletion_is_confirmed(self, data: st.DataObject) -> None:
        at, uid, version = self.deletions.pop(data.draw(st.integers(0, len(self.deletions) - 1)))
        self.store.assume_deleted(at, uid)
        self._knows(at, version)

    @precondition(lambda self: self.position < self.server.version and self.list is None)
    @rule()
    def stream_advances(self) -> None:
        event, value = self.server.events[self.position]
        self.position += 1
        self.store.apply(event, value)

    @precondition(lambda self: self.list is None)
    @rule()
    def bookmark(self) -> None:
        self.store.advance(self.position)

    @precondition(lambda self: self.list is None)
    @rule()
    def list_is_read(self) -> None:
        self.list = (list(self.server.objects.values()), self.server.version)

    @precondition(lambda self: self.list is not None)
    @rule()
    def list_arrives(self) -> None:
        assert self.list is not None
        values, self.position = self.list
        self.store.replace(values, self.position)
        self.list = None

    @precondition(lambda self: self.list is None)
    @rule()
    def refresh_is_read(self) -> None:
        """A list beside the stream, which goes on meanwhile."""
        self.fresh = (list(self.server.objects.values()), self.server.version)

    @precondition(lambda self: self.fresh is not None)
    @rule()
    def refresh_arrives(self) -> None:
        assert self.fresh is not None
        (values, version), self.fresh = self.fresh, None
        self.store.catch_up(values, version)
        for name in ("a", "b"):
            self._knows(key(name), version)

    def _knows(self, at: Key, version: int) -> None:
        self.known[at] = max(self.known.get(at, 0), version)

    @invariant()
    def never_goes_back(self) -> None:
        for name in ("a", "b"):
            at = key(name)
            known = max(self.known.get(at, 0), self.position)
            assert self.store.get(at) in self.server.states_since(at, known)

    @invariant()
    def index_and_subscribers_agree(self) -> None:
        assert self.mirror == {(pod.namespace, pod.name): pod for pod in self.store.values()}
        nodes = {pod.node for pod in self.store.values()}
        for node in ("", "n0", "n1", "n2"):
            assert {pod.uid for pod in self.store.by_index(node)} == {
                pod.uid for pod in self.store.values() if pod.node == node
            }
        assert len(self.store) == sum(len(self.store.by_index(node)) for node in nodes)

    def teardown(self) -> None:
        if self.list is not None:
            self.list_arrives()
        while self.position < self.server.version:
            self.stream_advances()
        for value in self.answers:
            self.store.assume(value)
        for at, uid, _ in self.deletions:
            self.store.assume_deleted(at, uid)
        assert {(pod.namespace, pod.name): pod for pod in self.store.values()} == self.server.objects
        assert not self.store._deleted


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(stateful_step_count=30)


def test_list_from_a_restored_backup_replaces_everything() -> None:
    store: Store[PodView] = Store(KIND)
    store.replace([make("a", "u1", 50), make("b", "u2", 60)], 100)
    store.assume(make("c", "u3", 110))
    restored = make("a", "u1", 20)
    store.replace([restored], 30)
    assert store.values() == [restored]
    store.apply("ADDED", make("b", "u9", 31))
    assert len(store) == 2


def test_what_is_not_kept_leaves_the_store() -> None:
    store: Store[PodView] = Store(Kind("pods", "/", decode.pod, decode.flat_meta, keep=lambda pod: pod.node != ""))
    store.apply("ADDED", make("a", "u1", 1))
    assert len(store) == 0
    store.apply("MODIFIED", make("a", "u1", 2, node="n1"))
    assert len(store) == 1
    store.apply("MODIFIED", make("a", "u1", 3))
    assert len(store) == 0


def test_same_version_again_is_no_change() -> None:
    store: Store[PodView] = Store(KIND)
    store.assume(make(version=5))
    changes: list[PodView | None] = []
    store.subscribe(lambda _, new: changes.append(new))
    store.apply("MODIFIED", make(version=5))
    assert changes == []


def test_an_older_event_of_the_stream_does_not_replace_the_answer_to_our_own_write() -> None:
    store: Store[PodView] = Store(KIND)
    store.assume(make(version=5, node="n5"))
    store.apply("MODIFIED", make(version=4, node="n4"))
    assert store.get(key()) == make(version=5, node="n5")


def test_stream_that_is_behind_a_refresh_brings_nothing_back() -> None:
    store: Store[PodView] = Store(KIND)
    store.replace([make("a", "u1", 1)], 1)
    store.catch_up([make("b", "u2", 4)], 5)
    for event, version in (("MODIFIED", 2), ("DELETED", 3)):
        store.apply(event, make("a", "u1", version))
        assert store.values() == [make("b", "u2", 4)]
    store.catch_up([make("a", "u1", 2)], 3)  # its answer took so long that the stream was faster
    assert store.values() == [make("b", "u2", 4)]
    store.apply("ADDED", make("a", "u3", 6))
    assert len(store) == 2


def test_late_answer_does_not_bring_a_deleted_object_back() -> None:
    store: Store[PodView] = Store(KIND)
    store.apply("ADDED", make(version=5))
    store.apply("DELETED", make(version=7))
    store.assume(make(version=5))
    assert store.get(key()) is None


def test_predecessor_of_a_deleted_object_does_not_come_back() -> None:
    store: Store[PodView] = Store(KIND)
    store.assume(make(uid="u2", version=3))
    store.assume_deleted(key(), "u2")
    store.apply("ADDED", make(uid="u1", version=1))
    store.apply("DELETED", make(uid="u1", version=2))
    store.apply("ADDED", make(uid="u2", version=3))
    assert store.get(key()) is None


def test_list_older_than_a_deleted_object_does_not_make_it_forgotten() -> None:
    store: Store[PodView] = Store(KIND)
    store.assume(make(version=10))
    store.assume_deleted(key(), "u1")
    store.replace([], 9)
    store.apply("ADDED", make(version=10))
    assert store.get(key()) is None


def test_deleting_under_the_wrong_uid_changes_nothing() -> None:
    store: Store[PodView] = Store(KIND)
    store.apply("ADDED", make(uid="u2", version=3))
    store.assume_deleted(key(), "u1")
    assert store.get(key()) == make(uid="u2", version=3)
