"""What only the operator can know about a job's spec: checks that the CRD's schema cannot make."""

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from muster.api.trainingjob import LaunchMode, TrainingJob
from muster.checkpoints import resume_preset
from muster.placement.constraints import read_constraints
from muster.placement.reasons import UNKNOWN_TOPOLOGY_LEVEL
from muster.placement.space import unknown_level
from muster.pods.launching import command_of, is_shell_line
from muster.pods.warned import Warned
from muster.pods.worker_pod import CLUSTER_DNS, CLUSTER_DNS_ON_HOST, worker_container
from muster.protocol.shell_words import SHELLS
from muster.protocol.starters import PYTHON, started, starter_of
from muster.recovery.modes import mode_of
from muster.world.fleet import Fleet
from muster.world.joblimits import too_many_nodes
from muster.world.resources import ACCELERATORS, is_accelerator

ACCELERATORS_NOT_COUNTED = "AcceleratorsNotCounted"


def problem(job: TrainingJob, fleet: Fleet) -> tuple[str, str] | None:
    """Return why the job can never start as it stands, as (reason, message); None: no problem is known."""
    misshapen = shape_problem(job)
    if misshapen:
        return misshapen
    container = worker_container(job)
    if container is None:
        wanted = job.spec.launch.worker_container
        return (
            "UnknownContainer",
            f"spec.launch.workerContainer: the template has no container named {wanted!r}; name one of its containers.",
        )
    amiss = _container_problem(job, container, fleet) or _pod_problem(job)
    if amiss:
        return amiss
    if mode_of(job).needs_command and not container.get("command"):
        return (
            "CommandMissing",
            f"spec.template.spec.containers[{container.get('name')}].command: Managed mode starts the ranks itself "
            f"and needs to know the command; {_command_line(container)}, or set spec.launch.mode to Plain. {AGAIN}",
        )
    command = command_of(container)
    if job.spec.checkpoint.resume_argument and is_shell_line(command):
        return (
            "ResumeArgumentUnused",
            f"spec.checkpoint.resumeArgument: {command[0]} does not pass on words after its line; write them into "
            "that line, e.g. train.py ${MUSTER_RESUME_PATH:+--resume $MUSTER_RESUME_PATH}, and leave "
            f"resumeArgument out. {AGAIN}",
        )
    over = too_many_nodes(job, fleet.policy.job_limits)
    if over:
        return ("TooManyNodes", over)
    unread = resume_preset.why_arguments_unread(job)
    if unread:
        return ("ResumeArgumentUnused", unread)
    unloadable = resume_preset.why_unloadable(job)
    if unloadable:
        return (resume_preset.UNFIT, unloadable)
    level = unknown_level(fleet, job.spec.placement.required, job.spec.placement.preferred)
    if level:
        field = "required" if level == job.spec.placement.required else "preferred"
        level_names = ", ".join(level.name for level in fleet.policy.topology.levels) or "none"
        return (
            UNKNOWN_TOPOLOGY_LEVEL,
            f"spec.placement.{field}: {level!r} is no level of this fleet; known levels: {level_names} (FleetPolicy "
            f"default). {AGAIN}",
        )
    return _accelerator_problem(job, container, fleet)


def _container_problem(job: TrainingJob, container: Mapping[str, Any], fleet: Fleet) -> tuple[str, str] | None:
    """Return the problem that another container than the first one asks for accelerators; None: there is none.

    Some network daemons are written before the container that trains.
    """
    resource = fleet.policy.accelerator_resource
    if job.spec.launch.worker_container is not None or _asks_for(container, resource):
        return None
    other = next((candidate for candidate in job.spec.containers if _asks_for(candidate, resource)), None)
    if other is None:
        return None
    return (
        "WorkerContainerUnclear",
        f"spec.launch.workerContainer: the first container of the template is {container.get('name')}, but "
        f"{other.get('name')} asks for {resource}; write here which of them trains. {AGAIN}",
    )


def _asks_for(container: Mapping[str, Any], resource: str) -> bool:
    resources = container.get("resources") or {}
    return any(str((resources.get(part) or {}).get(resource, "0")) != "0" for part in ("limits", "requests"))


