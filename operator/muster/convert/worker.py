"""Makes the template of a TrainingJob's workers from the pod template of another system.

These functions change their arguments, and note each change.

Tests: tests/unit/convert/test_documents.py.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from muster.convert.fields import Notes, RefusedError, short
from muster.protocol.contract import IDENTITY
from muster.protocol.starters import PYTHON, TORCHRUN, commands_of, option, program_at, programs, starter_of
from muster.world.resources import ACCELERATORS, amount
from muster.world.views import INDEX_LABEL

_TPU = "google.com/tpu"
_SHARED = ("nvidia.com/gpu", "amd.com/gpu")  # pods may share a node that has several of these
_USUAL_GPUS = 8  # of a node
# How pods of other systems learn their index, and variables that only those systems set.
_INDEX = re.compile(r"job-completion-index|training\.kubeflow\.org/replica-index")
_FOREIGN = re.compile(
    r"\b(?:JOBSET_[A-Z_]+|REPLICATED_JOB_NAME|JOB_(?:GLOBAL_)?INDEX|KUBEFLOW_TRAINER_[A-Z_]+|"
    r"(?:jobset\.sigs\.k8s\.io|(?:training|trainer)\.kubeflow\.org)/[\w-]+)"
)
_MARK = re.compile(r"metadata\.(?:labels|annotations)\['([^']+)'\]")
_USED = re.compile(rf"\$[({{]?({'|'.join(sorted(IDENTITY))}|JOB_COMPLETION_INDEX)\b")
# Names of variables with the index of a pod in its gang.
_NUMBERS = frozenset({"JOB_COMPLETION_INDEX", "NODE_RANK", "GROUP_RANK", "PET_NODE_RANK", "RANK"})
_NUMBERING = re.compile(r".*(?:RANK|INDEX|-index|PROCESS_ID)")
# A script of a shell that is run, and not read into one (`source x.sh`, `. x.sh`).
_SCRIPT = re.compile(r"(?<![\w./$}-])(?<!source )(?<!\. )[\w./$\{}-]*\w\.(?:sh|bash)(?![\w.-])")
_REFERENCE = re.compile(r"\$\((\w+)\)")
_MPI = re.compile(r"(?:^|[\s/])(mpirun|mpiexec|orterun|horovodrun)(?=\s|$)")
_MEETING = re.compile(
    r"--(?:nnodes|node[-_]rank|local[-_]addr|master[-_]addr|master[-_]port|rdzv[-_]\w+|standalone|max[-_]restarts)(?=[=\s]|$)"
)
_COUNT = re.compile(r"--nnodes[=\s](\d+)(?=\s|$)")
_RESTARTING = re.compile(r"--max[-_]restarts")


def words(container: Mapping[str, Any]) -> list[str]:
    """Return the command and arguments that start the container."""
    return [str(word) for name in ("command", "args") for word in container.get(name) or ()]


def rewrite_texts(container: dict[str, Any], rewritten: Callable[[Any, str], Any]) -> None:
    """Replace each word of the command and each value of a variable by what a function returns for it.

    Args:
        container: it is changed.
        rewritten: gets a text, or what stands in its place, and where it stands, e.g. `env HOST`.
    """
    for part in ("command", "args"):
        if container.get(part):
            container[part] = [rewritten(word, part) for word in container[part]]
    for variable in container.get("env") or ():
        if "value" in variable:
            variable["value"] = rewritten(variable["value"], f"env {variable.get('name')}")


def text_of(value: Any) -> str:
    """Return all text within a value, line by line."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else None
    return "\n".join(map(text_of, inside)) if inside is not None else str(value)


def _asked_of_others(container: Mapping[str, Any], own: Collection[str]) -> set[str]:
    """Return what a container reads that another system sets: variables that it does not set itself, and labels and
    annotations that no pod has now. The template's `own` ones are there.
    """
    text = text_of({name: value for name, value in container.items() if name not in ("name", "image")})
    set_there = {str(variable.get("name")) for variable in container.get("env") or ()}
    return {*_FOREIGN.findall(text), *(mark for mark in _MARK.findall(text) if mark not in own)} - set_there


