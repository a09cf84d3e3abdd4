"""Which fields of this version the API server drops, by the schemas that it publishes."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.kube.errors import ApiError
from muster.kube.schemas import MODELS, SCHEMAS, dropped_fields

CRDS = Path(__file__).resolve().parents[3] / "crds"
META = {"allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]}


class Server:
    """Publishes the shipped definitions."""

    def __init__(self) -> None:
        shipped = [yaml.safe_load(path.read_text())["spec"] for path in CRDS.glob("muster.dev_*.yaml")]
        self.schemas = {
            f"dev.muster.v1alpha1.{spec['names']['kind']}": copy.deepcopy(spec["versions"][0]["schema"])[
                "openAPIV3Schema"
            ]
            for spec in shipped
        }
        for schema in self.schemas.values():
            schema["properties"]["metadata"] = META

    async def get(self, path: str) -> bytes:
        assert path == SCHEMAS
        return json.dumps({"openapi": "3.0.0", "paths": {}, "components": {"schemas": self.schemas}}).encode()


async def test_the_shipped_definitions_lack_no_field() -> None:
    server: Any = Server()
    assert await dropped_fields(server) == {resource: [] for resource in MODELS}


async def test_the_outermost_of_the_missing_fields_are_named() -> None:
    server: Any = Server()
    spec = server.schemas["dev.muster.v1alpha1.Gang"]["properties"]["spec"]["properties"]
    del spec["unfencedWorkers"], spec["members"]["items"]["properties"]["incarnation"]
    del server.schemas["dev.muster.v1alpha1.EndedJob"]
    dropped = await dropped_fields(server)
    assert dropped.pop("gangs") == [".spec.members[].incarnation", ".spec.unfencedWorkers"]
    assert dropped == {resource: [] for resource in MODELS if resource not in ("gangs", "endedjobs")}


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b"{}", b'{"components": {"schemas": {"a": 1'])
async def test_an_answer_of_another_form_leaves_it_unknown(answer: bytes) -> None:
    server: Any = Server()

    async def get(_path: str) -> bytes:
        return answer

    server.get = get
    with pytest.raises(ApiError, match="has no schemas: "):
        await dropped_fields(server)
