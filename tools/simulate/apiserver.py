"""The API server as its clients meet it: optimistic concurrency, watches with a history, graceful deletion, owners.

Requests are executed here at one moment each; what happens to them and to their answers on the way is the client's
matter (`simulate.client`). What a watch shows comes late by as much as that watch lags, always in order.
"""

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from muster.api.base import API_VERSION, rfc3339
from muster.kube import decode
from muster.kube.errors import AlreadyExists, Conflict, Forbidden, Gone, Invalid, NotFound
from simulate.clocks import WallClock
from simulate.loop import Agenda

Object = dict[str, Any]
Key = tuple[str, str]  # namespace, name

HISTORY = 4000  # changes of a kind that a watch can go on from
GRACE_SECONDS = 30
BOOKMARK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Where:
    """What a path speaks of."""

    resource: str
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> Key:
        return self.namespace, self.name


def where(path: str) -> Where:
    """Take a path of the REST interface apart."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    rest += ["", ""]
    return Where(rest[0], namespace, rest[1], rest[2])


@dataclass(slots=True)
class Stored:
    """An object, and as it goes over the wire."""

    value: Object
    version: int
    wire: bytes


_NOTHING = Stored({"metadata": {"name": ""}}, 0, b"")


@dataclass(frozen=True, slots=True)
class Change:
    """An entry of a kind's history."""

    at: float
    version: int
    before: Stored | None
    after: Stored | None  # None: deleted; then `before` carries the last state, and the version of the deletion


@dataclass(slots=True, eq=False)
class Watch:
    """An open watch.

    Attributes:
        lag_seconds: how late it shows what happens; what is on its way stays in order.
        is_silent: nothing comes by it any more, and nobody is told.
        tell: called with each line; "" ends the watch.
    """

    resource: str
    selects: Callable[[Object], bool]
    tell: Callable[[bytes], None]
    lag_seconds: float = 0.0
    is_open: bool = True
    is_silent: bool = False
    last_at: float = 0.0


