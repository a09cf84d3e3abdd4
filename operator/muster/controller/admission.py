"""Whether the admission policies are in force that make records the operator's and bound what a thief of its token can
do.

An API server without them takes every write, so their absence would go unnoticed. Each policy refuses one write for
which the operator has the right in every profile; a dry run of that write shows whether the policy is there.

Other policies are left to `kubectl muster doctor`, which reads them. `muster-scope` refuses only changes of Nodes
outside the FleetPolicy's scope: the operator would have to ask for a change of one. `muster-agent` and
`muster-training` judge what agents and users write.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any

import structlog
from prometheus_client import Gauge

from muster.api.base import API_VERSION, rfc3339
from muster.api.installation import InstallationProfile
from muster.kube import paths
from muster.kube.client import Client
from muster.kube.errors import ApiError, Forbidden, Invalid

CHECK_SECONDS = 600.0
RECORDS, OPERATOR = "muster-records", "muster-operator"
_NAME = "muster-policy-check"
_RISKS = {
    RECORDS: "users with rights to Muster's kinds can forge what the operator alone writes",
    OPERATOR: "a thief of the operator's token can do all that its roles allow",
}

log = structlog.get_logger()
_missing = Gauge(
    "muster_admission_policy_missing",
    "1 where the API server accepted a write in a dry run that this ValidatingAdmissionPolicy refuses: apply "
    "your overlay again, e.g. kubectl apply -k manifests/overlays/default.",
    ["policy"],
)


class AdmissionCheck:
    """Checks now and then whether the admission policies are in force, and reports which are missing.

    Args:
        client: a client of its own, so that dry runs wait for no other write, and no other write for them.
        namespace: where Muster runs.
        profile: of the installation; the report of a missing policy names its overlay.
    """

    def __init__(self, client: Client, namespace: str, profile: InstallationProfile) -> None:
        self._client = client
        self._namespace = namespace
        self._profile = profile
        self._said: set[str] = set()

    async def run(self) -> None:
        """Check the policies again and again until cancelled."""
        while True:
            for policy, (path, body) in _refused_writes(self._namespace).items():
                await self.ask(policy, path, body)
            await asyncio.sleep(CHECK_SECONDS)

    async def ask(self, policy: str, path: str, body: dict[str, Any]) -> None:
        """Check by a dry run whether a policy refuses the write that it has to refuse."""
        try:
            await self._client.post(path, body, {"dryRun": "All"})
        except (Forbidden, Invalid) as refused:
            if refused.policy == policy:
                _missing.labels(policy).set(0)
                self._said.discard(policy)
            else:
                log.info("admission policy not checked", policy=policy, error=refused.message)
            return
        except ApiError as error:
            log.warning("admission policy not checked", policy=policy, error=str(error))
            return
        _missing.labels(policy).set(1)
        if policy not in self._said:
            self._said.add(policy)
            log.error(
                "admission policy missing",
                policy=policy,
                message=f"The ValidatingAdmissionPolicy {policy} or its binding is not in force: {_RISKS[policy]}. "
                f"Apply your overlay again, e.g. {self._profile.overlay_command}.",
            )


def _refused_writes(namespace: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """The writes that the policies have to refuse, path and body by policy: a NodeHealth with a decision that only
    people make, and a ConfigMap of no object."""
    decision = {"decision": "Release", "reason": _NAME, "time": rfc3339(datetime.now(UTC))}
    health = {
        "apiVersion": API_VERSION,
        "kind": "NodeHealth",
        "metadata": {"name": _NAME},
        "spec": {"override": decision},
    }
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _NAME, "namespace": namespace}}
    return {
        RECORDS: (paths.muster("nodehealths"), health),
        OPERATOR: (paths.core("configmaps", namespace=namespace), config_map),
    }
