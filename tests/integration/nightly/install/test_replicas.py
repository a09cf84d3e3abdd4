"""Two replicas: one leads, the other is ready; whatever happens to the leader or to the API server, one leads again."""

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from tests.integration.install.replicas import leaders_address, lease, pair

LEASE_SECONDS = 15  # kube/lease.py: nobody takes over sooner unless the lease was given back
# A leader gives up 10 s after its last renewal, and renews every 2 s.
SURVIVED_SECONDS = 6.0
RESTARTS = 5
HEARD_SECONDS = 3.0  # from a new leader's lease to its first answer
ELSEWHERE, UNKNOWN_CALLER = 421, 401  # answers of one that does not lead, and of one that does, without a token


def test_a_leader_told_to_stop_gives_its_lease_back(installation: Any, wait_until: Callable[..., Any]) -> None:
    leader, standby = pair(installation, wait_until)
    held = lease(installation)
    assert leader.terminate() == 0
    assert leader.said("stopped")
    wait_until(standby.leads, "the standby leads")
    wait_until(lambda: leaders_address(installation) == standby.coordinator_address, "its address stands in the lease")
    # It did not wait the lease out: that would have taken LEASE_SECONDS from the last renewal.
    taken = lease(installation)
    assert taken["leaseTransitions"] == held["leaseTransitions"] + 1
    gap = _moment(standby.said("leading")[0]["timestamp"]) - _moment(leader.said("stopped")[0]["timestamp"])
    assert gap < LEASE_SECONDS - 3


def test_a_standby_answers_launchers_and_names_the_leader(installation: Any, wait_until: Callable[..., Any]) -> None:
    leader, standby = pair(installation, wait_until)
    wait_until(lambda: standby.answers() == (ELSEWHERE, leader.coordinator_address), "the standby names the leader")
    assert leader.answers() == (UNKNOWN_CALLER, "")
    third = installation.start(leader.pod)
    wait_until(lambda: third.answers() == (ELSEWHERE, leader.coordinator_address), "so does the third")
    leader.terminate()
    address = wait_until(lambda: leaders_address(installation), "somebody leads")
    new, other = (standby, third) if address == standby.coordinator_address else (third, standby)
    wait_until(lambda: new.answers() == (UNKNOWN_CALLER, ""), "the new leader answers itself")
    wait_until(lambda: other.answers() == (ELSEWHERE, address), "the other one names it")


def test_a_new_leader_answers_within_three_seconds_of_its_lease(
    installation: Any, wait_until: Callable[..., Any]
) -> None:
    leader, standby = pair(installation, wait_until)
    wait_until(lambda: standby.answers()[0] == ELSEWHERE, "the standby answers")
    leader.kill()
    wait_until(standby.leads, "the standby leads")
    began = time.monotonic()
    wait_until(lambda: standby.answers() == (UNKNOWN_CALLER, ""), "it answers as the leader")
    assert time.monotonic() - began < HEARD_SECONDS


def test_every_replica_is_an_endpoint_of_the_coordinator(installation: Any, wait_until: Callable[..., Any]) -> None:
    addresses = dict(zip(installation.operator_pods(), ("10.1.0.1", "10.1.0.2"), strict=True))
    for (pod, address), node in zip(addresses.items(), ("node-a", "node-b"), strict=True):
        _pretend_to_run(installation, pod, node, address)
    wait_until(lambda: _endpoints(installation) == set(addresses.values()), "both are endpoints, whoever leads")


def test_a_leader_survives_a_restart_of_the_api_server(installation: Any, wait_until: Callable[..., Any]) -> None:
    leader, standby = _pair_with_a_restart(installation, wait_until)
    _wait_for_a_renewal(installation, wait_until)
    assert leader.process.poll() is None
    assert leader.leads()
    assert not standby.leads()
    # It hears again what happens.
    lists = "muster_informer_objects"
    before = leader.samples(lists)[(("informer", "nodes"),)]
    installation.kubectl("create", "-f", "-", stdin=json.dumps(_node("node-new")))
    wait_until(lambda: leader.samples(lists)[(("informer", "nodes"),)] == before + 1, "the new node is seen")
    installation.kubectl("delete", "node", "node-new")


def test_a_leader_without_an_api_server_ends_and_the_next_one_waits_for_it(
    installation: Any, wait_until: Callable[..., Any]
) -> None:
    leader, standby = pair(installation, wait_until)
    installation.control_plane.stop_apiserver()
    try:
        wait_until(lambda: leader.process.poll() is not None, "the leader has ended")
        assert leader.said("leadership lost")
        assert standby.get("/readyz") == (200, "ok")  # what it knows is still the best there is
        successor = installation.start_again(leader)  # as its kubelet would
        wait_until(lambda: successor.get("/readyz")[0] == 503, "the successor answers, and is not ready")
    finally:
        installation.control_plane.start_apiserver()
    wait_until(successor.ready, "the successor is ready")
    wait_until(lambda: [one.leads() for one in (standby, successor)].count(True) == 1, "one of them leads")


def _pair_with_a_restart(installation: Any, wait_until: Callable[..., Any]) -> tuple[Any, Any]:
    """Leader and standby after a restart of the API server that a leader has to survive: a busy machine's may take
    longer."""
    for _ in range(RESTARTS):
        leader, standby = pair(installation, wait_until)
        began = time.monotonic()
        installation.control_plane.restart_apiserver()
        away_seconds = time.monotonic() - began
        _wait_for_a_renewal(installation, wait_until)  # by whomever
        if leader.process.poll() is None or away_seconds < SURVIVED_SECONDS:
            return leader, standby
        installation.stop_all()
    raise AssertionError(f"no restart of the API server took less than {SURVIVED_SECONDS:.0f} s")


def _wait_for_a_renewal(installation: Any, wait_until: Callable[..., Any]) -> None:
    before = lease(installation)["renewTime"]
    wait_until(lambda: lease(installation)["renewTime"] != before, "the lease is renewed")


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def _pretend_to_run(installation: Any, pod: str, node: str, address: str) -> None:
    """What scheduler and kubelet would write."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "namespace": installation.namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    path = f"/api/v1/namespaces/{installation.namespace}/pods/{pod}/binding"
    installation.kubectl("create", f"--raw={path}", "-f", "-", stdin=json.dumps(binding))
    status = {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    arguments = ("patch", "pod", pod, f"--namespace={installation.namespace}", "--subresource=status", "--type=merge")
    installation.kubectl(*arguments, f"--patch={json.dumps({'status': status})}")


def _endpoints(installation: Any) -> set[str]:
    selector = "--selector=kubernetes.io/service-name=muster-coordinator"
    slices = installation.get("endpointslices", f"--namespace={installation.namespace}", selector)["items"]
    return {
        address
        for found in slices
        for endpoint in found.get("endpoints") or []
        if endpoint["conditions"]["ready"]
        for address in endpoint["addresses"]
    }