class ApiServer:
    """All objects of one cluster.

    Attributes:
        requests: that were executed.
        encode: writes an object down.
        silent: resources of which watches fall silent, after what they have to show at once; "" stands for any.
        concerns: whether what stands beside it (kubelets, schedulers, checks) looks at an object; clients see all.
        admission_lag_seconds: how late the checks of a new object see what it names.
        documents: what is answered at paths that speak of no objects, e.g. the keys of tokens.
    """

    def __init__(self, agenda: Agenda, clock: WallClock) -> None:
        self.requests = 0
        self.silent: set[str] = set()
        self.encode: Callable[[Object], bytes] = msgspec.json.encode
        self.concerns: Callable[[Object], bool] = lambda _: True
        self.admission_lag_seconds = 0.0
        self.documents: dict[str, bytes] = {}
        self._agenda = agenda
        self.clock = clock
        self._objects: dict[str, dict[Key, Stored]] = {}
        self._applied: dict[tuple[str, str, str], Object] = {}  # uid, subresource, manager -> what it applied last
        self._history: dict[str, list[Change]] = {}
        self._oldest: dict[str, int] = {}  # what is no newer than this is forgotten
        self._versions = itertools.count(1)
        self._version = 0
        self._created: Counter[tuple[str, str, str]] = Counter()  # by resource, namespace and name
        self._watches: dict[Watch, None] = {}
        self._listeners: list[Callable[[str, Object | None, Object | None], None]] = []
        agenda.after(BOOKMARK_SECONDS, self._bookmarks)

    def listen(self, listener: Callable[[str, Object | None, Object | None], None]) -> None:
        """Call with resource, before and after of each change at once: for what stands beside the API server."""
        self._listeners.append(listener)

    # What anybody may ask.

    def get(self, at: Where) -> bytes:
        return self._found(at).wire

    def peek(self, resource: str, namespace: str, name: str) -> Object | None:
        """One object, not to be changed; None where there is none."""
        stored = self._objects.get(resource, {}).get((namespace, name))
        return stored.value if stored else None

    def all(self, resource: str) -> Iterator[Object]:
        """All objects of a kind that concern those beside it, not to be changed."""
        kept = self._objects.get(resource, {}).values()
        return iter([stored.value for stored in kept if self.concerns(stored.value)])

    def list(self, at: Where, query: Mapping[str, Any], lag_seconds: float = 0.0) -> bytes:
        """All objects that a query selects, in one page: the newest, or any that there were where it asks for version
        0.

        Args:
            lag_seconds: how old the cache is that answers who asks for any.
        """
        selects, version = selector(at.namespace, query), self._version
        objects = self._objects.get(at.resource, {})
        if str(query.get("resourceVersion", "")) == "0":
            objects, version = self._as_of(at.resource, self._agenda.now - lag_seconds)
        items = [stored.wire for stored in objects.values() if selects(stored.value)]
        return b'{"metadata":{"resourceVersion":"%d"},"items":[%s]}' % (version, b",".join(items))

    def create(self, at: Where, body: Mapping[str, Any], *, dry_run: bool = False) -> bytes:
        """Create an object; for `pods/binding`: bind one."""
        self.requests += 1
        if at.subresource == "binding":
            return self._bind(at, body)
        value = copy.deepcopy(dict(body))
        metadata = value.setdefault("metadata", {})
        if "generateName" in metadata:
            prefix = metadata["generateName"]
            self._created[at.resource, at.namespace, prefix] += 1
            metadata.setdefault("name", f"{prefix}{self._created[at.resource, at.namespace, prefix]}")
        key = (at.namespace, metadata["name"])
        if key in self._objects.get(at.resource, {}):
            raise AlreadyExists(409, "AlreadyExists", f"{at.resource} {key[1]!r} already exists")
        if at.namespace:
            metadata["namespace"] = at.namespace
        metadata.pop("resourceVersion", None)
        metadata.update(uid=self._new_uid(at.resource, *key), generation=1, creationTimestamp=self._now())
        if at.resource == "pods":
            value.setdefault("status", {})["phase"] = "Pending"
            _check_types(value, self.encode)
            self._check_class(value)
        if dry_run:
            metadata["resourceVersion"] = "0"
            return self.encode(value)
        return self._put(at.resource, key, value).wire

    def _check_class(self, pod: Object) -> None:
        """Refuse a pod by its PriorityClass, as the API server does.

        Raises:
            Forbidden: there is no such class.
        """
        name = pod["spec"].get("priorityClassName")
        if not name:
            return
        classes, _ = self._as_of("priorityclasses", self._agenda.now - self.admission_lag_seconds)
        if ("", name) not in classes:
            text = f'pods "{pod["metadata"]["name"]}" is forbidden: no PriorityClass with name {name} was found'
            raise Forbidden(403, "Forbidden", text)

    def _new_uid(self, resource: str, namespace: str, name: str) -> str:
        """The next uid of this name: it depends on no other object's, so that one object more moves nothing else."""
        self._created[resource, namespace, name] += 1
        text = f"{resource}/{namespace}/{name}/{self._created[resource, namespace, name]}"
        return f"{resource[:4]}-{blake2b(text.encode(), digest_size=6).hexdigest()}"

    def update(self, at: Where, body: Mapping[str, Any]) -> bytes:
        self.requests += 1
        stored = self._expected(at, body)
        value = copy.deepcopy(dict(body))
        kept = {k: v for k, v in stored.value["metadata"].items() if k != "resourceVersion"}
        value["metadata"] = {**kept, **value.get("metadata", {}), "uid": kept["uid"]}
        value["metadata"].setdefault("namespace", at.namespace)
        return self._replace(at, stored, value)

    def patch(self, at: Where, body: Any, content_type: str, manager: str = "") -> bytes:
        """Patch an object: merge, apply (where there is none it is created) or JSON patch.

        What a manager has applied and leaves out of its next apply is removed.
        """
        self.requests += 1
        if content_type == "application/json-patch+json":
            stored = self._found(at)
            return self._replace(at, stored, _json_patched(stored.value, body))
        if content_type.startswith("application/apply-patch"):
            if at.key not in self._objects.get(at.resource, {}):
                self.requests -= 1
                return self.create(at, body)
            stored = self._found(at)
            owner = (stored.value["metadata"]["uid"], at.subresource, manager)
            kept = _without(stored.value, self._applied.get(owner, {}), body)
            self._applied[owner] = {key: body[key] for key in ("spec", "status") if key in body}
        else:
            stored = self._expected(at, body)
            kept = stored.value
        changes = {"status": body["status"]} if at.subresource == "status" and "status" in body else dict(body)
        changes.pop("apiVersion", None)
        changes.pop("kind", None)
        metadata = {k: v for k, v in changes.pop("metadata", {}).items() if k not in ("resourceVersion", "uid")}
        if metadata and at.subresource != "status":
            changes["metadata"] = metadata
        return self._replace(at, stored, _merged(kept, changes))

    def delete(self, at: Where, body: Mapping[str, Any] | None) -> bytes:
        """Delete an object: a pod that a kubelet knows, and what has finalizers, is Terminating first."""
        self.requests += 1
        stored, options = self._found(at), body or {}
        preconditions = options.get("preconditions") or {}
        uid, version = preconditions.get("uid"), preconditions.get("resourceVersion")
        if version and version != stored.value["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", f"{at.resource} {at.name!r} has changed")
        if uid and uid != stored.value["metadata"]["uid"]:
            raise Conflict(409, "Conflict", f"the uid of {at.resource} {at.name!r} is another one")
        grace = options.get("gracePeriodSeconds", GRACE_SECONDS if at.resource == "pods" else 0)
        known = at.resource == "pods" and bool(stored.value["spec"].get("nodeName")) and not _has_ended(stored.value)
        if (known and grace) or stored.value["metadata"].get("finalizers"):
            if "deletionTimestamp" in stored.value["metadata"]:
                return stored.wire
            value = {**stored.value, "metadata": dict(stored.value["metadata"])}
            value["metadata"]["deletionTimestamp"] = self._now(grace)
            value["metadata"]["deletionGracePeriodSeconds"] = grace
            return self._put(at.resource, at.key, value).wire
        self._remove(at.resource, at.key)
        return b'{"kind":"Status","status":"Success"}'

    def watch(
        self,
        at: Where,
        query: Mapping[str, Any],
        tell: Callable[[bytes], None],
        lag_seconds: float,
    ) -> Watch:
        """Open a watch that goes on from the resourceVersion in the query.

        Raises:
            Gone: the history does not reach back so far.
        """
        since = int(query.get("resourceVersion") or 0)
        if since < self._oldest.get(at.resource, 0):
            raise Gone(410, "Expired", f"too old resource version: {since}")
        watch = Watch(at.resource, selector(at.namespace, query), tell, lag_seconds, last_at=self._agenda.now)
        self._watches[watch] = None
        for change in self._history.get(at.resource, ()):
            if change.version > since:
                self._show(watch, change)
        return watch

    def close(self, watch: Watch) -> None:
        """Nobody reads it any more."""
        watch.is_open = False
        self._watches.pop(watch, None)

    # Trouble.

    def restore(self, resource: str, value: Object) -> None:
        """Put an object there, uid and all, whatever is in it: as an old API server, or a backup, has left it."""
        metadata = value["metadata"]
        self._put(resource, (metadata.get("namespace", ""), metadata["name"]), {**value, "metadata": dict(metadata)})

    def forget_history(self, resource: str) -> None:
        """Compaction: a watch that goes on from here has to be up to date; open watches are told so."""
        self._oldest[resource] = self._version
        self._history[resource] = []

    def end_watches(self, chosen: Callable[[Watch], bool] = lambda _: True) -> None:
        """The connections break."""
        for watch in [watch for watch in self._watches if chosen(watch)]:
            self.close(watch)
            watch.tell(b"")

    def remove(self, resource: str, namespace: str, name: str) -> None:
        """An object is gone at once: its last finalizer went, or its kubelet has ended it."""
        if (namespace, name) in self._objects.get(resource, {}):
            self._remove(resource, (namespace, name))

    def change(self, resource: str, namespace: str, name: str, change: Mapping[str, Any]) -> None:
        """Merge this into an object, as the owner of that part of it does; nothing where there is none."""
        stored = self._objects.get(resource, {}).get((namespace, name))
        if stored is not None:
            self._replace(Where(resource, namespace, name, "status"), stored, _merged(stored.value, change))

    # Within.

    def _now(self, seconds: float = 0.0) -> str:
        return rfc3339(self.clock.at(self._agenda.now + seconds))

    def _as_of(self, resource: str, moment: float) -> tuple[dict[Key, Stored], int]:
        """All of a kind as it was, as far back as is remembered, and as of which version."""
        objects, version = dict(self._objects.get(resource, {})), self._version
        for change in reversed(self._history.get(resource, ())):
            if change.at <= moment:
                break
            metadata = (change.after or change.before or _NOTHING).value["metadata"]
            key, version = (metadata.get("namespace", ""), metadata["name"]), change.version - 1
            if change.before is not None:
                objects[key] = change.before
            else:
                objects.pop(key, None)
        return objects, version

    def _found(self, at: Where) -> Stored:
        stored = self._objects.get(at.resource, {}).get(at.key)
        if stored is None:
            raise NotFound(404, "NotFound", f"{at.resource} {at.name!r} not found")
        return stored

    def _expected(self, at: Where, body: Mapping[str, Any]) -> Stored:
        stored, version = self._found(at), (body.get("metadata") or {}).get("resourceVersion")
        if version and int(version) != stored.version:
            raise Conflict(409, "Conflict", f"{at.resource} {at.name!r} has been modified")
        return stored

    def _bind(self, at: Where, body: Mapping[str, Any]) -> bytes:
        stored = self._found(Where("pods", at.namespace, at.name, ""))
        if body["metadata"].get("uid") not in (None, stored.value["metadata"]["uid"]):
            raise Conflict(409, "Conflict", "the uid is another one")
        if stored.value["spec"].get("nodeName") or "deletionTimestamp" in stored.value["metadata"]:
            raise Conflict(409, "Conflict", f"pod {at.name} is already assigned to a node, or is being deleted")
        value = {**stored.value, "spec": {**stored.value["spec"], "nodeName": body["target"]["name"]}}
        self._put("pods", at.key, value)
        return b'{"kind":"Status","status":"Success"}'

    def _replace(self, at: Where, stored: Stored, value: Object) -> bytes:
        """Put a new state where it differs; a new generation where the spec does."""
        before = stored.value
        same = {k: v for k, v in value.items() if k != "metadata"} == {
            k: v for k, v in before.items() if k != "metadata"
        }
        metadata = {k: v for k, v in value["metadata"].items() if k != "resourceVersion"}
        if same and metadata == {k: v for k, v in before["metadata"].items() if k != "resourceVersion"}:
            return stored.wire
        if value.get("spec") != before.get("spec") and at.resource not in ("pods", "nodes"):
            metadata["generation"] = before["metadata"].get("generation", 1) + 1
        return self._put(at.resource, at.key, {**value, "metadata": metadata}).wire

    def _put(self, resource: str, key: Key, value: Object) -> Stored:
        kept = self._objects.setdefault(resource, {})
        before, version = kept.get(key), next(self._versions)
        self._version = version
        value["metadata"]["resourceVersion"] = str(version)
        stored = kept[key] = Stored(value, version, self.encode(value))
        self._changed(resource, Change(self._agenda.now, version, before, stored))
        return stored

    def _remove(self, resource: str, key: Key) -> None:
        before, version = self._objects[resource].pop(key), next(self._versions)
        self._version = version
        metadata = {**before.value["metadata"], "resourceVersion": str(version)}
        value = {**before.value, "metadata": metadata}
        gone = Stored(value, version, self.encode(value))
        self._changed(resource, Change(self._agenda.now, version, gone, None))

    def _changed(self, resource: str, change: Change) -> None:
        history = self._history.setdefault(resource, [])
        history.append(change)
        if len(history) > HISTORY:
            self._oldest[resource] = history[HISTORY // 2].version
            del history[: HISTORY // 2 + 1]
        for watch in list(self._watches):
            if watch.resource == resource:
                self._quieten(watch)
                self._show(watch, change)
        before, after = (state.value if state else None for state in (change.before, change.after))
        if self.concerns(after or before or {}):
            for listener in self._listeners:
                listener(resource, before, after)

    def _show(self, watch: Watch, change: Change) -> None:
        had = change.before is not None and watch.selects(change.before.value)
        has = change.after is not None and watch.selects(change.after.value)
        if not had and not has:
            return
        shown = change.after if change.after is not None else change.before
        assert shown is not None
        kind = b"DELETED" if not has else b"MODIFIED" if had else b"ADDED"
        self._line(watch, b'{"type":"%s","object":%s}' % (kind, shown.wire))

    def _line(self, watch: Watch, line: bytes) -> None:
        if watch.is_silent:
            return
        watch.last_at = max(watch.last_at, self._agenda.now + watch.lag_seconds)
        self._agenda.at(watch.last_at, lambda: watch.tell(line) if watch.is_open else None)

    def _quieten(self, watch: Watch) -> None:
        """What has missed anything never goes on."""
        watch.is_silent |= bool(self.silent & {"", watch.resource})

    def _bookmarks(self) -> None:
        for watch in self._watches:
            self._quieten(watch)
            mark = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}' % self._version
            self._line(watch, mark)
        self._agenda.after(BOOKMARK_SECONDS, self._bookmarks)


def selector(namespace: str, query: Mapping[str, Any]) -> Callable[[Object], bool]:
    """Whether an object is selected by what of labels and fields Muster asks for.

    Raises:
        Invalid: it is none of that.
    """
    tests: list[Callable[[Object], bool]] = []
    if namespace:
        tests.append(lambda value: bool(value["metadata"].get("namespace") == namespace))
    label = str(query.get("labelSelector") or "")
    if label:
        tests.append(_label_test(label))
    tests += [_field_test(term) for term in str(query.get("fieldSelector") or "").split(",") if term]
    return lambda value: all(test(value) for test in tests)


def _label_test(term: str) -> Callable[[Object], bool]:
    if any(sign in term for sign in (",", " ", "!=", "==")):
        raise Invalid(400, "BadRequest", f"not simulated: {term}")
    name, sign, value = term.partition("=")
    if sign:
        return lambda found: bool((found["metadata"].get("labels") or {}).get(name) == value)
    wanted, bare = not term.startswith("!"), term.lstrip("!")
    return lambda found: (bare in (found["metadata"].get("labels") or {})) == wanted


def _field_test(term: str) -> Callable[[Object], bool]:
    name, sign, wanted = term.partition("!=") if "!=" in term else term.partition("=")
    path = name.split(".")

    def holds(value: Object) -> bool:
        found: Any = value
        for part in path:
            found = (found or {}).get(part)
        return bool((found == wanted) == (sign == "="))

    return holds


def _without(value: Any, before: Any, now: Any) -> Any:
    """Return a value without what was applied before and is not applied now."""
    if not (isinstance(value, Mapping) and isinstance(before, Mapping) and isinstance(now, Mapping)):
        return value
    return {
        key: _without(each, before.get(key), now.get(key))
        for key, each in value.items()
        if key not in before or key in now
    }


def _merged(value: Any, changes: Any) -> Any:
    if not isinstance(changes, Mapping):
        return copy.deepcopy(changes) if isinstance(changes, list) else changes
    merged = dict(value) if isinstance(value, Mapping) else {}
    for key, change in changes.items():
        if change is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), change)
    return merged