def training(template: Mapping[str, Any], usual: str, notes: Notes) -> dict[str, Any]:
    """Return the container that trains: the one with the usual name, else the first that requests accelerators, else
    the first.

    Raises:
        RefusedError: the container starts its processes in a way that Muster does not support.
    """
    containers = template["spec"]["containers"]
    named = [candidate for candidate in containers if candidate.get("name") == usual]
    container: dict[str, Any] = [*named, *filter(asked, containers), *containers][0]
    for other in containers:
        if other is not container:
            beside = ", though it asks for accelerators beyond spec.gpusPerNode" if asked(other) else ""
            notes.check.append(
                f"container {other.get('name')} is taken for a sidecar of {container.get('name')}{beside}"
            )
    match = next(filter(None, map(_MPI.search, words(container)[:3])), None)
    if match:
        raise RefusedError(
            f"container {container.get('name')}: {match.group(1)} starts processes on the nodes, which Muster does "
            "itself: write command: [torchrun, train.py], or [python3, train.py] and spec.launch.processesPerNode, "
            "without hostfile"
        )
    return container


def asked(container: Mapping[str, Any]) -> dict[str, str]:
    """Return the accelerators that the container requests."""
    resources = container.get("resources") or {}
    both = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {name: str(both[name]) for name in ACCELERATORS if both.get(name)}


def accelerators(container: dict[str, Any], nodes: int, notes: Notes) -> int:
    """Return how many accelerators the container requests in each of so many nodes; the request is removed, because
    Muster makes it.
    """
    for name, quantity in asked(container).items():
        for part in ("limits", "requests"):
            (container["resources"].get(part) or {}).pop(name, None)
        container["resources"] = {part: left for part, left in container["resources"].items() if left}
        number = amount(name, quantity)
        if name == _TPU:
            notes.check.append(
                "google.com/tpu: GKE tells pods of Jobs which host of a slice they are (TPU_WORKER_ID, "
                "TPU_WORKER_HOSTNAMES), and does not know those of Muster: slices of several hosts have not been "
                "tried"
            )
        notes.became.append(f"{name}: {quantity} -> spec.gpusPerNode: {number}")
        if name in _SHARED and nodes > 1 and 0 < number < _USUAL_GPUS:
            notes.check.append(
                f"{number} {name} in each of {nodes} pods: each becomes a worker with a node to itself: where nodes "
                "have more of them, write fewer spec.nodes with more spec.gpusPerNode, and start one process for each"
            )
        if name != ACCELERATORS[0]:
            notes.check.append(
                f"gpusPerNode counts spec.acceleratorResource of the FleetPolicy, which has to be {name}"
            )
        return number
    others = sorted(name for part in (container.get("resources") or {}).values() if part for name in _devices(part))
    if others:
        notes.check.append(
            f"spec.gpusPerNode is 0, so it keeps off nodes with accelerators: if {others[0]} is one, write how many"
        )
    else:
        notes.became.append("no accelerators -> spec.gpusPerNode: 0: it keeps off nodes that have some")
    return 0


def _devices(part: Any) -> list[str]:
    """Return extended resources and claims in a part of a container's resources."""
    return (
        [f"claim {claim.get('name')}" for claim in part]
        if isinstance(part, list)
        else [name for name in part if "/" in name]
    )


def constants(template: Mapping[str, Any], own: Collection[str], marks: Mapping[str, str], notes: Notes) -> None:
    """Write the values of variables that read a label or annotation of the other system with one value on all pods, as
    `marks` has them. `own` are the template's.
    """
    for part in ("initContainers", "containers"):
        for container in template["spec"].get(part) or ():
            for variable in container.get("env") or ():
                source = variable.get("valueFrom")
                mark = next(iter(_MARK.findall(str(source))), "")
                if mark in marks and mark not in own:
                    variable.pop("valueFrom")
                    variable["value"] = marks[mark]
                    notes.became.append(
                        f"env {variable.get('name')} of {container.get('name')}: {short(source)} -> {marks[mark]}"
                    )


