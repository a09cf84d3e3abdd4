"""Turn a bundle into test data for tests/data/reports, in the format there, with the expected value left empty. Pure.

A line, a mark or a manifest that was misread is a test once it lies there. A bundle contains names of its cluster. Here
each identifier becomes a pseudonym, the same in every piece, so that a piece can be published once its expected value
is filled in.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from muster.api.base import API_VERSION
from muster.cli.convert import as_document
from muster.recovery.exits import BETWEEN_LINES, LAST_LINES_FOLLOW
from muster.world.redact import GONE

FOLDER = "reports"
MAX_CASES = 64
MAX_LINES = 200
OF_THE_LOG = frozenset(
    [
        "AcceleratorError",
        "AcceleratorReset",
        "AmdGpuError",
        "ClockSource",
        "DiskError",
        "DriverFatal",
        "GpuInit",
        "GpuLost",
        "HostErrorCorrected",
        "HostErrorUncorrected",
        "HostThermal",
        "IommuFault",
        "KernelHang",
        "NetworkDiskError",
        "NicError",
        "NicFailed",
        "NvLinkDiscovery",
        "PcieAerCorrected",
        "PcieAerElsewhere",
        "PcieAerFatal",
        "PcieAerUncorrected",
        "ReadOnlyFilesystem",
        "SXid",
        "TaskHang",
        "Xid",
    ]
)
"""Kinds of evidence that the agent reads from the kernel log: their message is the line."""
OF_ANSWERS = frozenset(
    [
        "CreationForbidden",
        "DryRunUnsupported",
        "NamespaceTerminating",
        "PodSecurityViolation",
        "PriorityClassMissing",
        "QuotaExceeded",
        "TemplateInvalid",
        "WebhookFailed",
    ]
)
"""Reasons of waiting whose message is the API server's."""
# Labels with the identity, place or owner of a node.
_NO_LABELS = re.compile(
    r".*(?:hostname|/os|/arch|zone|region|topology|instance|node-?group|pool|cluster|image|subnet|account|owner|team).*"
)
_ADDRESS = r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"
# What has the shape of an identifier. PCI addresses, codes and versions are facts and stay.
_SHAPES = (
    ("00000000-0000-4000-8000-{:012d}", re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)),
    ("10.0.0.{}", re.compile(_ADDRESS)),
    ("02:00:00:00:00:{:02x}", re.compile(r"\b[0-9a-f]{2}(?::[0-9a-f]{2}){5}\b", re.IGNORECASE)),
    (
        "fd00::{}",
        re.compile(r"(?<![\w:])(?:[0-9a-f]{1,4}:){4,7}:?[0-9a-f]{1,4}(?![\w:])|\bfe80::[0-9a-f:]+", re.IGNORECASE),
    ),
    ("user{}@example.org", re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,4}\b")),
    ("/home/user{}", re.compile(r"/home/[\w.-]{1,64}")),
)
_REGISTRY = re.compile(r"[\w-]{1,64}(?:(?:\.[\w-]{1,64}){1,6}(?::\d{1,5})?|:\d{1,5})/")
"""The registry in the name of an image."""
_LEAST_NAME = 3


class Pseudonyms:
    """Pseudonyms for the identifiers of a cluster, each always the same.

    Args:
        names: names of its nodes, pods, namespaces and jobs, by pseudonym.
    """

    def __init__(self, names: Mapping[str, Iterable[str]]) -> None:
        self._known: dict[str, str] = {}
        for instead, called in names.items():
            for number, name in enumerate(dict.fromkeys(filter(None, called))):
                if len(name) >= _LEAST_NAME:
                    self._known.setdefault(name, f"{instead}-{number}")
        words = sorted(self._known, key=len, reverse=True)  # a name that contains another one comes first
        self._names = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, words))})(?![\w-])") if words else None
        self._counts: dict[str, int] = {}

    def text(self, text: str) -> str:
        """Replace identifiers in a text."""
        if self._names is not None:
            text = self._names.sub(lambda match: self._known[match[0]], text)
        for instead, shape in _SHAPES:
            text = shape.sub(lambda match, instead=instead: self._another(instead, match[0]), text)  # type: ignore[misc]
        return text

    def _another(self, instead: str, identifier: str) -> str:
        if identifier not in self._known:
            self._counts[instead] = number = self._counts.get(instead, 0) + 1
            self._known[identifier] = instead.format(number)
        return self._known[identifier]

    def value(self, value: Any) -> Any:
        """Replace identifiers in an object; names of fields stay, and what was redacted is left empty."""
        if isinstance(value, str):
            return "" if value == GONE else self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, Mapping):
            return {key: self._image(item) if key == "image" else self.value(item) for key, item in value.items()}
        return value

    def _image(self, image: Any) -> Any:
        registry = _REGISTRY.match(image) if isinstance(image, str) else None
        if registry is None:
            return self.value(image)
        return self._another("registry{}.example.org/", registry[0]) + self.text(image[registry.end() :])