def _json_patched(value: Object, operations: Any) -> Object:
    patched = copy.deepcopy(value)
    for operation in operations:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].strip("/").split("/")]
        parent: Any = patched
        for part in parts[:-1]:
            parent = parent[int(part)] if isinstance(parent, list) else parent.setdefault(part, {})
        last: Any = int(parts[-1]) if isinstance(parent, list) and parts[-1] != "-" else parts[-1]
        match operation["op"]:
            case "test":
                found = parent[last] if isinstance(parent, list) else parent.get(last)
                if found != operation.get("value"):
                    raise Invalid(422, "Invalid", f"the test at {operation['path']} failed")
            case "add" if isinstance(parent, list):
                parent.append(operation["value"]) if last == "-" else parent.insert(last, operation["value"])
            case "add" | "replace":
                parent[last] = operation["value"]
            case "remove":
                del parent[last]
    return patched


def _check_types(pod: Object, encode: Callable[[Object], bytes]) -> None:
    """Refuse what is no pod, as far as anybody here reads it.

    Raises:
        Invalid: it has not a pod's types.
    """
    try:
        decode.pod(encode(pod))
    except Exception as error:
        raise Invalid(422, "Invalid", f"not a pod: {error}") from error


def _has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def owned(value: Object, uid: str) -> bool:
    """Whether an object goes when that one goes."""
    return any(owner.get("uid") == uid for owner in value["metadata"].get("ownerReferences") or ())


def training_job(name: str, namespace: str, spec: Mapping[str, Any]) -> Object:
    """A TrainingJob as a user writes it."""
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": dict(spec),
    }
