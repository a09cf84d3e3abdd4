"""Objects as the API server has them after the operator has decided about them, in each state that there is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.unit.health import builders as nodes
from tests.unit.health.builders import Stored, after, evidence
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, an_incident, at, failed, running, succeeded

from muster.api.base import API_VERSION, ObjectMeta
from muster.api.gang import Evacuation, HeldFailure, Level
from muster.api.nodehealth import Decision, Evidence, NodeHealth, Offences
from muster.api.repairrequest import RepairAction, RepairPhase, RepairRequest, RepairRequestStatus
from muster.api.trainingjob import TrainingJob
from muster.health.memory import identity
from muster.health.orders import Order
from muster.health.repairs import Case
from muster.health.story import recorded_status
from muster.lifecycle.step import decide
from muster.status.report import State

Object = dict[str, Any]
NODE = "node-0001"


@dataclass(frozen=True)
class RecordedJob:
    """A TrainingJob with the status that the operator writes.

    Attributes:
        state: what the operator's decision reports.
        word: `status.state`.
        manifest: the object.
    """

    state: State
    word: str
    manifest: Object


def _manifest(kind: str, model: TrainingJob | NodeHealth | RepairRequest) -> Object:
    return {"apiVersion": API_VERSION, "kind": kind, **model.to_json()}


def record(scene: Scene) -> RecordedJob:
    """The job of a scene once the operator has decided about it."""
    plan = decide(scene.world(), SETTINGS)
    assert plan.status is not None
    assert plan.status_report is not None
    job = scene.job.model_copy(update={"status": plan.status})
    return RecordedJob(plan.status_report.state, plan.status.state, _manifest("TrainingJob", job))


def unseen_job(manifest: Object) -> Object:
    """The same job as it is created: the API server has filled in the default of its status."""
    return {**manifest, "status": {"observedGeneration": 0}}


def edited_job(manifest: Object) -> Object:
    """The same job once its spec was changed, which the operator has not seen."""
    return {**manifest, "metadata": {**manifest["metadata"], "generation": manifest["metadata"]["generation"] + 1}}


def _trains(**spec: Any) -> Scene:
    return Scene(a_job(**spec)).fleet().gang().pods().all(running(1, step=7))


def _exhausted() -> Scene:
    job = a_job(recovery={"applicationRestartsPerDay": 0})
    return Scene(job).fleet().gang(2, go=False, incidents=[an_incident(1, step=3, settled=True)])


def _ejected() -> Scene:
    return _trains(eject=True).gang(ejected=True).pods().all(running(1, 7, ejected=True))


JOBS: Mapping[str, Callable[[], Scene]] = {
    "no node is free": lambda: Scene(a_job(nodes=3)).fleet(3).node("n0", unschedulable=True),
    "the fleet is too small": lambda: Scene(a_job(nodes=3)).fleet(2),
    "pods come": lambda: Scene(a_job()).fleet().gang(go=False).pod(0, phase="Pending"),
    "a worker is replaced": lambda: Scene(a_job()).fleet().gang(2, go=False, level=Level.REPLACE, reason="NodeLost"),
    "ranks have started": lambda: Scene(a_job()).fleet().gang().pods().all(running(1)),
    "trains": _trains,
    "trains with a warning": lambda: _trains().launcher(2, running(1, step=7, progress_error="no step is read")),
    "leaves a node": lambda: (
        _trains()
        .node("n1", unschedulable=True)
        .gang(evacuation=Evacuation(reason="NodeCordoned", nodes=["n1"], since=at(90), deadline=at(400), after_step=7))
    ),
    "a failure is held": lambda: (
        Scene(a_job(recovery={"onFailure": "Hold"}))
        .fleet()
        .gang(held_failure=HeldFailure(since=at(90), reason="RankFailed", index=0, message="exited with 1", step=6))
        .pods()
        .all(failed(1, 1))
    ),
    "suspended": lambda: Scene(a_job(suspend=True)).fleet().gang(members=[]),
    "the template is refused": lambda: Scene(
        a_job(template={"spec": {"nodeSelector": ["a"], "containers": [{"name": "main", "image": "trainer:1"}]}})
    ).fleet(),
    "leaves Muster": _ejected,
    "has left Muster and ended": lambda: _ejected().ended(0).ended(1).ended(2),
    "succeeded": lambda: Scene(a_job()).fleet().gang().pods().all(replace(succeeded(1), lists_after_end=False)),
    "failed": _exhausted,
}


def _stored(**health: Any) -> Stored:
    return Stored.of(10, nodes.rules(**health))


def _quiet() -> Stored:
    return _stored()


def _faulty(*faults: Evidence) -> Stored:
    stored = _stored()
    stored.report(NODE, *faults)
    return stored


def _cordoned() -> Stored:
    stored = _stored()
    stored.healths[NODE] = nodes.decided(stored.healths[NODE], Decision.CORDON, reason="liquid under rack 7")
    return stored


def _repeat_offender() -> Stored:
    """The machine has failed so often that a person has to let it back."""
    stored = _faulty(evidence("Xid", 79))
    status = stored.healths[NODE].status
    assert status.agent is not None
    offences = Offences(hardware=identity(status.agent), score="9", as_of=after(0))
    stored.healths[NODE] = stored.healths[NODE].model_copy(
        update={"status": status.model_copy(update={"offences": offences})}
    )
    stored.step(after(10))
    return stored


def _repaired() -> Stored:
    """Its fault is over, and it has to pass a test before it comes back."""
    stored = _faulty(evidence("RowRemapPending"))
    stored.rules = replace(stored.rules, validates=True)
    stored.step(after(10))
    stored.report(NODE)
    return stored


NODES: Mapping[str, Callable[[], Stored]] = {
    "healthy": _quiet,
    "a link is slow": lambda: _faulty(evidence("PcieGeneration")),
    "a link is down": lambda: _faulty(evidence("IbPortDown", subject="mlx5_3/1", value="state DOWN")),
    "rows wait to be remapped": lambda: _faulty(evidence("RowRemapPending")),
    "a GPU is lost": lambda: _faulty(evidence("Xid", 79)),
    "fails again and again": _repeat_offender,
    "cordoned": _cordoned,
    "repaired": _repaired,
}


def node_health(name: str) -> Object:
    """The NodeHealth of a case in `NODES`, with the status that the operator writes."""
    stored = NODES[name]()
    verdicts, rulings, effects, _ = stored.step(after(60))
    order = Order(NODE, verdicts[NODE], rulings[NODE], effects[NODE])
    status = recorded_status(order, stored.rules)
    return _manifest("NodeHealth", stored.healths[NODE].model_copy(update={"status": status}))


def unjudged_node() -> Object:
    """The NodeHealth of a new node, which its agent alone has written."""
    return _manifest("NodeHealth", nodes.healthy(NODE))


def repair_request(phase: RepairPhase | None, message: str = "") -> Object:
    """A RepairRequest as the operator makes it, with what a repair system has written."""
    asked = Case(NODE, after(0), RepairAction.REBOOT)
    status = RepairRequestStatus(phase=phase, message=message)
    return _manifest("RepairRequest", RepairRequest(metadata=ObjectMeta(name=NODE), spec=asked.spec(), status=status))
