"""Decides what each field of a pod means when the pod stays while its ranks restart: the field is kept, left out, or
reported.

The tables name every field of PodSpec and Container; a test compares them with those that the API server publishes.
Source: Kubernetes API reference, Pod v1.

These functions change their arguments, and note each change.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from muster.convert.fields import Notes, RefusedError, short
from muster.convert.marks import is_anothers
from muster.convert.worker import others

# These mean the same in a worker's pod. The operator's own checks report wrong values of nodeName and dnsPolicy.
POD_KEPT = frozenset(
    [
        "automountServiceAccountToken",
        "containers",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "hostAliases",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostUsers",
        "imagePullSecrets",
        "initContainers",
        "nodeName",
        "nodeSelector",
        "overhead",
        "resourceClaims",
        "resources",
        "runtimeClassName",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "tolerations",
    ]
)
_SAME_NAME = "it would be the same on every node; workers reach rank 0 at $(MASTER_ADDR)"
# Why these are left out; "": the reason is the known one for the field's name.
POD_LEFT_OUT = {
    "ephemeralContainers": "a pod begins without any, and kubectl debug adds one",
    "hostname": _SAME_NAME,
    "hostnameOverride": _SAME_NAME,
    "preemptionPolicy": "the PriorityClass has it; Muster's queue preempts only by classes that the FleetPolicy lists",
    "priority": "the API server takes it from priorityClassName",
    "readinessGates": "nothing waits until a worker is Ready",
    "restartPolicy": "",
    "schedulerName": "",
    "schedulingGates": "",
    "schedulingGroup": "",
    "setHostnameAsFQDN": _SAME_NAME,
    "subdomain": _SAME_NAME,
    "workloadRef": "",
}
# The functions below decide what becomes of these, and `job_queueing` what becomes of the first.
POD_TOLD = frozenset(
    [
        "activeDeadlineSeconds",
        "affinity",
        "os",
        "priorityClassName",
        "shareProcessNamespace",
        "terminationGracePeriodSeconds",
        "topologySpreadConstraints",
        "volumes",
    ]
)
CONTAINER_KEPT = frozenset(
    [
        "args",
        "command",
        "env",
        "envFrom",
        "image",
        "imagePullPolicy",
        "name",
        "ports",
        "readinessProbe",
        "resources",
        "securityContext",
        "terminationMessagePolicy",
        "tty",
        "volumeDevices",
        "volumeMounts",
        "workingDir",
    ]
)
_WAITING = "the program does not run while the gang waits; spec.progress.stepTimeoutSeconds finds what hangs"
_BY_MUSTER = "Muster restarts ranks itself (spec.recovery), in pods that stay"
# Fields of the container that trains.
CONTAINER_LEFT_OUT = {
    "livenessProbe": _WAITING,
    "restartPolicy": _BY_MUSTER,
    "restartPolicyRules": _BY_MUSTER,
    "startupProbe": _WAITING,
    "stdin": "a rank has no input",
    "stdinOnce": "a rank has no input",
}
CONTAINER_TOLD = frozenset(["lifecycle", "resizePolicy", "terminationMessagePath"])

_SAID_BY_DEFAULT = {
    "preemptionPolicy": "PreemptLowerPriority",
    "restartPolicy": "Never",
    "schedulerName": "default-scheduler",
}
_USUAL_GRACE = 30
_USUAL_MESSAGE = "/dev/termination-log"
# Labels that Kubernetes Jobs put on their pods.
OF_JOBS = re.compile(r"(?:batch\.kubernetes\.io/)?(?:job-name|controller-uid|job-completion-index)")
_ANOTHERS = re.compile(r"(?:jobset\.sigs\.k8s\.io|kubeflow\.org|batch\.kubernetes\.io|volcano\.sh)/[\w-]+")
# JobSet's restarts in place: cmd/in-place-restart-agent, and the rule by which the kubelet restarts a whole pod.
_AGENT = re.compile(r"in-place-restart|barrier-is-down")
_ALL_CONTAINERS = "RestartAllContainers"


def fit(template: dict[str, Any], container: dict[str, Any], *, restarted: bool, notes: Notes) -> None:
    """Remove what Muster does in another way, and note what has another meaning in a worker's pod.

    Args:
        template: the pod's; changed in place.
        container: the trainer's in it.
        restarted: whether the other system restarts containers in place when they end.
        notes: takes what the user should know.

    Raises:
        RefusedError: the pod needs another operating system than Linux.
    """
    pod = template["spec"]
    if (pod.get("os") or {}).get("name", "linux") != "linux":
        raise RefusedError(
            f"template.spec.os.name: {pod['os']['name']}: a launcher runs on Linux: leave it another job"
        )
    restarted = pod.get("restartPolicy", "Never") != "Never" or restarted
    for name, why in POD_LEFT_OUT.items():
        _omit(pod, name, why, notes)
    for name in sorted({*pod} - POD_KEPT - POD_TOLD):
        notes.check.append(
            f"template.spec.{name}: {short(pod[name])} stays: it is not known what it means in a pod that stays"
        )
    if pod.get("priorityClassName"):
        notes.became.append("template.spec.priorityClassName stays: it orders Muster's queue")
    if pod.get("shareProcessNamespace"):
        notes.check.append(
            "template.spec.shareProcessNamespace: ranks end and begin while the pod stays: a container that waits "
            "for the end of the trainer's processes would take a restart for the end"
        )
    _convert_grace_period(pod, notes)
    _drop_foreign_rules(pod, notes)
    _convert_volumes(pod, container, notes)
    _trainer(container, notes)
    _convert_other_containers(template, container, restarted=restarted, notes=notes)


def _omit(pod: dict[str, Any], name: str, why: str, notes: Notes) -> None:
    value = pod.pop(name, None)
    if value not in (None, "", 0, [], {}, _SAID_BY_DEFAULT.get(name)):
        notes.leave_out(f"template.spec.{name}", value, why)


def _convert_grace_period(pod: dict[str, Any], notes: Notes) -> None:
    """Convert the termination grace period: the launcher ends its ranks by SIGKILL, after everything to save was
    saved."""
    name = "terminationGracePeriodSeconds"
    grace = pod.get(name)
    if grace == 0:
        pod.pop(name)
        notes.leave_out(
            f"template.spec.{name}",
            grace,
            "the pod would vanish at once, and its end is what proves that its ranks have ended",
        )
    elif grace not in (None, _USUAL_GRACE):
        notes.check.append(
            f"template.spec.{name}: {grace}: ranks get SIGKILL and no SIGTERM, but for a planned evacuation: "
            "Muster asks for a save, waits for it at most spec.checkpoint.saveTimeoutSeconds, and sends SIGTERM five "
            "seconds before SIGKILL. A longer grace period delays the proof "
            "that a lost pod has ended"
        )


def _drop_foreign_rules(pod: dict[str, Any], notes: Notes) -> None:
    """Drop rules by labels of other systems, because no pod of Muster's has them."""
    affinity = pod.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        why = (
            "each worker has a node of its own"
            if kind == "podAntiAffinity"
            else "no pod has that label now: spec.placement.required names the level within which the gang lies"
        )
        for rule, terms in list((affinity.get(kind) or {}).items()):
            kept = _keeping(terms, f"template.spec.affinity.{kind}.{rule}", why, notes)
            affinity[kind][rule] = kept
            if not kept:
                affinity[kind].pop(rule)
        if kind in affinity and not affinity[kind]:
            affinity.pop(kind)
    if "affinity" in pod and not affinity:
        pod.pop("affinity")
    name = "topologySpreadConstraints"
    if name in pod:
        pod[name] = _keeping(pod[name], f"template.spec.{name}", "each worker has a node of its own", notes)
        if not pod[name]:
            pod.pop(name)


