"""One recipe on a cluster: the job of `examples/NAME`, harmed three times; once more, asked to save and leave; and once
undisturbed, for its weights."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import yaml

from recipes.table import PAUSE, SAVE_EVERY, options_of
from testbed.bed import ROOT, Bed
from testbed.gangwatch import GangWatch, Seen
from testbed.harm import Fault, Victim
from testbed.kube import KubectlError, wait_until

NAMESPACE, CLAIM = "muster-recipes", "shared"
SAVED_STEPS = 20
ASKED_STEP = 10
DEADLINE_SECONDS = 600.0
_LOOK_SECONDS = 0.3
_SAVED = re.compile(r"(?:[^.].*[-_=]|global_step)?(\d+)(?:\.(?:ckpt|pt))?")
_WEIGHTS = re.compile(r"^weights ([0-9a-f]{64})$", re.MULTILINE)

Say = Callable[[str], None]


@dataclass(frozen=True)
class Suffered:
    """One fault: what was done, and from where the job went on.

    Attributes:
        saved_step: of the newest checkpoint but one that the program had begun to write before it, which so was
            complete.
        resumed_step: of the checkpoint that the next attempt went on from.
        back_seconds: from the fault to the start of all ranks.
    """

    kind: str
    victim: str
    level: str
    saved_step: int
    resumed_step: int | None
    back_seconds: float


@dataclass(frozen=True)
class Asked:
    """A suspension of a job that saves only when it is asked to, and then its end.

    Attributes:
        step: the newest that was made before the ranks stopped.
        resumed_step: of the checkpoint that the next attempt went on from.
        stopped_seconds: from the suspension until the job was suspended; `stepless_seconds` until a later step was
            seen.
        weights: a digest of those at the end.
    """

    step: int
    resumed_step: int | None
    stopped_seconds: float
    stepless_seconds: float
    result: str
    weights: str


@dataclass(frozen=True)
class Outcome:
    """How a recipe went; `weights` are digests of those after the faults and of those without any."""

    name: str
    result: str
    format: str
    faults: tuple[Suffered, ...]
    asked: Asked
    weights: str
    undisturbed: str

    @property
    def problem(self) -> str:
        """What is wrong with it; "" = nothing."""
        if self.result != "Succeeded":
            return f"the job ended as {self.result}"
        for fault in self.faults:
            if fault.resumed_step is None or fault.resumed_step < fault.saved_step:
                return (
                    f"after {fault.kind} it went on from {fault.resumed_step}, though {fault.saved_step} was complete"
                )
        if self.asked.result != "Succeeded":
            return f"the job that was asked to leave ended as {self.asked.result}"
        if self.asked.resumed_step != self.asked.step:
            return f"it was asked to leave, made step {self.asked.step}, and went on from {self.asked.resumed_step}"
        if not self.undisturbed or {self.weights, self.asked.weights} != {self.undisturbed}:
            return "its weights are not those of the undisturbed run"
        return ""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "problem": self.problem}


def prepare(bed: Bed) -> None:
    """The namespace, with a shared volume."""
    claim = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "shared",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    items = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": enforced}},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, "namespace": NAMESPACE},
            "spec": claim,
        },
    ]
    bed.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def play(bed: Bed, name: str, images: dict[str, str], faults: dict[str, Fault], say: Say) -> Outcome:
    """Run it."""
    apply(bed, manifest(name, images))
    found = []
    with GangWatch(bed.kubectl, NAMESPACE, name) as watch:
        for kind, inject in faults.items():
            found.append(_suffer(bed, name, watch, kind, inject))
            say(
                f"{name}: {kind} hit {found[-1].victim}; {found[-1].level}, started again after "
                f"{found[-1].back_seconds:.1f} s, from checkpoint {found[-1].resumed_step}"
            )
        ended = _ended(bed, name)
    for fault in found:
        if fault.kind == "NodePowerCut":
            bed.cluster.power_on(fault.victim)
    weights = _weights(bed, name)
    asked = suspend_once(bed, name, images)
    say(
        f"{name}: asked to leave at step {asked.step}; suspended after {asked.stopped_seconds:.1f} s, a step beyond it "
        f"after {asked.stepless_seconds:.1f} s, from checkpoint {asked.resumed_step}"
    )
    outcome = Outcome(
        name,
        ended["completion"]["result"],
        (ended.get("checkpoint") or {}).get("format", ""),
        tuple(found),
        asked,
        weights,
        undisturbed_weights(bed, name, images),
    )
    bed.kubectl("delete", "trainingjob", "-n", NAMESPACE, name, "--wait=true", timeout_seconds=120)
    return outcome


def suspend_once(bed: Bed, name: str, images: dict[str, str]) -> Asked:
    """Suspend a job of the recipe that saves only when it is asked to, and let it go on to its end."""
    called = f"{name}-asked"
    apply(bed, manifest(name, images, called, **{SAVE_EVERY: 100000}))
    with GangWatch(bed.kubectl, NAMESPACE, called) as watch:
        _wait_status(bed, called, f"step {ASKED_STEP}", lambda status: status.get("step", 0) >= ASKED_STEP)
        assert watch.latest is not None
        attempt, begun = watch.latest.attempt, time.monotonic()
        _set_suspended(bed, called, True)
        stopped = _wait_status(bed, called, "the suspension", lambda status: status.get("state") == "Suspended")
        stopped_seconds = time.monotonic() - begun
        _set_suspended(bed, called, False)
        going = watch.wait_going(attempt, DEADLINE_SECONDS)
        step: int = stopped["step"]
        _wait_status(bed, called, "a later step", lambda status: status.get("step", 0) > step)
        stepless_seconds = time.monotonic() - begun
    ended = _ended(bed, called)
    weights = _weights(bed, called)
    bed.kubectl("delete", "trainingjob", "-n", NAMESPACE, called, "--wait=true", timeout_seconds=120)
    return Asked(step, going.resumed_step, stopped_seconds, stepless_seconds, ended["completion"]["result"], weights)


def undisturbed_weights(bed: Bed, name: str, images: dict[str, str]) -> str:
    """A digest of the weights of a run to which nothing happens."""
    called = f"{name}-undisturbed"
    apply(bed, manifest(name, images, called, **{PAUSE: 0}))
    _ended(bed, called)
    weights = _weights(bed, called)
    bed.kubectl("delete", "trainingjob", "-n", NAMESPACE, called, "--wait=true", timeout_seconds=120)
    return weights


def manifest(name: str, images: dict[str, str], called: str = "", **options: float) -> dict[str, Any]:
    """The example, with the image that was built here; under another name also with a directory of its own.

    Args:
        options: of its program, as `recipes.table` names them.
    """
    text = (ROOT / "examples" / name / "trainingjob.yaml").read_text(encoding="utf-8")
    if called:
        text = text.replace(f"name: {name}\n", f"name: {called}\n").replace(f"/shared/{name}", f"/shared/{called}")
    (job,) = yaml.safe_load_all(text)
    job["metadata"]["namespace"] = NAMESPACE
    (container,) = job["spec"]["template"]["spec"]["containers"]
    repository = container["image"].rpartition(":")[0].rpartition("/")[2]
    container["image"] = images[repository]
    container["args"] += [f"{options_of(name)[option]}={value}" for option, value in options.items()]
    return dict(job)


def apply(bed: Bed, job: dict[str, Any]) -> None:
    """As `kubectl apply -f` does."""
    bed.kubectl("apply", "-f", "-", stdin=json.dumps(job))


def _status(bed: Bed, name: str) -> dict[str, Any]:
    return dict((bed.kubectl.find("get", "trainingjob", "-n", NAMESPACE, name) or {}).get("status") or {})


def _set_suspended(bed: Bed, name: str, suspend: bool) -> None:
    patch = json.dumps({"spec": {"suspend": suspend}})
    bed.kubectl("patch", "trainingjob", "-n", NAMESPACE, name, "--type=merge", "-p", patch)


def _suffer(bed: Bed, name: str, watch: GangWatch, kind: str, inject: Fault) -> Suffered:
    """Harm it once it has saved twice since it started, and wait until it goes on."""
    started = watch.latest.resumed_step or 0 if watch.latest else 0

    def ripe() -> list[int] | None:
        if "completion" in (status := _status(bed, name)):
            raise RuntimeError(f"{name} ended before {kind}: {status['completion']}")
        saved = _saved(bed, name)
        return saved if len(saved) > 1 and saved[-1] >= started + 2 * SAVED_STEPS else None

    saved = wait_until(f"two checkpoints of {name}", ripe, DEADLINE_SECONDS, _LOOK_SECONDS)
    assert watch.latest is not None
    attempt, begun = watch.latest.attempt, time.monotonic()
    victim = inject(Victim(bed, NAMESPACE, name))
    going: Seen = watch.wait_going(attempt, DEADLINE_SECONDS)
    return Suffered(kind, victim, going.level, saved[-2], going.resumed_step, going.monotonic_seconds - begun)


def _saved(bed: Bed, name: str) -> list[int]:
    """Steps of what lies in its directory, complete or not, as the first worker sees it; none while that cannot be
    asked."""
    pod = Victim(bed, NAMESPACE, name).member_pods().get(0)
    if pod is None:
        return []
    try:
        names = bed.kubectl(
            "exec", "-n", NAMESPACE, pod["metadata"]["name"], "-c", "trainer", "--", "ls", f"/shared/{name}"
        )
    except KubectlError:  # it is being replaced
        return []
    return sorted(step for step in map(saved_step, names.split("\n")) if step is not None)


def saved_step(name: str) -> int | None:
    """The step of a checkpoint of this name, complete or not; None where it is none."""
    found = _SAVED.fullmatch(name) if "tmp" not in name else None
    return int(found[1]) if found else None


def _ended(bed: Bed, name: str) -> dict[str, Any]:
    return _wait_status(bed, name, "the end", lambda status: "completion" in status)


def _wait_status(bed: Bed, name: str, what: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait until this holds for the status of a job; return the status."""

    def found() -> dict[str, Any] | None:
        status = _status(bed, name)
        return status if status and holds(status) else None

    return wait_until(f"{what} of {name}", found, DEADLINE_SECONDS, _LOOK_SECONDS)


def _weights(bed: Bed, name: str) -> str:
    """What its first rank printed at the end. A pod of the node that went down may still be there, and has no log."""

    def printed() -> str | None:
        pods = bed.kubectl("get", "pods", "-n", NAMESPACE, f"--selector=muster.dev/job={name}", "--output=name").split()
        logs = [bed.kubectl("logs", "-n", NAMESPACE, pod, "-c", "trainer", "--tail=-1", check=False) for pod in pods]
        return next((str(found[-1]) for found in map(_WEIGHTS.findall, logs) if found), None)

    return wait_until(f"the weights of {name}", printed, DEADLINE_SECONDS, _LOOK_SECONDS)