def pieces(files: Mapping[str, Any], source: str) -> dict[str, dict[str, Any]]:
    """Return the pieces by name, each a file of one sort.

    Args:
        files: the bundle's content, redacted: objects and texts by name.
        source: its origin, for people.
    """
    other = Pseudonyms(_names(files))
    by_name: dict[str, dict[str, Any]] = {}
    for name, cases in (
        ("kernel/findings", _kernel_lines(files)),
        ("marks/nodes", _marks(files)),
        ("manifests/job", _manifests(files)),
        ("answers/job", _answers(files)),
        ("last_lines/ranks", _last_lines(files)),
        ("printed/logs", _printed(files)),
    ):
        unique_cases = _once({**case, "input": _given(other.value(case["input"])), "right": ""} for case in cases)
        if unique_cases:
            by_name[f"{FOLDER}/{name}.yaml"] = {"source": source, "meaning": "", "cases": unique_cases}
    return by_name


def _given(value: Any) -> Any:
    """Return a manifest in the format of a file."""
    return as_document(value) if isinstance(value, Mapping) and "kind" in value else value


def _once(cases: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the cases without repetitions: a thousand nodes bear the same marks."""
    unique: list[dict[str, Any]] = []
    for case in cases:
        if case not in unique:
            unique.append(case)
        if len(unique) >= MAX_CASES:
            break
    return unique


def _names(files: Mapping[str, Any]) -> dict[str, list[str]]:
    pods = _objects(files, "job/pods.json")
    job = _metadata(files.get("job/trainingjob.json"))
    nodes = [_metadata(node).get("name", "") for node in _objects(files, "fleet/nodes.json")]
    nodes += [_metadata(health).get("name", "") for health in _objects(files, "fleet/nodehealths.json")]
    nodes += [pod.get("spec", {}).get("nodeName", "") for pod in pods]
    return {
        "node": nodes,
        "pod": [_metadata(pod).get("name", "") for pod in pods],
        "job": [job.get("name", "")],
        "namespace": [job.get("namespace", "")],
    }


def _kernel_lines(files: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for health in _objects(files, "fleet/nodehealths.json"):
        for evidence in (health.get("status") or {}).get("evidence") or ():
            if evidence.get("kind") in OF_THE_LOG and evidence.get("message"):
                read = {key: evidence[key] for key in ("kind", "code") if evidence.get(key)}
                yield {"input": evidence["message"], "read": read}


def _marks(files: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    marks = map(_marks_of, _objects(files, "fleet/nodes.json"))
    for node_marks in sorted(filter(None, marks), key=lambda node_marks: not node_marks.keys() - {"metadata"}):
        yield {"input": node_marks}


def _marks_of(node: Mapping[str, Any]) -> dict[str, Any]:
    metadata, spec = _metadata(node), node.get("spec") or {}
    about = {key: metadata[key] for key in ("labels", "annotations", "deletionTimestamp") if metadata.get(key)}
    if "labels" in about:
        about["labels"] = {key: value for key, value in about["labels"].items() if not _NO_LABELS.fullmatch(key)}
    conditions = [
        {key: value for key, value in condition.items() if key != "lastHeartbeatTime"}
        for condition in (node.get("status") or {}).get("conditions") or ()
        if condition.get("status") != ("True" if condition.get("type") == "Ready" else "False")
    ]
    marks = {
        "metadata": {key: value for key, value in about.items() if value},
        "spec": {key: spec[key] for key in ("taints", "unschedulable") if spec.get(key)},
        "status": {"conditions": conditions} if conditions else {},
    }
    return {key: value for key, value in marks.items() if value}


def _manifests(files: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    job = files.get("job/trainingjob.json")
    if isinstance(job, Mapping) and job.get("spec"):
        metadata = {key: value for key, value in _metadata(job).items() if key in ("name", "labels")}
        kept = {"apiVersion": API_VERSION, "kind": "TrainingJob", "metadata": metadata, "spec": job["spec"]}
        yield {"input": kept}


def _answers(files: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the API server's answers about the job's pods. Their status code is not kept."""
    job = files.get("job/trainingjob.json")
    status = job.get("status") if isinstance(job, Mapping) else None
    for condition in (status.get("conditions") or ()) if isinstance(status, Mapping) else ():
        if condition.get("reason") in OF_ANSWERS and condition.get("message"):
            yield {"input": {"codes": [], "message": condition["message"]}, "read": {"reason": condition["reason"]}}


def _last_lines(files: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for gang in _objects(files, "job/gangs.json"):
        for incident in reversed((gang.get("spec") or {}).get("incidents") or ()):
            lines = str(incident.get("message") or "").partition(LAST_LINES_FOLLOW)[2]
            if lines:
                ended = {key: incident[key] for key in ("exitCode", "signal") if incident.get(key) is not None}
                yield {"input": lines.replace(BETWEEN_LINES, "\n"), **ended}


def _printed(files: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, text in files.items():
        if name.startswith("job/logs/") and isinstance(text, str) and text.strip():
            yield {"input": "\n".join(text.splitlines()[-MAX_LINES:]) + "\n"}


def _objects(files: Mapping[str, Any], name: str) -> list[Any]:
    listed = files.get(name)
    return [item for item in listed if isinstance(item, Mapping)] if isinstance(listed, list) else []


def _metadata(value: Any) -> Mapping[str, Any]:
    metadata = value.get("metadata") if isinstance(value, Mapping) else None
    return metadata if isinstance(metadata, Mapping) else {}
