"""Makes the template of a TrainingJob's workers of the pod template that another system starts its pods from.

These functions change what they are given, and say so in the notes.
"""

import re
from collections.abc import Mapping
from typing import Any

from muster.convert.fields import Notes, RefusedError, short
from muster.protocol.contract import IDENTITY
from muster.protocol.starters import TORCHRUN, option, starter_of
from muster.world.resources import amount

ACCELERATORS = ("nvidia.com/gpu", "amd.com/gpu", "google.com/tpu", "habana.ai/gaudi", "aws.amazon.com/neuron")
# How pods of others learn which one they are, and what only those others set.
_INDEX = re.compile(r"job-completion-index|training\.kubeflow\.org/replica-index")
_FOREIGN = re.compile(
    r"\b(?:JOBSET_[A-Z_]+|REPLICATED_JOB_NAME|JOB_(?:GLOBAL_)?INDEX|(?:jobset\.sigs\.k8s\.io|training\.kubeflow\.org)/[\w-]+)"
)
_MPI = re.compile(r"(?:^|[\s/])(mpirun|mpiexec|orterun|horovodrun)(?=\s|$)")
_MEETING = re.compile(
    r"--(?:nnodes|node[-_]rank|master[-_]addr|master[-_]port|rdzv[-_]\w+|standalone|max[-_]restarts)(?=[=\s]|$)"
)


def words(container: Mapping[str, Any]) -> list[str]:
    """How the container is started."""
    return [str(word) for name in ("command", "args") for word in container.get(name) or ()]


def training(template: Mapping[str, Any], usual: str, notes: Notes) -> dict[str, Any]:
    """The container that trains: the one with the usual name, else the first that asks for accelerators, else the first.

    Raises:
        RefusedError: it starts its processes in a way that Muster cannot.
    """
    containers = template["spec"]["containers"]
    named = [each for each in containers if each.get("name") == usual]
    container: dict[str, Any] = [*named, *filter(asked, containers), *containers][0]
    for each in containers:
        if each is not container:
            beside = ", though it asks for accelerators beyond spec.gpusPerNode" if asked(each) else ""
            notes.check.append(
                f"container {each.get('name')} is taken for a sidecar of {container.get('name')}{beside}"
            )
    found = next(filter(None, map(_MPI.search, words(container)[:3])), None)
    if found:
        raise RefusedError(
            f"container {container.get('name')}: {found.group(1)} starts processes on the nodes, which Muster does itself: write "
            "command: [torchrun, train.py], or [python3, train.py] and spec.launch.processesPerNode, without hostfile"
        )
    return container


def asked(container: Mapping[str, Any]) -> dict[str, str]:
    """The accelerators that the container asks for."""
    resources = container.get("resources") or {}
    both = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {name: str(both[name]) for name in ACCELERATORS if both.get(name)}


def accelerators(container: dict[str, Any], notes: Notes) -> int:
    """How many accelerators the container asks for; the request is taken away, because Muster makes it."""
    for name, quantity in asked(container).items():
        for part in ("limits", "requests"):
            (container["resources"].get(part) or {}).pop(name, None)
        container["resources"] = {part: left for part, left in container["resources"].items() if left}
        number = amount(name, quantity)
        notes.became.append(f"{name}: {quantity} -> spec.gpusPerNode: {number}")
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
    return 0


def _devices(part: Any) -> list[str]:
    """Extended resources of a part of a container's resources, and its claims."""
    return (
        [f"claim {each.get('name')}" for each in part]
        if isinstance(part, list)
        else [name for name in part if "/" in name]
    )


def shed(template: dict[str, Any], container: dict[str, Any], notes: Notes) -> None:
    """Take away what Muster does in another way."""
    pod = template["spec"]
    for name in ("restartPolicy", "schedulerName", "schedulingGates"):
        value = pod.pop(name, None)
        if value not in (None, [], "Never", "default-scheduler"):
            notes.leave_out(f"template.spec.{name}", value)
    if pod.get("priorityClassName"):
        notes.became.append("template.spec.priorityClassName stays: it orders Muster's queue, and preempts nobody")
    why = "the program does not run while the gang waits; spec.progress.stepTimeoutSeconds finds what hangs"
    for name in ("livenessProbe", "startupProbe"):
        if container.pop(name, None):
            notes.left_out.append(f"{name} of container {container.get('name')}: {why}")


