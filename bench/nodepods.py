"""A pod on each node and a token that is bound to it, as a DaemonSet's controller and the kubelets would make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from bench.api import Object
from bench.bed import Bed
from muster.protocol.messages import TOKEN_AUDIENCE

_THREADS = 8
_TOKEN_SECONDS = 7200


def enrol(bed: Bed, account: str, image: str, nodes: Sequence[str], folder: Path, *, coordinator: bool = False) -> None:
    """Make them in the namespace that is named like its service account; the tokens go to `folder`, in files named by
    node.

    Args:
        coordinator: the tokens are for the operator's coordinator, not for the API server.
    """
    collection = f"/api/v1/namespaces/{account}/pods"
    tokens = f"/api/v1/namespaces/{account}/serviceaccounts/{account}/token"
    audiences = {"audiences": [TOKEN_AUDIENCE]} if coordinator else {}

    def some(mine: Sequence[str]) -> None:
        with closing(bed.connect()) as connection:
            for node in mine:
                pod = connection.post(collection, _pod(node, account, image))
                bound = {"kind": "Pod", "apiVersion": "v1", "name": node, "uid": pod["metadata"]["uid"]}
                spec = {"boundObjectRef": bound, "expirationSeconds": _TOKEN_SECONDS, **audiences}
                token = connection.post(tokens, {"spec": spec})["status"]["token"]
                (folder / node).write_text(token)

    share(some, nodes)


def share(work: Callable[[Sequence[str]], None], nodes: Sequence[str]) -> None:
    """Do it for all nodes, on several connections at a time."""
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(work, [nodes[start::_THREADS] for start in range(_THREADS)]))


def _pod(node: str, account: str, image: str) -> Object:
    spec = {
        "nodeName": node,
        "serviceAccountName": account,
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": image}],
    }
    return {"metadata": {"name": node}, "spec": spec}
