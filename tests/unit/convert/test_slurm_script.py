"""sbatch scripts as TrainingJobs: what they ask for, what becomes of each option, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.counting import CountedWork

from muster.convert.documents import Result
from muster.convert.requested import JobRequest, job_name
from muster.convert.slurm_script import convert_script, unexpanded


def script(*directives: str, body: str = "srun python3 train.py") -> str:
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {directive}" for directive in directives), body, ""])


def converted(text: str, **request: Any) -> Result:
    return convert_script(text, "train.sh", JobRequest(**{"image": "i", **request}))


def spec_of(text: str, **request: Any) -> dict[str, Any]:
    found = converted(text, **request)
    assert found.job is not None, found.refused
    spec: dict[str, Any] = found.job["spec"]
    return spec


def container_of(text: str, **request: Any) -> dict[str, Any]:
    found: dict[str, Any] = spec_of(text, **request)["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize(
    ("directives", "nodes", "gpus", "processes"),
    [
        ([], 1, 0, 1),
        (["-N 2 --gres=gpu:8"], 2, 8, 1),
        (["-N 2-2", "--gres=gpu:a100:4,nic:1", "--ntasks-per-node=4"], 2, 4, 4),
        (["-n 16 --ntasks-per-node=8 --gpus-per-task=1"], 2, 8, 8),
        (["-N 2 -n 16 --ntasks-per-node=99 --gpus-per-node=h100:8"], 2, 8, 8),
        (["--gpus=16 --gpus-per-node=8"], 2, 8, 1),
        (["-N 4 --gpus=a100:32"], 4, 8, 1),
        (["-N 2 --exclusive"], 2, 8, 1),
        (["-n 1 --gres=gpu"], 1, 1, 1),
        (["-N 2", "-N 3"], 3, 0, 1),
    ],
)
def test_nodes_gpus_and_processes_are_those_that_slurm_would_give(
    directives: list[str], nodes: int, gpus: int, processes: int
) -> None:
    spec = spec_of(script(*directives))
    assert (spec["nodes"], spec["gpusPerNode"]) == (nodes, gpus)
    assert spec.get("launch", {}).get("processesPerNode", 1) == processes


def test_gpus_that_are_not_said_are_to_be_checked() -> None:
    notes = converted(script("-N 2")).notes
    assert "spec.gpusPerNode: 0: the script asks for no GPUs, so it keeps off nodes that have some" in notes.check
    assert [note for note in converted(script("--exclusive")).notes.check if note.startswith("spec.gpusPerNode: 8: ")]
    assert not [note for note in converted(script("--gres=gpu:1")).notes.check if note.startswith("spec.gpusPerNode")]


def test_what_the_command_line_says_takes_the_place_of_the_script() -> None:
    spec = spec_of(script("-N 2 --gres=gpu:8 --ntasks-per-node=8"), nodes=4, gpus_per_node=4, name="mine")
    assert (spec["nodes"], spec["gpusPerNode"], spec["launch"]) == (4, 4, {"processesPerNode": 8})
    found = converted(script("-J other"), name="mine", namespace="team-a")
    assert found.job is not None
    assert found.job["metadata"] == {"name": "mine", "namespace": "team-a"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#SBATCH -N 2\n", "line 1: #SBATCH -N 2: sbatch reads a script of a shell: begin it with #!/bin/bash"),
        ("#!/bin/'bash\n", "line 1: #!/bin/'bash: sbatch reads a script of a shell"),
        ("#!\n", "line 1: #!: sbatch reads a script of a shell"),
        ("#!/usr/bin/python3\n", "line 1: #!/usr/bin/python3: sbatch reads a script of a shell"),
        (script("--array=0-9"), "line 2: --array=0-9: write one job for each"),
        (script("-d afterok:12"), "line 2: --dependency=afterok:12: no job waits for another"),
        (script("-w node[1-2]"), "line 2: --nodelist=node[1-2]: Muster chooses nodes"),
        (script("-N 1", "hetjob", "-N 2"), "line 3: hetjob: a gang has one template"),
        (script("-N 1 : -N 2"), "line 2: -N 1 : -N 2: a gang has one template"),
        (script("-N 2-4"), "line 2: --nodes=2-4: a gang has one size: write one number"),
        (script("-N NODES"), "line 2: --nodes=NODES: write a number"),
        (script("-N ²"), "line 2: --nodes=²: write a number"),
        (script("-N 0"), "line 2: --nodes=0: write 1 or more"),
        (script("-N 2", "--ntasks-per-node=0"), "line 3: --ntasks-per-node=0: write 1 or more"),
        (script("-N 'x"), "line 2: -N 'x: a quotation mark is not closed"),
        (script("train.py"), "line 2: train.py: it is no option"),
        (script("-n 5"), "line 2: --ntasks=5: how many nodes it takes is not said: write --nodes"),
        (script("-N 2 -n 5"), "line 2: --ntasks=5: it is no multiple of the 2 nodes"),
        (
            script("-N 2", body="torchrun train.py"),
            "--nodes=2: without srun Slurm runs a script on the first node alone",
        ),
        (script("-N 2", body="srun -N 1 a"), "line 3: --nodes=1: the job has 2 nodes"),
        (
            script("-N 2", body="srun -n 2 a\nsrun -n 4 b"),
            "line 4: srun: its processes are others than those of line 3",
        ),
        (script("--time=1h"), "line 2: --time: 1h: write minutes, hours:minutes:seconds or days-hours"),
        (script("-t 1:2:3:4"), "line 2: --time: 1:2:3:4: write minutes"),
        (script("-J ???", body="srun a " + "x" * 100_001), "characters are too many for a command"),
    ],
)
def test_what_cannot_be_is_refused_with_line_and_remedy(text: str, why: str) -> None:
    found = converted(text)
    assert found.job is None
    assert why in found.refused


def test_all_that_is_wrong_is_said_at_once() -> None:
    refused = converted(script("--array=1-2", "-N x", body="sbatch b.sh"), image="").refused
    assert [part.partition(": ")[0] for part in refused.splitlines()] == ["line 2", "line 3", "line 4", "--image"]


def test_lines_behind_the_first_command_are_not_read_as_sbatch_does_not() -> None:
    text = "#!/bin/bash\n\n  # a comment\n##SBATCH -N 9\n#SBATCH -N 2 # of 9\nset -e\n#SBATCH -N 3\nsrun a\n"
    found = converted(text)
    assert found.job is not None
    assert found.job["spec"]["nodes"] == 2
    assert "line 7: #SBATCH -N 3: it stands behind the first command, where sbatch reads none" in found.notes.left_out


@pytest.mark.parametrize(
    ("option", "note"),
    [
        ("--deadline=2027-01-01", "no job has a time limit"),
        ("--mem=0", "each worker has a node to itself"),
        ("--output=x", "kubectl muster logs JOB shows"),
        ("--account=a", "all jobs wait in Muster's own queue"),
        ("--partition=gpu", "nodes are chosen by spec.template.spec.nodeSelector, and all jobs wait in one queue"),
        ("--requeue", "Muster restarts a job"),
        ("--signal=B:USR1@90", "no signal comes"),
        ("--mail-user=a@example.org", "no mail is sent"),
        ("--constraint=a100", "nodes are chosen by spec.template.spec.nodeSelector"),
        ("--reservation=maintenance", "nodes are chosen by spec.template.spec.nodeSelector, affinity"),
        ("--prefer=h200", "nodes are chosen by spec.template.spec.nodeSelector, affinity"),
        ("--nice=100", "spec.template.spec.priorityClassName orders the queue"),
        ("--priority=100", "spec.template.spec.priorityClassName orders the queue"),
        ("--exclude=n1,n2", "spec.placement.avoidNodes has the names of such nodes"),
        ("--qos=high", "spec.template.spec.priorityClassName orders the queue; a preemptible QOS is spec.queueing."),
        ("--dependency=singleton", "no two jobs of a namespace have one name"),
    ],
)
def test_what_means_nothing_here_is_said_in_a_line(option: str, note: str) -> None:
    notes = converted(script(option)).notes
    assert [line for line in [*notes.left_out, *notes.check] if line.startswith(f"line 2: {option}: {note}")]


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("24:00:00", 86400),
        ("1-2", 93600),
        ("1-2:30", 95400),
        ("1-2:30:15", 95415),
        ("365-0", 31_536_000),
        ("366-0", None),
        ("0", None),
        ("UNLIMITED", None),
        ("infinite", None),
    ],
)
def test_a_time_is_an_estimate_and_no_limit(time: str, seconds: int | None) -> None:
    found = converted(script(f"--time={time}"))
    assert found.job is not None
    assert found.job["spec"].get("queueing", {}).get("expectedDurationSeconds") == seconds
    became = "no limit" if seconds is None else f"spec.queueing.expectedDurationSeconds: {seconds}: it is no limit"
    assert f"line 2: --time={time} -> {became}" in found.notes.became
    other = converted(script(f"--time={time}"), time="2:00")
    assert other.job is not None
    assert other.job["spec"]["queueing"] == {"expectedDurationSeconds": 120}


def test_options_that_a_job_has_are_taken_over() -> None:
    text = script("-H --segment=2 -N 4 -D /work -c 12 --export=ALL,A=1,B=$(RANK)", "-J 'My Run_2'")
    found = converted(text)
    assert found.job is not None
    spec = found.job["spec"]
    assert found.job["metadata"]["name"] == "my-run-2"
    assert (spec["suspend"], spec["placement"]) == (True, {"segmentSize": 2})
    container = spec["template"]["spec"]["containers"][0]
    assert container["workingDir"] == "/work"
    values = {variable["name"]: variable["value"] for variable in container["env"]}
    assert (values["SLURM_CPUS_PER_TASK"], values["A"], values["B"]) == ("12", "1", "$$(RANK)")


def test_a_process_sees_its_own_gpu_where_slurm_would_show_it_no_other() -> None:
    bound = container_of(script("-N 2 --ntasks-per-node=4 --gpus-per-task=2"))["command"][2]
    first, last = "$$((LOCAL_RANK * 2))", "$$((LOCAL_RANK * 2 + 1))"
    assert f"export CUDA_VISIBLE_DEVICES=$$(seq -s, {first} {last})\n" in bound
    free = "--ntasks-per-node=4 --gpus-per-task=1 --gpu-bind=none"
    assert "CUDA_VISIBLE_DEVICES" not in container_of(script(f"-N 2 {free}"))["command"][2]
    assert "CUDA_VISIBLE_DEVICES" not in container_of(script("-N 2 -n 2 --gpus-per-task=8"))["command"][2]


def test_variables_that_only_a_running_script_knows_are_set_where_it_reads_them() -> None:
    text = container_of(script(body="cd $SLURM_SUBMIT_DIR\nsrun a --tries ${SLURM_RESTART_COUNT}"))["command"][2]
    assert text.startswith("export SLURM_SUBMIT_DIR=$PWD\nexport SLURM_RESTART_COUNT=$$((MUSTER_ATTEMPT - 1))\n")
    assert "SLURM_SUBMIT_DIR" not in container_of(script())["command"][2]


def test_the_exit_code_of_a_pipe_is_that_of_the_training() -> None:
    assert "set -o pipefail\n" in container_of(script(body="srun a | tee log"))["command"][2]
    assert "pipefail" not in container_of(script())["command"][2]


def test_on_several_nodes_nothing_behind_the_training_fails_the_job() -> None:
    behind = "srun a\ndcgmi profile"
    assert container_of(script("-N 2", body=behind))["command"][2].endswith("a || exit\ndcgmi profile\nexit 0\n")
    two = container_of(script("-N 2", body="srun a\nsrun b"))["command"][2]
    assert two.endswith("a || exit\nb || exit\nexit 0\n"), "the second one, too, fails it"
    assert container_of(script("-N 1", body=behind))["command"][2].endswith("a || exit\ndcgmi profile\n")


def test_claims_and_a_directory_are_those_of_the_command_line() -> None:
    spec = spec_of(script(), volumes={"/data": "claim"}, checkpoint_directory="/data/run")
    assert spec["checkpoint"] == {"directory": "/data/run"}
    pod = spec["template"]["spec"]
    assert pod["containers"][0]["volumeMounts"][1] == {"name": "volume-0", "mountPath": "/data"}
    assert pod["volumes"][1] == {"name": "volume-0", "persistentVolumeClaim": {"claimName": "claim"}}


@pytest.mark.parametrize(
    ("named", "image"),
    [
        ("nvcr.io#nvidia/pytorch:24.01-py3", "nvcr.io/nvidia/pytorch:24.01-py3"),
        ("docker://ubuntu", "ubuntu"),
        ("/fsx/a.sqsh", ""),
        ("$IMAGE", ""),
    ],
)
def test_the_image_is_that_of_pyxis_where_a_node_can_pull_it(named: str, image: str) -> None:
    found = converted(script(body=f"srun --container-image={named} a"), image="")
    if image:
        assert found.job is not None
        assert found.job["spec"]["template"]["spec"]["containers"][0]["image"] == image
    else:
        assert found.refused.startswith("--image: the script names none that a node could pull")


@pytest.mark.parametrize(
    ("written", "doubled"), [("$A ${B}", "$A ${B}"), ("$(a $$)", "$$(a $$$)"), ("$((1))", "$$((1))"), ("$", "$")]
)
def test_the_kubelet_makes_the_text_of_the_script(written: str, doubled: str) -> None:
    assert unexpanded(written) == doubled


@pytest.mark.parametrize(
    ("written", "name"),
    [("My_Job.1", "my-job-1"), ("--x--", "x"), ("3.train", "train"), ("???", ""), ("a" * 50, "a" * 40)],
)
def test_a_name_is_as_near_to_the_scripts_as_it_can_be(written: str, name: str) -> None:
    assert job_name(written) == name


def test_no_line_of_a_script_runs_where_it_is_read(tmp_path: Path) -> None:
    made = tmp_path / "made"
    body = f"$(touch {made})\nA=`touch {made}`\nsrun a $(touch {made})\neval touch {made}"
    converted(script(f"-J $(touch {made})", body=body))
    assert not made.exists()


LONG = {
    "commands": ":\n" * 400,
    "steps": "srun a\n" * 400,
    "a pipe": "srun a|" * 400,
    "modules": "module a;echo $SLURM_NTASKS\n" * 400,
    "mentions": "a srun\n" * 400,
    "hosts": "".join(f"A{number}=$(scontrol show hostnames)\na b\n" for number in range(400)),
    "substitutions": "A=($(b))\n" * 400,
    "options": "A=-a\n" * 400 + "srun $A p\n" * 400,
    "values": "".join(f"A=b{number}\nsrun $A p\n" for number in range(400)),
}


@pytest.mark.parametrize("name", LONG)
def test_the_work_grows_as_the_script_does(name: str) -> None:
    steps = []
    for body in (LONG[name], LONG[name] * 4):
        with CountedWork() as work:
            converted(script("-N 2", body=f"{body}\nsrun python3 train.py"))
        steps.append(work.steps)
    assert steps[1] < 6 * steps[0]


def test_variables_that_add_too_many_options_are_refused() -> None:
    body = "A=-a\n" * 200 + "srun $A p\n" * 60
    refused = converted(script("-N 2", body=body)).refused
    assert "line 253: srun: variables add more than 10000 words: write its options" in refused


def test_a_variable_without_options_adds_no_word() -> None:
    spec = spec_of(script("-N 2", body='A=""\nsrun $A python3 train.py'))
    assert spec["nodes"] == 2


def test_a_pipe_may_go_on_behind_a_line_end() -> None:
    text = container_of(script("-N 2", body="srun python3 train.py |\n  tee log\necho done"))["command"][2]
    assert "python3 train.py |\n  tee log || exit\necho done" in text