def _keeping(rules: Any, where: str, why: str, notes: Notes) -> list[Any]:
    """Return the rules that select by the user's own labels."""
    kept = []
    for rule in rules or ():
        label = next(filter(None, map(_their_label, _labels(rule.get("podAffinityTerm", rule)))), "")
        if label:
            notes.leave_out(where, label, why)
        else:
            kept.append(rule)
    return kept


def _their_label(label: str) -> str:
    return label if is_anothers(label) or OF_JOBS.fullmatch(label) else ""


def _labels(rule: Mapping[str, Any]) -> list[str]:
    selector = rule.get("labelSelector") or {}
    listed = [str(expression.get("key")) for expression in selector.get("matchExpressions") or ()]
    return [*map(str, selector.get("matchLabels") or ()), *listed, *map(str, rule.get("matchLabelKeys") or ())]


def _convert_volumes(pod: Mapping[str, Any], container: Mapping[str, Any], notes: Notes) -> None:
    """Note volumes that keep files of an earlier attempt, and those that expose another system's data about the pod."""
    mounted: dict[Any, list[str]] = {}
    for mount in container.get("volumeMounts") or ():
        mounted.setdefault(mount.get("name"), []).append(str(mount.get("mountPath")))
    left = []
    for volume in pod.get("volumes") or ():
        if "emptyDir" in volume or "ephemeral" in volume:
            left += [at for at in mounted.get(volume.get("name"), ()) if at.rstrip("/") != "/dev/shm"]  # noqa: S108
        notes.check.extend(
            f"{reference} is used by volume {volume.get('name')}, and nothing sets it now"
            for reference in sorted(set(_ANOTHERS.findall(json.dumps(volume))))
        )
    if left:
        notes.check.append(
            f"emptyDir at {', '.join(left)}: it stays when ranks restart in place: what an attempt has left there is "
            "there at the next"
        )


