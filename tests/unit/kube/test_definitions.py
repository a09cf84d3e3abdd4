"""Which of Muster's kinds a cluster has, by the API server's answer."""

from typing import Any

import pytest

from muster.kube.definitions import served_kinds
from muster.kube.errors import ApiError, NotFound


class Server:
    def __init__(self, answer: bytes | Exception) -> None:
        self.answer = answer

    async def get(self, path: str) -> bytes:
        assert path == "/apis/muster.dev/v1alpha1"
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def kinds(answer: bytes | Exception) -> frozenset[str]:
    server: Any = Server(answer)
    return await served_kinds(server)


async def test_the_kinds_are_those_that_the_server_lists() -> None:
    answer = b'{"kind": "APIResourceList", "resources": [{"name": "gangs", "verbs": []}, {"name": "nodehealths"}]}'
    assert await kinds(answer) == {"gangs", "nodehealths"}
    assert await kinds(NotFound(404, "NotFound", "no such group")) == set()


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b"{}", b'{"resources": null}', b'{"resources": [{}]}'])
async def test_an_answer_of_another_form_leaves_it_unknown(answer: bytes) -> None:
    with pytest.raises(ApiError, match=r"the answer to /apis/muster\.dev/v1alpha1 is no list of kinds: "):
        await kinds(answer)
