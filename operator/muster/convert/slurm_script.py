"""Converts an sbatch script into a TrainingJob whose workers run it, and reports what became of each option. Pure.

Source: Slurm 25.05, doc/man/man1/sbatch.1 (which lines are read, what variables are set), src/sbatch/opt.c.
"""

import re
import shlex
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from muster.api.trainingjob import NAME_RULES, is_job_name
from muster.convert.documents import Result
from muster.convert.fields import Notes, RefusedError, short
from muster.convert.requested import (
    GPUS_OF_A_NODE,
    JobRequest,
    check_request,
    expected_seconds,
    job_manifest,
    job_name,
)
from muster.convert.slurm_body import BodyFitter, FittedBody, exported_pairs
from muster.convert.slurm_options import SBATCH, Given, OptionUse, read_options
from muster.protocol.shell_words import SHELLS

T = TypeVar("T")

_LONGEST_SCRIPT = 100_000  # a kernel takes no longer word of a command
_DIRECTIVE = "#SBATCH"
_LOGIN = frozenset(("-l", "--login"))
_LOGIN_REASON = "-l: a login shell would replace the PATH that the image sets"
_HEADER_LINES = re.compile(r"\A#!.*\n|^#SBATCH.*\n\n?", re.MULTILINE)
_HOW_MANY_NODES = "how many nodes it takes is not said: write --nodes"


@dataclass(frozen=True, slots=True)
class _Header:
    """What a script begins with: its shell with options, and what sbatch reads; and the whole text."""

    shell: tuple[str, ...]
    options: tuple[Given, ...]
    text: str


@dataclass(frozen=True, slots=True)
class _Layout:
    """How many nodes there are, and what each has."""

    nodes: int
    tasks_per_node: int
    gpus: int
    gpus_per_task: int | None = None


@dataclass(frozen=True, slots=True)
class _Fitted:
    """What is known of a script.

    Attributes:
        header: what it begins with.
        body: its commands.
        layout: of its processes.
        given: its own options by name.
        options: those of its steps, too.
        seconds: that it is expected to train; None: it does not say.
    """

    header: _Header
    body: FittedBody
    layout: _Layout
    given: Mapping[str, Given]
    options: Sequence[Given]
    seconds: int | None


def is_script(written: str) -> bool:
    """Return whether a text is a script, be it one that sbatch refuses, and no manifest."""
    return written.startswith("#!") or re.search(f"^{_DIRECTIVE}", written, re.MULTILINE) is not None


def convert_script(text: str, file_name: str, request: JobRequest) -> Result:
    """Return the TrainingJob of an sbatch script, or why there is none.

    Args:
        text: of the script.
        file_name: without its folder; the script's own name, and the job's where nothing else names it.
        request: what the command line says.
    """
    notes = Notes()
    try:
        return Result(_converted(text, file_name, request, notes), notes=notes)
    except RefusedError as error:
        return Result(refused=str(error), notes=notes)