def _other_accelerators(container: Mapping[str, Any], resource: str) -> str:
    """Return the accelerators that a container asks for beside the fleet's, or in parts of it, as text."""
    resources = container.get("resources")
    parts = [resources.get(part) for part in ("limits", "requests")] if isinstance(resources, dict) else []
    listed = {str(name): str(value) for part in parts if isinstance(part, dict) for name, value in part.items()}
    return ", ".join(
        f"{name}: {value}"
        for name, value in sorted(listed.items())
        if name != resource and value != "0" and (name in ACCELERATORS or is_accelerator(name, resource))
    )


def accelerator_warning(job: TrainingJob, fleet: Fleet) -> Warned | None:
    """Return the warning that a job without counted accelerators asks for some of another kind; None: it does not."""
    resource = fleet.policy.accelerator_resource
    others = _other_accelerators(worker_container(job) or {}, resource)
    if not others or job.spec.gpus_per_node:
        return None
    return Warned(
        ACCELERATORS_NOT_COUNTED,
        f"the template's container asks for {others}, and spec.gpusPerNode is 0: it counts {resource} alone "
        "(spec.acceleratorResource of FleetPolicy default), so that the burn-in does not test these accelerators, and "
        "no account has their hours",
    )


def _pod_problem(job: TrainingJob) -> tuple[str, str] | None:
    """Return the problem of a pod that names its node, or cannot resolve names of the cluster; None: there is none."""
    spec = job.spec.pod
    if spec.get("nodeName"):
        return (
            "TemplateInvalid",
            "spec.template.spec.nodeName: every worker has a node of its own, which Muster chooses; take it out, "
            f"and write labels into nodeSelector or names into spec.placement.avoidNodes. {AGAIN}",
        )
    if spec.get("dnsPolicy") == "Default":
        target = "Muster" if job.spec.launch.mode is LaunchMode.MANAGED else "the worker of rank 0"
        policy = CLUSTER_DNS_ON_HOST if spec.get("hostNetwork") else CLUSTER_DNS
        return (
            "ClusterDnsMissing",
            "spec.template.spec.dnsPolicy: with Default a worker asks its node's resolver, which does not know the "
            f"name of {target}; write {policy}. {AGAIN}",
        )
    return None


def _command_line(container: Mapping[str, Any]) -> str:
    """Return the advice what to write as the command where only the image knows the program."""
    args = container.get("args") or []
    if args and str(args[0]).endswith(".py"):
        return f"write command: [python3] beside args (they begin with {args[0]})"
    if args and starter_of(args) and len(started(args)) == len(args):
        return f"write command: [{args[0]}] and take it out of args"
    if args and _is_program(str(args[0])):
        return f"write command: [{args[0]}] and take it out of args"
    beside = " beside args" if args else ""
    return (
        f"write the image's entry point there{beside}, e.g. command: [python3, train.py] "
        f"(crane config {container.get('image')} | jq .config.Entrypoint shows it)"
    )


def _is_program(word: str) -> bool:
    """Whether a word is certainly a program: a shell, a Python, or a file in a directory of programs."""
    name = posixpath.basename(word)
    return (
        name in SHELLS
        or PYTHON.match(name) is not None
        or posixpath.basename(posixpath.dirname(word)) in ("bin", "sbin")
    )


def shape_problem(job: TrainingJob) -> tuple[str, str] | None:
    """Return why no pod can be made of the job's template, as (reason, message); None if one can."""
    misshapen = _misshapen(job.spec.template)
    return ("TemplateInvalid", f"spec.template.{misshapen}. {AGAIN}") if misshapen else None


AGAIN = "Fix it, delete the job and create it again."

