"""`report --fleet` against a real API server, by people with different rights."""

import uuid
from typing import Any

SYSTEM = "muster-system"


def an_ended_job(hand: Any, namespace: str) -> str:
    uid = str(uuid.uuid4())
    spec = {
        "jobUid": uid,
        "namespace": hand.namespace,
        "name": "llama",
        "creationTime": "2026-01-01T00:00:00Z",
        "endTime": "2026-01-02T00:00:00Z",
        "state": "Succeeded",
        "seconds": {"compute": 86_400},
        "gpuSeconds": {"compute": 691_200},
    }
    metadata = {"name": uid, "namespace": namespace}
    hand.create({"apiVersion": "muster.dev/v1alpha1", "kind": "EndedJob", "metadata": metadata, "spec": spec})
    return uid


def test_who_may_read_the_history_is_told_of_it(stranger: Any, hand: Any) -> None:
    hand.kubectl("create", "namespace", SYSTEM)
    uid, forged = an_ended_job(hand, SYSTEM), an_ended_job(hand, hand.namespace)
    refused = stranger("report", "--fleet")
    assert refused.returncode == 1
    assert "ask for ClusterRole muster-fleet-view (a ClusterRoleBinding)" in refused.stderr
    hand.grant("muster-view", everywhere=True)
    found = stranger.json("report", "--fleet")
    assert "endedjobs in namespace muster-system: list" in found["notes"][0]
    assert uid not in {job["uid"] for job in found["jobDetails"]}
    hand.grant("muster-fleet-view", everywhere=True)
    found = stranger.json("report", "--fleet")
    assert found["notes"] == []
    uids = {job["uid"] for job in found["jobDetails"]}
    assert uid in uids
    assert forged not in uids, "what a tenant may write in its own namespace is no history"
    assert uid not in {job["uid"] for job in stranger.json("report", "--fleet", "--since", "2026-01-03")["jobDetails"]}
    for form in ("markdown", "html"):
        assert f"{hand.namespace}/llama" in stranger("report", "--fleet", "-o", form).stdout.replace("\\", "")
    hand.kubectl("delete", "endedjob", uid, "-n", SYSTEM)
