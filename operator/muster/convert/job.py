"""Holds what all conversions have in common: it turns a gang into a TrainingJob that the API accepts.

Tests: tests/unit/convert/test_documents.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.api.base import API_VERSION, LAST_APPLIED
from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.trainingjob import NAME_RULES, is_job_name, parsed
from muster.convert import hosts, identity, job_queueing, marks, pod, saving, worker
from muster.convert.fields import Fields, Notes, RefusedError
from muster.convert.hosts import HostNames
from muster.convert.marks import is_anothers
from muster.pods import launching
from muster.status.template import AGAIN, problem
from muster.world.fleet import Fleet

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_LEVELS = {
    EXCLUSIVE: "required",
    "kueue.x-k8s.io/podset-required-topology": "required",
    "kueue.x-k8s.io/podset-preferred-topology": "preferred",
}
_QUEUE = "kueue.x-k8s.io/queue-name"
_MOST_RESTARTS = 100


@dataclass(slots=True)
class Gang:
    """What is known of the gang of a job.

    Attributes:
        metadata: name, namespace, labels and annotations; others are ignored.
        usual: the other system's name for the container that trains.
        hosts: how the hosts of its pods are called.
        sizes: number of pods of each of the Jobs in the source.
        given: variables that the other system sets by itself in another form than Muster.
        processes: processes on each node, in the form of torchrun's --nproc-per-node; "": not given.
        parts: the replicas that train: the path of each, the template of its pods, and the number of pods.
        restarts_containers: whether the other system restarts a container that ends in place.
        spec: fields of the TrainingJob's spec that are already known.
        limits: the paths of fields that limit the time of the gang or of a pod, with their seconds.
        files: the texts of the ConfigMaps in the input, by the names of their files, where the other system numbers
        pods by JOB_COMPLETION_INDEX; None: it does not.
    """

    metadata: Mapping[str, Any]
    usual: str
    hosts: HostNames = HostNames()
    sizes: list[int] = field(default_factory=list)
    given: dict[str, str] = field(default_factory=dict)
    processes: str = ""
    parts: list[tuple[str, dict[str, Any], int]] = field(default_factory=list)
    restarts_containers: bool = False
    spec: dict[str, Any] = field(default_factory=dict)
    limits: list[tuple[str, int]] = field(default_factory=list)
    files: Mapping[str, str] | None = None

    @property
    def name(self) -> str:
        """Return the name of the job."""
        return str(self.metadata["name"])

    @property
    def nodes(self) -> int:
        """Return the number of workers, one on each node."""
        return sum(nodes for _, _, nodes in self.parts)

    def joins(self, fields: Fields, template: Any, nodes: int, notes: Notes) -> None:
        """Add replicas to the gang."""
        if nodes:
            self.parts.append((fields.path, template or {}, nodes))
            notes.became.append(f"{fields.path}: spec.nodes + {nodes}")

    def restarts(self, fields: Fields, name: str, wanted: int | None, notes: Notes) -> None:
        """Set how many application failures may restart the job, unless that is already known."""
        if wanted is None:
            return
        if "recovery" in self.spec:
            notes.leave_out(fields.at(name), wanted)
            return
        restarts = min(wanted, _MOST_RESTARTS)
        self.spec["recovery"] = {"applicationRestartsPerDay": restarts}
        most = f", the most in place of {wanted}" if restarts < wanted else ""
        notes.became.append(
            f"{fields.at(name)} -> spec.recovery.applicationRestartsPerDay: {restarts}{most}: within 24 h, and "
            "failures of nodes do not count"
        )

    def lasts(self, fields: Fields) -> None:
        """Keep activeDeadlineSeconds, for spec.queueing."""
        seconds = fields.pop_field(job_queueing.DEADLINE, int)
        if seconds is not None:
            self.limits.append((fields.at(job_queueing.DEADLINE), seconds))

    def ends(self, fields: Fields, notes: Notes) -> None:
        """Carry over suspend and ttlSecondsAfterFinished."""
        seconds = fields.pop_field("ttlSecondsAfterFinished", int)
        if seconds is not None:
            self.spec["completion"] = {"ttlSecondsAfterFinished": seconds}
            notes.became.append(f"{fields.at('ttlSecondsAfterFinished')} -> spec.completion.ttlSecondsAfterFinished")
        if fields.pop_field("suspend", bool):
            if _QUEUE in (self.metadata.get("labels") or {}):
                notes.leave_out(
                    fields.at("suspend"), True, "Kueue would have taken it back; Muster's own queue decides now"
                )
            else:
                self.spec["suspend"] = True
                notes.became.append(f"{fields.at('suspend')} -> spec.suspend")


@dataclass(frozen=True, slots=True)
class Worker:
    """The worker into which the replicas are converted.

    Attributes:
        template: the template of a worker's pod.
        container: the container of the template that trains.
        gpus: number of accelerators on each node.
        marks: labels and annotations of each replica that belong to another system.
    """

    template: dict[str, Any]
    container: dict[str, Any]
    gpus: int
    marks: list[dict[str, str]]


def different(value: Any, other: Any, path: str = "") -> str:
    """Return the first path at which two templates differ, ports apart; "" where they are alike."""
    paths: Iterable[str] = ()
    if isinstance(value, dict) and isinstance(other, dict):
        names = sorted({*value, *other} - {"ports"})
        paths = (different(value.get(name), other.get(name), f"{path}.{name}".lstrip(".")) for name in names)
    elif isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
        paths = (different(a, b, f"{path}[{index}]") for index, (a, b) in enumerate(zip(value, other, strict=True)))
    elif value != other and (value or other):
        paths = (path,)
    return next(filter(None, paths), "")


def _workers(gang: Gang, notes: Notes) -> Worker:
    """Convert all replicas into one worker. They may differ only in what Muster does in its own way.

    Raises:
        RefusedError: the templates differ in other fields, too.
    """
    made: Worker | None = None
    for path, template, _ in gang.parts:
        replica_notes = Notes()
        replica = _worker(gang, template, replica_notes)
        notes.add(replica_notes)
        if made is None:
            made = replica
            continue
        where = different(made.template, replica.template)
        if where or made.gpus != replica.gpus:
            where = f"template.{where}" if where else f"{replica.gpus} accelerators of its container"
            raise RefusedError(
                f"{path}: {where} is not that of the replicas before, and a gang has one template: write the same "
                "into all that train (the program may ask NODE_RANK, 0 on the first node); what does not train, "
                "e.g. an initializer, becomes an init container, or a Job that ends before"
            )
        made.marks.extend(replica.marks)
    assert made is not None  # a gang without nodes is refused where it is read
    return made


def _worker(gang: Gang, template: dict[str, Any], notes: Notes) -> Worker:
    """Convert the template of a pod into a worker.

    Raises:
        RefusedError: Muster could not start its pods.
    """
    foreign: dict[str, str] = {}
    written = template.pop("metadata", None) or {}
    for name, value in written.items():
        if name not in ("labels", "annotations", "creationTimestamp"):
            notes.leave_out(f"template.metadata.{name}", value, "Muster names a worker's pods, and owns them")
    metadata = _own(written, foreign)
    own = {key for values in metadata.values() for key in values}
    gang.lasts(Fields(template["spec"], "template.spec", notes))
    template["spec"].pop(job_queueing.DEADLINE, None)
    worker.constants(template, own, gang.hosts.marks, notes)
    container = worker.training(template, gang.usual, notes)
    gpus = worker.accelerators(container, gang.nodes, notes)
    pod.fit(template, container, restarted=gang.restarts_containers, notes=notes)
    worker.mounts(container, notes)
    env = container.get("env") or ()
    worker.variables(container, own, notes)
    if gang.files is not None:
        worker.unread_scripts(container, gang.files, notes)
    identity.convert_forms(container, env, gang.nodes, gang.given, notes)
    worker.neighbours(template, container, own, notes)
    if gang.nodes > 1:
        worker.meeting(container, gang.nodes, notes)
    hosts.replace_first(container, gang.hosts, notes)
    if gang.nodes > 1:
        identity.note_scripts(container, notes)
    worker.processes(container, gang.processes, gpus, notes)
    return Worker({**({"metadata": metadata} if metadata else {}), **template}, container, gpus, [foreign])


def training_job(gang: Gang, policy: FleetPolicySpec, notes: Notes) -> dict[str, Any]:
    """Return the TrainingJob of a gang.

    Raises:
        RefusedError: the API would refuse the job, Muster could not start its pods, or its pods are not alike.
    """
    made = _workers(gang, notes)
    hosts.note_remaining(made.template, made.container, gang.hosts, notes)
    spec: dict[str, Any] = {"nodes": gang.nodes, "gpusPerNode": made.gpus}
    containers = made.template["spec"]["containers"]
    others_ask = any(worker.asked(container) for container in containers if container is not made.container)
    if made.container is not containers[0] or others_ask:
        spec["launch"] = {"workerContainer": made.container.get("name")}
    metadata = {key: gang.metadata[key] for key in ("name", "namespace") if key in gang.metadata}
    for key in ("ownerReferences", "finalizers"):
        if gang.metadata.get(key):
            notes.leave_out(f"metadata.{key}", gang.metadata[key])
    of_gang: dict[str, str] = {}
    metadata |= _own(gang.metadata, of_gang)
    merged = {key: value for written in (of_gang, *made.marks) for key, value in written.items()}
    placement = _placement(gang, merged, policy, notes)
    spec |= {"placement": placement} if placement else {}
    queueing = job_queueing.convert_queueing(gang.limits, of_gang, made.marks, notes)
    spec |= {"queueing": queueing} if queueing else {}
    marks.convert_priority((of_gang, *made.marks), made.template["spec"], notes)
    converted = {*_LEVELS, *job_queueing.MARKS, *marks.CONVERTED}
    marks.note_others({key: merged[key] for key in merged if key not in converted}, notes)
    spec |= {**gang.spec, "template": made.template}
    job = {"apiVersion": API_VERSION, "kind": "TrainingJob", "metadata": metadata, "spec": spec}
    check_job(job, policy, notes)
    notes.check.extend(saving.questions(made.container, made.template["spec"].get("volumes") or ()))
    return job


def _own(metadata: Mapping[str, Any], foreign: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return the labels and annotations of the user; those of other systems are added to `foreign`."""
    own: dict[str, dict[str, str]] = {}
    for part in ("labels", "annotations"):
        values = metadata.get(part) or {}
        others = {key: value for key, value in values.items() if is_anothers(key, part)}
        foreign |= others
        own[part] = {key: value for key, value in values.items() if key not in {*others, LAST_APPLIED}}
    return {part: values for part, values in own.items() if values}


