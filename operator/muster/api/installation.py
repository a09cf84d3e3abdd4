"""What one installation of Muster does: it judges nodes, and with each further profile it does more.

Code that makes an informer, a loop or an endpoint asks one property here. No other module compares profiles.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Self

from muster.api.fleetpolicy import Enforcement, FleetPolicySpec, NodePool
from muster.api.preflight import Profile


class InstallationProfile(StrEnum):
    """The parts that an installation has. Each profile has those of the profiles before it, in this order."""

    OBSERVE = "observe"
    HEALTH = "health"
    BURN_IN = "burn-in"
    JOBS = "jobs"

    @property
    def acts_on_nodes(self) -> bool:
        """Whether Muster taints nodes, writes their condition and requests repairs, as the FleetPolicy asks for."""
        return self.includes(InstallationProfile.HEALTH)

    @property
    def has_tests(self) -> bool:
        """Whether checkers test nodes, if there are any."""
        return self.includes(InstallationProfile.BURN_IN)

    @property
    def has_jobs(self) -> bool:
        """Whether Muster runs TrainingJobs."""
        return self.includes(InstallationProfile.JOBS)

    @property
    def has_coordinator(self) -> bool:
        """Whether launchers or checkers report to the operator."""
        return self.has_tests

    @property
    def overlay(self) -> str:
        """The folder of manifests/overlays that installs it with nothing optional but what its name promises."""
        return "default" if self is InstallationProfile.JOBS else self.value

    @property
    def definitions(self) -> str:
        """The folder of manifests/ that has the definitions that it needs, and no others."""
        if self.has_jobs:
            return "definitions"
        return f"definitions-{InstallationProfile.HEALTH if self.acts_on_nodes else InstallationProfile.OBSERVE}"

    @property
    def overlay_command(self) -> str:
        """The command that applies its overlay, from the repository and from a release."""
        file = "install.yaml" if self is InstallationProfile.JOBS else f"install-{self}.yaml"
        return f"kubectl apply -k manifests/overlays/{self.overlay} (in a release: -f {file})"

    @property
    def definitions_command(self) -> str:
        """The command that applies its definitions, from the repository and from a release."""
        return f"kubectl apply -k manifests/{self.definitions} (in a release: -f {self.definitions}.yaml)"

    def needs(self, plural: str) -> bool:
        """Whether the definition of one of Muster's kinds has to be there."""
        return self.includes(_NEEDED_FROM[plural])

    def includes(self, profile: Self) -> bool:
        """Whether this profile has the parts of that one."""
        order = list(InstallationProfile)
        return order.index(self) >= order.index(profile)

    def bounded(self, policy: FleetPolicySpec) -> FleetPolicySpec:
        """Return the FleetPolicy as far as this profile carries it out: no more than this is ever done."""
        health, pools, preflight = policy.health, policy.pools, policy.preflight
        if not self.acts_on_nodes:
            repair = health.repair.model_copy(update={"actions": []})
            bounds = {"enforcement": Enforcement.OBSERVE, "node_condition": False, "repair": repair}
            health, pools = health.model_copy(update=bounds), [_observed(pool) for pool in pools]
        if not self.has_tests:
            bounds = {"profile": Profile.DISABLED, "minimum_profile": Profile.DISABLED}
            preflight = preflight.model_copy(update=bounds)
        return policy.model_copy(update={"health": health, "pools": pools, "preflight": preflight})

    def needed(self, policy: FleetPolicySpec) -> "InstallationProfile":
        """Return the least profile that does all that this one does and the FleetPolicy asks for."""
        profiles = [self, *(profile for _, profile in self._beyond(policy))]
        return max(profiles, key=list(InstallationProfile).index)

    def _beyond(self, policy: FleetPolicySpec) -> list[tuple[str, "InstallationProfile"]]:
        """Return the fields that ask for what this profile does not do, with the first profile that does."""
        return [(field, profile) for field, profile in _asked(policy) if not self.includes(profile)]

    def unmet(self, policy: FleetPolicySpec) -> str:
        """Return what a FleetPolicy asks for and this profile does not do, and what to install; "" if nothing."""
        beyond = self._beyond(policy)
        if not beyond:
            return ""
        fields = ", ".join(field for field, _ in beyond)
        return (
            f"Muster is installed with profile {self} (MUSTER_PROFILE), which leaves out what the FleetPolicy asks for "
            f"by {fields}. Install profile {self.needed(policy)}, or take that out of the FleetPolicy."
        )


POLICY_COMMAND = "kubectl create -f manifests/fleetpolicy.yaml (in a release: -f fleetpolicy.yaml)"
"""The command that creates the FleetPolicy of a new installation, from the repository and from a release."""
# The value of the chart and the file of a release that have what a component adds; "": no file has it.
_ELSEWHERE = {
    "cert-manager": ("certManager.enabled", ""),
    "checkers": ("checkers.enabled", "install-jobs.yaml"),
    "jobs": ("profile: jobs", "install.yaml"),
    "monitoring": ("monitoring.enabled", ""),
    "node-condition": ("nodeMarks.enabled", "install-jobs.yaml"),
    "node-taint": ("nodeMarks.enabled", "install-jobs.yaml"),
}
# The first profile that needs each kind.
_NEEDED_FROM = {
    "fleetpolicies": InstallationProfile.OBSERVE,
    "nodehealths": InstallationProfile.OBSERVE,
    "repairrequests": InstallationProfile.HEALTH,
    "trainingjobs": InstallationProfile.JOBS,
    "gangs": InstallationProfile.JOBS,
    "endedjobs": InstallationProfile.JOBS,
}


def name_component(name: str) -> str:
    """Name a component as the repository, the chart and a release have it."""
    value, file = _ELSEWHERE[name]
    in_release = f"; in a release: {file}" if file else ""
    return f"manifests/components/{name} (in the chart: {value}{in_release})"


def _observed(pool: NodePool) -> NodePool:
    """The pool of a policy under which Muster only observes."""
    if pool.health is None or pool.health.enforcement is None:
        return pool
    return pool.model_copy(update={"health": pool.health.model_copy(update={"enforcement": Enforcement.OBSERVE})})


def _asked(policy: FleetPolicySpec) -> Iterator[tuple[str, InstallationProfile]]:
    """Yield the fields of a FleetPolicy that ask for a part, with the first profile that has it."""
    health, preflight = policy.health, policy.preflight
    if health.enforcement is Enforcement.NODES:
        yield "spec.health.enforcement", InstallationProfile.HEALTH
    for pool in policy.pools:
        if pool.health is not None and pool.health.enforcement is Enforcement.NODES:
            yield f"spec.pools[{pool.name}].health.enforcement", InstallationProfile.HEALTH
    if health.node_condition:
        yield "spec.health.nodeCondition", InstallationProfile.HEALTH
    if health.repair.actions:
        yield "spec.health.repair.actions", InstallationProfile.HEALTH
    if preflight.profile is not Profile.DISABLED:
        yield "spec.preflight.profile", InstallationProfile.BURN_IN
    if preflight.minimum_profile is not Profile.DISABLED:
        yield "spec.preflight.minimumProfile", InstallationProfile.BURN_IN
