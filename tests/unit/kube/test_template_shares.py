"""A namespace's templates have a share of the operator's memory; what is refused keeps its identity alone."""

import gc
import json
import sys
from typing import Any

import pytest

from muster.api.trainingjob import TrainingJob
from muster.kube import decode
from muster.kube.errors import NotFound
from muster.kube.informer import TrainingJobs
from muster.kube.template_shares import TemplateShares, parsed_bytes


def raw(name: str, template: Any, namespace: str = "ns", version: int = 1) -> bytes:
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return json.dumps({"metadata": meta, "spec": {"nodes": 1, "template": template}}).encode()


TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "main", "image": "i", "command": ["train"]}]}}
SIZE = parsed_bytes(json.dumps(TEMPLATE).encode())


def is_read(value: Any) -> bool:
    return isinstance(value, TrainingJob)


def test_a_namespace_has_room_for_so_many_and_others_are_not_affected() -> None:
    read = decode.training_job(TemplateShares(2 * SIZE))
    first, second, third = (read(raw(name, TEMPLATE)) for name in ("a", "b", "c"))
    assert (is_read(first), is_read(second), is_read(third)) == (True, True, False)
    assert third.reason == "TemplateTooLarge"
    assert "the templates and metadata of all jobs in namespace ns" in third.error
    assert "delete jobs there that have ended, and Muster takes this one in by itself" in third.error
    assert third.waits_for_room
    assert (third.namespace, third.name, third.uid, third.resource_version) == ("ns", "c", "uid-c", 1)
    assert is_read(read(raw("c", TEMPLATE, namespace="other")))
    del second
    gc.collect()
    assert is_read(read(raw("c", TEMPLATE)))
    assert is_read(first)


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {f"label-{number}": "" for number in range(1000)}},
        {"annotations": {f"note-{number}": "" for number in range(1000)}},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": str(n)} for n in range(1000)]},
    ],
)
def test_metadata_counts_as_much_as_it_takes(metadata: dict[str, Any]) -> None:
    data = json.loads(raw("a", TEMPLATE))
    data["metadata"] |= metadata
    found = decode.training_job(TemplateShares(50 * SIZE))(json.dumps(data).encode())
    assert (found.name, found.waits_for_room) == ("a", True)


def test_versions_of_one_job_count_once() -> None:
    read = decode.training_job(TemplateShares(SIZE))
    versions = [read(raw("a", TEMPLATE, version=version)) for version in range(1, 6)]
    assert all(map(is_read, versions))
    assert not is_read(read(raw("b", TEMPLATE)))
    del versions[1:]
    gc.collect()
    assert not is_read(read(raw("b", TEMPLATE))), "one is left"
    versions.clear()
    gc.collect()
    assert is_read(read(raw("b", TEMPLATE)))


def test_of_a_large_template_the_identity_is_kept_with_the_remedy() -> None:
    template = {**TEMPLATE, "metadata": {"annotations": {"script": "x" * decode.MAX_TEMPLATE_BYTES}}}
    found = decode.training_job(TemplateShares())(raw("a", template))
    assert not is_read(found)
    assert (found.reason, found.waits_for_room) == ("TemplateTooLarge", False)
    assert (
        "spec.template is larger than 128 KiB: put scripts and data into the image, a ConfigMap or a volume"
        in found.error
    )
    assert len(repr(found)) < 1000


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"metadata": 5}'])
def test_what_is_no_object_is_an_error_as_before(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode.training_job(TemplateShares())(data)


def sizes(value: Any) -> int:
    """What a value takes, each part by itself."""
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return sys.getsizeof(value) + sum(map(sizes, inner))


@pytest.mark.parametrize(
    "text",
    [
        "[" + "{}," * 20_000 + "{}]",
        "[" + "[]," * 20_000 + "[]]",
        "[" + '{"a":0},' * 10_000 + "0]",
        "[" + '{"a":{}},' * 10_000 + "0]",
        "[" + "1.5," * 20_000 + "0]",
        "[" + '"\u00e9",' * 10_000 + "0]",
        "[" * 400 + "]" * 400,
        "{" + ",".join(f'"{number}":{number}' for number in range(10_000)) + "}",
        json.dumps(TEMPLATE),
    ],
    ids=["objects", "lists", "pairs", "nested", "numbers", "texts", "deep", "keys", "ordinary"],
)
def test_no_json_takes_more_than_is_reckoned(text: str) -> None:
    assert sizes(json.loads(text)) <= parsed_bytes(text.encode()) + 1024


class Answers:
    """Answers a GET of a job with what there is now."""

    def __init__(self) -> None:
        self.jobs: dict[str, bytes] = {}
        self.asked: list[str] = []

    async def get(self, path: str, query: Any = None) -> bytes:
        name = path.rpartition("/")[2]
        self.asked.append(name)
        if name not in self.jobs:
            raise NotFound(404, "NotFound", "no such job")
        return self.jobs[name]


async def test_a_job_for_which_there_was_no_room_is_read_once_there_is() -> None:
    client = Answers()
    jobs = TrainingJobs(client, shares=TemplateShares(2 * SIZE))  # type: ignore[arg-type]
    client.jobs = {name: raw(name, TEMPLATE, version=version) for version, name in enumerate("abcd", start=1)}
    seen: list[Any] = []
    for data in client.jobs.values():
        jobs.store.apply("ADDED", jobs.read(data))
    jobs.store.subscribe(lambda old, new: seen.append((old, new)))
    await jobs.read_refused()
    assert (client.asked, seen) == ([], []), "nothing is asked for while there is no room"
    jobs.store.apply("DELETED", jobs.read(raw("a", TEMPLATE, version=200)))
    seen.clear()
    gc.collect()
    await jobs.read_refused()
    assert client.asked == ["c"], "the same version as was refused; the next one has no room again"
    ((old, new),) = seen
    assert (is_read(old), is_read(new), new.metadata.name) == (False, True, "c")
    assert is_read(jobs.store.get(("ns", "c")))
    assert not is_read(jobs.store.get(("ns", "d")))
    assert jobs._shares.refused() == [(("ns", "d"), SIZE)]


async def test_one_that_is_gone_meanwhile_or_made_anew_is_not_put_back() -> None:
    client = Answers()
    jobs = TrainingJobs(client, shares=TemplateShares(SIZE))  # type: ignore[arg-type]
    first = jobs.read(raw("a", TEMPLATE, version=1))
    for version, name in enumerate(("b", "c", "d"), start=2):
        jobs.store.apply("ADDED", jobs.read(raw(name, TEMPLATE, version=version)))
    del first
    gc.collect()
    client.jobs["c"] = raw("c", TEMPLATE, version=9).replace(b"uid-c", b"another")
    client.jobs["d"] = raw("d", TEMPLATE, version=4)
    jobs.store.assume_deleted(("ns", "b"), "uid-b")
    await jobs.read_refused()
    assert client.asked == ["c", "d"]
    assert jobs.store.get(("ns", "b")) is None
    assert not is_read(jobs.store.get(("ns", "c"))), "the watch brings the new one"
    assert is_read(jobs.store.get(("ns", "d")))
