"""After `helm uninstall` no node keeps a mark of Muster's, and nothing waits for long."""

import asyncio
import copy
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from localcluster.patience import PATIENCE_SECONDS
from muster.answers.markednodes import REMOVING_COMMANDS
from muster.controller import unmark as module
from muster.controller.unmark import OPERATOR_SECONDS, Unmarking, unmark
from muster.health.sources import UNHEALTHY_TAINT
from muster.kube.errors import ApiError, Invalid
from muster.world.views import MUSTER_HEALTHY

OTHER_TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
MARKS = {"taints": [OTHER_TAINT, {"key": UNHEALTHY_TAINT, "effect": "NoSchedule"}], "condition": True}


class FakeServer:
    """Nodes and pods of the operator, as far as the program asks for them."""

    def __init__(self, **nodes: dict[str, Any]) -> None:
        self.nodes = {name: a_node(name, **marks) for name, marks in nodes.items()}
        self.lists_with_operator = 0
        self.deleted_at: str | None = "2026-01-31T12:00:00Z"
        self.refuses: list[ApiError] = []
        self.hangs = False
        self.requests: list[str] = []

    async def get(self, path: str, query: Any, **_: Any) -> bytes:
        if self.hangs:
            await asyncio.Event().wait()
        if path.endswith("/pods"):
            assert query["labelSelector"] == "app.kubernetes.io/name=muster"
            self.requests.append("pods")
            self.lists_with_operator -= 1
            pod = {"metadata": {"name": "muster-1", "deletionTimestamp": self.deleted_at}}
            items: list[Any] = [pod] * (self.lists_with_operator >= 0)
        else:
            self.requests.append("nodes")
            items = list(self.nodes.values())
        return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()

    async def patch(self, path: str, body: Any, kind: str) -> bytes:
        if self.refuses:
            raise self.refuses.pop()
        name, _, subresource = path.partition("/nodes/")[2].partition("/")
        node = self.nodes[name]
        if subresource == "status":
            assert body["metadata"] == {"uid": f"uid-{name}"}
            assert body["status"] == {"conditions": [{"$patch": "delete", "type": MUSTER_HEALTHY}]}
            node["status"]["conditions"] = [it for it in node["status"]["conditions"] if it["type"] != MUSTER_HEALTHY]
        else:
            test, change = body
            assert test == {"op": "test", "path": "/spec/taints", "value": node["spec"]["taints"]}
            node["spec"]["taints"] = copy.deepcopy(change["value"])
        return b"{}"

    def marks(self) -> str:
        text = json.dumps(self.nodes)
        return " ".join(mark for mark in (UNHEALTHY_TAINT, MUSTER_HEALTHY) if mark in text)


def a_node(name: str, taints: Any = None, *, condition: bool = False) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True"}, *([{"type": MUSTER_HEALTHY, "status": "False"}] * condition)]
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {} if taints is None else {"taints": taints},
        "status": {"conditions": conditions},
    }


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)


async def run(server: FakeServer, limit_seconds: float = PATIENCE_SECONDS) -> Unmarking:
    """By a clock on which each look takes a second."""
    seconds = itertools.count()
    return await unmark(server, limit_seconds, clock=lambda: float(next(seconds)))  # type: ignore[arg-type]


async def test_both_marks_go_and_those_of_others_stay() -> None:
    server = FakeServer(a=MARKS, b={"taints": [OTHER_TAINT]}, c={})
    done = await run(server)
    assert server.marks() == ""
    assert [server.nodes[name]["spec"].get("taints") for name in "abc"] == [[OTHER_TAINT], [OTHER_TAINT], None]
    assert done.summary() == "Muster's marks were removed from 1 node. No node has one."


async def test_the_operator_ends_before_the_first_node_is_read() -> None:
    server = FakeServer(a=MARKS)
    server.lists_with_operator = 3
    await run(server)
    assert server.requests[:5] == ["pods", "pods", "pods", "pods", "nodes"]


async def test_an_operator_that_does_not_end_holds_nothing_up() -> None:
    server = FakeServer(a=MARKS)
    server.lists_with_operator = 1_000_000_000
    await run(server)
    assert server.marks() == ""
    assert server.requests.count("pods") == OPERATOR_SECONDS


async def test_no_mark_is_removed_beside_an_operator_that_stays() -> None:
    server = FakeServer(a=MARKS)
    server.lists_with_operator, server.deleted_at = 1_000_000_000, None
    done = await run(server, limit_seconds=0.05)
    assert "nodes" not in server.requests
    assert done.summary().startswith("The operator of Muster still runs, so its marks stay on nodes.")


async def test_a_node_that_changes_meanwhile_is_tried_again() -> None:
    server = FakeServer(a=MARKS)
    server.refuses = [Invalid(422, "Invalid", "the test failed")]
    done = await run(server)
    assert (server.marks(), done.marked) == ("", set())


async def test_an_api_server_that_never_answers_ends_it_within_the_limit() -> None:
    server = FakeServer(a=MARKS)
    server.hangs = True
    done = await run(server, limit_seconds=0.05)
    assert "is not known (no answer in time)" in done.summary()
    assert all(command in done.summary() for command in REMOVING_COMMANDS)


def test_what_is_left_is_named_with_the_reason_and_the_commands() -> None:
    text = Unmarking(marked={f"n{number}" for number in range(7)}, problem="may not patch nodes").summary()
    assert text.startswith("Muster's marks are still on 7 nodes (may not patch nodes): n0, n1, n2, n3, n4 and 2 more.")
    assert all(command in text for command in REMOVING_COMMANDS)


@pytest.mark.parametrize("kubeconfig", [None, "contexts: [", "kind: Config"])
async def test_without_a_connection_it_ends_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kubeconfig: str | None
) -> None:
    config = tmp_path / "config"
    if kubeconfig is not None:
        config.write_text(kubeconfig)
    monkeypatch.setenv("KUBECONFIG", str(config))
    with pytest.raises(SystemExit) as ended:
        await module.run()
    first, *others = str(ended.value).splitlines()
    assert "is not known (no way to the API server: neither the token of a service account nor a kubeconfig" in first
    assert others[1:] == list(REMOVING_COMMANDS)