def variables(container: dict[str, Any], notes: Notes) -> None:
    """Take away what Muster sets, and say the index of the pod by Muster's variables."""
    kept: list[dict[str, Any]] = []
    for each in container.pop("env", None) or ():
        name, source = each.get("name"), short(each.get("value", each.get("valueFrom")))
        if name in IDENTITY:
            notes.left_out.append(f"env {name}: {source}: Muster sets it at each start")
        elif _INDEX.search(str(each.get("valueFrom"))):
            kept.append({"name": name, "value": "$(NODE_RANK)"})
            notes.became.append(f"env {name}: {source} -> $(NODE_RANK)")
        else:
            kept.append(each)
    text = " ".join([*words(container), *map(str, kept)])
    if "JOB_COMPLETION_INDEX" in text:
        kept.insert(0, {"name": "JOB_COMPLETION_INDEX", "value": "$(NODE_RANK)"})
        notes.became.append("JOB_COMPLETION_INDEX -> env JOB_COMPLETION_INDEX: $(NODE_RANK)")
    for found in sorted(set(_FOREIGN.findall(text))):
        notes.check.append(
            f"{found} is used, and nobody sets it now: NODE_RANK, NNODES and MUSTER_ATTEMPT may say the same"
        )
    if kept:
        container["env"] = kept


def by_address(container: dict[str, Any], first: str, notes: Notes) -> None:
    """Put $(MASTER_ADDR) in the place of the host name of the first pod, with or without its domain."""
    host = re.compile(rf"(?<![\w.-]){re.escape(first)}(?:\.[a-z][\w-]*)*(?![\w-])")

    def replaced(text: Any, where: str) -> Any:
        found = host.search(text) if isinstance(text, str) else None
        if found:
            notes.became.append(f"{where}: {found.group()} -> $(MASTER_ADDR)")
        return host.sub("$(MASTER_ADDR)", text) if found else text

    for name in ("command", "args"):
        if container.get(name):
            container[name] = [replaced(word, name) for word in container[name]]
    for variable in container.get("env") or ():
        if "value" in variable:
            variable["value"] = replaced(variable["value"], f"env {variable.get('name')}")


def meeting(container: dict[str, Any], notes: Notes) -> None:
    """Take torchrun's options by which nodes find each other: they would go before the variables that Muster sets."""
    why = "nodes find each other by the PET_ variables, which Muster sets at each start"
    if starter_of(words(container)) != TORCHRUN:
        for script in words(container):
            if "torchrun" in script or "torch.distributed" in script:
                notes.check.extend(f"{found}: take it out of the script: {why}" for found in _MEETING.findall(script))
        return
    kept: dict[str, list[str]] = {"command": [], "args": []}
    rest = iter([(name, str(word)) for name in kept for word in container.get(name) or ()])
    for name, word in rest:
        if _MEETING.match(word):
            value = "" if "=" in word or word == "--standalone" else f" {next(rest, ('', ''))[1]}"
            notes.left_out.append(f"{word}{value}: {why}")
            continue
        kept[name].append(word)
        if word.endswith(".py"):  # what follows are the options of that program
            for its, more in rest:
                kept[its].append(more)
    container.update({name: said for name, said in kept.items() if name in container})


def processes(container: dict[str, Any], wanted: str, gpus: int, notes: Notes) -> None:
    """Say how many processes start on each node, where that is not what Muster would start: one for each GPU.

    Args:
        wanted: as torchrun's --nproc-per-node takes it.
    """
    said = words(container)
    starter, hidden = starter_of(said), not said or any(" " in word for word in said)
    decided = any(each.get("name") == "PET_NPROC_PER_NODE" for each in container.get("env") or ())
    if decided or wanted in ("", str(gpus or 1)) or (gpus and wanted in ("auto", "gpu")):
        return
    if starter == TORCHRUN or (hidden and not starter):
        if option(said, "--nproc-per-node") is None:
            container["env"] = [*(container.get("env") or ()), {"name": "PET_NPROC_PER_NODE", "value": wanted}]
            notes.became.append(f"processes on each node: {wanted} -> env PET_NPROC_PER_NODE")
    elif wanted.isdigit() and wanted != "1":
        notes.check.append(
            f"{wanted} processes on each node: {short(' '.join(said))} is started once: set spec.launch.processesPerNode: {wanted} "
            "where each process has a GPU of its own, or start it with torchrun"
        )
