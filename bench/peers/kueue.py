"""JobSet under Kueue with topology-aware scheduling: admitted as a whole, one block required or preferred."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bench.api import Object
from bench.bed import NAMESPACE, Bed, documents
from bench.peers.jobset import JobSet
from bench.peers.manager import HOST, Manager, client_config, pointed_here, remove_webhooks, serving_pair
from localcluster.api import ApiError, wait_for
from localcluster.build import KUEUE, extra
from localcluster.controlplane import free_port
from localcluster.errors import LocalClusterError
from localcluster.kwok import BLOCK_LABEL, NODES_PER_BLOCK, RACK_LABEL

_QUEUE = "gangs"
_SYSTEM_NAMESPACE = "kueue-system"
# Those of its CRDs that have versions to convert (config/components/crd/kustomization.yaml).
_CONVERTED = frozenset(("localqueues", "clusterqueues", "cohorts", "workloads", "multikueueclusters"))
_LEVELS = (BLOCK_LABEL, RACK_LABEL, "kubernetes.io/hostname")
# Its own kustomization keeps these webhooks off the system's namespaces.
_OWN_KINDS = frozenset(
    ("clusterqueue", "cohort", "localqueue", "resourceflavor", "workload", "topology", "admissioncheck")
)
_QUEUES_SECONDS = 60.0


class JobSetKueue(JobSet):
    """The same JobSet, queued."""

    name = "jobset+kueue"
    watches = True

    def __init__(self, bed: Bed) -> None:
        super().__init__(bed)
        self._kueue = Manager(bed, "kueue")
        self._kueue_webhooks: list[Object] = []

    def begin(self) -> None:
        """JobSet's part, then the same for Kueue, and one queue for the whole fleet."""
        super().begin()
        folder = extra(KUEUE)
        components = folder / "config" / "components"
        port, health = free_port(), free_port()
        self.bed.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _SYSTEM_NAMESPACE}}])
        self.bed.install_definitions(self._definitions(components / "crd" / "bases", port))
        certificates = serving_pair(self.bed, self._kueue.folder / "pki")
        configuration = documents(components / "manager" / "controller_manager_config.yaml")[0] | {
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": HOST, "port": port, "certDir": str(certificates)},
            "metrics": {"bindAddress": f"{HOST}:{free_port()}"},
            "health": {"healthProbeBindAddress": f"{HOST}:{health}"},
        }
        path = self._kueue.folder / "configuration.yaml"
        path.write_text(yaml.safe_dump(configuration))
        manager = [
            *(str(folder / "kueue"), f"--config={path}", f"--kubeconfig={self.bed.cluster.kubeconfig}"),
            *("--zap-log-level=2", "--feature-gates=VisibilityOnDemand=false"),
        ]
        self._kueue.start(self._with_certificates(manager), health)
        webhooks = pointed_here(self.bed, "kueue", port, documents(components / "webhook" / "manifests.yaml"))
        for webhook in (each for configuration in webhooks for each in configuration["webhooks"]):
            if webhook["name"].removesuffix(".kb.io")[1:] not in _OWN_KINDS:
                outside = {"key": "kubernetes.io/metadata.name", "operator": "NotIn"}
                values = ["kube-system", _SYSTEM_NAMESPACE]
                webhook["namespaceSelector"] = {"matchExpressions": [{**outside, "values": values}]}
        self.bed.apply(webhooks)
        self._kueue_webhooks = webhooks
        wait_for(self._queues_accepted, "Kueue's queues", _QUEUES_SECONDS)

    def end(self) -> None:
        """Kueue's webhooks go first."""
        remove_webhooks(self.bed, self._kueue_webhooks)
        self._kueue.stop()
        super().end()

    def manifest(self) -> dict[str, Any]:
        """The JobSet with the name of its queue and the level that its pods share."""
        made = super().manifest()
        made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": _QUEUE}
        how = "required" if self.bed.size <= NODES_PER_BLOCK else "preferred"
        template = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        template["metadata"] = {"annotations": {f"kueue.x-k8s.io/podset-{how}-topology": BLOCK_LABEL}}
        return made

    def managers(self) -> Mapping[str, int]:
        """Both managers."""
        return {**super().managers(), "kueue": self._kueue.pid}

    def _definitions(self, bases: Path, port: int) -> list[Object]:
        found = [each for file in sorted(bases.iterdir()) for each in documents(file)]
        for definition in found:
            if definition["spec"]["names"]["plural"] in _CONVERTED:
                webhook = {
                    "clientConfig": client_config(self.bed, port, "/convert"),
                    "conversionReviewVersions": ["v1"],
                }
                definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        return found

    def _with_certificates(self, command: list[str]) -> list[str]:
        """Kueue reads the certificate of its metrics from a fixed path below /etc: give it an /etc of its own."""
        private = self._kueue.folder / "etc"
        serving_pair(self.bed, private / "kueue" / "metrics" / "certs")
        unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
        return [*unshare, "sh", "-c", 'mount --bind "$0" /etc && exec "$@"', str(private), *command]

    def _queues_accepted(self) -> bool:
        """Its webhooks take a moment until they answer."""
        group = "/apis/kueue.x-k8s.io/v1beta2"
        topology = {"levels": [{"nodeLabel": label} for label in _LEVELS]}
        flavor = {
            "nodeLabels": {"type": "kwok"},
            "topologyName": "fleet",
            "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}],
        }
        quota = {"cpu": "1000000", "memory": "10000Ti", "nvidia.com/gpu": "100000"}
        resources = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
        groups = [{"coveredResources": list(quota), "flavors": [{"name": "gpu", "resources": resources}]}]
        kinds: list[tuple[str, str, str, Object]] = [
            ("Topology", "topologies", "fleet", topology),
            ("ResourceFlavor", "resourceflavors", "gpu", flavor),
            ("ClusterQueue", "clusterqueues", _QUEUE, {"namespaceSelector": {}, "resourceGroups": groups}),
            ("LocalQueue", f"namespaces/{NAMESPACE}/localqueues", _QUEUE, {"clusterQueue": _QUEUE}),
        ]
        for kind, plural, name, spec in kinds:
            body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}
            try:
                self.bed.connection.apply(f"{group}/{plural}/{name}", body)
            except ApiError as error:
                if error.code < 500:
                    raise LocalClusterError(f"Kueue refuses its {kind}: {error}") from error
                raise
        queue = self.bed.connection.get(f"{group}/clusterqueues/{_QUEUE}")
        conditions = (queue.get("status") or {}).get("conditions") or ()
        return any(each["type"] == "Active" and each["status"] == "True" for each in conditions)