def _placement(gang: Gang, written: Mapping[str, str], policy: FleetPolicySpec, notes: Notes) -> dict[str, Any]:
    levels = {level.label: level.name for level in policy.topology.levels}
    placement: dict[str, Any] = {}
    for key, wanted in _LEVELS.items():
        label = written.get(key)
        if label is None:
            continue
        if label == "kubernetes.io/hostname":
            notes.became.append(f"{key}: {label}: so it is: each worker has a node of its own")
        elif key == EXCLUSIVE and len(set(gang.sizes)) > 1:
            notes.leave_out(key, label, "Jobs of several sizes are one gang now, and segments are of one size")
        elif key == EXCLUSIVE and len(gang.sizes) > 1:
            placement["segmentSize"] = gang.sizes[0]
            notes.became.append(
                f"{key}: {label} of {len(gang.sizes)} Jobs -> spec.placement.segmentSize: {gang.sizes[0]}"
            )
            notes.check.append(
                f"a segment lies inside one domain of the FleetPolicy's innermost level: has that the label {label}?"
            )
        elif label in levels:
            placement[wanted] = levels[label]
            notes.became.append(f"{key}: {label} -> spec.placement.{wanted}: {levels[label]}")
        else:
            why = f"no level of the FleetPolicy has this label: name one there, and write it at spec.placement.{wanted}"
            notes.leave_out(key, label, f"{why}; give that FleetPolicy with the input, and it is used")
    return placement


def check_job(job: Mapping[str, Any], policy: FleetPolicySpec, notes: Notes) -> None:
    """Check the job as the API and the operator would, and add what they would say to the notes.

    Raises:
        RefusedError: the API would refuse it, or Muster could not start its pods.
    """
    name = job["metadata"]["name"]
    if not is_job_name(name):
        raise RefusedError(f"metadata.name: {name}: becomes part of host names: write {NAME_RULES}")
    try:
        made = parsed(job)
    except ValueError as error:
        raise RefusedError(str(error)) from error
    for container in made.spec.containers:
        if not all(container.get(part) and isinstance(container[part], str) for part in ("name", "image")):
            raise RefusedError(f"container {container.get('name') or 'without a name'}: write its name and its image")
    reason, message = problem(made, Fleet(policy)) or ("", "")
    message = message.removesuffix(AGAIN).strip()
    if reason == "TemplateInvalid":
        raise RefusedError(message)
    notes.check.extend(filter(None, (message, launching.start_text(made))))