def _trainer(container: dict[str, Any], notes: Notes) -> None:
    name = container.get("name")
    for field, why in CONTAINER_LEFT_OUT.items():
        if container.pop(field, None):
            notes.left_out.append(f"{field} of container {name}: {why}")
    for field in sorted({*container} - CONTAINER_KEPT - CONTAINER_TOLD):
        notes.check.append(
            f"{field} of container {name}: {short(container[field])} stays: it is not known what it means in a pod "
            "that stays"
        )
    if container.get("terminationMessagePath", _USUAL_MESSAGE) != _USUAL_MESSAGE:
        notes.check.append(
            f"terminationMessagePath of container {name} is read when the pod ends, and not when a rank does: the "
            "job's status has the last lines that the rank printed"
        )
    hooks = container.get("lifecycle") or {}
    if hooks.pop("stopSignal", None):
        notes.left_out.append(f"lifecycle.stopSignal of container {name}: SIGTERM is what the launcher obeys")
    if "postStart" in hooks:
        notes.check.append(
            f"lifecycle.postStart of container {name} runs once, when the pod begins: what each start of the ranks "
            "needs belongs into the command"
        )
    if "preStop" in hooks:
        notes.check.append(
            f"lifecycle.preStop of container {name} runs when the pod ends, and not when ranks restart; the launcher "
            "learns of the end after it"
        )
    if not hooks:
        container.pop("lifecycle", None)


def _convert_other_containers(
    template: Mapping[str, Any], container: dict[str, Any], *, restarted: bool, notes: Notes
) -> None:
    """Convert the containers beside the one that trains."""
    listed = [("container", container), *others(template, container)]
    for kind, pod_container in listed:
        name = f"{kind} {pod_container.get('name')}"
        if any(rule.get("action") == _ALL_CONTAINERS for rule in pod_container.get("restartPolicyRules") or ()):
            pod_container.pop("restartPolicyRules")
            notes.left_out.append(f"restartPolicyRules of {name}: {_ALL_CONTAINERS} would end the ranks: {_BY_MUSTER}")
        if any(rule.get("restartPolicy") != "NotRequired" for rule in pod_container.get("resizePolicy") or ()):
            pod_container.pop("resizePolicy")
            notes.left_out.append(
                f"resizePolicy of {name}: the API takes no RestartContainer in a pod that is restarted never"
            )
        if _AGENT.search(json.dumps(pod_container)):
            notes.check.append(
                f"{name} is the agent of JobSet's restarts in place, and waits for JobSet's controller for ever: "
                f"take it out, and write what it starts (WORKER_COMMAND) as the trainer's command: {_BY_MUSTER}"
            )
    ending = [
        str(other.get("name"))
        for kind, other in listed[1:]
        if kind == "container" and other.get("restartPolicy") is None and restarted
    ]
    if ending:
        notes.check.append(
            f"container {', '.join(ending)}: nothing restarts it when it ends: write it into initContainers with "
            "restartPolicy: Always"
        )
    once = [
        str(pod_container.get("name"))
        for kind, pod_container in listed
        if kind == "initContainer" and pod_container.get("restartPolicy") != "Always"
    ]
    if once:
        notes.check.append(
            f"initContainer {', '.join(once)}: it runs once in each pod, and not again when ranks restart in place: "
            "what each start needs belongs into the command"
        )