# What is read or extended before the API server judges the pod as a whole; null counts as absent everywhere.
_SHAPES: Mapping[str, type] = {
    "metadata": dict,
    "metadata.labels": dict,
    "metadata.annotations": dict,
    "spec": dict,
    "spec.nodeSelector": dict,
    "spec.securityContext": dict,
    "spec.affinity": dict,
    "spec.affinity.nodeAffinity": dict,
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution": dict,
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms": list,
    "spec.tolerations": list,
    "spec.volumes": list,
    "spec.containers": list,
    "spec.initContainers": list,
}
_CONTAINER_SHAPES: Mapping[str, type] = {
    "command": list,
    "args": list,
    "env": list,
    "volumeMounts": list,
    "resources": dict,
    "resources.limits": dict,
    "resources.requests": dict,
}
# Each is looked at in every decision, or written into thousands of pods in one.
MAX_ENTRIES = 1024  # of a container's variables, or mounts
_MOST: Mapping[str, int] = {
    "volumes": 512,
    "containers": 32,
    "initContainers": 64,
}
_WORDS: Mapping[type, str] = {dict: "an object", list: "a list"}


def _misshapen(template: Mapping[str, Any]) -> str:
    """Return the first place of the template that has not the shape of a pod's, with what is wrong; "" when all
    have."""
    wrong = _wrong_shape(template, _SHAPES)
    spec = template.get("spec")
    if wrong or not isinstance(spec, dict):
        return wrong
    for path, most in _MOST.items():
        listed = spec.get(path) or ()
        if len(listed) > most:
            return _too_many(f"spec.{path}", listed, most)
        for number, entry in enumerate(listed):
            where = f"spec.{path}[{number}]"
            if not isinstance(entry, dict):
                return f"{where}: an object is needed, not {type(entry).__name__}"
            inner = _wrong_shape(entry, _CONTAINER_SHAPES) if path.endswith("ontainers") else ""
            if inner:
                return f"{where}.{inner}"
            word = _first_non_text(entry) if path.endswith("ontainers") else ""
            if word:
                return f"{where}.{word}"
            long = next((name for name in ("env", "volumeMounts") if len(entry.get(name) or ()) > MAX_ENTRIES), None)
            if long:
                return _too_many(f"{where}.{long}", entry[long], MAX_ENTRIES)
    unread = read_constraints(spec).problem
    return f"spec.{unread}" if unread else ""


def _first_non_text(container: Mapping[str, Any]) -> str:
    """Return the first word of the command or its arguments that is no text; "" when all are.

    YAML reads `0.1` and `yes` as a number and a truth value.
    """
    for field in ("command", "args"):
        for number, word in enumerate(container.get(field) or ()):
            if not isinstance(word, str):
                remedy = "; put it in quotes" if isinstance(word, (int, float)) else ""
                return f"{field}[{number}]: text is needed, not {type(word).__name__}{remedy}"
    return ""


def _too_many(where: str, listed: Sequence[Any], most: int) -> str:
    return f"{where}: {len(listed)} are too many, Muster takes at most {most}"


def _wrong_shape(root: Mapping[str, Any], shapes: Mapping[str, type]) -> str:
    for path, kind in shapes.items():
        value: Any = root
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None and not isinstance(value, kind):
            return f"{path}: {_WORDS[kind]} is needed, not {type(value).__name__}"
    return ""


def _accelerator_problem(job: TrainingJob, container: dict[str, object], fleet: Fleet) -> tuple[str, str] | None:
    resource, resources = fleet.policy.accelerator_resource, container.get("resources")
    limits = (resources.get("limits") if isinstance(resources, dict) else None) or {}
    asked = limits.get(resource) if isinstance(limits, dict) else None
    if asked is not None and str(asked) != str(job.spec.gpus_per_node):
        return (
            "AcceleratorMismatch",
            f"spec.gpusPerNode is {job.spec.gpus_per_node}, but the template's container asks for {resource}: "
            f"{asked}; leave the limit out of the template (Muster sets it) or make both equal. {AGAIN}",
        )
    others = _other_accelerators(container, resource)
    if others and job.spec.gpus_per_node:
        return (
            "AcceleratorMismatch",
            f"spec.gpusPerNode asks for {job.spec.gpus_per_node} {resource}, and the template's container for {others} "
            "as well: no node has both. Leave that limit out, or set spec.gpusPerNode to 0; gpusPerNode counts what "
            f"FleetPolicy default names in spec.acceleratorResource. {AGAIN}",
        )
    return None
