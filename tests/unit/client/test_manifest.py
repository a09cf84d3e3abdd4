"""The manifest of a job: what the builder makes, and that each wrong field is named before anything is sent."""

from pathlib import Path
from typing import Any

import pytest

from muster.api.trainingjob import TrainingJob
from muster.client import InvalidJobError, training_job
from muster.client.manifest import checked, read_manifest

README = Path(__file__).resolve().parents[3] / "README.md"


def a_manifest(**spec: Any) -> dict[str, Any]:
    manifest = training_job("llama", image="i:1", command=["torchrun", "train.py"], nodes=2)
    manifest["spec"] |= spec
    return manifest


def problems(manifest: dict[str, Any], name: str | None = None) -> dict[str, str]:
    with pytest.raises(InvalidJobError) as refused:
        checked(manifest, name)
    return {problem.field: problem.message for problem in refused.value.problems}


def test_the_builder_makes_a_job_of_what_most_jobs_need() -> None:
    manifest = training_job(
        "llama",
        image="i:1",
        command=["torchrun", "train.py"],
        nodes=4,
        gpus_per_node=4,
        checkpoint_directory="/shared/llama",
        volumes={"/shared": "claim"},
        env={"LR": "0.1"},
    )
    job = TrainingJob.model_validate(checked(manifest))
    assert (job.spec.nodes, job.spec.gpus_per_node, job.spec.checkpoint.directory) == (4, 4, "/shared/llama")
    (container,) = job.spec.containers
    assert container["command"] == ["torchrun", "train.py"]
    assert container["env"] == [{"name": "LR", "value": "0.1"}]
    (volume,) = job.spec.pod["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "claim"}
    assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/shared"}]


def test_a_command_that_is_one_text_is_refused() -> None:
    with pytest.raises(InvalidJobError, match=r'^command: write a list, e\.g\. \["torchrun", "train\.py"\]$'):
        training_job("llama", image="i:1", command="torchrun train.py", nodes=1)


def test_a_name_takes_the_place_of_the_manifests_and_a_status_is_left_out() -> None:
    manifest = {**a_manifest(), "status": {"state": "Running"}}
    sent = checked(manifest, "other")
    assert (sent["metadata"]["name"], "status" in sent) == ("other", False)
    assert manifest["metadata"]["name"] == "llama"
    assert checked({key: manifest[key] for key in ("metadata", "spec")})["kind"] == "TrainingJob"


@pytest.mark.parametrize(
    ("spec", "field", "says"),
    [
        ({"node": 2}, "spec.node", "there is no such field: did you mean nodes?"),
        ({"gpus_per_node": 8}, "spec.gpus_per_node", "there is no such field: did you mean gpusPerNode?"),
        (
            {"checkpoint": {"dir": "/c"}},
            "spec.checkpoint.dir",
            "there is no such field: there are directory, localDirectory",
        ),
        ({"placement": {"require": "rack"}}, "spec.placement.require", "did you mean required?"),
        ({"nodes": 0}, "spec.nodes", "Input should be greater than or equal to 1, not 0"),
        ({"launch": {"mode": "plain"}}, "spec.launch.mode", "Input should be 'Managed' or 'Plain', not 'plain'"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_meant(spec: dict[str, Any], field: str, says: str) -> None:
    found = problems(a_manifest(**spec))
    assert list(found) == [field]
    assert says in found[field]


def test_all_wrong_fields_are_named_at_once() -> None:
    manifest = {**a_manifest(nodes="many", suspended=True), "metdata": {}}
    del manifest["spec"]["template"]
    assert set(problems(manifest, "Llama 7B")) == {
        *("metdata", "metadata.name", "spec.suspended", "spec.nodes", "spec.template")
    }


def test_another_kind_or_no_spec_is_refused() -> None:
    converts = "kubeflow.org/v1 PyTorchJob is no muster.dev/v1alpha1 TrainingJob: kubectl muster convert makes one"
    assert problems({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}) == {"kind": converts}
    assert set(problems({"metadata": {"name": "llama"}})) == {"spec"}
    assert set(problems({"metadata": "llama"})) == {"metadata"}


def test_a_file_has_one_job(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    lines = README.read_text().partition("    apiVersion: muster.dev")[2].partition("\n\n")[0]
    file.write_text("\n".join(line.removeprefix("    ") for line in f"    apiVersion: muster.dev{lines}".splitlines()))
    assert checked(read_manifest(file))["metadata"]["name"] == "llama"
    file.write_text("a: 1\n---\nb: 2\n")
    with pytest.raises(InvalidJobError, match="it has 2 documents: submit one TrainingJob"):
        read_manifest(file)
    file.write_text("{")
    with pytest.raises(InvalidJobError, match=r"job\.yaml, document 1 cannot be read: .*: give YAML or JSON"):
        read_manifest(str(file))
    with pytest.raises(InvalidJobError, match="No such file or directory: give the path of a manifest"):
        read_manifest(tmp_path / "jop.yaml")
    with pytest.raises(InvalidJobError, match=r"/-: No such file"):
        read_manifest("-")
