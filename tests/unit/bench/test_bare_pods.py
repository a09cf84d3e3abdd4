"""The floor's pods: its own, or as large as those that Muster makes."""

import json

import pytest
from bench.bed import pod_spec
from bench.peers.bareclient import bodies
from bench.peers.muster import training_job

PODS = {f"gang-{index}-0": f"gpu-{index:05d}" for index in range(3)}


def test_its_own_pods_are_the_template_and_nothing_else() -> None:
    made = {name: json.loads(body) for name, body in bodies(PODS, None).items()}
    assert list(made) == list(PODS)
    assert {name: pod["metadata"] for name, pod in made.items()} == {name: {"name": name} for name in PODS}
    assert all(pod["spec"] == {**pod_spec(), "schedulerName": "bench-bare"} for pod in made.values())


@pytest.mark.parametrize(("mode", "init_containers"), [("Plain", 0), ("Managed", 1)])
def test_with_a_job_they_are_musters_of_an_owner_that_exists(mode: str, init_containers: int) -> None:
    job = training_job(3, mode)
    job["metadata"] |= {"namespace": "bench", "uid": "uid-of-a-config-map"}
    for index, (name, body) in enumerate(bodies(PODS, job).items()):
        pod = json.loads(body)
        assert pod["metadata"]["name"] == name
        assert pod["metadata"]["labels"]["muster.dev/index"] == str(index)
        assert [(owner["kind"], owner["uid"]) for owner in pod["metadata"]["ownerReferences"]] == [
            ("ConfigMap", "uid-of-a-config-map")
        ]
        assert pod["spec"]["schedulerName"] == "muster"
        assert PODS[name] in json.dumps(pod["spec"]["affinity"])
        assert len(pod["spec"].get("initContainers", [])) == init_containers