def variables(container: dict[str, Any], own: Collection[str], notes: Notes) -> None:
    """Remove variables that Muster sets, and replace the pod's index of the other system by Muster's variables. `own`
    are the template's labels and annotations.
    """
    kept: list[dict[str, Any]] = []
    for variable in container.pop("env", None) or ():
        name, source = variable.get("name"), short(variable.get("value", variable.get("valueFrom")))
        if name in IDENTITY:
            notes.left_out.append(f"env {name}: {source}: Muster sets it at each start")
        elif _INDEX.search(str(variable.get("valueFrom"))):
            kept.append({"name": name, "value": "$(NODE_RANK)"})
            notes.became.append(f"env {name}: {source} -> $(NODE_RANK)")
        else:
            kept.append(variable)
    text = " ".join([*words(container), *map(str, kept)])
    if "JOB_COMPLETION_INDEX" in text and all(variable.get("name") != "JOB_COMPLETION_INDEX" for variable in kept):
        kept.insert(0, {"name": "JOB_COMPLETION_INDEX", "value": "$(NODE_RANK)"})
        notes.became.append("JOB_COMPLETION_INDEX -> env JOB_COMPLETION_INDEX: $(NODE_RANK)")
    for reference in sorted(_asked_of_others({**container, "env": kept}, own)):
        notes.check.append(
            f"{reference} is used, and nothing sets it now: NODE_RANK, NNODES and MUSTER_ATTEMPT may say the same"
        )
    if kept:
        container["env"] = kept


def unread_scripts(container: Mapping[str, Any], files: Mapping[str, str], notes: Notes) -> None:
    """Note the scripts of a command that cannot be read, and may read the index that nothing sets any more. The
    container has its new variables; `files` has the texts of the ConfigMaps in the input, by the names of their files.
    """
    command = words(container)
    text = "\n".join(command)
    is_set = any(variable.get("name") == "JOB_COMPLETION_INDEX" for variable in container.get("env") or ())
    if is_set or commands_of(command) or any(map(PYTHON.match, programs(command))):
        return  # what starts is written there
    for script in dict.fromkeys(_SCRIPT.findall(text)):
        is_made = re.search(rf">\s*[\"']?{re.escape(script)}", text) is not None
        if is_made or "JOB_COMPLETION_INDEX" not in files.get(script.rpartition("/")[2], "JOB_COMPLETION_INDEX"):
            continue
        reading = "reads it" if script.rpartition("/")[2] in files else "is not in the input and may read it"
        notes.check.append(
            f"{script}: nothing sets JOB_COMPLETION_INDEX now, and the script {reading}: let it read NODE_RANK, or add "
            "env JOB_COMPLETION_INDEX: $(NODE_RANK)"
        )


def neighbours(template: Mapping[str, Any], container: Mapping[str, Any], own: Collection[str], notes: Notes) -> None:
    """Note what other containers read from the system that they came from: only the trainer has Muster's variables.
    `own` are the template's labels and annotations.
    """
    for kind, other in others(template, container):
        text, set_there = text_of(other), {str(variable.get("name")) for variable in other.get("env") or ()}
        asked_for = {name for name in _USED.findall(text) if name not in set_there}
        asked_for |= _asked_of_others(other, own)
        for name in sorted(asked_for):
            remedy = (
                f"fieldRef metadata.labels['{INDEX_LABEL}'] numbers the workers from 0 there"
                if _NUMBERING.fullmatch(name)
                else "where the others are is known when an attempt starts, to the container that trains alone"
            )
            notes.check.append(f"{name} is used by {kind} {other.get('name')}, and nothing sets it there: {remedy}")


