"""Listed PriorityClasses by which no job preempts, each with the remedy."""

from muster.api.fleetpolicy import PriorityPreemption
from muster.queueing.priority_classes import classes_without_effect

WHERE = "spec.queueing.preemption.priorityClasses of FleetPolicy default lists PriorityClass"


def test_a_class_that_is_missing_or_never_preempts_has_no_effect() -> None:
    listed = [{"name": name, "namespaces": ["team-a"]} for name in ("urgent", "polite", "gone")]
    preemption = PriorityPreemption.model_validate({"priorityClasses": listed})
    never, missing = classes_without_effect(preemption, {"urgent": True, "polite": False, "unlisted": False})
    assert never.finding == f"{WHERE} polite, which has preemptionPolicy Never: no job preempts by it"
    assert never.remedy.startswith("delete the class and create it again without preemptionPolicy")
    assert missing.finding == f"{WHERE} gone, which does not exist: no job preempts by it"
    assert missing.remedy.startswith("create it (kubectl create priorityclass gone --value=VALUE)")
    for problem in (never, missing):
        assert problem.remedy.endswith("or take it out of the list (kubectl edit fleetpolicy default)")
    assert list(classes_without_effect(preemption, dict.fromkeys(("urgent", "polite", "gone"), True))) == []
    assert list(classes_without_effect(PriorityPreemption(), {"polite": False})) == []
