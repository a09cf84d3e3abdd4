"""Whether jobs of a namespace may start at all, and what enables them. Pure.

A user that may create jobs in some namespace takes no nodes before an administrator says so. So a cluster without a
FleetPolicy starts no job, and a policy may select namespaces by their labels.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.installation import POLICY_COMMAND, name_component
from muster.api.labels import LabelOperator, LabelRequirement, LabelSelector
from muster.world.queuedecision import NotPlaced

NOT_ENABLED = "NotEnabled"


@dataclass(frozen=True, slots=True)
class NotEnabled(NotPlaced):
    """The answer that no job of the namespace starts.

    Attributes:
        remedy: what changes that.
        is_known: False: Muster has not read yet what decides it.
    """

    remedy: str = ""
    is_known: bool = True


NO_POLICY = NotEnabled(
    NOT_ENABLED,
    "there is no FleetPolicy default, so no job starts",
    remedy=f"an administrator creates it from a copy that was kept; for a new installation: {POLICY_COMMAND}",
)
POLICY_NOT_READ = NotEnabled(NOT_ENABLED, "FleetPolicy default has not been read yet", remedy="wait", is_known=False)


def unreadable_policy(problem: str) -> NotEnabled:
    """The answer where there is a FleetPolicy that this process could never read."""
    text = f"FleetPolicy default cannot be read, so no job starts: {problem}"
    remedy = "an administrator corrects it: kubectl edit fleetpolicy default"
    return NotEnabled(NOT_ENABLED, text, remedy=remedy, is_known=False)


def refusal(policy: FleetPolicySpec, namespace: str, labels: Mapping[str, str] | None) -> NotEnabled | None:
    """Why no job of a namespace starts; None if jobs may start.

    Args:
        policy: the FleetPolicy.
        namespace: its name.
        labels: of the Namespace; None: not known.
    """
    selector = policy.queueing.namespace_selector
    if selector is None or (labels is not None and selector.selects(labels)):
        return None
    if labels is None:
        return NotEnabled(
            NOT_ENABLED,
            f"Muster has not read the labels of namespace {namespace} yet",
            remedy=f"wait; if that stays so, an administrator applies {name_component('jobs')} again, with the "
            "right to list and watch namespaces",
            is_known=False,
        )
    text = f"namespace {namespace} is not enabled for training"
    return NotEnabled(NOT_ENABLED, text, remedy=f"an administrator {_remedy(selector, namespace, labels)}")


def _remedy(selector: LabelSelector, namespace: str, labels: Mapping[str, str]) -> str:
    """The command that sets the missing labels, or the selector where these do not suffice."""
    if not selector.selects({**labels, **selector.match_labels}):
        return (
            f"gives namespace {namespace} labels that spec.queueing.namespaceSelector of FleetPolicy default selects: "
            f"{','.join(_requirements(selector))}"
        )
    missing = {key: value for key, value in selector.match_labels.items() if labels.get(key) != value}
    overwrite = " --overwrite" if missing.keys() & labels.keys() else ""
    texts = " ".join(f"{key}={value}" for key, value in missing.items())
    return f"enables it: kubectl label namespace {namespace} {texts}{overwrite}"


def _requirements(selector: LabelSelector) -> Iterator[str]:
    """The conditions of a selector as `kubectl get -l` takes them."""
    yield from (f"{key}={value}" for key, value in selector.match_labels.items())
    yield from map(_requirement, selector.match_expressions)


def _requirement(requirement: LabelRequirement) -> str:
    if requirement.values:
        return f"{requirement.key} {requirement.operator.lower()} ({','.join(requirement.values)})"
    return f"{'' if requirement.operator is LabelOperator.EXISTS else '!'}{requirement.key}"


def add_limit_command(namespace: str, nodes: int) -> str:
    """Return the command that gives a namespace a limit of nodes that has none in `spec.queueing.limits`."""
    patch = f'[{{"op":"add","path":"/spec/queueing/limits/-","value":{{"namespace":"{namespace}","nodes":{nodes}}}}}]'
    return f"kubectl patch fleetpolicy default --type=json -p '{patch}'"
