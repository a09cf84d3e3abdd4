"""JobSet: one Job for the whole gang; when a pod fails, all of it is deleted and made again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from bench.api import Object
from bench.bed import NAMESPACE, Bed, documents, pod_spec
from bench.peers.manager import HOST, Manager, pointed_here, remove_webhooks, serving_pair
from bench.peers.system import GANG, System
from localcluster.build import JOBSET, extra
from localcluster.controlplane import free_port

_JOBSETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"
_MAX_RESTARTS = 100


class JobSet(System):
    """The gang as a JobSet with one Job, restarts with the default strategy Recreate."""

    name = "jobset"
    watches = True

    def __init__(self, bed: Bed) -> None:
        super().__init__(bed)
        self._jobset = Manager(bed, "jobset")
        self._webhooks: list[Object] = []

    def begin(self) -> None:
        """Install JobSet's definitions and webhooks and start its manager."""
        folder = extra(JOBSET)
        components = folder / "config" / "components"
        self.bed.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "jobset-system"}}])
        definitions = [each for file in sorted((components / "crd" / "bases").iterdir()) for each in documents(file)]
        self.bed.install_definitions(definitions)
        port, health = free_port(), free_port()
        certificates = serving_pair(self.bed, self._jobset.folder / "pki")
        configuration = documents(components / "manager" / "controller_manager_config.yaml")[0] | {
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": HOST, "port": port, "certDir": str(certificates)},
            "metrics": {"bindAddress": f"{HOST}:{free_port()}", "certDir": str(certificates)},
            "health": {"healthProbeBindAddress": f"{HOST}:{health}"},
        }
        path = self._jobset.folder / "configuration.yaml"
        path.write_text(yaml.safe_dump(configuration))
        self._jobset.start(
            [str(folder / "jobset"), f"--config={path}", f"--kubeconfig={self.bed.cluster.kubeconfig}"],
            health,
        )
        webhooks = pointed_here(self.bed, "jobset", port, documents(components / "webhook" / "manifests.yaml"))
        for webhook in (each for configuration in webhooks for each in configuration["webhooks"]):
            if webhook["name"] in ("mpod.kb.io", "vpod.kb.io"):
                # As the project's own kustomization has it: other pods are none of its business.
                expression = {"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}
                webhook["objectSelector"] = {"matchExpressions": [expression]}
        self.bed.apply(webhooks)
        self._webhooks = webhooks

    def end(self) -> None:
        """Take the webhooks away, then end the manager."""
        remove_webhooks(self.bed, self._webhooks)
        self._jobset.stop()

    def submit(self) -> None:
        """Create the JobSet."""
        self.bed.connection.post(_JOBSETS, self.manifest())

    def manifest(self) -> dict[str, Any]:
        """The JobSet."""
        template: dict[str, Any] = {"spec": pod_spec()}
        job = {
            "completionMode": "Indexed",
            "completions": self.bed.size,
            "parallelism": self.bed.size,
            "backoffLimit": 0,
            "template": template,
        }
        return {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": GANG},
            "spec": {
                "failurePolicy": {"maxRestarts": _MAX_RESTARTS},
                "replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": job}}],
            },
        }

    def remove(self) -> None:
        """Delete the JobSet; its Job and pods follow."""
        self.bed.connection.delete(f"{_JOBSETS}/{GANG}", {"propagationPolicy": "Background"})

    def managers(self) -> Mapping[str, int]:
        """JobSet's manager."""
        return {"jobset": self._jobset.pid}