def unexpanded(text: str) -> str:
    """Return a text of which the kubelet makes the given one: it resolves `$(NAME)`, and makes one `$` of two."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def _converted(text: str, file_name: str, request: JobRequest, notes: Notes) -> dict[str, Any]:
    """Return the job of a script.

    Raises:
        RefusedError: there is none; has a line for each reason.
    """
    header = _read_header(text, notes)
    given = {option.option.name: option for option in header.options}
    refusals: list[str] = []
    layout = _collected(refusals, lambda: _layout(given, request, notes)) or _Layout(1, 1, 0)
    seconds = _collected(refusals, lambda: _seconds(given, request, notes))
    name = request.name or job_name(given["--job-name"].value if "--job-name" in given else "")
    name = name or job_name(file_name.rpartition(".")[0] or file_name)
    if not is_job_name(name):
        refusals.append(f"--name: {name!r} becomes part of host names: write {NAME_RULES}")
    fitter = BodyFitter(header.text, _variables(layout, given, name), notes)
    body = fitter.fit()
    refusals += fitter.refusals
    layout = _collected(refusals, lambda: _stepped(layout, body)) or layout
    options = [*header.options, *(option for step in body.steps for option in step.options)]
    refusals += _sort_options(options, notes)
    image = request.image or _image(options)
    if not image:
        refusals.append("--image: the script names none that a node could pull: name the container's image")
    if refusals:
        raise RefusedError("\n".join(dict.fromkeys(sorted(refusals, key=_line_of))))
    complete = replace(request, image=image, name=name, arguments=(file_name, *request.arguments))
    return _job(_Fitted(header, body, layout, given, options, seconds), complete, notes)


def _line_of(refusal: str) -> int:
    """Return the line that a refusal begins with; what is of no line comes last."""
    line = re.match(r"line (\d+):", refusal)
    return int(line[1]) if line else sys.maxsize


def _collected(refusals: list[str], make: Callable[[], T]) -> T | None:
    """Return what is made; None: it is refused, which is added to the others."""
    try:
        return make()
    except RefusedError as error:
        refusals.append(str(error))
        return None


def _read_header(text: str, notes: Notes) -> _Header:
    """Read what sbatch reads: the lines `#SBATCH` before the first command."""
    lines = text.replace("\r\n", "\n").split("\n")
    shell = lines[0].removeprefix("#!").split()
    shell = shell[1:] if shell and shell[0].endswith("/env") else shell
    if not lines[0].startswith("#!") or not shell or shell[0].rsplit("/", 1)[-1] not in SHELLS:
        raise RefusedError(f"line 1: {short(lines[0])}: sbatch reads a script of a shell: begin it with #!/bin/bash")
    if _LOGIN & {*shell}:
        notes.left_out.append(f"line 1: {_LOGIN_REASON}")
        shell = [word for word in shell if word not in _LOGIN]
    if len(text) > _LONGEST_SCRIPT:
        raise RefusedError(f"{len(text)} characters are too many for a command: call a script of the image")
    options: list[Given] = []
    is_read = True
    for number, line in enumerate(lines, 1):
        where = f"line {number}"
        if not line.startswith(_DIRECTIVE):
            is_read = is_read and (not line.strip() or line.lstrip().startswith("#"))
        elif is_read:
            options += _directive(line.removeprefix(_DIRECTIVE), where)
        else:
            notes.left_out.append(
                f"{where}: {short(line)}: it stands behind the first command, where sbatch reads none"
            )
    return _Header(tuple(shell), tuple(options), "\n".join(lines))


def _directive(text: str, where: str) -> list[Given]:
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise RefusedError(f"{where}: {short(text.strip())}: a quotation mark is not closed: close it") from error
    if {"hetjob", "packjob", ":"} & {*words}:
        raise RefusedError(f"{where}: {text.strip()}: a gang has one template: write one job for each component")
    options, count = read_options(words, SBATCH, where)
    if count < len(words):
        raise RefusedError(f"{where}: {short(words[count])}: it is no option: take it out")
    return options


def _sort_options(options: Sequence[Given], notes: Notes) -> list[str]:
    """Note the options that mean nothing here or have to be checked; returns what is said of those that are refused."""
    refusals = []
    for it in options:
        text = f"{it.where}: {short(it.written)}: {it.option.text}"
        if it.option.name == "--dependency" and it.value == "singleton":
            notes.left_out.append(f"{it.where}: {it.written}: no two jobs of a namespace have one name")
        elif it.option.use is OptionUse.REFUSED:
            refusals.append(text)
        elif it.option.use is OptionUse.MEANINGLESS:
            notes.left_out.append(text)
        elif it.option.use is OptionUse.TO_CHECK:
            notes.check.append(text)
        elif it.option.name == "--container-mounts":
            notes.check.append(f"{it.where}: {short(it.written)}: name a claim for each path: --volume PATH=CLAIM")
    return refusals


def _number(given: Given, value: str = "") -> int:
    """Return the number of an option.

    Raises:
        RefusedError: it is none.
    """
    least, _, most = (value or given.value).partition("-")
    if not least.isdecimal() or (most and most != least):
        remedy = "a gang has one size: write one number" if most else "write a number"
        raise RefusedError(f"{given.where}: {given.written}: {remedy}")
    return int(least)


def _gpus(given: Given, notes: Notes) -> int:
    """Return the number of GPUs of `--gres`, `--gpus` and the like; -1: it names other devices alone."""
    counts = []
    for part in given.value.split(","):
        name, *rest = part.removeprefix("gres/").removeprefix("gres:").split(":")
        if given.option.name == "--gres" and name != "gpu":
            notes.left_out.append(
                f"{given.where}: {given.option.name}={part}: a device beside the GPUs is a resource of "
                "the template's container"
            )
            continue
        words = rest if given.option.name == "--gres" else [name, *rest]
        number = words[-1].partition("(")[0] if words else "1"
        kind = [word for word in words if not word[:1].isdecimal()]
        if kind:
            notes.check.append(
                f"{given.where}: {given.option.name}={part}: spec.template.spec.nodeSelector chooses nodes "
                f"with {kind[0]}"
            )
        counts.append(_number(given, number if number[:1].isdecimal() else "1"))
    return sum(counts) if counts else -1


def _layout(given: Mapping[str, Given], request: JobRequest, notes: Notes) -> _Layout:
    """Return how many nodes a script asks for, and what it wants on each.

    Raises:
        RefusedError: it cannot be known.
    """
    numbers = {name: _number(given[name]) for name in ("--nodes", "--ntasks", "--ntasks-per-node") if name in given}
    for name, number in numbers.items():
        if number == 0:
            raise RefusedError(f"{given[name].where}: {given[name].written}: write 1 or more")
    names = ("--gpus-per-node", "--gres", "--gpus-per-task", "--gpus")
    counted = {name: count for name in names if name in given and (count := _gpus(given[name], notes)) >= 0}
    tasks, per_node = numbers.get("--ntasks"), numbers.get("--ntasks-per-node")
    nodes = request.nodes or numbers.get("--nodes")
    if nodes is None and tasks and per_node:
        nodes = _share(tasks, per_node, given["--ntasks"], "tasks of a node")
    elif nodes is None and "--gpus" in counted and "--gpus-per-node" in counted:
        nodes = _share(counted["--gpus"], counted["--gpus-per-node"], given["--gpus"], "GPUs of a node")
    elif nodes is None and tasks not in (None, 1):
        raise RefusedError(f"{given['--ntasks'].where}: {given['--ntasks'].written}: {_HOW_MANY_NODES}")
    nodes = nodes or 1
    if per_node is None or (tasks and "--nodes" in numbers and request.nodes is None):
        per_node = _share(tasks or nodes, nodes, given.get("--ntasks"), "nodes")
    gpus = request.gpus_per_node
    if gpus is None and ("--gpus-per-node" in counted or "--gres" in counted):
        gpus = counted.get("--gpus-per-node", counted.get("--gres"))
    elif gpus is None and "--gpus-per-task" in counted:
        gpus = counted["--gpus-per-task"] * per_node
    elif gpus is None and "--gpus" in counted:
        gpus = _share(counted["--gpus"], nodes, given["--gpus"], "nodes")
    if gpus is None and "--exclusive" in given:
        gpus = GPUS_OF_A_NODE
        notes.check.append(
            f"spec.gpusPerNode: {gpus}: the script takes whole nodes, and does not say how many GPUs one "
            "has: --gpus-per-node says so"
        )
    elif gpus is None:
        gpus = 0
        notes.check.append("spec.gpusPerNode: 0: the script asks for no GPUs, so it keeps off nodes that have some")
    is_bound = "--gpu-bind" not in given or not given["--gpu-bind"].value.startswith("none")
    return _Layout(nodes, per_node, gpus, counted.get("--gpus-per-task") if is_bound else None)


def _seconds(given: Mapping[str, Given], request: JobRequest, notes: Notes) -> int | None:
    """Return the seconds that a script is expected to train; None: it does not say.

    Raises:
        RefusedError: it says no time.
    """
    if request.time:
        return expected_seconds(request.time, "--time")
    if "--time" not in given:
        return None
    it = given["--time"]
    seconds = expected_seconds(it.value, f"{it.where}: {it.option.name}")
    became = "no limit" if seconds is None else f"spec.queueing.expectedDurationSeconds: {seconds}: it is no limit"
    notes.became.append(f"{it.where}: {short(it.written)} -> {became}")
    return seconds


def _share(whole: int, parts: int, given: Given | None, of: str) -> int:
    if parts < 1 or whole % parts:
        where = f"{given.where}: {given.written}" if given else "--nodes"
        raise RefusedError(f"{where}: it is no multiple of the {parts} {of}, and all workers are alike: write one")
    return whole // parts


def _stepped(layout: _Layout, body: FittedBody) -> _Layout:
    """Return the layout with the processes that `srun` starts.

    Raises:
        RefusedError: no process would run on the other nodes, or steps differ.
    """
    if not body.steps:
        if layout.nodes > 1:
            raise RefusedError(
                f"--nodes={layout.nodes}: without srun Slurm runs a script on the first node alone: write srun in "
                "front of the program that trains"
            )
        return _Layout(1, 1, layout.gpus)
    made = {step.where: _step(layout, step.options) for step in body.steps}
    first, *others = made.items()
    for where, other in others:
        if other != first[1]:
            raise RefusedError(
                f"{where}: srun: its processes are others than those of {first[0]}: write one job for each"
            )
    return first[1]


def _step(layout: _Layout, options: Sequence[Given]) -> _Layout:
    given = {it.option.name: it for it in options}
    per_node = layout.tasks_per_node
    if "--nodes" in given and _number(given["--nodes"]) != layout.nodes:
        it = given["--nodes"]
        raise RefusedError(
            f"{it.where}: {it.written}: the job has {layout.nodes} nodes, and all of a gang train together"
        )
    if "--ntasks-per-node" in given:
        per_node = _number(given["--ntasks-per-node"])
    elif "--ntasks" in given:
        per_node = _share(_number(given["--ntasks"]), layout.nodes, given["--ntasks"], "nodes")
    per_task = _number(given["--gpus-per-task"]) if "--gpus-per-task" in given else layout.gpus_per_task
    is_bound = "--gpu-bind" not in given or not given["--gpu-bind"].value.startswith("none")
    return _Layout(layout.nodes, per_node, layout.gpus, per_task if is_bound else None)


def _variables(layout: _Layout, given: Mapping[str, Given], name: str) -> dict[str, str]:
    """Return the variables of Slurm's that Muster can set. Those with a reference differ from process to process."""
    tasks = layout.nodes * layout.tasks_per_node
    number = str(zlib.crc32(name.encode()))  # scripts name files and ports by it: the same for all runs of a job
    values = {
        "SLURM_JOB_ID": number,
        "SLURM_JOBID": number,
        "SLURM_JOB_NAME": name,
        "SLURM_JOB_NUM_NODES": str(layout.nodes),
        "SLURM_NNODES": str(layout.nodes),
        "SLURM_NTASKS": str(tasks),
        "SLURM_NPROCS": str(tasks),
        "SLURM_NTASKS_PER_NODE": str(layout.tasks_per_node),
        "SLURM_NODEID": "$(NODE_RANK)",
        "SLURM_PROCID": "$(RANK)",
        "SLURM_LOCALID": "$(LOCAL_RANK)",
        "SLURM_GPUS_PER_NODE": str(layout.gpus),
        "SLURM_GPUS_ON_NODE": str(layout.gpus),
        **_READ_ONLY,
    }
    if "--cpus-per-task" in given:
        values["SLURM_CPUS_PER_TASK"] = given["--cpus-per-task"].value
    return values


