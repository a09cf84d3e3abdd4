"""`kubectl muster convert`: what is printed where, what passes as it is, and how it ends."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from tests.unit.cli.conftest import Api
from tests.unit.cli.converting import (
    assert_that_aliases_are_refused,
    assert_that_it_is_said_in_a_line,
    from_stdin,
    merged_again,
)
from tests.unit.convert.builders import MANIFESTS
from typer.testing import CliRunner, Result

from muster.cli.main import app

JOB, REFUSED = (MANIFESTS[name].given for name in ("jobset-script", "jobset-driver"))
CLAIM = """# where the checkpoints go
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: ckpt,   namespace: lab}  # two blanks
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 010Gi}}}
"""
CONFIG = """apiVersion: v1
kind: ConfigMap
metadata: {name: train}
data:
  when: 2026-01-31
  run.sh: |
    cat <<EOF
     ---
    EOF
"""
Command = Callable[..., Result]


def test_what_is_no_job_passes_as_it_was_written(command: Command, api: Api, tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(f"---\n{CLAIM}---\n{JOB}\n--- \n{CONFIG}")
    found = command("convert", str(file))
    assert found.exit_code == 0, found.output
    claim, job, config = found.stdout.split("---\n", 2)
    assert (claim, config) == (CLAIM, CONFIG)
    assert yaml.safe_load(job)["kind"] == "TrainingJob"
    assert found.stderr.splitlines()[0] == f"JobSet resnet ({file}, document 2): TrainingJob resnet"
    assert (
        found.stderr.splitlines()[-1]
        == "1 converted, 0 refused and not printed, passed as they are: PersistentVolumeClaim lab/ckpt, ConfigMap train"
    )
    assert api.asked == []


def test_a_job_that_cannot_be_converted_ends_with_code_2_and_is_not_printed(tmp_path: Path) -> None:
    file = tmp_path / "claim.yaml"
    file.write_text(CLAIM)
    found = from_stdin(f"{REFUSED}---\n{JOB}", str(file))
    assert found.exit_code == 2
    assert [each["kind"] for each in yaml.safe_load_all(found.stdout)] == ["PersistentVolumeClaim", "TrainingJob"]
    assert found.stderr.startswith("JobSet driven (stdin, document 1): refused: spec.replicatedJobs[1]: ")
    assert found.stderr.splitlines()[-1].startswith("1 converted, 1 refused and not printed")


def test_what_was_converted_is_not_converted_again() -> None:
    once = from_stdin(JOB).stdout
    again = from_stdin(once)
    assert (again.exit_code, again.stdout) == (0, once)


def test_scripts_stay_readable_and_words_stay_words() -> None:
    printed = from_stdin(JOB.replace('value: "0"', "value: 12:30:45").replace('"3389"', "2026-01-31")).stdout
    assert "        - |\n          echo" in printed
    variables = yaml.safe_load(printed)["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "PYTHONUNBUFFERED", "value": "12:30:45"} in variables


@pytest.mark.parametrize(
    ("before", "code", "says"),
    [
        ("\ufeff", 0, "TrainingJob train"),
        ("\n", 2, "refused: line 1: : sbatch reads a script of a shell: begin it with #!/bin/bash"),
        ("# of mine\n", 2, "refused: line 1: # of mine: sbatch reads a script of a shell: begin it with #!/bin/bash"),
    ],
)
def test_a_script_that_begins_with_something_else_is_no_manifest(
    tmp_path: Path, before: str, code: int, says: str
) -> None:
    file = tmp_path / "train.sh"
    file.write_text(f"{before}#!/bin/bash\n#SBATCH -N 1\nsrun a\n", encoding="utf-8")
    found = CliRunner().invoke(app, ["convert", str(file), "--image=i"])
    assert (found.exit_code, "srun" in found.stdout) == (code, False)
    assert f"sbatch script ({file}): {says}" in found.stderr


def test_a_script_is_converted_beside_manifests(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text("#!/bin/bash\n#SBATCH -N 2 --gres=gpu:8\nsrun torchrun train.py\n")
    found = CliRunner().invoke(app, ["convert", str(file), "-", "--image=i"], input=JOB)
    assert found.exit_code == 0, found.output
    assert [job["metadata"]["name"] for job in yaml.safe_load_all(found.stdout)] == ["train", "resnet"]
    assert f"sbatch script ({file}): TrainingJob train" in found.stderr
    refused = CliRunner().invoke(app, ["convert", "-"], input=file.read_text().replace("-N 2", "-a 1-2"))
    assert (refused.exit_code, refused.stdout) == (2, "")
    lines = refused.stderr.splitlines()
    assert lines[0].startswith("sbatch script (stdin): refused: line 2: --array=1-2: ")
    assert lines[1].startswith("  refused: --image: ")
    assert lines[2] == "0 converted, 1 refused and not printed, passed as they are: none"


def test_a_list_as_kubectl_prints_it(tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    items = [yaml.safe_load(CLAIM), *(yaml.safe_load(text) for text in (JOB, REFUSED))]
    items[1]["metadata"] |= {"uid": "7f3b", "resourceVersion": "9", "managedFields": [{"manager": "kubectl"}]}
    items[1]["status"] = {"restarts": 3}
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=4))
    found = CliRunner().invoke(app, ["convert", str(file)])
    assert found.exit_code == 2
    claim, job = yaml.safe_load_all(found.stdout)
    assert claim["metadata"] == {"name": "ckpt", "namespace": "lab"}
    assert job["metadata"] == {"name": "resnet"}
    assert "status" not in job
    assert f"JobSet driven ({file}, document 1, item 3): refused" in found.stderr


MPI = "{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, metadata: {name: hvd}, spec: {}}"


@pytest.mark.parametrize(
    "text",
    [
        f"apiVersion: v1\nkind: List\nitems:\n- {MPI}\n",
        f"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items:\n  - {MPI}\n",
        "apiVersion: kubeflow.org/v2beta1\nkind: MPIJobList\nitems:\n- metadata: {name: hvd}\n",
    ],
    ids=["List", "List in a List", "typed list, whose items have no kind"],
)
def test_a_list_of_refused_gangs_alone_ends_with_code_2(text: str) -> None:
    found = from_stdin(text)
    assert (found.exit_code, found.stdout) == (2, "")
    refusal, summary = found.stderr.splitlines()
    assert re.match(r"MPIJob hvd \(stdin, document 1, (item 1, )?item 1\): refused: MPIJob of kubeflow.org", refusal)
    assert summary == "0 converted, 1 refused and not printed, passed as they are: none"


def test_a_list_without_a_gang_passes_as_it_was_written() -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n- {kind: ConfigMap,   apiVersion: v1, metadata: {name: a}}  # kept\n"
    found = from_stdin(text)
    assert (found.exit_code, found.stdout) == (0, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "stdin, document 1 cannot be read: "),
        (f"{CLAIM}---\na: &a [*a]", "stdin, document 2 cannot be read: "),
        ("a: .nan", "stdin, document 1 cannot be read: "),
        ("a: !!python/object:os.system x", "stdin, document 1 cannot be read: "),
        ("[" * 600, "stdin, document 1 cannot be read: "),
    ],
)
def test_what_cannot_be_read_is_said_in_a_line(text: str, says: str) -> None:
    assert_that_it_is_said_in_a_line(text, says)


def test_the_page_shows_what_is_said() -> None:
    page = (Path(__file__).parents[3] / "docs" / "convert.md").read_text()
    shown = re.findall(r"^    ((?:JobSet|  |1 converted).*)$", page, re.MULTILINE)
    said = from_stdin(JOB).stderr.replace("stdin", "job.yaml").splitlines()
    assert len(shown) > 5
    assert [line for line in shown if line not in said] == []


def test_a_file_that_is_not_there(command: Command) -> None:
    found = command("convert", "/nowhere.yaml")
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr == "error: /nowhere.yaml: No such file or directory\n"


def test_what_others_wrote_cannot_move_the_cursor() -> None:
    found = from_stdin(JOB.replace("BlockingRecreate", '"\\e[2J\\ea"'))
    assert found.exit_code == 0
    assert "\x1b" not in found.stderr


def grown(first: str, written: str) -> str:
    """Nine names, each of which stands for nine times what the one before it does."""
    lines = [
        f"{name}: &{name} {written.format(','.join(['*' + before] * 9))}" for before, name in pairwise("abcdefghij")
    ]
    return "\n".join([f"a: &a {first}", *lines, "kind: JobSet"])


@pytest.mark.parametrize(
    "text",
    [
        grown("[x]", "[{}]"),
        grown("{x: 1}", "{{<<: [{}]}}"),
        merged_again(fields=300, times=1000),
        "a: &a [*a]",
        "a: &a {<<: *a}",
    ],
)
def test_aliases_that_stand_for_more_than_memory_are_refused(text: str) -> None:
    assert_that_aliases_are_refused(text)


def test_aliases_are_read() -> None:
    text = "a: &a {x: 1}\nb: {<<: [*a, {y: 2}], x: 3}\nc: [*a, *a]\n"
    assert from_stdin(text).stdout == text
    merged = "metadata: &m {name: a}\nkind: List\nitems: [{kind: JobSet, metadata: {<<: *m, name: b}}]\n"
    assert "JobSet b (stdin, document 1, item 1)" in from_stdin(merged).stderr


def test_a_job_of_one_pod_with_accelerators_passes_with_a_word() -> None:
    trainer = "{name: t, image: i, resources: {limits: {nvidia.com/gpu: 8}}}"
    spec = f"{{template: {{spec: {{restartPolicy: Never, containers: [{trainer}]}}}}}}"
    text = f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: one}}\nspec: {spec}\n"
    found = from_stdin(text)
    assert (found.exit_code, found.stdout) == (0, text)
    assert found.stderr.startswith("Job one (stdin, document 1) stays as it is: its pods ask for nvidia.com/gpu: 8,")
