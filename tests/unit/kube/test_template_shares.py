"""A namespace's templates have a share of the operator's memory; what is refused keeps its identity alone."""

import gc
import json
import sys
from typing import Any

import pytest

from muster.api.trainingjob import TrainingJob
from muster.kube import decode
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
    assert "the templates of all jobs in namespace ns" in third.error
    assert "delete jobs there that have ended" in third.error
    assert (third.namespace, third.name, third.uid, third.resource_version) == ("ns", "c", "uid-c", 1)
    assert is_read(read(raw("c", TEMPLATE, namespace="other")))
    del second
    gc.collect()
    assert is_read(read(raw("c", TEMPLATE)))
    assert is_read(first)


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
    assert found.reason == "TemplateTooLarge"
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