# Set where the script reads them, by a line in front of it.
_READ_ONLY = {
    "SLURM_SUBMIT_DIR": "$PWD",
    "SLURM_RESTART_COUNT": "$((MUSTER_ATTEMPT - 1))",
    "SLURMD_NODENAME": "$(uname -n)",
}


def _image(options: Sequence[Given]) -> str:
    """Return the image that `--container-image` of Pyxis names, where a node can pull it; "" where not."""
    for it in options:
        named = it.value.removeprefix("docker://").replace("#", "/")
        if it.option.name == "--container-image" and named and not re.search(r"\$|\.sqsh$|^[/.]", named):
            return named
    return ""


def _job(fitted: _Fitted, request: JobRequest, notes: Notes) -> dict[str, Any]:
    """Return the job, once nothing is refused.

    Raises:
        RefusedError: the API would refuse it.
    """
    header, body, layout, given = fitted.header, fitted.body, fitted.layout, fitted.given
    variables = _variables(layout, given, request.name)
    if not body.steps and "--ntasks" in given:
        variables["SLURM_NTASKS"] = variables["SLURM_NPROCS"] = given["--ntasks"].value
    commands = _HEADER_LINES.sub("", body.text).strip("\n")
    # Of several nodes all but the steps ran on the first alone: no training fails where that is missing in the image.
    last = ["exit 0"] if layout.nodes > 1 and body.continues else []
    text = "\n".join([*_first_lines(header, body, layout), commands, *last]) + "\n"
    container: dict[str, Any] = {
        "command": [*header.shell, "-c", unexpanded(text), *map(unexpanded, request.arguments)],
        "env": [
            *({"name": name, "value": value} for name, value in variables.items() if name not in _READ_ONLY),
            *_exported_variables(header.options),
        ],
    }
    directory = next((it.value for it in fitted.options if it.option.name in ("--chdir", "--container-workdir")), "")
    if directory.startswith("/") and "$" not in directory:
        container["workingDir"] = directory
    job = job_manifest(request, container, layout.nodes, layout.gpus, layout.tasks_per_node)
    if "--hold" in given:
        job["spec"]["suspend"] = True
    if fitted.seconds:
        job["spec"]["queueing"] = {"expectedDurationSeconds": fitted.seconds}
    if "--segment" in given:
        job["spec"]["placement"] = {"segmentSize": _number(given["--segment"])}
    check_request(job, request, notes)
    return job


def _exported_variables(options: Sequence[Given]) -> Iterator[dict[str, str]]:
    for it in options:
        if it.option.name == "--export":
            for name, _, value in (pair.partition("=") for pair in exported_pairs(it.value)):
                yield {"name": name, "value": unexpanded(value)}


def _first_lines(header: _Header, body: FittedBody, layout: _Layout) -> list[str]:
    """Return what stands in front of the script's own commands."""
    lines = [f"export {name}={value}" for name, value in _READ_ONLY.items() if name in body.variables]
    if body.loses_pipes and header.shell[0].endswith(("bash", "zsh")):
        lines.append("set -o pipefail")
    if body.draws:
        lines.append("RANDOM=$MUSTER_ATTEMPT  # the same numbers on each node")
    per_task = layout.gpus_per_task
    if per_task and layout.tasks_per_node > 1:
        first = f"$((LOCAL_RANK * {per_task}))"
        last = f"$((LOCAL_RANK * {per_task} + {per_task - 1}))"
        lines.append(f"export CUDA_VISIBLE_DEVICES=$(seq -s, {first} {last})")
    return lines
