"""sbatch scripts as public projects write them: what job each becomes, and what its processes start; or why there is
none.

A process runs the script in a real shell, with programs on its PATH that print how they were started.
"""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.convert.schema import faults, schema
from tests.unit.reports.corpus import Case, cases

from muster.api.trainingjob import parsed
from muster.convert.documents import Result
from muster.convert.requested import JobRequest
from muster.convert.slurm_script import convert_script
from muster.node.launcher.environment import RankFiles, rank_environment
from muster.protocol.expansion import REFERRING, expanded, kept, referring, with_identity
from muster.protocol.messages import RUN, Directive

SCRIPTS = cases("scripts")
PROGRAMS = ("torchrun", "python", "python3", "accelerate")
FAKE = '#!/bin/bash\necho "$(basename "$0")" "$@" >> "$STARTED"\nexit ${FAILING:-0}\n'


def converted(case: Case) -> Result:
    arguments = tuple(case.besides.get("arguments", ()))
    return convert_script(case.given, "sample.sh", JobRequest(case.besides.get("image", "i"), arguments=arguments))


def kubelet(text: str) -> str:
    """What the kubelet makes of a word where no variable is known to it: `$$` is a dollar sign."""
    return text.replace("$$", "$")


def process(job: Mapping[str, Any], node: int, folder: Path, failing: int = 0) -> tuple[int, str, dict[str, str]]:
    """Run the process on a node: its exit code, what it started, and its environment."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    inherited = {variable["name"]: variable["value"] for variable in container["env"]}
    inherited[REFERRING] = json.dumps(referring(inherited.items()))
    per_node = job["spec"].get("launch", {}).get("processesPerNode", 1)
    directive = Directive(
        RUN,
        node_rank=node,
        node_count=job["spec"]["nodes"],
        processes_per_node=per_node,
        attempt=1,
        master_address="10.0.0.7",
        master_port=29501,
    )
    command = [kubelet(kept(word)) for word in container["command"]]
    environment = with_identity(rank_environment(inherited, directive, 0, RankFiles.within("/m", 0), command))
    for program in PROGRAMS:
        (folder / program).write_text(FAKE)
        (folder / program).chmod(0o755)
    (folder / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n")
    (folder / "nvidia-smi").chmod(0o755)
    started = folder / f"started-{node}"
    environment |= {"PATH": f"{folder}:/usr/bin:/bin", "STARTED": str(started), "FAILING": str(failing)}
    words = expanded(command, environment)
    with (folder / "printed").open("wb") as printed:
        ended = subprocess.run(words, env=environment, cwd=folder, stdout=printed, stderr=printed, check=False)
    assert started.exists(), (folder / "printed").read_text()
    return ended.returncode, started.read_text().strip(), environment


@pytest.mark.parametrize("case", [case for case in SCRIPTS if "becomes" in case.right], ids=str)
def test_a_script_becomes_a_job_whose_processes_do_what_it_does(case: Case, tmp_path: Path) -> None:
    found = converted(case)
    assert found.job is not None, found.refused
    parsed(found.job)
    assert list(faults(found.job, schema("trainingjobs"))) == []
    spec = found.job["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    is_as = {"name": found.job["metadata"]["name"], "nodes": spec["nodes"], "gpusPerNode": spec["gpusPerNode"]}
    is_as |= spec.get("launch", {}) | ({"image": container["image"]} if "image" in case.right["becomes"] else {})
    assert is_as == case.right["becomes"]
    last = spec["nodes"] - 1
    code, started, environment = process(found.job, last, tmp_path)
    drawn = started.partition("--rdzv_id ")[2].partition(" ")[0]
    right = case.right["starts"].replace("{drawn}", drawn).replace("{job}", environment["SLURM_JOB_ID"])
    assert (code, started) == (0, right)
    assert environment.items() >= case.right.get("environment", {}).items()
    if last:
        assert process(found.job, 0, tmp_path)[1].replace("rank0", "rank8") == right, "nodes draw the same numbers"
    assert process(found.job, 0, tmp_path, failing=7)[0] == 7, "a failure is no success"
    said = "\n".join([*found.notes.became, *found.notes.left_out, *found.notes.check])
    assert [text for text in case.right.get("told", ()) if text not in said] == []
    assert [text for text in case.right.get("not_told", ()) if text in said] == []


@pytest.mark.parametrize("case", [case for case in SCRIPTS if "refused" in case.right], ids=str)
def test_a_script_that_no_gang_can_run_is_refused_with_line_and_remedy(case: Case) -> None:
    found = converted(case)
    assert found.job is None
    assert [text for text in case.right["refused"] if text not in found.refused] == [], found.refused


def test_seven_of_ten_scripts_run_as_they_are() -> None:
    accepted = {case.report for case in SCRIPTS if "becomes" in case.right}
    refused = {case.report for case in SCRIPTS if "refused" in case.right}
    assert len(accepted | refused) >= 10
    assert len(accepted) >= 7 / 10 * len(accepted | refused)