def others(template: Mapping[str, Any], container: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the containers beside the one that trains, each with its kind: container or initContainer."""
    for part in ("initContainers", "containers"):
        for pod_container in template["spec"].get(part) or ():
            if pod_container is not container:
                yield part[:-1], pod_container


def mounts(container: Mapping[str, Any], notes: Notes) -> None:
    """Rewrite subPathExpr of mounts with what the kubelet knows when the container starts: the ranks' variables are set
    later."""
    sources = {str(variable.get("name")): str(variable.get("valueFrom")) for variable in container.get("env") or ()}
    numbers = _NUMBERS | {name for name, source in sources.items() if _INDEX.search(source)}
    of_pod = {name for name, source in sources.items() if "metadata.name'" in source or "metadata.uid'" in source}
    for mount in container.get("volumeMounts") or ():
        written = mount.get("subPathExpr")
        if not written:
            continue
        where = f"volumeMounts {mount.get('mountPath')}: subPathExpr: {written}"
        made = _REFERENCE.sub(lambda it: "$(MUSTER_WORKER_INDEX)" if it.group(1) in numbers else it.group(), written)
        if made != written:
            mount["subPathExpr"] = made
            notes.became.append(f"{where} -> {made}: the number of the worker, which stays when its pod is replaced")
        left = sorted({*_REFERENCE.findall(made)} & {*IDENTITY, *of_pod})
        if left:
            notes.check.append(
                f"{where}: {', '.join(left)}: a worker's new pod has another name, and variables of an attempt come "
                "after the mounts: $(MUSTER_WORKER_INDEX) stays the same"
            )


def meeting(container: dict[str, Any], nodes: int, notes: Notes) -> None:
    """Remove torchrun's rendezvous options: they would take precedence over the variables that Muster sets. `nodes` is
    the number of workers.
    """
    for count_text in dict.fromkeys(_COUNT.findall(" ".join(words(container)))):
        if int(count_text) != nodes:
            notes.check.append(
                f"--nnodes={count_text}: the source has {nodes} pods, and each becomes a node: all of them train "
                "together now"
            )
    why = "nodes find each other by the PET_ variables, which Muster sets at each start"
    restarting = "Muster starts the ranks again, from what was saved since; spec.recovery says how often"
    if starter_of(words(container)) != TORCHRUN:
        for script in words(container):
            options = dict.fromkeys(_MEETING.findall(script))
            if options and ("torchrun" in script or "torch.distributed" in script):
                notes.check.append(
                    f"{', '.join(options)}: take {'it' if len(options) == 1 else 'them'} out of the script: {why}"
                )
        return
    kept: dict[str, list[str]] = {"command": [], "args": []}
    listed = [(name, str(word)) for name in kept for word in container.get(name) or ()]
    until = program_at(words(container))
    rest = iter(listed[:until])
    for name, word in rest:
        if not _MEETING.match(word):
            kept[name].append(word)
            continue
        value = "" if "=" in word or word == "--standalone" else f" {next(rest, ('', ''))[1]}"
        reason_text = restarting if _RESTARTING.match(word) else why
        notes.left_out.append(f"{word}{value}: {reason_text}")
    for name, word in listed[until:]:
        kept[name].append(word)
    container.update({name: kept_words for name, kept_words in kept.items() if name in container})


def processes(container: dict[str, Any], wanted: str, gpus: int, notes: Notes) -> None:
    """Set how many processes start on each node, where that differs from Muster's default: one for each GPU. `wanted`
    has the form of torchrun's --nproc-per-node.
    """
    command_words = words(container)
    starter, hidden = starter_of(command_words), not command_words or any(" " in word for word in command_words)
    decided = any(variable.get("name") == "PET_NPROC_PER_NODE" for variable in container.get("env") or ())
    if decided or wanted in ("", str(gpus or 1)) or (gpus and wanted in ("auto", "gpu")):
        return
    if starter == TORCHRUN or (hidden and not starter):
        if option(command_words, "--nproc-per-node") is None:
            container["env"] = [*(container.get("env") or ()), {"name": "PET_NPROC_PER_NODE", "value": wanted}]
            notes.became.append(f"processes on each node: {wanted} -> env PET_NPROC_PER_NODE")
    elif wanted.isdecimal() and wanted != "1":
        notes.check.append(
            f"{wanted} processes on each node: {short(' '.join(command_words))} is started once: set "
            f"spec.launch.processesPerNode: {wanted} where each process has a GPU of its own, or start it with "
            "torchrun"
        )
