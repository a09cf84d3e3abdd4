"""`fork`: the new job begins from the other's checkpoint, saves elsewhere, and differs in what was asked for and in
nothing else."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from tests.unit.cli.test_commands import failed, path_of
from typer.testing import Result

from muster.api.trainingjob import TrainingJob
from muster.cli.errors import CliError
from muster.cli.forked import Made, forked
from muster.kube.errors import AlreadyExists, DryRunUnsupported

Run = Callable[..., Result]
CREATED = "/apis/muster.dev/v1alpha1/namespaces/team-a/trainingjobs"
CONTAINER: dict[str, Any] = {
    "name": "main",
    "image": "trainer:1",
    "command": ["torchrun", "run_clm.py"],
    "args": ["--output_dir", "/ckpt/llama", "--learning_rate=3e-4", "--data", "/ckpt/llama-data"],
    "env": [{"name": "SEED", "value": "1"}, {"name": "CACHE", "value": "/ckpt/llama/"}],
    "volumeMounts": [{"name": "shared", "mountPath": "/ckpt"}],
}
VOLUME: dict[str, Any] = {"name": "shared", "persistentVolumeClaim": {"claimName": "data"}}


def a_job(
    container: dict[str, Any] | None = None,
    checkpoint: dict[str, Any] | None = None,
    seen: dict[str, Any] | None = None,
    volume: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    told = {
        "step": 5000,
        "path": "/ckpt/llama/checkpoint-5000",
        "format": "HuggingFaceTrainer",
        "time": "2026-01-01T00:00:00Z",
    }
    pod = {"containers": [{**CONTAINER, **(container or {})}], "volumes": [volume or VOLUME]}
    return {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {
            "name": "llama",
            "namespace": "team-a",
            "uid": "u",
            "resourceVersion": "7",
            "labels": {"team": "a"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
            "ownerReferences": [{"uid": "x"}],
        },
        "spec": {
            "nodes": 2,
            "suspend": True,
            "template": {"spec": pod},
            "checkpoint": {"directory": "/ckpt/llama", "resumeFrom": 100, **(checkpoint or {})},
            "tomorrow": 1,  # a field of a newer API
            **spec,
        },
        "status": {"state": "Running", "checkpoint": {**told, **(seen or {})}},
    }


def fork(raw: dict[str, Any] | None = None, **how: Any) -> Made:
    raw = raw or a_job()
    return forked(TrainingJob.model_validate(raw), raw, **how)


def container_of(made: Made) -> dict[str, Any]:
    found: dict[str, Any] = made.manifest["spec"]["template"]["spec"]["containers"][0]
    return found


def test_it_begins_from_the_newest_and_saves_beside_the_other() -> None:
    raw = a_job()
    before = json.dumps(raw)
    made = fork(raw)
    assert made.manifest["metadata"] == {"name": "llama-5000", "namespace": "team-a", "labels": {"team": "a"}}
    assert made.manifest["spec"]["checkpoint"] == {
        "directory": "/ckpt/llama-5000",
        "resumeFrom": "job/llama@5000",
        "resumePreset": "HuggingFaceTrainer",
    }
    assert "suspend" not in made.manifest["spec"]
    assert "status" not in made.manifest
    assert made.manifest["spec"]["tomorrow"] == 1
    container = container_of(made)
    assert container["args"] == [
        "--output_dir",
        "/ckpt/llama-5000",
        "--learning_rate=3e-4",
        "--data",
        "/ckpt/llama-data",
    ]
    assert container["env"] == [{"name": "SEED", "value": "1"}, {"name": "CACHE", "value": "/ckpt/llama-5000/"}]
    assert "spec.checkpoint.directory: /ckpt/llama -> /ckpt/llama-5000" in made.changed
    assert json.dumps(raw) == before, "the other job is not touched"


def test_no_tool_takes_the_fork_for_its_own() -> None:
    raw = a_job()
    labels = {"app.kubernetes.io/instance": "jobs", "kustomize.toolkit.fluxcd.io/name": "jobs", "helm.sh/chart": "c-1"}
    raw["metadata"]["labels"] |= labels
    raw["metadata"]["annotations"] |= {"argocd.argoproj.io/tracking-id": "jobs:x", "meta.helm.sh/release-name": "jobs"}
    made = fork(raw)
    assert made.manifest["metadata"] == {"name": "llama-5000", "namespace": "team-a", "labels": {"team": "a"}}
    assert "metadata.labels: app.kubernetes.io/instance is left out" in made.changed
    assert "metadata.annotations: argocd.argoproj.io/tracking-id is left out" in made.changed
    keep = {"helm.sh/resource-policy": "keep", "kustomize.toolkit.fluxcd.io/prune": "disabled"}
    raw["metadata"]["annotations"] |= keep
    assert fork(raw).manifest["metadata"]["annotations"] == keep, "what forbids a deletion stays"


def test_an_earlier_step_and_a_name() -> None:
    made = fork(from_step=3000, name="try")
    assert (made.start, made.directory, made.manifest["metadata"]["name"]) == ("job/llama@3000", "/ckpt/try", "try")


def test_where_the_directory_is_the_whole_volume_the_new_one_lies_within_it() -> None:
    mounts = [{"name": "shared", "mountPath": "/ckpt/llama"}]
    assert fork(a_job({"volumeMounts": mounts})).directory == "/ckpt/llama/forks/llama-5000"


def test_a_fork_that_has_saved_nothing_yet_is_forked_from_where_it_began() -> None:
    made = fork(a_job(seen={"path": "/ckpt/base/checkpoint-5000"}))
    assert made.start == "/ckpt/base/checkpoint-5000"


def test_what_lies_within_the_others_directory_is_left_and_told() -> None:
    made = fork(a_job({"args": ["--output_dir=/ckpt/llama", "--tokens", "/ckpt/llama/tokens.bin"]}))
    assert container_of(made)["args"] == ["--output_dir=/ckpt/llama-5000", "--tokens", "/ckpt/llama/tokens.bin"]
    assert any("/ckpt/llama/tokens.bin" in each for each in made.check)


def test_megatron_loads_from_the_other_and_later_from_its_own() -> None:
    args = ["--save", "/ckpt/llama", "--load", "/ckpt/llama"]
    seen = {"path": "/ckpt/llama/iter_0005000", "format": "Megatron"}
    made = fork(a_job({"command": ["torchrun", "pretrain_gpt.py"], "args": args}, seen=seen))
    assert made.manifest["spec"]["checkpoint"]["resumePreset"] == "Megatron"
    assert container_of(made)["args"] == ["--save", "/ckpt/llama-5000", "--load", "/ckpt/llama-5000"]


def test_words_of_ones_own_that_resume_name_the_directory_of_the_checkpoint() -> None:
    words = ["--load", "/ckpt/llama", "--ckpt-step", "$(MUSTER_RESUME_STEP)"]
    made = fork(a_job(checkpoint={"resumeArgument": words}))
    assert made.manifest["spec"]["checkpoint"]["resumeArgument"][:2] == ["--load", "$(MUSTER_RESUME_DIRECTORY)"]
    assert "resumePreset" not in made.manifest["spec"]["checkpoint"]


@pytest.mark.parametrize(
    ("text", "part", "want"),
    [
        ("SEED=7", "env", [{"name": "CACHE", "value": "/ckpt/llama-5000/"}, {"name": "SEED", "value": "7"}]),
        ("--learning_rate=1e-4", "args", "--learning_rate=1e-4"),
        ("--data=/elsewhere", "args", "/elsewhere"),
        ("--warmup=10", "args", "--warmup=10"),
        ("spec.template.spec.containers[0].image=trainer:2", "image", "trainer:2"),
    ],
)
def test_what_is_different(text: str, part: str, want: Any) -> None:
    made = fork(sets=[text])
    found = container_of(made)[part]
    assert want in found if part == "args" else found == want
    assert f"{text} (--set)" in made.changed


@pytest.mark.parametrize(
    ("text", "path", "want"),
    [
        ("spec.nodes=4", ("nodes",), 4),
        ("spec.placement.required=rack", ("placement", "required"), "rack"),
        ("spec.placement.avoidNodes[0]=gpu-7", ("placement", "avoidNodes"), ["gpu-7"]),
        ("spec.suspend=true", ("suspend",), True),
    ],
)
def test_fields_of_the_job(text: str, path: tuple[str, ...], want: Any) -> None:
    here: Any = fork(sets=[text]).manifest["spec"]
    for name in path:
        here = here[name]
    assert here == want


@pytest.mark.parametrize(
    ("changes", "how", "says"),
    [
        ({}, {"name": "9lives"}, "--name: '9lives' becomes part of host names"),
        ({}, {"name": "llama"}, "--name: llama is the job itself"),
        ({}, {"from_step": 6000}, "--from-step: 6000 is beyond the newest complete checkpoint of llama, 5000"),
        ({}, {"directory": "/ckpt/llama/"},
         "--directory: /ckpt/llama: give an absolute path or a URL that is not /ckpt/llama"),
        ({}, {"directory": "here"}, "--directory: here: give an absolute path"),
        ({}, {"sets": ["SEED"]}, "--set SEED: write KEY=VALUE"),
        ({}, {"sets": ["RANK=1"]}, "--set RANK=1: RANK is Muster's"),
        ({}, {"sets": ["optimizer.lr=1"]}, "optimizer.lr is no variable (NAME), no option"),
        ({}, {"sets": ["spec.checkpoint.directory=/x"]}, "give --directory in its place"),
        ({}, {"sets": ["spec.nodes.big=1"]}, "nodes is not an object"),
        ({}, {"sets": ["spec.template.spec.containers[3].image=x"]}, "there is no entry [3]: the list has 1"),
        ({}, {"sets": ["spec.nodes=many"]}, "spec.nodes: a TrainingJob cannot have 'many' there"),
        ({}, {"sets": ["spec.nodes=[1"]}, "the value is no YAML"),
        ({"container": {"args": ["--config", "c.yaml"], "env": []}}, {},
         "nothing in the command, args or env of container main names /ckpt/llama"),
        ({"container": {"command": ["bash", "-c", "train /ckpt/llama"]}}, {"sets": ["--lr=1"]},
         "bash runs a line of its own"),
        ({"volume": {"name": "shared", "emptyDir": {}}}, {}, "an emptyDir, which is gone with each pod"),
        ({"checkpoint": {"resumePreset": "DeepSpeed"}, "seen": {"format": "DeepSpeed"}}, {},
         "DeepSpeed goes on only from what lies in its own directory"),
        ({"launch": {"mode": "Plain"}}, {}, "job llama has no spec.checkpoint.directory"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_told_with_the_remedy(changes: dict[str, Any], how: dict[str, Any], says: str) -> None:
    with pytest.raises(CliError) as error:
        fork(a_job(**changes), **how)
    assert says in str(error.value)


def test_who_has_seen_to_it_says_where_it_saves() -> None:
    raw = a_job({"args": ["--config", "c.yaml"], "env": []})
    assert fork(raw, directory="/ckpt/new", sets=["CONFIG=d.yaml"]).directory == "/ckpt/new"
    raw = a_job({"args": ["--out", "$(MUSTER_CHECKPOINT_DIRECTORY)"], "env": []})
    assert fork(raw).directory == "/ckpt/llama-5000"


def stored(directory: str = "s3://bucket/run", **container: Any) -> dict[str, Any]:
    args = ["--out", f"{directory}/", f"--tokens={directory}/tokens.bin", "--old", f"{directory}-2"]
    seen = {"path": f"{directory}/step-5000", "format": "TorchDCP"}
    return a_job({"args": args, "env": [], **container}, {"directory": directory}, seen)


def test_a_url_is_moved_as_a_directory_is() -> None:
    made = fork(stored(env=[{"name": "OUT", "value": "s3://bucket/run"}]))
    assert made.manifest["spec"]["checkpoint"]["directory"] == "s3://bucket/llama-5000"
    assert made.start == "job/llama@5000"
    args = ["--out", "s3://bucket/llama-5000/", "--tokens=s3://bucket/run/tokens.bin", "--old", "s3://bucket/run-2"]
    assert container_of(made)["args"] == args
    assert container_of(made)["env"] == [{"name": "OUT", "value": "s3://bucket/llama-5000"}]
    assert any("s3://bucket/run/tokens.bin lies in the directory of llama" in each for each in made.check)
    assert not any("volume" in each or "claim" in each for each in made.check)
    assert any("llama has to keep that checkpoint" in each for each in made.check)


@pytest.mark.parametrize(
    ("old", "new"),
    [("s3://bucket", "s3://bucket/forks/llama-5000"),
     ("abfs://c@account.dfs.core.windows.net/a/b", "abfs://c@account.dfs.core.windows.net/a/llama-5000")],
)  # fmt: skip
def test_where_a_fork_of_a_url_saves(old: str, new: str) -> None:
    assert fork(stored(old)).directory == new


def test_a_fork_may_save_on_the_other_side() -> None:
    made = fork(stored(), directory="/ckpt/new/")
    assert made.directory == "/ckpt/new"
    assert any("/ckpt/new is not in the store of s3://bucket/run: it has to be shared" in each for each in made.check)
    made = fork(directory="s3://bucket/new/")
    assert made.directory == "s3://bucket/new"
    assert any("able to list, read and write below s3://bucket/new" in each for each in made.check)
    assert not any("on the volume of" in each for each in made.check)


def test_a_url_whose_parts_the_program_puts_together_is_not_guessed() -> None:
    with pytest.raises(CliError, match="nothing in the command, args or env of container main names s3://bucket/run"):
        fork(stored(args=["--bucket", "bucket", "--prefix", "run"]))


def test_a_preset_that_loads_from_no_store_is_told() -> None:
    raw = stored()
    raw["spec"]["checkpoint"]["resumePreset"] = "TorchTitan"
    with pytest.raises(
        CliError, match="TorchTitan loads only from a file system, and this is s3://bucket/run/step-5000"
    ):
        fork(raw)


def test_a_job_without_a_checkpoint_cannot_be_forked() -> None:
    raw = a_job()
    raw["status"] = {}
    with pytest.raises(CliError, match="has no complete checkpoint yet"):
        fork(raw)


def test_the_command_creates_it(api: Any, command: Run) -> None:
    api.put(path_of("llama"), a_job())
    result = command("fork", "llama", "--from-step", "3000", "--set", "--learning_rate=1e-4", "--set", "spec.nodes=4")
    assert result.exit_code == 0, result.output
    [(verb, path, body)] = api.written
    assert (verb, path) == ("POST", CREATED)
    assert body["spec"]["checkpoint"]["resumeFrom"] == "job/llama@3000"
    assert body["spec"]["nodes"] == 4
    assert "--learning_rate=1e-4" in body["spec"]["template"]["spec"]["containers"][0]["args"]
    assert (
        "trainingjob team-a/llama-3000 created: it begins from job/llama@3000 and saves to /ckpt/llama-3000"
        in result.stdout
    )


def test_a_dry_run_prints_what_kubectl_can_apply(api: Any, command: Run) -> None:
    api.put(path_of("llama"), a_job())
    result = command("fork", "llama", "--dry-run")
    assert yaml.safe_load(result.stdout)["metadata"]["name"] == "llama-5000"
    assert "changed  spec.checkpoint.directory" in result.stderr


def test_a_name_that_is_taken_is_told(api: Any, command: Run) -> None:
    api.put(path_of("llama"), a_job())
    api.refuses[CREATED] = AlreadyExists(409, "AlreadyExists", "exists")
    assert "there is a job team-a/llama-5000 already: choose another name with --name" in failed(
        command("fork", "llama")
    )


def test_a_webhook_that_takes_no_dry_run_says_nothing_of_the_job(api: Any, command: Run) -> None:
    api.put(path_of("llama"), a_job())
    answer = 'admission webhook "w.example.org" does not support dry run'
    api.refuses[CREATED] = DryRunUnsupported(400, "BadRequest", answer)
    said = failed(command("fork", "llama", "--dry-run"))
    assert f"whether the API server takes job llama-5000 is not known: {answer}. Leave out --dry-run" in said
